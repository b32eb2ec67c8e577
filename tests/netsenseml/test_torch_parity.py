"""The same results as torch's own hooks on the same seeds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ddp_ranks import run_ranks
from nets import batches, flat, mlp, train
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import netsenseml


def trained(rank: int, hook: Any, state: Any = None, steps: int = 8) -> torch.Tensor:
    model = DistributedDataParallel(mlp())
    model.register_comm_hook(state, hook)
    train(model, batches(rank), steps)
    return flat(model)


def trained_by_us(rank: int, method: str, steps: int = 8, **options: Any) -> torch.Tensor:
    model = DistributedDataParallel(mlp())
    netsenseml.register(model, method, **options)
    train(model, batches(rank), steps)
    return flat(model)


def simple_hooks(rank: int, world: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    return {
        "allreduce": (
            trained(rank, default_hooks.allreduce_hook, torch.distributed.group.WORLD),
            trained_by_us(rank, "allreduce"),
        ),
        "fp16": (
            trained(rank, default_hooks.fp16_compress_hook, torch.distributed.group.WORLD),
            trained_by_us(rank, "fp16", rescale=False),
        ),
    }


@pytest.mark.parametrize("world", [2, 3])
def test_allreduce_and_fp16_hooks(world: int) -> None:
    outcome = run_ranks(simple_hooks, world)[0]
    torch.testing.assert_close(*outcome["allreduce"], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(*outcome["fp16"], rtol=1e-3, atol=2e-4)


def power_sgd(rank: int, world: int) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
    """torch's hook on one bucket against ours, both starting from torch's first Q."""
    theirs = powerSGD_hook.PowerSGDState(
        torch.distributed.group.WORLD,
        matrix_approximation_rank=2,
        start_powerSGD_iter=2,
        min_compression_rate=2.0,
        random_seed=5,
    )
    model = DistributedDataParallel(mlp())
    model.register_comm_hook(theirs, powerSGD_hook.powerSGD_hook)
    first = torch.nn.utils.parameters_to_vector(mlp().parameters())
    ours_model = DistributedDataParallel(mlp())
    state = netsenseml.make_state(ours_model, "powersgd", rank=2)
    dense = netsenseml.make_state(ours_model, "allreduce")

    def two_dense_steps_first(_: None, bucket):
        return netsenseml.hook(state if dense.last_step and counter[0] >= 2 else dense, bucket)

    counter = [0]
    ours_model.register_comm_hook(None, two_dense_steps_first)
    starts = first_q(ours_model, 5)
    saved = state.state_dict()
    saved["codecs"] = {key: {"q": starts} for key in saved["codecs"]}
    state.load_state_dict(saved)

    def count(step: int) -> None:
        counter[0] = step + 1

    train(model, batches(rank), 9)
    train(ours_model, batches(rank), 9, each=count)
    assert not torch.equal(flat(model), first)
    return flat(model), flat(ours_model), [state.last_step.wire_bytes, state.last_step.dense_bytes]


def first_q(model: DistributedDataParallel, seed: int) -> dict[str, torch.Tensor]:
    """The Q that torch's hook draws for its single bucket, by parameter."""
    import numpy as np

    order = [
        (name, p) for name, p in reversed(list(model.module.named_parameters())) if p.dim() == 2
    ]
    compressed = [(n, p) for n, p in order if sum(p.shape) * 2 * 2 < p.numel()]
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, parameter in compressed:
        by_shape.setdefault(tuple(parameter.shape), []).append(name)
    draws = np.random.RandomState(seed)
    starts = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draws.randint(1_000_000_000))
        for shape, names in by_shape.items():
            block = torch.randn(len(names), shape[1], 2)
            for name, q in zip(names, block, strict=True):
                starts[name] = q.clone()
    return starts


@pytest.mark.parametrize("world", [1, 2, 3])
def test_power_sgd_hook(world: int) -> None:
    theirs, ours, (wire, dense) = run_ranks(power_sgd, world)[0]
    assert wire < dense / 2, "it must really have compressed"
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
