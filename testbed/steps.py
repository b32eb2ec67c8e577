"""Show how far a long step of the set-up is: a bar on a terminal, few lines elsewhere.

Only the standard library is used: this runs before rich is installed.
"""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import TextIO

__all__ = ["Step"]

_WIDTH = 24
_REDRAW_S = 0.1


class Step:
    """One step of the set-up, shown from its first word to its duration.

    Parameters
    ----------
    title
        What is done, in a few words.
    out
        Where to show it.
    """

    def __init__(self, title: str, out: TextIO | None = None) -> None:
        self.title = title
        self._out = sys.stderr if out is None else out
        self._live = self._out.isatty()
        self._started = time.monotonic()
        self._drawn = 0.0
        self._quarter = 0

    def __enter__(self) -> Step:
        if not self._live:
            self._say(f"{self.title} …")
        self.update("", 0.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if self._live:
            self._out.write("\r\x1b[K")
        if kind is None:
            self._say(f"{self.title}: done in {_duration(time.monotonic() - self._started)}")

    def update(self, detail: str, share: float | None) -> None:
        """Show what is being done and the share done (0 to 1, None if unknown)."""
        if self._live:
            self._draw(detail, share)
        elif share is not None and int(share * 4) > self._quarter:
            self._quarter = int(share * 4)
            self._say(f"{self.title}: {self._quarter * 25} %")

    def _draw(self, detail: str, share: float | None) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        full = round(_WIDTH * share) if share is not None else 0
        bar = "━" * full + "─" * (_WIDTH - full)
        line = f"{self.title}  {bar}  {_duration(now - self._started)}  {detail}"
        columns = shutil.get_terminal_size().columns - 1
        self._out.write(f"\r\x1b[K{line[:columns]}")
        self._out.flush()

    def _say(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
