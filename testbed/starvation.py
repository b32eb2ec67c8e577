"""Tell a slow link from a busy processor: how long a cell's processes waited to run.

On a real clock a process that waits for a processor looks like a packet that waits in a queue.
The kernel counts that wait (``/proc/PID/schedstat``, nanoseconds runnable but not running), the
time that a hypervisor withheld (steal in ``/proc/stat``), and what a control group's quota held
back (``cpu.stat``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["CpuWatch", "descendants", "resident_mb"]

#: Shares of the time; beyond them timings say more of the machine than of the links
_WAIT_LIMIT = 0.25
_STEAL_LIMIT = 0.05
_THROTTLE_LIMIT = 0.02


def descendants(pid: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Yield a process and all that it and its children have started and not outlived."""
    yield pid
    try:
        tasks = list((proc / str(pid) / "task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from descendants(int(child), proc)


def resident_mb(pid: int) -> float:
    """Return the memory that a process and its descendants hold, in MiB.

    Shared pages are shared out among those that map them (``Pss``): the memory of a guest is one
    file that its kernel and each of its processes map, and counts once.
    """
    kib = 0
    for process in descendants(pid):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


class CpuWatch:
    """Follows the processes of a cell; call `sample` several times a second.

    Parameters
    ----------
    pid
        The first of them: its descendants belong to the cell as well.
    proc
        Where the kernel shows processes.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._proc = proc
        self._begin_s = time.monotonic()
        self._last: dict[int, tuple[int, int]] = {}
        self._ran_ns = 0
        self._waited_ns = 0
        self._stat = self._read_stat()
        self._throttled_s = self._read_throttled_s()

    def _threads(self) -> Iterator[tuple[int, int, int]]:
        """Yield (thread, ns on a processor, ns waiting for one)."""
        for pid in descendants(self._pid, self._proc):
            try:
                for task in (self._proc / str(pid) / "task").iterdir():
                    ran, waited, _ = (task / "schedstat").read_text().split()
                    yield int(task.name), int(ran), int(waited)
            except (OSError, ValueError):
                continue

    def sample(self) -> None:
        """Add up what has run and waited since the last call."""
        now: dict[int, tuple[int, int]] = {}
        for thread, ran, waited in self._threads():
            now[thread] = (ran, waited)
            before = self._last.get(thread, (0, 0))
            self._ran_ns += max(0, ran - before[0])
            self._waited_ns += max(0, waited - before[1])
        self._last = now

    def _read_stat(self) -> tuple[int, int]:
        """Return (all ticks, stolen ticks) of the machine."""
        ticks = [int(n) for n in (self._proc / "stat").read_text().split("\n")[0].split()[1:9]]
        return sum(ticks), ticks[7]

    def _read_throttled_s(self) -> float:
        """Return how long quotas have held back the control group of this process."""
        total = 0.0
        for line in (self._proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            root = Path("/sys/fs/cgroup") / (controllers and "cpu")
            try:
                text = (root / path.lstrip("/") / "cpu.stat").read_text()
            except OSError:
                continue
            values = dict(entry.split() for entry in text.splitlines())
            total += int(values.get("throttled_time", 0)) / 1e9
            total += int(values.get("throttled_usec", 0)) / 1e6
        return total

    def report(self) -> dict[str, Any]:
        """Return what was found, as plain numbers.

        ``wait_share`` is the time that processes waited for a processor, of the time that they
        wanted one.
        """
        ticks, stolen = self._read_stat()
        wanted = self._ran_ns + self._waited_ns
        passed_s = time.monotonic() - self._begin_s
        throttled_s = self._read_throttled_s() - self._throttled_s
        return {
            "load_1min": round(os.getloadavg()[0], 2),
            "ran_s": round(self._ran_ns / 1e9, 3),
            "wait_share": round(self._waited_ns / wanted, 4) if wanted else 0.0,
            "steal_share": round((stolen - self._stat[1]) / max(1, ticks - self._stat[0]), 4),
            "throttled_share": round(throttled_s / max(passed_s, 1e-9), 4),
        }

    def starved(self) -> str | None:
        """Say in a line why timings cannot be trusted; None if they can."""
        found = self.report()
        limits = (
            ("wait_share", _WAIT_LIMIT, "its processes waited for a processor"),
            ("steal_share", _STEAL_LIMIT, "the hypervisor withheld processors"),
            ("throttled_share", _THROTTLE_LIMIT, "a quota held processors back"),
        )
        for key, limit, what in limits:
            if found[key] > limit:
                return f"starved: {what} {found[key]:.0%} of the time"
        return None
