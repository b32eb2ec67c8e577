"""``int8``: 8-bit integers with a scale per block, reduced in two quantized rounds.

An all-gather of int8 moves (N-1) n bytes and is no smaller than an fp16 all-reduce from N = 4 on.
So the reduction is done as a ring does it, in two halves: every rank sends each other rank its
quantized chunk (all-to-all), each averages the chunk it owns in fp32 and quantizes the mean, and
an all-gather spreads the means: 2(N-1)/N n bytes, half of fp16 at any N. Sums never happen in
int8, so nothing can wrap.

Source of per-block scales: T. Dettmers, "8-Bit Approximations for Parallelism in Deep Learning",
ICLR 2016. With error feedback the owner of a chunk also keeps the second rounding error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from netsenseml.codecs.base import Codec, Job, StepContext
from netsenseml.codecs.half import CHUNK
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.native import kernels
from netsenseml.options import Options, bounded
from netsenseml.transport import Transfer

__all__ = ["METHOD", "Int8", "Int8Options", "dequantize", "quantize"]


@dataclass(frozen=True)
class Int8Options(Options):
    """Options of ``int8``.

    Attributes
    ----------
    block : int
        Entries that share a scale; a multiple of 8 is fastest.
    error_feedback : bool
        Carry the rounding error over to the next step.
    """

    block: int = bounded(256, 1, 1 << 16)
    error_feedback: bool = True


def quantize(
    source: torch.Tensor, block: int, scales: torch.Tensor, codes: torch.Tensor, part: torch.Tensor
) -> None:
    """Round each block to ``round(127 x / max|x|)``.

    Parameters
    ----------
    source : float tensor, shape (b * block,)
    scales : float32 tensor, shape (b,)
        Receives ``max|x| / 127``; not finite where an entry is not.
    codes : int8 tensor, shape (b * block,)
    part : tensor of the dtype of ``source``, shape (at least ``CHUNK``,)
        Scratch that stays in cache.
    """
    native = kernels()
    if native is not None and source.device.type == "cpu" and source.dtype == torch.float32:
        native.quantize(source, block, scales, codes)
        return
    step = max(1, CHUNK // block)
    for first in range(0, scales.numel(), step):
        count = min(step, scales.numel() - first)
        piece = source[first * block : (first + count) * block]
        work = torch.abs(piece, out=part[: piece.numel()]).view(count, block)
        peak = work.amax(1)
        scales[first : first + count] = peak / 127
        usable = (peak > 0) & torch.isfinite(peak)
        inverse = torch.where(usable, 127 / peak, torch.zeros_like(peak))
        torch.mul(piece.view(count, block), inverse.unsqueeze(1), out=work)
        if not bool(usable.all()):
            work[~usable] = 0  # the scale flags the block; its codes do not matter
        codes[first * block : (first + count) * block].copy_(work.view(-1).round_())


def dequantize(
    scales: torch.Tensor, codes: torch.Tensor, block: int, out: torch.Tensor, weight: float = 1.0
) -> torch.Tensor:
    """``out = weight * scale * code``, shape (b * block,)."""
    out.copy_(codes)
    out.view(-1, block).mul_((scales * weight).to(out.dtype).unsqueeze(1))
    return out


class Int8(Codec):
    """All-to-all of quantized chunks, then all-gather of quantized means."""

    name = "int8"

    def __init__(self, block: int = 256) -> None:
        self._block = block

    def _chunk(self, numel: int, world: int) -> tuple[int, int]:
        """(blocks, bytes on the wire) of the chunk that each rank owns."""
        blocks = -(-numel // (world * self._block))
        return blocks, 4 * blocks + -(-blocks * self._block // 4) * 4

    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        _, size = self._chunk(group.numel, world)
        return (Transfer("exchange", world * size), Transfer("gather", size))

    def _split(self, chunk: torch.Tensor, blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
        scales = chunk[: 4 * blocks].view(torch.float32)
        return scales, chunk[4 * blocks : (4 + self._block) * blocks].view(torch.int8)

    def start(self, job: Job, step: StepContext) -> None:
        numel = job.group.numel
        blocks, size = self._chunk(numel, step.world)
        span = blocks * self._block
        wire = job.take("wire", step.world * size, torch.uint8)
        with step.encode(self.name, job, share=0.5):
            source = job.extra["source"] = job.source()
            part = job.take("part", max(CHUNK, self._block), source.dtype)
            for rank in range(step.world):
                begin = min(rank * span, numel)
                piece = source[begin : min(begin + span, numel)]
                whole = self._padded(job, piece, span)
                scales, codes = self._split(wire[rank * size : (rank + 1) * size], blocks)
                quantize(whole, self._block, scales, codes, part)
                if job.feedback is not None:
                    sent = job.take("sent", span, source.dtype)
                    dequantize(scales, codes, self._block, sent)
                    piece.sub_(sent[: piece.numel()])
        received = job.take("received", step.world * size, torch.uint8)
        step.exchange(job, wire, received, f"int8 exchange of bucket {job.index}")

    def _padded(self, job: Job, piece: torch.Tensor, span: int) -> torch.Tensor:
        if piece.numel() == span:
            return piece
        whole = job.take("padded", span, piece.dtype)
        whole[: piece.numel()].copy_(piece)
        whole[piece.numel() :] = 0
        return whole

    def finish(self, jobs: Sequence[Job], step: StepContext) -> None:
        for job in jobs:
            received = step.wait(job)
            with step.encode(self.name, job, share=0.5 / step.world):
                mine = self._reduce(job, received, step)
            means = job.take("means", step.world * mine.numel(), torch.uint8)
            step.gather(job, mine, means, f"int8 means of bucket {job.index}")
        for job in jobs:
            means = step.wait(job)
            with step.decode(self.name, job):
                good = self._decode(job, means, step)
            if not good:
                step.send_dense(job)

    def _reduce(self, job: Job, received: torch.Tensor, step: StepContext) -> torch.Tensor:
        blocks, size = self._chunk(job.group.numel, step.world)
        span, source = blocks * self._block, job.extra["source"]
        mean = job.take("mean", span, source.dtype).zero_()
        value = job.take("sent", span, source.dtype)
        for row in received.view(step.world, size):
            scales, codes = self._split(row, blocks)
            mean.add_(dequantize(scales, codes, self._block, value, 1.0 / step.world))
        mine = job.take("mine", size, torch.uint8)
        scales, codes = self._split(mine, blocks)
        quantize(mean, self._block, scales, codes, job.take("part", CHUNK, source.dtype))
        if job.feedback is not None:
            mean.sub_(dequantize(scales, codes, self._block, value))
            begin = min(step.rank * span, job.group.numel)
            end = min(begin + span, job.group.numel)
            source[begin:end].add_(mean[: end - begin], alpha=step.world)
        return mine

    def _decode(self, job: Job, means: torch.Tensor, step: StepContext) -> bool:
        numel = job.group.numel
        blocks, size = self._chunk(numel, step.world)
        span = blocks * self._block
        rows = [self._split(row, blocks) for row in means.view(step.world, size)]
        if not all(bool(torch.isfinite(scales).all()) for scales, _ in rows):
            return False
        value = job.take("sent", span, job.work_dtype)
        for rank, (scales, codes) in enumerate(rows):
            begin = min(rank * span, numel)
            end = min(begin + span, numel)
            dequantize(scales, codes, self._block, value)
            job.grad[begin:end].copy_(value[: end - begin])
        return True


METHOD = Method("int8", Int8Options, fixed(lambda options: Int8(options.block)))
