"""What ``signsgd`` and ``onebit`` share: one bit per entry, a few scales per parameter."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch

from netsenseml.bits import pack_bits, unpack_bits
from netsenseml.codecs.base import GatherCodec, Job, StepContext
from netsenseml.codecs.half import CHUNK
from netsenseml.layout import Group
from netsenseml.native import kernels

__all__ = ["SignCodec", "l1_norm", "sign_bits"]

_LANES = 1024  # partial sums of l1_norm


def sign_bits(source: torch.Tensor, negative: torch.Tensor, packed: torch.Tensor) -> None:
    """Where ``source``, shape (n,), is below zero: as bool ``negative`` and as bits ``packed``."""
    native = kernels() if source.device.type == "cpu" else None
    if native is not None and source.dtype == torch.float32:
        native.signs(source, negative, packed)
        return
    if source.device.type == "cpu":  # numpy's loop is faster there
        np.less(source.numpy(), 0, out=negative.numpy())
    else:
        torch.lt(source, 0, out=negative)
    pack_bits(negative, packed)


def l1_norm(source: torch.Tensor) -> torch.Tensor:
    """Sum of magnitudes, shape (), in the dtype of ``source``.

    On the host the order of additions is fixed, so that the C++ kernel gives the same bits.
    """
    if source.device.type != "cpu" or source.dtype != torch.float32:
        return source.abs().sum()
    native = kernels()
    if native is not None:
        return torch.tensor(native.magnitude(source), dtype=source.dtype)
    work = np.empty(CHUNK, np.float32)
    total = 0.0
    for begin in range(0, source.numel(), CHUNK):
        piece = source[begin : begin + CHUNK].numpy()
        rows = -(-piece.size // _LANES)
        magnitudes = work[: rows * _LANES]
        np.abs(piece, out=magnitudes[: piece.size])
        magnitudes[piece.size :] = 0
        lanes = np.add.reduce(magnitudes.reshape(rows, _LANES), axis=0)  # row after row
        while lanes.size > 1:
            lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
        total += float(lanes[0])
    return torch.tensor(total, dtype=source.dtype)


class SignCodec(GatherCodec):
    """Payload: ``scales`` fp32 values per parameter, then the sign bits."""

    scales: ClassVar[int]

    def payload_bytes(self, group: Group) -> int:
        return 4 * self.scales * len(group.names) + (group.numel + 31) // 32 * 4

    def _split(self, group: Group, payload: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        head = 4 * self.scales * len(group.names)
        scales = payload[:head].view(torch.float32).view(-1, self.scales)
        return scales, payload[head : head + (group.numel + 7) // 8]

    def encode(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        source = job.source()
        scales, packed = self._split(job.group, payload)
        negative = job.take("negative", source.numel(), torch.bool)
        sign_bits(source, negative, packed)
        parts = torch.split(source, list(job.group.numels))
        self.measure(list(parts), list(torch.split(negative, list(job.group.numels))), scales)
        if job.feedback is not None:
            sent = job.take("sent", source.numel(), source.dtype)
            source.sub_(self._expand(job, scales, negative, sent))

    @abstractmethod
    def measure(
        self, parts: list[torch.Tensor], negative: list[torch.Tensor], scales: torch.Tensor
    ) -> None:
        """Fill ``scales``, shape (parameters, scales), from the entries of each parameter."""

    @abstractmethod
    def values(self, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What a 0 bit and what a 1 bit stand for, each of shape (parameters,)."""

    def _expand(
        self, job: Job, scales: torch.Tensor, negative: torch.Tensor, out: torch.Tensor
    ) -> torch.Tensor:
        zero, one = (value.to(out.dtype) for value in self.values(scales))
        out.copy_(negative)
        pieces = torch.split(out, list(job.group.numels))
        for piece, low, rise in zip(pieces, zero.tolist(), (one - zero).tolist(), strict=True):
            piece.mul_(rise).add_(low)
        return out

    def decode(self, job: Job, rows: torch.Tensor, step: StepContext) -> bool:
        parts = [self._split(job.group, row) for row in rows]
        if not all(bool(torch.isfinite(scales).all()) for scales, _ in parts):
            return False
        total = job.take("sum", job.grad.numel(), job.work_dtype).zero_()
        value = job.take("sent", job.grad.numel(), job.work_dtype)
        for scales, packed in parts:
            bits = unpack_bits(packed, job.grad.numel())
            total.add_(self._expand(job, scales, bits, value))
        torch.mul(total, 1.0 / step.world, out=total)
        job.grad.copy_(total)
        return True
