"""``qsgd``: unbiased stochastic quantization to s levels of the block norm.

Source: D. Alistarh et al., "QSGD", NeurIPS 2017, section 3.1: ``Q(v_i) = |v| sgn(v_i) xi_i`` with
``xi_i`` one of the two multiples of 1/s next to ``|v_i| / |v|``, drawn so that the mean is right.
Blocks ("buckets" in the paper, section 4) keep the variance low. The paper codes levels with
Elias codes of data-dependent length; an all-gather needs equal lengths, so here each level takes
the fewest of 2, 4 or 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.bits import pack_fields, unpack_fields
from netsenseml.codecs.base import GatherCodec, Job, StepContext
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.options import Options, bounded, choice

__all__ = ["METHOD", "Qsgd", "QsgdOptions"]


@dataclass(frozen=True)
class QsgdOptions(Options):
    """Options of ``qsgd``.

    Attributes
    ----------
    levels : int
        s: 1 takes 2 bits per entry, up to 7 takes 4, up to 127 takes 8.
    block : int
        Entries that share a norm.
    norm : str
        ``"l2"`` as in the paper's analysis, or ``"max"`` as in its experiments.
    """

    levels: int = bounded(127, 1, 127)
    block: int = bounded(512, 8, 1 << 24)
    norm: str = choice("l2", "max")


class Qsgd(GatherCodec):
    """Levels packed in 2, 4 or 8 bits, one fp32 norm per block; no error feedback: unbiased."""

    name = "qsgd"

    def __init__(self, levels: int, block: int, norm: str) -> None:
        self._levels = levels
        self._block = block
        self._order = float("inf") if norm == "max" else 2.0
        self._width = 2 if levels == 1 else 4 if levels <= 7 else 8

    @property
    def strength(self) -> float | None:
        return float(self._levels)

    def _sizes(self, numel: int) -> tuple[int, int, int]:
        """(blocks, bytes of norms, bytes of packed levels padded to 4)."""
        blocks = -(-numel // self._block)
        packed = -(-numel * self._width // 8)
        return blocks, 4 * blocks, -(-packed // 4) * 4

    def payload_bytes(self, group: Group) -> int:
        _, norms, packed = self._sizes(group.numel)
        return norms + packed

    def encode(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        numel = job.group.numel
        blocks, norm_bytes, _ = self._sizes(numel)
        padded = job.take("padded", blocks * self._block, job.work_dtype)
        padded[:numel].copy_(job.grad)
        padded[numel:] = 0
        rows = padded.view(blocks, self._block)
        norms = torch.linalg.vector_norm(rows, self._order, dim=1).to(torch.float32)
        payload[:norm_bytes].view(torch.float32).copy_(norms)
        # A norm that is not finite flags the payload; its levels do not matter.
        inverse = torch.where(norms > 0, self._levels / norms, torch.zeros_like(norms))
        draw = job.take("draw", padded.numel(), torch.float32)
        torch.rand(padded.shape, generator=job.generator(step), out=draw)
        scaled = rows.abs().mul_(inverse.to(rows.dtype).unsqueeze(1)).add_(draw.view_as(rows))
        levels = scaled.floor_().clamp_(0, self._levels).copysign_(rows)
        signed = torch.nan_to_num(levels).view(-1)[:numel] + self._levels
        size = -(-numel * self._width // 8)
        pack_fields(signed.to(torch.uint8), self._width, payload[norm_bytes : norm_bytes + size])

    def decode(self, job: Job, rows: torch.Tensor, step: StepContext) -> bool:
        numel = job.group.numel
        blocks, norm_bytes, _ = self._sizes(numel)
        norms = [row[:norm_bytes].view(torch.float32) for row in rows]
        if not all(bool(torch.isfinite(norm).all()) for norm in norms):
            return False
        total = job.take("sum", blocks * self._block, job.work_dtype).zero_()
        for row, norm in zip(rows, norms, strict=True):
            fields = unpack_fields(row[norm_bytes:], self._width, numel)
            levels = job.take("padded", blocks * self._block, job.work_dtype)
            levels[:numel].copy_(fields).sub_(self._levels)
            levels[numel:] = 0
            scale = (norm / (self._levels * step.world)).to(levels.dtype)
            total.view(blocks, -1).addcmul_(levels.view(blocks, -1), scale.unsqueeze(1))
        job.grad.copy_(total[:numel])
        return True


METHOD = Method(
    "qsgd",
    QsgdOptions,
    fixed(lambda options: Qsgd(options.levels, options.block, options.norm)),
)
