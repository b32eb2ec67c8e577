"""Every method under DDP, on 1 to 8 ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ddp_ranks import run_ranks
from nets import FakeSpans, Tape, batches, flat, mlp, train
from torch.nn.parallel import DistributedDataParallel

import netsenseml
from netsenseml.telemetry import Recorder

WEAK: dict[str, dict[str, Any]] = {
    "topk": {"ratio": 1.0, "values": "fp32"},
    "randomk": {"ratio": 1.0},
    "threshold": {"threshold": 0.0, "values": "fp32"},
    "dgc": {"ratio": 1.0, "momentum": 0.0, "values": "fp32"},
    "powersgd": {"rank": 128},
    "netsense-paper": {"start_ratio": 1.0, "min_ratio": 1.0},
    "oktopk": {"ratio": 1.0, "values": "fp32"},
}


def replicas(rank: int, world: int) -> dict[str, Any]:
    outcome = {}
    for method in netsenseml.methods():
        model = DistributedDataParallel(mlp(width=48), bucket_cap_mb=0.012)
        records: list[netsenseml.StepRecord] = []
        netsenseml.register(model, method, on_step=records.append)
        # DGC brings its own momentum of 0.9: a tenth of the rate goes as far.
        rate = 0.005 if method == "dgc" else 0.05
        losses = train(model, batches(rank, size=8), 50, rate)
        outcome[method] = (flat(model), losses, records)
    return outcome


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_replicas_stay_bit_identical_and_learn(world: int) -> None:
    results = run_ranks(replicas, world)
    for method, (weights, _, records) in results[0].items():
        for other in results[1:]:
            assert torch.equal(weights, other[method][0]), method
        losses = [sum(values) for values in zip(*(r[method][1] for r in results), strict=True)]
        assert sum(losses[-10:]) < 0.95 * sum(losses[:10]), method
        assert [record.step for record in records] == list(range(50))
        assert all(record.method == method for record in records)
        assert all(record.wire_bytes > 0 for record in records)


def dense_settings(rank: int, world: int) -> dict[str, torch.Tensor]:
    outcome = {}
    for method, options in {"allreduce": {}, **WEAK}.items():
        model = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        netsenseml.register(model, method, **options)
        train(model, batches(rank), 5)
        outcome[method] = flat(model)
    plain = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
    train(plain, batches(rank), 5)
    outcome["no hook"] = flat(plain)
    return outcome


@pytest.mark.parametrize("world", [1, 3])
def test_dense_settings_equal_all_reduce(world: int) -> None:
    outcome = run_ranks(dense_settings, world)[0]
    for method, weights in outcome.items():
        torch.testing.assert_close(weights, outcome["no hook"], rtol=1e-5, atol=1e-6, msg=method)


def mean_of_ranks(rank: int, world: int) -> dict[str, list[torch.Tensor]]:
    """A gradient of rank + 1 everywhere, through every method that is exact on it."""
    outcome: dict[str, list[torch.Tensor]] = {}
    for method in ("allreduce", "fp16", "bf16", "int8", "topk", "signsgd", "onebit", "powersgd"):
        options = {"ratio": 1.0} if method == "topk" else {}
        model = DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
        netsenseml.register(model, method, **options)
        model(torch.full((1, 3), float(rank + 1))).sum().backward()
        outcome[method] = [model.module.weight.grad.clone()]
    return outcome


def test_gradients_are_averaged_over_ranks() -> None:
    for outcome in run_ranks(mean_of_ranks, 2):
        for method, (gradient,) in outcome.items():
            torch.testing.assert_close(
                gradient, torch.full((1, 3), 1.5), rtol=4e-3, atol=0.0, msg=method
            )


class Handed(torch.nn.Module):
    """A parameter whose gradient is exactly the input."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(numel))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight * gradient).sum()


def handed(rank: int, world: int, cases: list[Any]) -> list[torch.Tensor]:
    outcome = []
    for method, options, gradients in cases:
        model = DistributedDataParallel(Handed(len(gradients[0])))
        netsenseml.register(model, method, **options)
        model(torch.tensor(gradients[rank])).backward()
        outcome.append(model.module.weight.grad.clone())
    return outcome


def test_sparse_sums_add_up_and_keep_their_signs() -> None:
    """Overlapping indices add; the largest magnitude is sent with its sign; n = k = 1 works."""
    two_values = {"ratio": 0.5, "values": "fp32"}
    one_value = {"ratio": 0.25, "values": "fp32"}
    cases = [
        ("topk", two_values, ([0.0, 1.0, 0.0, 0.0], [0.0, 10.0, 5.0, 0.0])),
        ("topk", one_value, ([-3.0, 1.0, 2.0], [-3.0, 1.0, 2.0])),
        ("topk", {"ratio": 0.001}, ([0.5], [1.5])),
        ("topk", one_value, ([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0])),
        # entries 0 and 2 are the first rank's part, 1 and 3 the second's
        (
            "oktopk",
            {"ratio": 0.5, "values": "fp32"},
            ([0.0, 1.0, 4.0, 0.0], [3.0, 1.0, 0.0, -5.0]),
        ),
        ("oktopk", {"ratio": 0.001}, ([0.5], [1.5])),
        ("threshold", {"threshold": 1.0}, ([0.0, 0.0, 0.0], [0.0, 2.0, 0.5])),
        ("fp16", {}, ([4e4, 1.0], [4e4, 1.0])),
        ("fp16", {}, ([3e5, 1.0], [1e5, 1.0])),
        ("topk", {"ratio": 1.0}, ([1e5, 0.0], [3e5, 0.0])),
    ]
    expected = [
        [0.0, 5.5, 2.5, 0.0],
        [-3.0, 0.0, 0.0],
        [1.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 2.0, -2.5],
        [1.0],
        [0.0, 1.0, 0.0],
        [4e4, 1.0],
        [2e5, 1.0],
        [2e5, 0.0],
    ]
    for outcome in run_ranks(handed, 2, cases):
        for got, want, case in zip(outcome, expected, cases, strict=True):
            torch.testing.assert_close(got, torch.tensor(want), rtol=1e-3, atol=0, msg=str(case))


