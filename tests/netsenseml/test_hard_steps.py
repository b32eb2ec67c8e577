"""Steps that go wrong in other people's hooks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from ddp_ranks import run_ranks
from nets import batches, flat, mlp, train
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import netsenseml


def poisoned(rank: int, world: int, bad: float) -> dict[str, Any]:
    outcome = {}
    for method in netsenseml.methods():
        model = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        state = netsenseml.register(model, method)
        data, finite, same = batches(rank), [], []
        for step in range(5):
            x, y = next(data)
            if step == 1 and rank == 0:
                x[0, 0] = bad
            before = {n: r.clone() for n, r in state.residuals().items()}
            model.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            grads = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
            finite.append(bool(torch.isfinite(grads).all()))
            after = state.residuals()
            if step == 1:
                kept = all(torch.equal(before[n], after[n]) for n in before)
                same.append(kept and bool(before) == bool(after))
        record = state.last_step
        outcome[method] = (finite, same, record.nonfinite_steps, record.nonfinite)
    return outcome


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_non_finite_step_is_agreed_and_leaves_no_trace(bad: float) -> None:
    for outcome in run_ranks(poisoned, 2, bad):
        for method, (finite, same, count, last) in outcome.items():
            assert finite == [True, False, True, True, True], method
            assert same == [True], method
            assert count == 1, method
            assert last is False, method


class Exact(torch.nn.Module):
    """Parameters whose gradients are exactly what is handed in."""

    def __init__(self, *shapes: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = ()) -> None:
        super().__init__()
        kinds = dtypes or (torch.float32,) * len(shapes)
        self.weights = torch.nn.ParameterList(
            torch.zeros(shape, dtype=kind) for shape, kind in zip(shapes, kinds, strict=True)
        )

    def forward(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return sum(
            (w * g.to(w.dtype)).sum().to(torch.float64)
            for w, g in zip(self.weights, gradients, strict=True)
        )


def corners(rank: int, world: int) -> dict[str, list[bool]]:
    """Zero gradients, one-element tensors, equal magnitudes and mixed types."""
    outcome = {}
    shapes = [(16, 12), (1,), (7,)]
    for method in netsenseml.methods():
        good = []
        for dtypes in [(), (torch.float16, torch.float64, torch.bfloat16)]:
            model = DistributedDataParallel(Exact(*shapes, dtypes=dtypes))
            state = netsenseml.register(model, method)
            for fill in (0.0, 1.0, 0.0, -1.0):
                gradients = [torch.full(shape, fill) for shape in shapes]
                model.zero_grad()
                model(gradients).backward()
                for parameter in model.parameters():
                    good.append(bool(torch.isfinite(parameter.grad).all()))
                    good.append(float(parameter.grad.abs().max()) < 20)
            good.append(state.last_step.nonfinite_steps == 0)
        outcome[method] = good
    return outcome


def test_corner_gradients() -> None:
    for outcome in run_ranks(corners, 2):
        for method, good in outcome.items():
            assert all(good), (method, good)


def scaled(rank: int, world: int) -> dict[str, Any]:
    """Gradients far above the range of fp16, as a GradScaler's loss scale makes them."""
    outcome = {}
    for method in ("fp16", "topk", "lowrank", "int8", "randomk"):
        options = {"values": "fp16", "ratio": 1.0} if method in ("topk", "randomk") else {}
        model = DistributedDataParallel(Exact((8, 64)))
        state = netsenseml.register(model, method, **options)
        got = []
        for size in (1e5, 1e6, 1e6):
            model.zero_grad()
            model([torch.full((8, 64), size)]).backward()
            got.append(float(model.module.weights[0].grad.mean()) / size)
        outcome[method] = (got, state.last_step.nonfinite_steps)
    return outcome


def test_fp16_overflow_is_repaired() -> None:
    for outcome in run_ranks(scaled, 2):
        for method, (got, nonfinite) in outcome.items():
            assert got == pytest.approx([1.0, 1.0, 1.0], rel=2e-2), method
            assert nonfinite == 0, method


def overflowing(rank: int, world: int, size: float) -> dict[str, Any]:
    """Bytes per element of successive steps, and how far the means are off."""
    outcome = {}
    for method in ("fp16", "randomk"):
        options = {"values": "fp16", "ratio": 1.0} if method == "randomk" else {}
        model = DistributedDataParallel(Exact((8, 64)))
        state = netsenseml.register(model, method, **options)
        sent, got = [], []
        for _ in range(4):
            model.zero_grad()
            model([torch.full((8, 64), size)]).backward()
            sent.append(state.last_step.wire_bytes / 512)
            got.append(float(model.module.weights[0].grad.double().mean()) / size)
        outcome[method] = (sent, got)
    return outcome


@pytest.mark.parametrize("size", [1e6, 1e30, 3e38])
def test_a_bucket_that_overflows_fp16_is_sent_twice_only_once(size: float) -> None:
    for outcome in run_ranks(overflowing, 2, size):
        for method, (sent, got) in outcome.items():
            assert sent == [6, 2, 2, 2], method
            assert got == pytest.approx([1.0] * 4, rel=1e-3), method


