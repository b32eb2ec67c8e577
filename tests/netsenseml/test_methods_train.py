"""Every method trains under DDP: replicas stay identical, the loss falls, bytes are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ddp_ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import netsenseml


def small_net() -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 5),
    )


def train(rank: int, world: int, method: str, steps: int, options: dict[str, Any]) -> Any:
    model = DistributedDataParallel(small_net(), bucket_cap_mb=0.01)
    records: list[netsenseml.StepRecord] = []
    netsenseml.register(model, method, on_step=records.append, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(100 + rank)
    weights = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 20, generator=data)
        loss = torch.nn.functional.mse_loss(model(x), x @ weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return flat, losses, [record.as_dict() for record in records]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("method", netsenseml.methods())
def test_replicas_are_bit_identical_and_learn(method: str, world: int) -> None:
    results = run_ranks(train, world, method, 50, {})
    for flat, _, _ in results[1:]:
        assert torch.equal(results[0][0], flat)
    for _, losses, records in results:
        assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
        assert [record["step"] for record in records] == list(range(50))
        assert all(record["wire_bytes"] > 0 for record in records)
