"""What happens when: a list of actions at virtual times, run by whoever waits.

Times are seconds since the first training step begins. The loop that owns the timeline sleeps
until `next_due`, so that nothing polls: on a virtual clock a poll would keep time from moving.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Timeline"]


class Timeline:
    """Actions in order of time; those of one instant run in the order they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._added = 0

    def at(self, time_s: float, action: Callable[[float], None]) -> None:
        """Run `action` with its requested time at `time_s`."""
        heapq.heappush(self._heap, (time_s, self._added, action))
        self._added += 1

    def every(self, period_s: float, action: Callable[[float], None]) -> None:
        """Run `action` at 0 and then every `period_s`, on times that do not drift."""
        count = 0

        def again(time_s: float) -> None:
            nonlocal count
            count += 1
            action(time_s)
            self.at(count * period_s, again)

        self.at(0.0, again)

    def next_due(self) -> float | None:
        """Return the time of the next action, None if there is none."""
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_s: float) -> None:
        """Run everything that is due at `now_s`."""
        while self._heap and self._heap[0][0] <= now_s:
            time_s, _, action = heapq.heappop(self._heap)
            action(time_s)