def huge(rank: int, world: int, size: float) -> dict[str, Any]:
    """Per method: whether all stays finite, and the first mean relative to the gradient."""
    outcome = {}
    for method in netsenseml.methods():
        options = {"ratio": 1.0} if method in ("topk", "dgc", "oktopk", "randomk") else {}
        shapes = [(8, 64), (64, 16), (5,)]
        model = DistributedDataParallel(Exact(*shapes))
        state = netsenseml.register(model, method, **options)
        finite, first = [], None
        for scale in (size, size, -size, 1.0, 1.0, 1.0):
            model.zero_grad()
            model([torch.full(shape, scale) for shape in shapes]).backward()
            tensors = [p.grad for p in model.parameters()] + [*state.residuals().values()]
            finite.append(all(bool(torch.isfinite(t).all()) for t in tensors))
            if first is None:
                first = float(model.module.weights[0].grad.double().mean()) / size
        outcome[method] = (finite, first, state.last_step.nonfinite_steps)
    return outcome


@pytest.mark.parametrize("size", [1e32, 1e38, 3e38])
def test_a_huge_gradient_does_not_poison_what_follows(size: float) -> None:
    for outcome in run_ranks(huge, 2, size):
        for method, (finite, first, nonfinite) in outcome.items():
            assert all(finite), (method, finite)
            assert nonfinite == 0, method
            if method in ("topk", "lowrank", "powersgd", "dgc", "oktopk", "fp16", "int8"):
                assert first == pytest.approx(1.0, rel=2e-2), method


def accumulation(rank: int, world: int) -> list[Any]:
    outcome = []
    for method in ("allreduce", "topk", "netsense", "powersgd"):
        model = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        options = {"ratio": 1.0, "values": "fp32"} if method == "topk" else {}
        state = netsenseml.register(model, method, **options)
        data = batches(rank)
        for micro in range(8):
            x, y = next(data)
            if micro % 4 < 3:
                with model.no_sync():
                    torch.nn.functional.mse_loss(model(x), y).backward()
            else:
                torch.nn.functional.mse_loss(model(x), y).backward()
        outcome.append((method, state.last_step.step, flat_grad(model)))
    return outcome


def flat_grad(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def test_no_sync_counts_synchronised_steps_only() -> None:
    results = run_ranks(accumulation, 2)
    for mine, theirs in zip(*results, strict=True):
        assert mine[1] == 1, mine[0]
        if mine[0] == "topk":  # everything is sent in the second step
            torch.testing.assert_close(mine[2], results[0][0][2], rtol=1e-4, atol=1e-5)
        assert torch.isfinite(theirs[2]).all()


def uneven(rank: int, world: int) -> list[Any]:
    outcome = []
    for method in netsenseml.methods():
        model = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        state = netsenseml.register(model, method)
        with Join([model]):
            train(model, batches(rank), 3 + 2 * rank)
        outcome.append((method, state.last_step.step, flat(model)))
    return outcome


def test_join_with_uneven_inputs() -> None:
    results = run_ranks(uneven, 3)
    for outcome in zip(*results, strict=True):
        for method, step, weights in outcome:
            assert step == 6, method
            assert torch.isfinite(weights).all()
            assert torch.equal(weights, outcome[0][2]), method


def grad_scaler(rank: int, world: int) -> list[Any]:
    outcome = []
    for method in netsenseml.methods():
        model = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        state = netsenseml.register(model, method)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
        data = batches(rank)
        for step in range(6):
            x, y = next(data)
            if step == 2 and rank == 1:
                x[0, 0] = math.inf
            optimizer.zero_grad()
            scaler.scale(torch.nn.functional.mse_loss(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
        outcome.append((method, scaler.get_scale(), flat(model), state.last_step.nonfinite_steps))
    return outcome


def test_grad_scaler_skips_the_bad_step_on_every_rank() -> None:
    results = run_ranks(grad_scaler, 2)
    for (method, scale, weights, count), (_, other_scale, other, _) in zip(*results, strict=True):
        assert scale == other_scale == 2.0**23, method
        assert count == 1, method
        assert torch.isfinite(weights).all(), method
        assert torch.equal(weights, other), method


class Enormous(torch.nn.Module):
    """A parameter above the limit, without the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(2**29, device="meta"))


class LooksLikeDdp:
    """Just what make_state reads of a DDP module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.process_group = object()


def test_gradients_above_the_limit_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'weight' has a gradient of 2147483648 bytes"):
        netsenseml.make_state(LooksLikeDdp(Enormous()), "topk")


def test_only_ddp_modules_are_taken() -> None:
    with pytest.raises(TypeError, match="expected a DistributedDataParallel module, got Linear"):
        netsenseml.register(torch.nn.Linear(2, 2))
