"""Small models, data and training loops that run inside the ranks of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import netsenseml


def mlp(width: int = 64) -> torch.nn.Module:
    """Three layers; matrices big enough for low rank, vectors beside them."""
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(20, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 5),
    )


def batches(rank: int, size: int = 32) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """An endless regression task, another part of it on every rank."""
    weights = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(100 + rank)
    while True:
        x = torch.randn(size, 20, generator=generator)
        yield x, x @ weights


def flat(module: torch.nn.Module) -> torch.Tensor:
    """All parameters in one vector."""
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def train(
    model: DistributedDataParallel,
    data: Iterator[tuple[torch.Tensor, torch.Tensor]],
    steps: int,
    learning_rate: float = 0.05,
    each: Callable[[int], None] | None = None,
) -> list[float]:
    """Plain SGD; returns the losses of this rank."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    losses = []
    for step in range(steps):
        x, y = next(data)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if each is not None:
            each(step)
    return losses


class Tape:
    """A hook around ours that notes every bucket's gradient before and after, by parameter."""

    def __init__(self, model: DistributedDataParallel, method: str, **options: Any) -> None:
        self.state = netsenseml.make_state(model, method, **options)
        self.names = {id(p): name for name, p in model.module.named_parameters()}
        self.gradients: dict[str, torch.Tensor] = {}
        self.means: dict[str, torch.Tensor] = {}
        self.buckets: list[tuple[str, ...]] = []
        model.register_comm_hook(self, tape_hook)

    def by_name(self, bucket: torch.distributed.GradBucket) -> dict[str, torch.Tensor]:
        """The gradients of a bucket, copied."""
        names = [self.names[id(p)] for p in bucket.parameters()]
        return {n: g.clone() for n, g in zip(names, bucket.gradients(), strict=True)}


def tape_hook(tape, bucket):  # no annotations: DDP compares them strictly
    """Note the gradients, call the hook, note the means when they are there."""
    if bucket.index() == 0:
        tape.buckets = []
    grads = tape.by_name(bucket)
    tape.gradients.update(grads)
    tape.buckets.append(tuple(grads))
    future = netsenseml.hook(tape.state, bucket)
    return future.then(lambda done: _note(tape, bucket, done))


def _note(tape: Tape, bucket: torch.distributed.GradBucket, done: Any) -> torch.Tensor:
    tensor = done.value()
    tape.means.update(tape.by_name(bucket))
    return tensor


class FakeSpans:
    """A clock that advances by the same amount at every reading, and counts the spans."""

    def __init__(self, tick_s: float = 1e-3) -> None:
        self.now_s = 0.0
        self.tick_s = tick_s
        self.calls: list[tuple[str, str, int]] = []
        self.open = 0

    def clock(self) -> float:
        """The time, one tick later than the last."""
        self.now_s += self.tick_s
        return self.now_s

    @contextmanager
    def span(self, kind: str, codec: str, nbytes: int) -> Iterator[Any]:
        """Count the call; nothing may nest."""
        assert self.open == 0, "spans must not nest"
        self.open += 1
        self.calls.append((kind, codec, nbytes))
        handle = _Seconds()
        yield handle
        handle.seconds = 0.5 * self.tick_s
        self.open -= 1


class _Seconds:
    seconds = 0.0
