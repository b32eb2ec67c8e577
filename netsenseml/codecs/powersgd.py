"""``powersgd``: low-rank approximation by one warm-started power iteration.

Source: T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD", NeurIPS 2019, Algorithms 1 and 2; the
choice of what to compress and the order of operations follow torch's ``powerSGD_hook``, so that
results agree with it. Unlike torch's hook it runs over gloo with any number of buckets: the first
all-reduce (uncompressed tensors and P together) of each bucket starts as its gradients arrive, the
second (Q) of all buckets in bucket order in the hook of the last bucket.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from netsenseml.codecs.base import Codec, Job, StepContext, peak_of
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.options import Options, bounded, choice
from netsenseml.transport import Transfer

__all__ = ["METHOD", "PowerSGD", "PowerSGDOptions"]


@dataclass(frozen=True)
class PowerSGDOptions(Options):
    """Options of ``powersgd``.

    Attributes
    ----------
    rank : int
        Columns of P and Q; start from 1 or 2 and double.
    min_compression_rate : float
        A matrix is compressed only if that makes it smaller by more than this factor.
    error_feedback : bool
        Carry the approximation error over to the next step.
    feedback : str
        What the error is measured against: ``"global"``, the mean that was applied (paper,
        torch), or ``"own"``, this rank's own projection (epfml/powersgd since 2021).
    """

    rank: int = bounded(2, 1, 128)
    min_compression_rate: float = bounded(2.0, 1.0, 1e6)
    error_feedback: bool = True
    feedback: str = choice("global", "own")


@dataclass(frozen=True)
class _Part:
    """One parameter of a group: where it lies, and its place in P and Q when compressed."""

    name: str
    begin: int
    end: int
    rows: int
    columns: int
    p_begin: int
    q_begin: int


@dataclass(frozen=True)
class _Plan:
    """Round 1 carries ``dense | P``, round 2 carries Q."""

    dense: tuple[tuple[int, int], ...]
    matrices: tuple[_Part, ...]
    dense_numel: int
    first_numel: int
    second_numel: int


class PowerSGD(Codec):
    """Two all-reduces per bucket: 1-D and small tensors with P, then Q."""

    name = "powersgd"

    def __init__(self, rank: int, min_rate: float = 2.0, feedback: str = "global") -> None:
        self._rank = rank
        self._min_rate = min_rate
        self._own = feedback == "own"
        self._q: dict[str, torch.Tensor] = {}
        self._pending: dict[str, torch.Tensor] = {}
        self._plans: dict[Group, _Plan] = {}

    @property
    def strength(self) -> float | None:
        return float(self._rank)

    def plan(self, group: Group) -> _Plan:
        """How a group's parameters are sent."""
        if group not in self._plans:
            self._plans[group] = self._make_plan(group)
        return self._plans[group]

    def _make_plan(self, group: Group) -> _Plan:
        dense, sizes = [], []
        for name, begin, shape in zip(group.names, group.offsets, group.shapes, strict=True):
            rows = shape[0] if len(shape) > 1 else 1
            columns = math.prod(shape) // max(rows, 1)
            packed = (rows + columns) * self._rank * self._min_rate
            if len(shape) > 1 and packed < rows * columns:
                sizes.append((name, begin, rows, columns))
            else:
                dense.append((begin, begin + rows * columns))
        dense_numel = sum(end - begin for begin, end in dense)
        matrices, first, second = [], dense_numel, 0
        for name, begin, rows, columns in sizes:
            matrices.append(
                _Part(name, begin, begin + rows * columns, rows, columns, first, second)
            )
            first += rows * self._rank
            second += columns * self._rank
        return _Plan(tuple(dense), tuple(matrices), dense_numel, first, second)

    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        plan = self.plan(group)
        second = (Transfer("reduce", 4 * plan.second_numel),) if plan.second_numel else ()
        return (Transfer("reduce", 4 * plan.first_numel), *second)

    def start(self, job: Job, step: StepContext) -> None:
        plan = self.plan(job.group)
        wire = job.take("first", plan.first_numel, job.work_dtype)
        with step.encode(self.name, job):
            source = job.extra["source"] = job.source()
            at = 0
            for begin, end in plan.dense:
                wire[at : at + end - begin].copy_(source[begin:end])
                at += end - begin
            for part in plan.matrices:
                q = self._start_q(part, step.seed, source)
                matrix = source[part.begin : part.end].view(part.rows, part.columns)
                torch.mm(matrix, q, out=self._p(wire, part))
            wire.mul_(1.0 / step.world)
        step.reduce(job, wire, f"powersgd P of bucket {job.index}")

    def _p(self, wire: torch.Tensor, part: _Part) -> torch.Tensor:
        size = part.rows * self._rank
        return wire[part.p_begin : part.p_begin + size].view(part.rows, self._rank)

    def _q_of(self, wire: torch.Tensor, part: _Part) -> torch.Tensor:
        size = part.columns * self._rank
        return wire[part.q_begin : part.q_begin + size].view(part.columns, self._rank)

    def _start_q(self, part: _Part, seed: int, like: torch.Tensor) -> torch.Tensor:
        q = self._q.get(part.name)
        if q is None:
            generator = torch.Generator().manual_seed(
                (seed * 1_000_003 + zlib.crc32(part.name.encode())) % 2**63
            )
            q = torch.randn(part.columns, self._rank, generator=generator, dtype=torch.float64)
        # An orthonormal start also brings a Q that was 0 after a zero gradient back to life.
        return torch.linalg.qr(q.to(device=like.device, dtype=like.dtype)).Q

    def finish(self, jobs: Sequence[Job], step: StepContext) -> None:
        second = []
        for job in jobs:
            first = step.wait(job)
            if not bool(torch.isfinite(peak_of(first))):
                step.send_dense(job)
                continue
            plan = self.plan(job.group)
            if plan.matrices:
                with step.encode(self.name, job):
                    wire = self._encode_q(job, plan, first, step)
                step.reduce(job, wire, f"powersgd Q of bucket {job.index}")
            second.append(job)
        for job in second:
            plan = self.plan(job.group)
            wire = step.wait(job)
            with step.decode(self.name, job):
                self._decode(job, plan, wire)

    def _encode_q(
        self, job: Job, plan: _Plan, first: torch.Tensor, step: StepContext
    ) -> torch.Tensor:
        source = job.extra["source"]
        wire = job.take("second", plan.second_numel, job.work_dtype)
        for part in plan.matrices:
            p = self._p(first, part)
            p.copy_(torch.linalg.qr(p).Q)
            matrix = source[part.begin : part.end].view(part.rows, part.columns)
            torch.mm(matrix.t(), p, out=self._q_of(wire, part))
        if self._own and job.feedback is not None:
            for part in plan.matrices:
                matrix = source[part.begin : part.end].view(part.rows, part.columns)
                matrix.addmm_(self._p(first, part), self._q_of(wire, part).t(), alpha=-1.0)
        wire.mul_(1.0 / step.world)
        return wire

    def _decode(self, job: Job, plan: _Plan, second: torch.Tensor) -> None:
        first, source = job.handles[0].result, job.extra["source"]
        native = job.grad.dtype == job.work_dtype
        mean = job.grad if native else job.take("mean", job.grad.numel(), job.work_dtype)
        at = 0
        for begin, end in plan.dense:
            mean[begin:end].copy_(first[at : at + end - begin])
            at += end - begin
        for part in plan.matrices:
            q = self._q_of(second, part)
            matrix = mean[part.begin : part.end].view(part.rows, part.columns)
            torch.mm(self._p(first, part), q.t(), out=matrix)
            self._pending[part.name] = q.clone()
        if job.feedback is not None:
            for begin, end in plan.dense:
                source[begin:end].zero_()
            if not self._own:
                for part in plan.matrices:
                    source[part.begin : part.end].sub_(mean[part.begin : part.end])
        if not native:
            job.grad.copy_(mean)

    def end_step(self, committed: bool) -> None:
        if committed:
            self._q.update(self._pending)
        self._pending = {}

    def state_dict(self) -> dict[str, Any]:
        return {"q": dict(self._q)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._q = {name: q.detach().clone() for name, q in saved["q"].items()}


METHOD = Method(
    "powersgd",
    PowerSGDOptions,
    fixed(lambda o: PowerSGD(o.rank, o.min_compression_rate, o.feedback)),
)
