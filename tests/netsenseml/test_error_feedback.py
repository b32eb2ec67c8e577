"""What is sent plus what stays equals what there was, per parameter, through bucket rebuilds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ddp_ranks import run_ranks
from nets import Tape, batches
from torch.nn.parallel import DistributedDataParallel

import netsenseml

SPARSE: dict[str, dict[str, Any]] = {
    "topk": {"ratio": 0.1},
    "topk fp32": {"ratio": 0.1, "values": "fp32"},
    "randomk": {"ratio": 0.1},
    "threshold": {"threshold": 0.02},
    "netsense-paper": {"start_ratio": 0.1},
    "oktopk": {"ratio": 0.1},
}
QUANTIZED: dict[str, dict[str, Any]] = {
    "fp16": {"error_feedback": True},
    "bf16": {"error_feedback": True},
    "int8": {},
    "signsgd": {},
    "onebit": {},
    "powersgd": {},
    "powersgd own": {"feedback": "own"},
    "powersgd bf16": {"values": "bf16"},
    "powersgd own bf16": {"feedback": "own", "values": "bf16"},
    "lowrank": {},
    "netsense": {},
}


def four_layers() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])


def conserve(rank: int, world: int, methods: dict[str, Any], mode: dict[str, bool]) -> Any:
    """Per method: bucket layouts, and per step (old residual, gradient, mean, new residual)."""
    outcome = {}
    for label, options in methods.items():
        model = DistributedDataParallel(four_layers(), bucket_cap_mb=0.02, **mode)
        tape = Tape(model, label.split()[0], **options)
        data = torch.Generator().manual_seed(rank)
        layouts, steps = [], []
        for _ in range(4):
            old = {name: r.clone() for name, r in tape.state.residuals().items()}
            model(torch.randn(8, 64, generator=data)).square().mean().backward()
            new = {name: r.clone() for name, r in tape.state.residuals().items()}
            layouts.append(tuple(tape.buckets))
            steps.append((old, dict(tape.gradients), dict(tape.means), new))
        outcome[label] = (layouts, steps)
    return outcome


MODES = [{}, {"static_graph": True}, {"find_unused_parameters": True}]


@pytest.mark.parametrize("mode", MODES, ids=["plain", "static", "unused"])
def test_sparsifiers_conserve_exactly(mode: dict[str, bool]) -> None:
    (outcome,) = run_ranks(conserve, 1, SPARSE, mode)
    for label, (layouts, steps) in outcome.items():
        if "find_unused_parameters" not in mode:
            assert len(set(layouts)) > 1, "the buckets must have been rebuilt"
        for old, gradient, sent, new in steps:
            assert set(new) == set(gradient), label
            for name, g in gradient.items():
                had = g + old[name] if old else g
                assert torch.equal(sent[name] + new[name], had), (label, name)


@pytest.mark.parametrize("world", [2, 3])
def test_every_feedback_conserves_over_all_ranks(world: int) -> None:
    results = run_ranks(conserve, world, {**SPARSE, **QUANTIZED}, {})
    for label in results[0]:
        per_rank = [result[label][1] for result in results]
        for step in range(4):
            for name in per_rank[0][step][1]:
                had, stays = torch.zeros((), dtype=torch.float64), torch.zeros(())
                for old, gradient, _, new in (steps[step] for steps in per_rank):
                    had = had + gradient[name].double()
                    if old:
                        had = had + old[name].double()
                    stays = stays + new[name].double()
                sent = world * per_rank[0][step][2][name].double()
                # A 16-bit ring also rounds its partial sums, which no rank can know.
                sixteen = {"fp16": 2.0**-10, "bf16": 2.0**-7, "netsense": 2.0**-10}
                sixteen |= {"powersgd bf16": 2.0**-7, "powersgd own bf16": 2.0**-7}
                rounding = sixteen.get(label, 1e-5)
                torch.testing.assert_close(
                    sent + stays,
                    had,
                    rtol=0,
                    atol=world * rounding * float(had.abs().max()) + 1e-9,
                    msg=f"{label} {name} step {step}",
                )
                for steps in per_rank[1:]:
                    assert torch.equal(steps[step][2][name], per_rank[0][step][2][name]), label


def dense_flush(rank: int, world: int) -> tuple[float, float]:
    """top-k steps fill the residual; one dense step by the same controller empties it."""
    from netsenseml.codecs.allreduce import AllReduce
    from netsenseml.codecs.topk import TopK
    from netsenseml.policy import Decision, FixedPolicy

    model = DistributedDataParallel(four_layers(), bucket_cap_mb=0.02)
    state = netsenseml.register(model, "topk", ratio=0.01)

    class Switch(FixedPolicy):
        def decide(self, step: int, world: int) -> Decision:
            return Decision(TopK(0.01) if step < 3 else AllReduce(), "scripted")

    state._policy = Switch(AllReduce())
    norms = []
    for _ in range(4):
        model(torch.ones(8, 64) * (rank + 1)).square().mean().backward()
        norms.append(sum(float(r.norm()) for r in state.residuals().values()))
    return norms[2], norms[3]


def test_a_dense_step_flushes_the_residual() -> None:
    for before, after in run_ranks(dense_flush, 2):
        assert before > 0
        assert after == 0


def unused(rank: int, world: int) -> bool:
    """A parameter that gets no gradient in some steps keeps a residual that drains later."""

    class Sometimes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.always, self.sometimes = torch.nn.Linear(20, 5), torch.nn.Linear(20, 5)

        def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
            return self.always(x) + (self.sometimes(x) if both else 0)

    torch.manual_seed(0)
    model = DistributedDataParallel(Sometimes(), find_unused_parameters=True)
    state = netsenseml.register(model, "topk", ratio=0.05)
    data = batches(rank)
    for step in range(6):
        x, y = next(data)
        (model(x, step % 2 == 0) - y).square().mean().backward()
    return len(state.residuals()) == 4


def test_unused_parameters() -> None:
    assert all(run_ranks(unused, 2))
