"""What a harness tells about its work, and how a terminal shows it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimate import TimeLeft

__all__ = ["Progress", "SweepProgress", "TerminalProgress", "duration_text"]


class Progress:
    """Told what happens; says nothing. May be called from several threads."""

    def note(self, text: str) -> None:
        """Something that takes a while has begun, such as building the guest kernel."""

    def planned(self, left: TimeLeft, done: int) -> None:
        """A sweep begins: what is known of its cells to run, and how many have a result."""

    def cell_started(self, key: str, total: int) -> None:
        """A cell, named by `Cell.key`, begins its `total` steps."""

    def cell_step(self, key: str, done: int) -> None:
        """A cell has completed `done` steps."""

    def cell_ended(self, key: str, status: str, reason: str = "") -> None:
        """A cell has ended: ok, diverged, timeout or failed."""


class TerminalProgress(Progress):
    """Shows a bar per running cell on a terminal, a line per event elsewhere.

    Use as a context manager.
    """

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._console = console
        self._lock = threading.Lock()
        self._tasks: dict[str, Any] = {}
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bars = Bars(
            *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
        )

    def __enter__(self) -> TerminalProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def note(self, text: str) -> None:
        """Print the text."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def cell_started(self, key: str, total: int) -> None:
        """Add a bar."""
        with self._lock:
            self._tasks[key] = self._bars.add_task(key, total=total)
        if not self._console.is_terminal:
            self.note(f"{key}: started")

    def cell_step(self, key: str, done: int) -> None:
        """Move the bar."""
        with self._lock:
            if key in self._tasks:
                self._bars.update(self._tasks[key], completed=done)

    def cell_ended(self, key: str, status: str, reason: str = "") -> None:
        """Replace the bar by a line."""
        with self._lock:
            if key in self._tasks:
                self._bars.remove_task(self._tasks.pop(key))
        self.note(f"{key}: {status}{f' ({reason})' if reason else ''}")


class SweepProgress(TerminalProgress):
    """Shows also how many cells are done, running and failed, and the time left."""

    def __init__(self, console: Any) -> None:
        super().__init__(console)
        self._left: TimeLeft | None = None
        self._whole: Any = None
        self._done = self._total = self._failed = self._running = 0

    def planned(self, left: TimeLeft, done: int) -> None:
        """Add the bar of the whole."""
        self._left, self._done, self._total = left, done, done + len(left.specs)
        self._whole = self._bars.add_task("", total=self._total)
        before = f", {done} are done" if done else ""
        self.note(f"{self._total} cells{before}; {left.slots} at a time; {self._time_left()}")
        self._show()

    def _time_left(self) -> str:
        seconds = self._left.seconds() if self._left else None
        if seconds is None:
            return "time left unknown until a cell has run"
        return f"about {duration_text(seconds)} left"

    def counts(self) -> str:
        """Return what the bar of the whole says."""
        parts = [f"{self._done} of {self._total} done", f"{self._running} running"]
        parts += [f"{self._failed} failed"] if self._failed else []
        parts += [self._time_left()] if self._done < self._total else []
        return ", ".join(parts)

    def _show(self) -> None:
        with self._lock:
            if self._whole is not None:
                self._bars.update(self._whole, completed=self._done, description=self.counts())

    def cell_started(self, key: str, total: int) -> None:
        """Add a bar, count."""
        if self._left:
            self._left.started(key)
        self._running += 1
        super().cell_started(key, total)
        self._show()

    def cell_step(self, key: str, done: int) -> None:
        """Move the bars."""
        if self._left:
            self._left.stepped(key, done)
        super().cell_step(key, done)
        self._show()

    def cell_ended(self, key: str, status: str, reason: str = "") -> None:
        """Replace the bar by a line that says where the whole stands."""
        if self._left:
            self._left.ended(key, status)
        self._running -= 1
        self._done += 1
        self._failed += status != "ok"
        self._show()
        with self._lock:
            if key in self._tasks:
                self._bars.remove_task(self._tasks.pop(key))
        why = f" ({reason})" if reason else ""
        where = "" if self._console.is_terminal else f"; {self.counts()}"
        self.note(f"{key}: {status}{why}{where}")


def duration_text(seconds: float) -> str:
    """Return a duration as a person would say it: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
