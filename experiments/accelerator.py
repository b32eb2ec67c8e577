"""A virtual accelerator: charges the time a modelled GPU takes, on the clock of the guest.

On a virtual clock the processor's own work takes no time, so a step takes exactly what is
charged here and what the network makes it wait. On a real clock `experiments.hardware` takes
its place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Accelerator", "DeviceProfile", "Span"]


@dataclass(frozen=True)
class DeviceProfile:
    """What one device needs, in seconds per training step of one model and batch.

    Parameters
    ----------
    forward_s, backward_s, optimizer_s
        Seconds per step.
    encode_bytes_per_s, decode_bytes_per_s
        Per codec, bytes of dense fp32 gradient per second; ``default`` for codecs not named.
    backward_curve
        Points (share of the gradients that are ready, share of the backward pass that took),
        rising from (0, 0) to (1, 1); between points it is straight. Last layers are ready first.
    kind
        ``measured`` or ``estimate``.
    source, formula, description
        Where the numbers come from: measured on what, or an estimate with its formula.
    """

    description: str
    source: str
    formula: str
    forward_s: float
    backward_s: float
    optimizer_s: float
    encode_bytes_per_s: Mapping[str, float]
    decode_bytes_per_s: Mapping[str, float]
    backward_curve: Sequence[Sequence[float]] = ((0.0, 0.0), (1.0, 1.0))
    kind: str = "estimate"

    def backward_share(self, ready: float) -> float:
        """Return the share of the backward pass after which `ready` of the gradients are."""
        if ready <= 0:
            return 0.0  # even where the first gradients take their time
        before = self.backward_curve[0]
        for point in self.backward_curve[1:]:
            if ready <= point[0]:
                width = point[0] - before[0]
                part = (ready - before[0]) / width if width else 1.0
                return before[1] + part * (point[1] - before[1])
            before = point
        return 1.0

    def codec_s(self, kind: str, codec: str, nbytes: int) -> float:
        """Return the seconds that encoding or decoding `nbytes` of dense gradient takes."""
        rates = self.encode_bytes_per_s if kind == "encode" else self.decode_bytes_per_s
        return nbytes / rates.get(codec, rates["default"])


@dataclass
class Span:
    """A stretch of encoding or decoding; `seconds` is set when it ends."""

    seconds: float = math.nan


class Accelerator:
    """Charges a device's time; also the `spans` object that `netsenseml` measures with.

    Parameters
    ----------
    profile
        The device; None charges nothing, for a real clock.
    total_numel
        Parameters of the model, over which the backward pass is spread.
    extra_s
        Compute time that this rank needs more than the profile says, in its forward pass.
    """

    def __init__(
        self, profile: DeviceProfile | None, total_numel: int, extra_s: float = 0.0
    ) -> None:
        self.device = "cpu"  # where the tensors are
        self.profile = profile
        self.compute_s = 0.0
        self._total_numel = total_numel
        self._ready_numel = 0
        self._extra_s = extra_s

    def clock(self) -> float:
        """Return seconds that only grow."""
        return time.monotonic()

    @contextmanager
    def span(self, kind: str, codec: str, nbytes: int) -> Iterator[Span]:
        """Last as long as the device needs to encode or decode `nbytes` of dense gradient."""
        span, begin_s = Span(), self.clock()
        yield span
        if self.profile:
            time.sleep(self.profile.codec_s(kind, codec, nbytes))
        span.seconds = self.clock() - begin_s

    def _compute(self, seconds: float) -> None:
        if self.profile and seconds > 0:
            time.sleep(seconds)
            self.compute_s += seconds

    def forward(self) -> None:
        """Charge the forward pass."""
        self._ready_numel = 0
        if self.profile:
            self._compute(self.profile.forward_s + self._extra_s)

    def backward(self, numel: int) -> None:
        """Charge the part of the backward pass that makes the gradients of one bucket."""
        if self.profile:
            before = self.profile.backward_share(self._ready_numel / self._total_numel)
            self._ready_numel += numel
            after = self.profile.backward_share(self._ready_numel / self._total_numel)
            self._compute(self.profile.backward_s * (after - before))

    def communicated(self) -> None:
        """Take no notice: what communication took shows on the clock."""

    def optimizer(self) -> None:
        """Charge the optimizer's step."""
        if self.profile:
            self._compute(self.profile.optimizer_s)

    def take_compute_s(self) -> float:
        """Return the compute time charged since the last call."""
        seconds, self.compute_s = self.compute_s, 0.0
        return seconds
