"""The same results on a CUDA device as on the host, with delays injected before the hook."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nets import batches, flat, mlp
from torch.nn.parallel import DistributedDataParallel

import netsenseml

pytestmark = pytest.mark.gpu

# Methods whose result does not depend on the device's random numbers.
METHODS = sorted(set(netsenseml.methods()) - {"qsgd", "terngrad", "randomk", "netsense"})


def trained(method: str, device: str, steps: int = 20) -> torch.Tensor:
    module = mlp().to(device)
    model = DistributedDataParallel(module, bucket_cap_mb=0.01)
    state = netsenseml.make_state(model, method)

    def delayed(inner: netsenseml.HookState, bucket):
        if device == "cuda":
            torch.cuda._sleep(1_000_000)
        return netsenseml.hook(inner, bucket)

    model.register_comm_hook(state, delayed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = batches(0)
    for _ in range(steps):
        x, y = (part.to(device) for part in next(data))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return flat(module).cpu()


@pytest.fixture
def group(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    def start(backend: str) -> None:
        torch.distributed.init_process_group(
            backend, init_method=f"file://{tmp_path}/{backend}", rank=0, world_size=1
        )
        request.addfinalizer(torch.distributed.destroy_process_group)

    return start


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", METHODS)
def test_cuda_equals_host(method: str, group: Any) -> None:
    group("cpu:gloo,cuda:nccl")
    torch.testing.assert_close(
        trained(method, "cuda"), trained(method, "cpu"), rtol=1e-2, atol=1e-3
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", netsenseml.methods())
def test_every_method_runs_on_cuda(method: str, group: Any) -> None:
    group("nccl")
    assert torch.isfinite(trained(method, "cuda")).all()
