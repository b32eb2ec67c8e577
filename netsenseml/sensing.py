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
        self._fits: list[float] = []
        self._points: list[list[float]] = []  # [link bytes, rounds, shortest busy seconds]
        self._samples: list[list[float]] = []  # [link bytes, rounds, busy seconds]
        self._outside: list[float] = []
        self._seen = 0
        self.bandwidth: float | None = None

    @property
    def ping_s(self) -> float:
        """Seconds of one message round by the probe; 0 until the first came back."""
        return min(self._pings, default=0.0)

    @property
    def latency_s(self) -> float:
        """Seconds that a round costs beside the transfer of its bytes.

        At least the probe's, and more when messages of different sizes show it (start-up of a
        transfer), but no more than five times the probe's.
        """
        fitted = statistics.median(self._fits) if self._fits else 0.0
        return min(max(fitted, self.ping_s), 5 * self.ping_s)

    @property
    def sizes(self) -> int:
        """Message sizes seen since the bandwidth last changed."""
        return len(self._points)

    def add(self, rows: Sequence[Measurement]) -> bool:
        """Learn from a step; True when the bandwidth is believed to have changed."""
        world = len(rows)
        pings = [row.ping_s for row in rows if row.ping_s > 0]
        if pings and world > 1:
            self._pings.append(statistics.median_low(pings) / (world - 1))
            del self._pings[: -self._latency_window]
        busy_s = min(row.busy_s for row in rows)
        moved, rounds = rows[0].link_bytes, rows[0].rounds
        if not (busy_s > 0 and moved > 0 and math.isfinite(busy_s)):
            return False
        self._seen += 1
        point = [moved, rounds, busy_s]
        changed = self._filter(point)
        if self._seen > 1 and not self._outside:
            self._note(point)
        if not changed and self.bandwidth is not None and self._seen > self._startup:
            self.bandwidth = statistics.median(self._rate(sample) for sample in self._samples)
        return changed

    def _rate(self, point: list[float]) -> float:
        moved, rounds, busy_s = point
        # A message that is nearly all latency says only "at least this fast".
        return moved / max(busy_s - rounds * self.latency_s, 0.3 * busy_s)

    def _note(self, point: list[float]) -> None:
        """Keep the shortest time of each size, and fit T = rounds * a + D / B to two sizes."""
        known = [old for old in self._points if old[:2] == point[:2]]
        if known:
            known[0][2] = min(known[0][2], point[2])
        else:
            self._points.append(list(point))
            del self._points[:-4]
        best, fit = 0.0, None
        for one in self._points:
            for two in self._points:
                cross = one[1] * two[0] - two[1] * one[0]
                spread = cross / max(one[1] * two[0], two[1] * one[0], 1e-9)
                if spread > max(best, 0.3):
                    best, fit = spread, (one[2] * two[0] - two[2] * one[0]) / cross
        if fit is not None:
            self._fits.append(max(fit, 0.0))
            del self._fits[:-5]

    def _filter(self, point: list[float]) -> bool:
        sample = self._rate(point)
        if self.bandwidth is None or self._seen <= self._startup:
            first = self.bandwidth is None
            self.bandwidth = max(sample, self.bandwidth or 0.0)
            self._samples = [point]
            return first or sample == self.bandwidth
        # The less of the time went into bytes, the more its jitter is magnified.
        transfer_s = point[0] / sample
        band = min(0.75, self._band * point[2] / transfer_s)
        low, high = self.bandwidth * (1 - band), self.bandwidth / (1 - band)
        if low <= sample <= high:
            self._outside.clear()
            self._samples.append(point)
            del self._samples[: -self._window]
            return False
        if self._outside and (self._outside[-1] > high) != (sample > high):
            self._outside.clear()
        self._outside.append(sample)
        if len(self._outside) < 2:
            return False
        self._samples, self._outside, self._points = [point], [], []
        self.bandwidth = sample
        return True

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "pings": list(self._pings),
            "fits": list(self._fits),
            "points": [list(point) for point in self._points],
            "samples": [list(point) for point in self._samples],
            "outside": list(self._outside),
            "seen": self._seen,
            "bandwidth": self.bandwidth,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self._pings = list(saved["pings"])
        self._fits = list(saved["fits"])
        self._points = [list(point) for point in saved["points"]]
        self._samples = [list(point) for point in saved["samples"]]
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
