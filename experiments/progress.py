"""What a harness tells about its work, and how a terminal shows it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimate import TimeLeft

__all__ = ["Progress", "TerminalProgress"]


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
        self._console.print(text, markup=False, highlight=False)

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
