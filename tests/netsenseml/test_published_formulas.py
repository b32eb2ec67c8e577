"""QSGD, TernGrad, sign methods and DGC against their formulas, written out in float64."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from ddp_ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import netsenseml
from netsenseml.codecs.base import Job
from netsenseml.layout import make_group
from netsenseml.memory import Scratch

NUMEL = 60


class Handed(torch.nn.Module):
    """One parameter whose gradient is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(NUMEL))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight * gradient).sum()


def gradients(world: int, steps: int) -> list[list[torch.Tensor]]:
    """The same on every rank: gradient of (step, rank)."""
    generator = torch.Generator().manual_seed(11)
    return [[torch.randn(NUMEL, generator=generator) for _ in range(world)] for _ in range(steps)]


def means(rank: int, world: int, method: str, options: dict[str, Any], steps: int) -> Any:
    model = DistributedDataParallel(Handed())
    netsenseml.register(model, method, **options)
    outcome = []
    for given in gradients(world, steps):
        model.zero_grad()
        model(given[rank]).backward()
        outcome.append(model.module.weight.grad.clone())
    return outcome


def draws(count: int, step: int, rank: int) -> torch.Tensor:
    """The uniform numbers the codecs draw, in float64."""
    group = make_group(["weight"], [(NUMEL,)])
    job = Job(0, group, torch.zeros(NUMEL), Scratch(), None)
    generator = job.generator(SimpleNamespace(step=step, seed=0, rank=rank))
    return torch.rand(count, generator=generator).double()


def check(method: str, options: dict[str, Any], expected: list[torch.Tensor]) -> None:
    for outcome in run_ranks(means, 2, method, options, len(expected)):
        for got, want in zip(outcome, expected, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=2e-3, atol=1e-5)


def test_qsgd() -> None:
    levels, block = 7, 16
    expected = []
    for step, given in enumerate(gradients(2, 3)):
        total = torch.zeros(NUMEL, dtype=torch.float64)
        for rank, gradient in enumerate(given):
            uniform = draws(64, step, rank)
            for i in range(NUMEL):
                first = i // block * block
                norm = math.sqrt(sum(float(x) ** 2 for x in gradient[first : first + block]))
                place = abs(float(gradient[i])) / norm * levels
                low = math.floor(place)
                level = low + (1 if float(uniform[i]) >= 1 - (place - low) else 0)
                total[i] += math.copysign(norm * level / levels, float(gradient[i]))
        expected.append(total / 2)
    check("qsgd", {"levels": levels, "block": block}, expected)


def test_qsgd_and_terngrad_are_unbiased() -> None:
    for method, options in [("qsgd", {"levels": 1}), ("terngrad", {"clip_sigma": 0.0})]:
        (outcome,) = run_ranks(constant, 1, method, options, 800)
        want = gradients(1, 1)[0][0]
        scale = float(want.norm()) if method == "qsgd" else float(want.abs().max())
        error = (outcome - want).abs().max()
        assert float(error) < 5 * scale / math.sqrt(800), method


def constant(rank: int, world: int, method: str, options: dict[str, Any], steps: int) -> Any:
    model = DistributedDataParallel(Handed())
    netsenseml.register(model, method, **options)
    given = gradients(1, 1)[0][0]
    total = torch.zeros(NUMEL)
    for _ in range(steps):
        model.zero_grad()
        model(given).backward()
        total += model.module.weight.grad
    return total / steps


def test_terngrad() -> None:
    expected = []
    for step, given in enumerate(gradients(2, 3)):
        total = torch.zeros(NUMEL, dtype=torch.float64)
        for rank, gradient in enumerate(given):
            g = gradient.double()
            limit = 2.0 * math.sqrt(float(((g - g.mean()) ** 2).mean()))
            g = g.clamp(-limit, limit)
            scaler = float(g.abs().max())
            uniform = draws(NUMEL, step, rank)
            for i in range(NUMEL):
                if float(uniform[i]) < abs(float(g[i])) / scaler:
                    total[i] += math.copysign(scaler, float(g[i]))
        expected.append(total / 2)
    check("terngrad", {"clip_sigma": 2.0}, expected)


def test_sign_with_error_feedback() -> None:
    errors = [torch.zeros(NUMEL, dtype=torch.float64) for _ in range(2)]
    expected = []
    for given in gradients(2, 4):
        total = torch.zeros(NUMEL, dtype=torch.float64)
        for rank, gradient in enumerate(given):
            p = gradient.double() + errors[rank]
            sent = p.abs().sum() / NUMEL * torch.where(p < 0, -1.0, 1.0)
            errors[rank] = p - sent
            total += sent
        expected.append(total / 2)
    check("signsgd", {}, expected)


def test_one_bit() -> None:
    errors = [torch.zeros(NUMEL, dtype=torch.float64) for _ in range(2)]
    expected = []
    for given in gradients(2, 4):
        total = torch.zeros(NUMEL, dtype=torch.float64)
        for rank, gradient in enumerate(given):
            p = gradient.double() + errors[rank]
            sent = torch.where(p < 0, p[p < 0].mean(), p[p >= 0].mean())
            errors[rank] = p - sent
            total += sent
        expected.append(total / 2)
    check("onebit", {}, expected)


def test_dgc() -> None:
    momentum, clip, kept = 0.9, 3.0, 6
    u = [torch.zeros(NUMEL, dtype=torch.float64) for _ in range(2)]
    v = [torch.zeros(NUMEL, dtype=torch.float64) for _ in range(2)]
    expected = []
    for given in gradients(2, 5):
        total = torch.zeros(NUMEL, dtype=torch.float64)
        for rank, gradient in enumerate(given):
            g = gradient.double()
            g = g * min(1.0, clip / math.sqrt(2) / float(g.norm()))
            u[rank] = momentum * u[rank] + g
            v[rank] = v[rank] + u[rank]
            chosen = sorted(range(NUMEL), key=lambda i: -abs(float(v[rank][i])))[:kept]
            for i in chosen:
                total[i] += v[rank][i]
                v[rank][i] = u[rank][i] = 0.0
        expected.append(total / 2)
    options = {"ratio": 0.1, "momentum": momentum, "clip_norm": clip, "values": "fp32"}
    check("dgc", options, expected)
