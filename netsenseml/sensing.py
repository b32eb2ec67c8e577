"""Latency, bandwidth and compute time from what all ranks measured.

Three things disturb a naive ``bytes / seconds``:

- Waiting for a slow rank lengthens a collective on all ranks but the slow one: of every step the
  shortest busy period over ranks counts.
- Latency lengthens it by a part that does not depend on size. It is known from the agreement
  collective, a message of fixed size, as a windowed minimum, and taken off.
- One odd sample must not move the estimate, a real change must move it at once: samples inside a
  band are averaged by their median, two in a row outside of it on the same side replace it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from netsenseml.policy import Measurement

__all__ = ["LinkSense", "Pace"]


class LinkSense:
    """Estimates one round's latency and the bottleneck bandwidth.

    Parameters
    ----------
    band : float
        Relative deviation taken for noise.
    window : int
        Samples kept for the bandwidth median.
    latency_window : int
        Samples kept for the latency minimum.
    startup : int
        First samples, taken at their maximum: small messages and TCP's slow start make the
        first ones too low.

    Attributes
    ----------
    bandwidth : float or None
        Bytes per second on the busiest link of the ring.
    """

    def __init__(
        self, band: float = 0.25, window: int = 9, latency_window: int = 32, startup: int = 3
    ) -> None:
        self._band = band
        self._window = window
        self._latency_window = latency_window
        self._startup = startup
        self._pings: list[float] = []
        self._samples: list[float] = []
        self._outside: list[float] = []
        self._seen = 0
        self.bandwidth: float | None = None

    @property
    def latency_s(self) -> float:
        """Seconds of one message round; 0 until the first probe came back."""
        return min(self._pings, default=0.0)

    def add(self, rows: Sequence[Measurement]) -> bool:
        """Learn from a step; True when the bandwidth is believed to have changed."""
        world = len(rows)
        pings = [row.ping_s for row in rows if row.ping_s > 0]
        if pings and world > 1:
            self._pings.append(statistics.median_low(pings) / (world - 1))
            del self._pings[: -self._latency_window]
        busy_s = min(row.busy_s for row in rows)
        moved = rows[0].link_bytes
        if not (busy_s > 0 and moved > 0 and math.isfinite(busy_s)):
            return False
        # A message that is nearly all latency says only "at least this fast".
        transfer_s = max(busy_s - rows[0].rounds * self.latency_s, 0.3 * busy_s)
        return self._filter(moved / transfer_s)

    def _filter(self, sample: float) -> bool:
        self._seen += 1
        if self.bandwidth is None or self._seen <= self._startup:
            first = self.bandwidth is None
            self.bandwidth = max(sample, self.bandwidth or 0.0)
            self._samples = [self.bandwidth]
            return first or sample == self.bandwidth
        low, high = self.bandwidth * (1 - self._band), self.bandwidth / (1 - self._band)
        if low <= sample <= high:
            self._outside.clear()
            self._samples.append(sample)
            del self._samples[: -self._window]
            self.bandwidth = statistics.median(self._samples)
            return False
        if self._outside and (self._outside[-1] > high) != (sample > high):
            self._outside.clear()
        self._outside.append(sample)
        if len(self._outside) < 2:
            return False
        self._samples, self._outside = [sample], []
        self.bandwidth = sample
        return True

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "pings": list(self._pings),
            "samples": list(self._samples),
            "outside": list(self._outside),
            "seen": self._seen,
            "bandwidth": self.bandwidth,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self._pings = list(saved["pings"])
        self._samples = list(saved["samples"])
        self._outside = list(saved["outside"])
        self._seen = int(saved["seen"])
        self.bandwidth = saved["bandwidth"]


class Pace:
    """When buckets become ready: the window behind which communication can hide.

    The slowest rank sets the pace; the median of the last steps skips pauses (evaluation,
    checkpoints).
    """

    def __init__(self, window: int = 5) -> None:
        self._window = window
        self._history: list[list[float]] = []

    def add(self, rows: Sequence[Measurement]) -> None:
        """Learn from a step."""
        known = [row for row in rows if math.isfinite(row.compute_s)]
        if len(known) < len(rows):
            return
        pair = [max(row.first_ready_s for row in rows), max(row.compute_s for row in rows)]
        self._history.append(pair)
        del self._history[: -self._window]

    @property
    def known(self) -> bool:
        """At least one whole step was seen."""
        return bool(self._history)

    @property
    def first_ready_s(self) -> float:
        """Seconds from the end of a step to the first bucket ready."""
        return statistics.median(pair[0] for pair in self._history) if self._history else 0.0

    @property
    def compute_s(self) -> float:
        """Seconds from the end of a step to the last bucket ready."""
        return statistics.median(pair[1] for pair in self._history) if self._history else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"history": [list(pair) for pair in self._history]}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self._history = [list(pair) for pair in saved["history"]]
