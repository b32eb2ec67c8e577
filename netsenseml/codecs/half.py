"""What ``fp16`` and ``bf16`` share: an all-reduce in a 16-bit type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from netsenseml.codecs.base import Job, ReduceCodec, StepContext, peak_of
from netsenseml.layout import Group
from netsenseml.native import kernels
from netsenseml.transport import Transfer

__all__ = ["CHUNK", "HalfCodec", "SharedScale"]

# Elements per pass: source, product and result of one chunk stay in the core's own cache, so
# scaling and rounding cost one trip through memory instead of three.
CHUNK = 1 << 17


class SharedScale:
    """A power of two that all ranks agree on without a message.

    It is taken from the peak of the last reduced gradient, which is the same on every rank: that
    peak goes to [2^6, 2^7), which leaves single ranks room for values 500 times as large.
    """

    def __init__(self, enabled: bool) -> None:
        self.exponent = 0
        self._enabled = enabled
        self._peak = 0.0

    @property
    def factor(self) -> float:
        """What to multiply by before the wire."""
        return math.ldexp(1.0, self.exponent)

    def note(self, peak: float) -> None:
        """Learn the peak of a reduced gradient."""
        self._peak = max(self._peak, peak)

    def end_step(self, committed: bool) -> None:
        """Take the exponent for the next step."""
        if committed and self._enabled and self._peak > 0:
            # -121 belongs to the largest number of fp32
            self.exponent = max(-121, min(24, 7 - math.frexp(self._peak)[1]))
        self._peak = 0.0


class HalfCodec(ReduceCodec):
    """Divide by N, scale by a power of two, round, sum in 16 bits.

    Parameters
    ----------
    rescale : bool
        Choose the power of two from the peak of the last reduced gradient, which all ranks know
        without any message. A product that still overflows is seen by all ranks as a non-finite
        sum, and the bucket is sent again densely; the next step knows its peak.
    """

    wire_dtype: ClassVar[torch.dtype]

    def __init__(self, rescale: bool) -> None:
        self._scale = SharedScale(rescale)

    def encode(self, job: Job, step: StepContext) -> torch.Tensor:
        scale = self._scale.factor / step.world
        source = job.source()
        wire = job.take("half", source.numel(), self.wire_dtype)
        part = job.take("chunk", min(CHUNK, source.numel()), source.dtype)
        self.round(source, wire, scale, part, subtract=job.feedback is not None)
        return wire

    def round(
        self,
        source: torch.Tensor,
        wire: torch.Tensor,
        scale: float,
        part: torch.Tensor,
        subtract: bool = False,
    ) -> None:
        """``wire = half(source * scale)``; with ``subtract`` take what was sent off ``source``.

        ``part`` is scratch of shape (min(n, CHUNK),) and of the dtype of ``source``.
        """
        if source.device.type != "cpu":
            wire.copy_(source * scale)
            if subtract:
                source.sub_(wire.to(source.dtype) / scale)
            return
        native = kernels()
        if (
            native is not None
            and source.dtype == torch.float32
            and wire.dtype == torch.float16
            and source.is_contiguous()
        ):
            native.half(source, wire, scale, subtract)
            return
        for begin in range(0, source.numel(), CHUNK):
            values = source[begin : begin + CHUNK]
            product = torch.mul(values, scale, out=part[: values.numel()])
            rounded = wire[begin : begin + CHUNK].copy_(product)
            if subtract:
                values.sub_(product.copy_(rounded).div_(scale))

    def decode(self, job: Job, total: torch.Tensor, step: StepContext) -> bool:
        peak = float(peak_of(total))
        if not math.isfinite(peak):
            return False
        job.grad.copy_(total)
        if self._scale.factor != 1.0:
            job.grad.mul_(1.0 / self._scale.factor)
        self._scale.note(peak / self._scale.factor)
        return True

    def sent_densely(self, job: Job) -> None:
        self._scale.note(float(peak_of(job.grad)))

    def end_step(self, committed: bool) -> None:
        self._scale.end_step(committed)

    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        return (Transfer("reduce", 2 * group.numel),)

    def state_dict(self) -> dict[str, Any]:
        return {"exponent": self._scale.exponent}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._scale.exponent = int(saved["exponent"])
