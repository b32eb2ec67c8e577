"""A checkpoint at step 5 continues bit for bit; one that does not belong is refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from ddp_ranks import run_ranks
from nets import FakeSpans, batches, flat, mlp, train
from torch.nn.parallel import DistributedDataParallel

import netsenseml


def attach(model: DistributedDataParallel, method: str) -> netsenseml.HookState:
    options = {"warmup_steps": 8} if method == "dgc" else {}
    return netsenseml.register(model, method, spans=FakeSpans(tick_s=0.0), **options)


def resume(rank: int, world: int, methods: list[str]) -> dict[str, Any]:
    outcome = {}
    for method in methods:
        whole = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        whole_state = attach(whole, method)
        train(whole, batches(rank), 12)

        first = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        state = attach(first, method)
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
        state = attach(second, method)
        state.load_state_dict(saved["hook"])
        train(second, data, 7)
        ours, theirs = state.residuals(), whole_state.residuals()
        outcome[method] = (
            torch.equal(flat(whole), flat(second)),
            set(ours) == set(theirs) and all(torch.equal(ours[n], theirs[n]) for n in ours),
            (state.last_step.step, state.last_step.codec, whole_state.last_step.codec),
        )
    return outcome


@pytest.mark.parametrize("world", [1, 3])
def test_resuming_equals_never_stopping(world: int) -> None:
    for outcome in run_ranks(resume, world, list(netsenseml.methods())):
        for method, (weights, residuals, (step, codec, same_codec)) in outcome.items():
            assert step == 11, method
            assert codec == same_codec, method
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
