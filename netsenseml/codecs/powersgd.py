"""``powersgd``: low-rank approximation by one warm-started power iteration.

Source: T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD", NeurIPS 2019, Algorithms 1 and 2; the
choice of what to compress and the order of operations follow torch's ``powerSGD_hook``, so that
results agree with it. Unlike torch's hook it runs over gloo with any number of buckets: the first
all-reduce (uncompressed tensors and P together) of each bucket starts as its gradients arrive, the
second (Q) of all buckets in bucket order in the hook of the last bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from netsenseml.codecs.base import Job, StepContext, peak_of
from netsenseml.codecs.matrices import FactorCodec, LowRankPlan, starting_q
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
    values : str
        Type of the factors on the wire: ``"fp32"`` (paper, torch) or ``"bf16"``. What rounding
        loses stays in the error feedback.
    feedback : str
        What the error is measured against: ``"global"``, the mean that was applied (paper,
        torch), or ``"own"``, this rank's own projection (epfml/powersgd since 2021).
    """

    rank: int = bounded(2, 1, 128)
    min_compression_rate: float = bounded(2.0, 1.0, 1e6)
    error_feedback: bool = True
    values: str = choice("fp32", "bf16")
    feedback: str = choice("global", "own")


class PowerSGD(FactorCodec):
    """Two all-reduces per bucket: 1-D and small tensors with P, then Q."""

    name = "powersgd"

    def __init__(
        self, rank: int, min_rate: float = 2.0, values: str = "fp32", feedback: str = "global"
    ) -> None:
        super().__init__(rank, min_rate)
        self._half = values == "bf16"
        self._own = feedback == "own"

    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        plan = self.plan(group)
        size = 2 if self._half else 4
        second = (Transfer("reduce", size * plan.second_numel),) if plan.second_numel else ()
        return (Transfer("reduce", size * plan.first_numel), *second)

    def _shipped(self, job: Job, tag: str, factors: torch.Tensor) -> torch.Tensor:
        """What goes on the wire for ``factors``."""
        if not self._half:
            return factors
        return job.take(f"{tag} wire", factors.numel(), torch.bfloat16).copy_(factors)

    def _landed(self, job: Job, tag: str, total: torch.Tensor) -> torch.Tensor:
        """The factors that came back, in the type they are worked on in."""
        if not self._half:
            return total
        return job.take(tag, total.numel(), job.work_dtype).copy_(total)

    def start(self, job: Job, step: StepContext) -> None:
        plan = self.plan(job.group)
        wire = job.take("first", plan.first_numel, job.work_dtype)
        with step.encode(self.name, job, share=0.5):
            source = job.extra["source"] = job.source()
            plan.copy_dense(source, wire)
            for part in plan.matrices:
                q = starting_q(part, self._q.get(part.name), step.seed, source)
                torch.mm(part.matrix(source), q, out=part.p(wire))
            wire.mul_(1.0 / step.world)
            shipped = self._shipped(job, "first", wire)
            if shipped is not wire:  # what rounding takes off the uncompressed tensors
                left = job.take("left", plan.dense_numel, job.work_dtype)
                left.copy_(wire[: plan.dense_numel]).sub_(shipped[: plan.dense_numel])
                job.extra["left"] = left.mul_(step.world)
        step.reduce(job, shipped, f"powersgd P of bucket {job.index}")

    def finish(self, jobs: Sequence[Job], step: StepContext) -> None:
        second = []
        for job in jobs:
            first = self._landed(job, "first", step.wait(job))
            job.extra["first"] = first
            if not bool(torch.isfinite(peak_of(first))):
                step.send_dense(job)
                continue
            plan = self.plan(job.group)
            if plan.matrices:
                with step.encode(self.name, job, share=0.5):
                    wire = self._encode_q(job, plan, first, step)
                step.reduce(job, wire, f"powersgd Q of bucket {job.index}")
            second.append(job)
        for job in second:
            plan = self.plan(job.group)
            factors = self._landed(job, "second", step.wait(job)) if plan.matrices else None
            if factors is not None and not bool(torch.isfinite(peak_of(factors))):
                step.send_dense(job)
                continue
            with step.decode(self.name, job):
                self._decode(job, plan, factors)

    def _encode_q(
        self, job: Job, plan: LowRankPlan, first: torch.Tensor, step: StepContext
    ) -> torch.Tensor:
        source = job.extra["source"]
        wire = job.take("second", plan.second_numel, job.work_dtype)
        for part in plan.matrices:
            p = part.p(first)
            p.copy_(torch.linalg.qr(p).Q)
            torch.mm(part.matrix(source).t(), p, out=part.q(wire))
        wire.mul_(1.0 / step.world)
        shipped = self._shipped(job, "second", wire)
        if self._own and job.feedback is not None:
            sent = wire.copy_(shipped)
            for part in plan.matrices:
                part.matrix(source).addmm_(part.p(first), part.q(sent).t(), alpha=-step.world)
        return shipped

    def _decode(self, job: Job, plan: LowRankPlan, second: torch.Tensor | None) -> None:
        first, source = job.extra["first"], job.extra["source"]
        native = job.grad.dtype == job.work_dtype
        mean = job.grad if native else job.take("mean", job.grad.numel(), job.work_dtype)
        plan.spread_dense(first, mean)
        for part in plan.matrices:
            assert second is not None  # there is a matrix
            q = part.q(second)
            torch.mm(part.p(first), q.t(), out=part.matrix(mean))
            self._pending[part.name] = q.clone()
        if job.feedback is not None:
            if "left" in job.extra:
                plan.spread_dense(job.extra["left"], source)
            else:
                for begin, end in plan.dense:
                    source[begin:end].zero_()
            if not self._own:
                for part in plan.matrices:
                    source[part.begin : part.end].sub_(mean[part.begin : part.end])
        if not native:
            job.grad.copy_(mean)


METHOD = Method(
    "powersgd",
    PowerSGDOptions,
    fixed(lambda o: PowerSGD(o.rank, o.min_compression_rate, o.values, o.feedback)),
)
