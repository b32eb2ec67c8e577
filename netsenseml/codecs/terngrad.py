"""``terngrad``: unbiased ternary gradients, five digits to a byte.

Source: W. Wen et al., "TernGrad", NeurIPS 2017: ``s_t sgn(g) b`` with ``s_t = max |g|`` per layer
and ``P(b = 1) = |g| / s_t`` (equations 1-4), after clipping to ``c`` standard deviations of the
layer (section 4). Scaler sharing (one maximum over all workers) is not used: each rank's scaler
travels with its digits, which keeps the mean unbiased without another message.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.bits import pack_trits, unpack_trits
from netsenseml.codecs.base import GatherCodec, Job, StepContext
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.options import Options, bounded

__all__ = ["METHOD", "TernGrad", "TernGradOptions"]


@dataclass(frozen=True)
class TernGradOptions(Options):
    """Options of ``terngrad``.

    Attributes
    ----------
    clip_sigma : float
        c of the clipping; 0 is off (then the mean is unbiased exactly).
    """

    clip_sigma: float = bounded(2.5, 0.0, 1e6)


class TernGrad(GatherCodec):
    """1.6 bits per entry and one fp32 scaler per parameter."""

    name = "terngrad"

    def __init__(self, clip_sigma: float) -> None:
        self._clip = clip_sigma

    def payload_bytes(self, group: Group) -> int:
        digits = -(-group.numel // 5)
        return 4 * len(group.names) + -(-digits // 4) * 4

    def encode(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        numel, head = job.group.numel, 4 * len(job.group.names)
        work = job.take("clipped", numel, job.work_dtype).copy_(job.grad)
        scalers = payload[:head].view(torch.float32)
        for at, (begin, size) in enumerate(zip(job.group.offsets, job.group.numels, strict=True)):
            part = work[begin : begin + size]
            if self._clip and size > 1:
                # Clamping by NaN gives NaN, so that the scaler still flags it.
                limit = self._clip * part.std(unbiased=False)
                torch.clamp(part, min=-limit, max=limit, out=part)
            peak = part.abs().max() if size else torch.zeros(())
            scalers[at] = peak
            part.mul_(torch.where(peak > 0, 1.0 / peak, torch.zeros_like(peak)))
        draw = job.take("draw", numel, torch.float32)
        torch.rand(numel, generator=job.generator(step), out=draw)
        digits = (draw < work.abs()).to(torch.int8) * work.sign().nan_to_num_().to(torch.int8)
        pack_trits(digits, payload[head : head + -(-numel // 5)])

    def decode(self, job: Job, rows: torch.Tensor, step: StepContext) -> bool:
        numel, head = job.group.numel, 4 * len(job.group.names)
        scalers = [row[:head].view(torch.float32) for row in rows]
        if not all(bool(torch.isfinite(scaler).all()) for scaler in scalers):
            return False
        total = job.take("sum", numel, job.work_dtype).zero_()
        sizes = torch.tensor(job.group.numels, device=rows.device)
        for row, scaler in zip(rows, scalers, strict=True):
            digits = unpack_trits(row[head : head + -(-numel // 5)], numel)
            scale = torch.repeat_interleave((scaler / step.world).to(total.dtype), sizes)
            total.addcmul_(digits.to(total.dtype), scale)
        job.grad.copy_(total)
        return True


METHOD = Method("terngrad", TernGradOptions, fixed(lambda options: TernGrad(options.clip_sigma)))
