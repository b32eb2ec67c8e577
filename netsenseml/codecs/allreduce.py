"""``allreduce``: the dense mean in the gradient's own type, what DDP does without a hook."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.codecs.base import Job, ReduceCodec, StepContext, peak_of
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.options import Options
from netsenseml.transport import Transfer

__all__ = ["METHOD", "AllReduce", "AllReduceOptions"]


@dataclass(frozen=True)
class AllReduceOptions(Options):
    """There is nothing to choose."""


class AllReduce(ReduceCodec):
    """Divides before the ring sum, so that it overflows no earlier than the mean.

    With error feedback (inside an adaptive method) the residual is sent along and then zero.
    """

    name = "allreduce"

    def encode(self, job: Job, step: StepContext) -> torch.Tensor:
        if job.feedback is None:
            return job.grad.mul_(1.0 / step.world)
        accumulated = job.accumulate()
        wire = job.take("dense", job.grad.numel(), job.work_dtype)
        torch.mul(accumulated, 1.0 / step.world, out=wire)
        accumulated.zero_()
        return wire

    def decode(self, job: Job, total: torch.Tensor, step: StepContext) -> bool:
        if job.feedback is not None:
            job.grad.copy_(total)
        if not bool(torch.isfinite(peak_of(job.grad))):
            step.nonfinite = True
        return True  # dense already: there is nothing better to send

    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        return (Transfer("reduce", group.dense_bytes),)


METHOD = Method("allreduce", AllReduceOptions, fixed(lambda options: AllReduce()))
