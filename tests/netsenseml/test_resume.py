"""A checkpoint at step 5 continues bit for bit; one that does not belong is refused."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ddp_ranks import run_ranks
from nets import batches, flat, mlp, train
from torch.nn.parallel import DistributedDataParallel

import netsenseml
from netsenseml.telemetry import Recorder
from netsenseml.transport import Handle


class ModelledTime:
    """A clock on which everything takes what a model says, the same in every run.

    All times are multiples of a power of two, so that differences of them are exact wherever the
    clock stands. Collectives are over when they are issued and end when the model says.
    """

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    @contextmanager
    def span(self, kind: str, codec: str, nbytes: int) -> Iterator[Any]:
        handle = SimpleNamespace(seconds=0.0)
        yield handle
        handle.seconds = nbytes * 2.0**-28
        self.now_s += handle.seconds

    def forward(self, *_: Any) -> None:
        """What a forward and backward pass take."""
        self.now_s += 2.0**-5

    def watch(self, handle: Handle, work: Any) -> Handle:
        """Stands in for the transport's own."""
        work.wait()
        end_s = handle.start_s + handle.rounds * 2.0**-12 + handle.link * 2.0**-18
        handle.end_s.append(end_s)
        handle.stamped.set()
        handle.done = SimpleNamespace(wait=lambda: self._reach(end_s))
        return handle

    def _reach(self, time_s: float) -> None:
        self.now_s = max(self.now_s, time_s)


def attach(model: DistributedDataParallel, method: str) -> tuple[netsenseml.HookState, Recorder]:
    """The state, and the records of its steps."""
    options = {"warmup_steps": 8} if method == "dgc" else {}
    time, records = ModelledTime(), Recorder()
    state = netsenseml.register(model, method, spans=time, on_step=records, **options)
    state._transport._watch = time.watch
    model.register_forward_pre_hook(time.forward)
    return state, records


def decisions(records: Recorder) -> list[tuple[Any, ...]]:
    return [
        (r.step, r.codec, r.strength, r.reason, r.bandwidth_mbps, r.latency_ms, r.wire_bytes)
        for r in records
    ]


def resume(rank: int, world: int, methods: list[str]) -> dict[str, Any]:
    outcome = {}
    for method in methods:
        whole = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        whole_state, whole_records = attach(whole, method)
        train(whole, batches(rank), 12)

        first = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        state, _ = attach(first, method)
        data = batches(rank)
        train(first, data, 5)
        file = io.BytesIO()
        torch.save({"model": first.module.state_dict(), "hook": state.state_dict()}, file)
        del first, state

        file.seek(0)
        saved = torch.load(file, weights_only=True)
        module = mlp()
        module.load_state_dict(saved["model"])
        second = DistributedDataParallel(module, bucket_cap_mb=0.01)
        state, records = attach(second, method)
        state.load_state_dict(saved["hook"])
        train(second, data, 7)
        ours, theirs = state.residuals(), whole_state.residuals()
        outcome[method] = (
            torch.equal(flat(whole), flat(second)),
            set(ours) == set(theirs) and all(torch.equal(ours[n], theirs[n]) for n in ours),
            (decisions(records), decisions(whole_records)[5:]),
        )
    return outcome


@pytest.mark.parametrize("world", [1, 3])
def test_resuming_equals_never_stopping(world: int) -> None:
    for outcome in run_ranks(resume, world, list(netsenseml.methods())):
        for method, (weights, residuals, (decided, expected)) in outcome.items():
            assert len(expected) == 7, method
            assert decided == expected, method
            assert weights, method
            assert residuals, method


def refusals(rank: int, world: int) -> list[str]:
    model = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
    state = netsenseml.register(model, "topk")
    train(model, batches(rank), 2)
    saved = state.state_dict()
    other = DistributedDataParallel(mlp(width=32))
    fewer = DistributedDataParallel(torch.nn.Linear(20, 5))
    messages = []
    for target, change in [
        (netsenseml.make_state(model, "topk"), {"world_size": 8}),
        (netsenseml.make_state(model, "topk"), {"rank": 1 - rank}),
        (netsenseml.make_state(model, "signsgd"), {}),
        (netsenseml.make_state(other, "topk"), {}),
        (netsenseml.make_state(fewer, "topk"), {}),
        (netsenseml.make_state(model, "topk"), {"format": 99}),
    ]:
        try:
            target.load_state_dict({**saved, **change})
            messages.append("accepted")
        except ValueError as error:
            messages.append(str(error))
    return messages


def test_foreign_checkpoints_are_refused_by_name() -> None:
    messages = run_ranks(refusals, 2)[0]
    for message, part in zip(
        messages,
        [
            "saved with world_size 8, here 2",
            "saved with rank 1, here 0",
            "saved with method 'topk', here 'signsgd'",
            "was saved with shape (64, 20), here (32, 20)",
            "parameter 'weight' is not in the saved state",
            "format 99, expected 1",
        ],
        strict=True,
    ):
        assert part in message