def accounting(rank: int, world: int) -> list[Any]:
    outcome = []
    for method in netsenseml.methods():
        spans = FakeSpans()
        model = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        tape = Tape(model, method, spans=spans)
        sizes = []

        def each(step: int, tape: Tape = tape, sizes: list[Any] = sizes) -> None:
            residuals = tape.state.residuals()
            held = tape.state._scratch.nbytes()
            sizes.append((len(residuals), sum(r.numel() for r in residuals.values()), held))

        train(model, batches(rank), 12, each=each)
        calls = spans.calls
        spans.calls = []
        record = tape.state.last_step
        groups = tape.state._groups
        state = tape.state
        planned = None
        if method not in ("threshold",):
            codec = next(c for c in state._policy.codecs() if c.name == record.codec)
            if codec.strength == record.strength:
                plans = [codec.transfers(group, world) for group in groups]
                planned = sum(transfer.nbytes for plan in plans for transfer in plan)
        outcome.append((method, calls, record, len(groups), planned, sizes, tape.buckets))
    return outcome


def test_bytes_spans_and_memory_are_accounted_for() -> None:
    for outcome in run_ranks(accounting, 3):
        for method, calls, record, groups, planned, sizes, buckets in outcome:
            assert groups == len(buckets) > 1, method
            if planned is not None:
                assert record.wire_bytes == planned, method
            assert record.dense_bytes == 4 * sum(p.numel() for p in mlp().parameters())
            # One encode span per bucket and round, one decode span per bucket, in every step.
            rounds = {"powersgd": 2, "int8": 2, "threshold": 2, "oktopk": 2}.get(method, 1)
            if not method.startswith("netsense"):
                last = calls[-(rounds + 1) * groups :]
                kinds = [kind for kind, _, _ in last]
                encodes = rounds * groups
                if method == "powersgd":  # a bucket without matrices has no second round
                    encodes = kinds.count("encode")
                    assert groups < encodes <= 2 * groups
                assert kinds.count("encode") == encodes, method
                # Together no more than one encoding, but for what an owner codes again.
                coded = sum(n for kind, _, n in last if kind == "encode")
                shares = {"int8": 0.5 + 0.5 / 3, "oktopk": 1 + 1 / 3}.get(method, 1.0)
                assert coded == pytest.approx(shares * record.dense_bytes, rel=0.01) or (
                    method == "powersgd" and coded <= record.dense_bytes
                ), method
                assert kinds[-groups:] == ["decode"] * groups, method
                assert sum(n for kind, _, n in last[-groups:] if kind == "decode") == (
                    record.dense_bytes
                )
            # Nothing grows once the buckets are settled.
            if method not in ("netsense", "netsense-paper", "threshold"):
                assert sizes[3] == sizes[-1], method
            assert {size[:2] for size in sizes[1:]} == {sizes[1][:2]}, method


def what_steps_say(rank: int, world: int, cases: list[Any]) -> list[list[tuple[str, Any, int]]]:
    said = []
    for method, options, steps in cases:
        records = Recorder()
        model = DistributedDataParallel(mlp())
        netsenseml.register(model, method, on_step=records, **options)
        train(model, batches(rank), steps)
        said.append([(r.codec, r.strength, r.wire_bytes) for r in records])
    return said


def test_one_rank_alone_loses_nothing() -> None:
    cases = [("netsense", {}, 12), ("netsense-paper", {}, 12)]
    for steps in run_ranks(what_steps_say, 1, cases)[0]:
        assert {(codec, strength) for codec, strength, _ in steps} == {("allreduce", None)}


def test_the_strength_of_a_step_is_that_which_it_used() -> None:
    (steps,) = run_ranks(what_steps_say, 1, [("dgc", {"warmup_steps": 8}, 10)])[0]
    assert [ratio for _, ratio, _ in steps] == [
        0.25, 0.25, 0.0625, 0.0625, 0.015625, 0.015625, 0.01, 0.01, 0.01, 0.01
    ]  # fmt: skip
    sent = [wire_bytes for _, _, wire_bytes in steps]
    assert sent[0] == sent[1] > sent[2] == sent[3] > sent[4] == sent[5] > sent[6] == sent[9]
