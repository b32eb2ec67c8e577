"""Latency, bandwidth and compute time from what all ranks measured.

Five things disturb a naive ``bytes / seconds``:

- Waiting for a slow rank lengthens a collective on all ranks but the slow one: where busy periods
  differ much the shortest over ranks counts, with the latency that is left to the late rank. Where
  they lie close the median counts: who is last by milliseconds finds others' parts waiting.
- Latency lengthens it by a part that does not depend on size: rounds times the agreement's own
  duration per round, a message of fixed size, as a windowed minimum.
- Collectives that start one after the other leave the network idle in between, and those that
  overlap lengthen each other: of the step as a whole and of its largest collective alone, the one
  that shows the higher rate counts.
- The latency is not quite the same for every message: small ones overlap some of it, larger ones
  wait for TCP's window. So each size has a fixed cost of its own, learnt by comparison with the
  size that lasts longest beside its latency and therefore tells the bandwidth best.
- One odd sample must not move the estimate, a real change must move it at once: samples inside a
  band are averaged by their median, two in a row outside of it on the same side replace it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from netsenseml.policy import Measurement

__all__ = ["CLEAR_SHARE", "LinkSense", "Pace"]

CLEAR_SHARE = 0.45  # part of a message's time that latency may take, for the rest to tell the rate
_SIZES = 6  # sizes remembered
_TIMES = 9  # times remembered of each
_FIXED = (0.3, 3.0)  # fixed cost of a size, as a multiple of its rounds' latency
# Latencies that an all-gather costs a rank that comes much later than the rest: 2 where every part
# is asked for in turn, 1.5 where all are asked for at once.
_LATE_ROUNDS = 1.75
# But where a connection rested until TCP forgot its window (RFC 5681, 4.1; Linux: the smallest
# retransmission timeout), slow start costs more than that saves: most of a round on top (with a
# straggler on 100 Mbit/s a whole round reads 111, three quarters 107).
_RESTS_S, _RESTART_ROUNDS = 0.2, 0.75
# Exchanges show a change of the rate, not the rate: up to 1 / (1 - this) times is taken for it.
_LOOSE = 0.6
_CLOSE = 0.5  # busy periods of ranks that differ by less, of the shortest, hide no straggler
_FLOOR = 0.3  # part of a message's time that counts as transfer, however high its fixed cost


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
        # Per size seen at the present bandwidth: link bytes, rounds, and its last busy seconds.
        self._sizes: list[tuple[float, float, list[float]]] = []
        self._fixed: dict[tuple[float, float], float] = {}
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

        The median over the sizes whose fixed cost is known, or else the probe's.
        """
        known = [fixed / rounds for (_, rounds), fixed in self._fixed.items() if rounds]
        return max(self.ping_s, statistics.median(known)) if known else self.ping_s

    def share(self, moved: float, rounds: float) -> float:
        """Part of a message's time that latency would take; 1 while nothing is known."""
        if self.bandwidth is None or moved <= 0:
            return 1.0
        known = [_rate_of(size, self.ping_s) for size in self._sizes]
        latency_s = rounds * self.ping_s
        return latency_s / (latency_s + moved / max(self.bandwidth, *known, 1.0))

    def add(self, rows: Sequence[Measurement]) -> bool:
        """Learn from a step; True when the bandwidth is believed to have changed."""
        world = len(rows)
        pings = [row.ping_s for row in rows if row.ping_s > 0]
        if pings and world > 1:
            self._pings.append(statistics.median_low(pings) / (world - 1))
            del self._pings[: -self._latency_window]
        point = self._point(rows)
        if point is None:
            return False
        moved, rounds, busy_s = point
        self._seen += 1
        changed = self._filter(point, _loose(rows))
        if self._seen > self._startup and not self._outside and not _loose(rows):
            self._note(moved, rounds, busy_s)
            self._calibrate()
        if not changed and self.bandwidth is not None and self._seen > self._startup:
            self.bandwidth = self._settled()
        return changed

    def _settled(self) -> float:
        """What the clearest size says, or the median of all samples if none is clear enough."""
        reference = self._reference()
        if reference is not None:
            return _rate_of(reference, self.ping_s)
        return statistics.median(self._rate(sample) for sample in self._samples)

    def _point(self, rows: Sequence[Measurement]) -> list[float] | None:
        """[link bytes, rounds, seconds] of the whole step or its largest collective."""
        first = rows[0]
        whole = [first.link_bytes, first.rounds, _ring_s([row.busy_s for row in rows])]
        main = [first.main_link_bytes, first.main_rounds, _ring_s([row.main_s for row in rows])]
        gathered = first.main_rounds == len(rows) - 1
        # By when ranks were ready: unlike durations may as well come from a lost packet.
        ready = [row.compute_s for row in rows]
        if gathered and max(ready) - min(ready) > 2 * first.rounds * self.ping_s:
            # When a late rank joins an all-gather, the others' parts are all waiting at its
            # neighbour: it asks for them, and they come.
            rested = max(row.first_ready_s for row in rows) >= _RESTS_S
            for point in (whole, main):
                if rested:
                    point[1] += _RESTART_ROUNDS
                else:
                    point[1] *= min(1.0, _LATE_ROUNDS / first.main_rounds)
        usable = [p for p in (whole, main) if p[0] > 0 and p[2] > 0 and math.isfinite(p[2])]
        return max(usable, key=self._rate, default=None)

    def _rate(self, point: list[float]) -> float:
        moved, rounds, busy_s = point
        fixed_s = self._fixed.get((moved, rounds), rounds * self.ping_s)
        # A message that is nearly all latency says only "at least this fast".
        return moved / max(busy_s - fixed_s, _FLOOR * busy_s)

    def _note(self, moved: float, rounds: float, busy_s: float) -> None:
        for known in self._sizes:
            if known[:2] == (moved, rounds):
                known[2].append(busy_s)
                del known[2][:-_TIMES]
                return
        self._sizes.append((moved, rounds, [busy_s]))
        del self._sizes[:-_SIZES]

    def _reference(self) -> tuple[float, float, list[float]] | None:
        """The size that sends most per round, if latency takes a small part of its time.

        By bytes, not by time: a message that was held up would seem clear.
        """
        if not self._sizes or not self.ping_s:
            return None
        best = max(self._sizes, key=lambda size: size[0] / max(size[1], 1))
        return best if best[1] * self.ping_s <= CLEAR_SHARE * min(best[2]) else None

    def _calibrate(self) -> None:
        """Learn the fixed cost of every size from the clearest one."""
        reference = self._reference()
        if reference is None:
            return
        bandwidth = _rate_of(reference, self.ping_s)
        for size in self._sizes:
            low, high = (bound * size[1] * self.ping_s for bound in _FIXED)
            fixed_s = statistics.median(size[2]) - size[0] / bandwidth
            self._fixed[size[0], size[1]] = min(max(fixed_s, low), high)

    def _filter(self, point: list[float], loose: bool) -> bool:
        sample = self._rate(point)
        if self.bandwidth is None or self._seen <= self._startup:
            first = self.bandwidth is None
            self.bandwidth = max(sample, self.bandwidth or 0.0)
            self._samples = [point]
            return first or sample == self.bandwidth
        # The less of the time went into bytes, the more its jitter is magnified.
        transfer_s = point[0] / sample
        band = _LOOSE if loose else min(0.75, self._band * point[2] / transfer_s)
        low, high = self.bandwidth * (1 - band), self.bandwidth / (1 - band)
        if low <= sample <= high:
            self._outside.clear()
            if loose:
                return False
            self._samples.append(point)
            del self._samples[: -self._window]
            return False
        if self._outside and (self._outside[-1] > high) != (sample > high):
            self._outside.clear()
        self._outside.append(sample)
        if len(self._outside) < 2:
            return False
        self._samples, self._outside, self._sizes = [point], [], []
        self.bandwidth = sample
        return True

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "pings": list(self._pings),
            "sizes": [[moved, rounds, list(times)] for moved, rounds, times in self._sizes],
            "fixed": [[*size, fixed] for size, fixed in self._fixed.items()],
            "samples": [list(point) for point in self._samples],
            "outside": list(self._outside),
            "seen": self._seen,
            "bandwidth": self.bandwidth,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self._pings = list(saved["pings"])
        self._sizes = [(moved, rounds, list(times)) for moved, rounds, times in saved["sizes"]]
        self._fixed = {(moved, rounds): fixed for moved, rounds, fixed in saved["fixed"]}
        self._samples = [list(point) for point in saved["samples"]]
        self._outside = list(saved["outside"])
        self._seen = int(saved["seen"])
        self.bandwidth = saved["bandwidth"]


def _loose(rows: Sequence[Measurement]) -> bool:
    """Whether a step had exchanges only: many messages at once, whose latency is no round's."""
    return not any(row.main_link_bytes > 0 for row in rows)


def _ring_s(busy_s: Sequence[float]) -> float:
    """What a collective took, from what it took each rank."""
    shortest_s = min(busy_s)
    close = max(busy_s) - shortest_s <= _CLOSE * shortest_s
    return statistics.median_low(busy_s) if close else shortest_s


def _rate_of(size: tuple[float, float, list[float]], ping_s: float) -> float:
    moved, rounds, times = size
    shortest_s = min(times)  # what makes a message late is not the link's rate
    return moved / max(shortest_s - rounds * ping_s, _FLOOR * shortest_s)


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
