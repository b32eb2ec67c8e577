"""``lowrank``: every rank sends its own low-rank factors, in one all-gather.

PowerSGD's two chained all-reduces are latency-bound for small models: 4(N-1) messages one after
the other, half of which cannot overlap with backward. Here each rank factors its own matrix by
the same warm-started power iteration and all ranks gather all factors, N-1 messages in all, in 16
bits: ``(N-1) * 2 (rows + columns) r`` bytes. The mean of N rank-r matrices loses no more than the
sum of the ranks' own errors, all of which stay in the error feedback. Better than ``powersgd``
for few ranks or high latency, worse for many ranks.

Source: the power iteration of T. Vogels et al., "PowerSGD", NeurIPS 2019; gathering of factors as
in H. Wang et al., "ATOMO", NeurIPS 2018 (there unbiased, here with error feedback).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.codecs.base import GatherCodec, Job, StepContext, peak_of
from netsenseml.codecs.matrices import FactorCodec, LowRankPlan, starting_q
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.options import Options, bounded
from netsenseml.wire import flagged, power_of_two

__all__ = ["METHOD", "LowRank", "LowRankOptions"]


@dataclass(frozen=True)
class LowRankOptions(Options):
    """Options of ``lowrank``.

    Attributes
    ----------
    rank : int
        Columns of P and Q.
    min_compression_rate : float
        A matrix is compressed only if that makes it smaller by more than this factor.
    error_feedback : bool
        Carry the approximation error over to the next step.
    """

    rank: int = bounded(2, 1, 128)
    min_compression_rate: float = bounded(2.0, 1.0, 1e6)
    error_feedback: bool = True


class LowRank(FactorCodec, GatherCodec):
    """Payload: peaks in fp32 (uncompressed part, then each Q), then ``dense | P | Q`` in fp16."""

    name = "lowrank"
    cost_name = "powersgd"

    def __init__(self, rank: int, min_rate: float = 2.0) -> None:
        super().__init__(rank, min_rate)

    def payload_bytes(self, group: Group) -> int:
        plan = self.plan(group)
        values = plan.first_numel + plan.second_numel
        return 4 * (1 + len(plan.matrices)) + -(-values // 2) * 4

    def _split(
        self, plan: LowRankPlan, payload: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        head = 4 * (1 + len(plan.matrices))
        peaks = payload[:head].view(torch.float32)
        values = payload[head:].view(torch.float16)
        first = values[: plan.first_numel]
        return peaks, first, values[plan.first_numel : plan.first_numel + plan.second_numel]

    def encode(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        plan = self.plan(job.group)
        source = job.accumulate()
        peaks, first, second = self._split(plan, payload)
        whole = flagged(peak_of(source))
        if not bool(torch.isfinite(whole)):
            payload.zero_()
            peaks[0] = whole
            return
        work = job.take("first", plan.first_numel, job.work_dtype)
        plan.copy_dense(source, work)
        peaks[0] = peak_of(work[: plan.dense_numel])
        work[: plan.dense_numel].mul_(power_of_two(peaks[0]))
        for at, part in enumerate(plan.matrices, start=1):
            matrix = part.matrix(source)
            q = starting_q(part, self._q.get(part.name), step.seed, source)
            p = torch.linalg.qr(matrix @ q).Q
            part.p(work).copy_(p)
            q = matrix.t() @ p
            self._pending[part.name] = q
            peaks[at] = flagged(peak_of(q))
            part.q(second).copy_(q * power_of_two(peaks[at]))
        first.copy_(work)
        self._subtract(plan, source, peaks, first, second)

    def _subtract(
        self,
        plan: LowRankPlan,
        source: torch.Tensor,
        peaks: torch.Tensor,
        first: torch.Tensor,
        second: torch.Tensor,
    ) -> None:
        """Take off what the receivers will read."""
        kind = source.dtype
        scale = power_of_two(peaks)
        at = 0
        for begin, end in plan.dense:
            source[begin:end].sub_(first[at : at + end - begin].to(kind) / scale[0])
            at += end - begin
        for index, part in enumerate(plan.matrices, start=1):
            q = part.q(second).to(kind) / scale[index]
            part.matrix(source).addmm_(part.p(first).to(kind), q.t(), alpha=-1.0)

    def decode(self, job: Job, rows: torch.Tensor, step: StepContext) -> bool:
        plan = self.plan(job.group)
        payloads = [self._split(plan, row) for row in rows]
        if not all(bool(torch.isfinite(peaks).all()) for peaks, _, _ in payloads):
            return False
        kind = job.work_dtype
        native = job.grad.dtype == kind
        mean = job.grad if native else job.take("mean", job.grad.numel(), kind)
        mean.zero_()
        dense = torch.zeros(plan.dense_numel, dtype=kind, device=mean.device)
        scales = [power_of_two(peaks) * step.world for peaks, _, _ in payloads]
        for (_, first, _), scale in zip(payloads, scales, strict=True):
            dense += first[: plan.dense_numel].to(kind) / scale[0]
        plan.spread_dense(dense, mean)
        for index, part in enumerate(plan.matrices, start=1):
            # The sum over ranks of P Q^T is one product of the factors side by side.
            left = torch.cat([part.p(first).to(kind) for _, first, _ in payloads], dim=1)
            right = torch.cat(
                [
                    part.q(second).to(kind) / scale[index]
                    for (_, _, second), scale in zip(payloads, scales, strict=True)
                ],
                dim=1,
            )
            torch.mm(left, right.t(), out=part.matrix(mean))
        if not native:
            job.grad.copy_(mean)
        return True

    def sent_densely(self, job: Job) -> None:
        for part in self.plan(job.group).matrices:
            self._pending.pop(part.name, None)


METHOD = Method(
    "lowrank",
    LowRankOptions,
    fixed(lambda options: LowRank(options.rank, options.min_compression_rate)),
)
