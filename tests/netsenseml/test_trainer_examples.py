"""The examples with Accelerate and Lightning in docs/library.md, where those are installed."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from ddp_ranks import run_ranks
from nets import batches, mlp

DOCS = Path(__file__).parents[2] / "docs" / "library.md"


def example(library: str) -> str:
    """The first code block of the page that imports a library."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    return next(
        block for block in blocks if re.search(rf"^(from|import) {library}\b", block, re.M)
    )


def loader(rank: int) -> torch.utils.data.DataLoader[Any]:
    chosen = itertools.islice(batches(rank), 4)
    pairs = [pair for x, y in chosen for pair in zip(x, y, strict=True)]
    return torch.utils.data.DataLoader(pairs, batch_size=8)  # type: ignore[arg-type]


def as_torchrun(rank: int, world: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": "29511", "TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0"}


def with_accelerate(rank: int, world: int) -> Any:
    as_torchrun(rank, world)
    os.environ["ACCELERATE_USE_CPU"] = "true"
    model = mlp()
    scope: dict[str, Any] = {
        "netsenseml": __import__("netsenseml"),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05),
        "loader": loader(rank),
    }
    exec(example("accelerate"), scope)
    for x, y in scope["loader"]:
        scope["optimizer"].zero_grad()
        loss = torch.nn.functional.mse_loss(scope["model"](x), y)
        scope["accelerator"].backward(loss)
        scope["optimizer"].step()
    return scope["state"].last_step.step, [p.detach() for p in model.parameters()]


def with_lightning(rank: int, world: int) -> Any:
    import lightning

    as_torchrun(rank, world)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    scope: dict[str, Any] = {"netsenseml": __import__("netsenseml")}
    code = example("lightning").replace(
        'Trainer(strategy="ddp"',
        f'Trainer(strategy="ddp", accelerator="cpu", devices={world}, max_epochs=1, logger=False, '
        "enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False",
    )
    exec(code, scope)
    module = Module()
    scope["trainer"].fit(module, loader(rank))
    (callback,) = (c for c in scope["trainer"].callbacks if type(c).__name__ == "Attach")
    return callback.state.last_step.step, [p.detach() for p in module.parameters()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # theirs, not ours
@pytest.mark.parametrize(
    ("library", "function"), [("accelerate", with_accelerate), ("lightning", with_lightning)]
)
def test_example_of_the_docs_trains(library: str, function: Any) -> None:
    pytest.importorskip(library)
    (last, mine), (_, theirs) = run_ranks(function, 2)
    assert last >= 1
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
