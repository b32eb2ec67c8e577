"""The cells of a sweep on disk: each is there whole or not at all, and none is run twice.

``cells/<digest>/`` is a finished cell. One that runs is in ``cells/.<digest>.<token>/`` and gets
its name by a rename at its end, so that whoever is killed, at whatever moment, loses what was
running and nothing else. One process at a time may add cells: it holds a lock that ends with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .atomic import write_json
from .errors import UserError
from .manifest import now_utc
from .runs import short

__all__ = ["CellStore"]

JOURNAL = "journal.jsonl"
PROVENANCE = "provenance.json"
LINE_END = b"\n"
_LONGEST_LINE = 1 << 20


class CellStore:
    """The cells in a folder.

    Parameters
    ----------
    folder : Path
        Holds ``cells/``, ``journal.jsonl`` and the lock.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = folder / "cells"
        self._held = False

    def path(self, digest: str) -> Path:
        """Return where a finished cell lies or will lie, seen from the store's folder."""
        return self.cells / digest

    def outcome(self, digest: str) -> dict[str, Any] | None:
        """Return the outcome of a finished cell, None if there is none."""
        return _json(self.path(digest) / "outcome.json")

    def done(self, digest: str) -> bool:
        """Whether a cell needs no more running: it has a result, also a bad one.

        A failure is no result, and neither is being stopped from outside.
        """
        outcome = self.outcome(digest) or {}
        status = outcome.get("status")
        timed_out = status == "timeout" and outcome.get("virtual_s") is not None
        return status in ("ok", "diverged") or timed_out

    # -- what follows needs the lock ---------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[list[str]]:
        """Hold the lock, and mend what a killed process left; yields what was found, as lines.

        Raises
        ------
        UserError
            If another process holds it, or the folder cannot be written.
        """
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / ".lock", "a+")  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{short(self.folder)}: cannot be written: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                holder = lock.read().strip() or "another process"
                raise UserError(
                    f"{short(self.folder)}: is in use by {holder}; wait for it, or stop it"
                ) from None
            lock.truncate(0)
            lock.write(f"process {os.getpid()} since {now_utc()}\n")
            lock.flush()
            self._held = True
            try:
                yield self._mend()
            finally:
                self._clear()
                self._held = False

    def _clear(self) -> int:
        """Remove the folders of cells that did not end; return how many."""
        left = [p for p in self.cells.iterdir() if p.name.startswith(".")]
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        return len(left)

    def _mend(self) -> list[str]:
        found = []
        if left := self._clear():
            count = "1 cell was" if left == 1 else f"{left} cells were"
            found.append(f"{count} running when the sweep was killed: removed, to run again")
        found += repair(self.folder / JOURNAL)
        for cell in sorted(self.cells.iterdir()):
            torn = [text for path in sorted(cell.rglob("*.jsonl")) for text in repair(path)]
            if torn or self.outcome(cell.name) is None:
                what = "; ".join(torn) or "outcome.json is missing or damaged"
                found.append(f"cell {cell.name}: {what}: it will run again")
                self._remove(cell)
        return found

    def _remove(self, cell: Path) -> None:
        """Make a cell vanish at once, then take its time to delete it."""
        gone = self.cells / f".{cell.name}.{secrets.token_hex(4)}"
        cell.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def attempt(self, digest: str) -> Path:
        """Return a folder, not there yet, for a cell to run in."""
        assert self._held
        return self.cells / f".{digest}.{secrets.token_hex(4)}"

    def commit(self, attempt: Path, digest: str, provenance: dict[str, Any]) -> list[str]:
        """Give an ended cell its name.

        Parameters
        ----------
        attempt
            Its folder, from `attempt`.
        digest
            Its name.
        provenance
            Goes to ``provenance.json``.

        Returns
        -------
        list of str
            Torn lines that were cut, as happens to a cell that was stopped.
        """
        assert self._held
        torn = [text for path in sorted(attempt.rglob("*.jsonl")) for text in repair(path)]
        write_json(attempt / PROVENANCE, {**provenance, "repaired": torn})
        for path in (*attempt.rglob("*"), attempt):
            _sync(path)
        target = self.path(digest)
        if target.exists():  # failed before
            self._remove(target)
        attempt.rename(target)
        _sync(self.cells)
        return torn

    def note(self, **event: Any) -> None:
        """Append an event to the journal, in one write."""
        assert self._held
        line = json.dumps({"at": now_utc(), **event}, sort_keys=True, allow_nan=False) + "\n"
        handle = os.open(self.folder / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def provenances(self) -> list[dict[str, Any]]:
        """Return what is known of how each finished cell came to be."""
        found = (_json(path) for path in sorted(self.cells.glob(f"[!.]*/{PROVENANCE}")))
        return [data for data in found if data is not None]


def _json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def repair(path: Path) -> list[str]:
    """Cut a torn last line off a JSON-lines file; return what was done, as at most one line."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return []
    with path.open("rb") as file:
        file.seek(max(0, size - _LONGEST_LINE))
        tail = file.read()
    whole, _, last = tail.rpartition(b"\n")
    if not last:  # ends with a line's end: look at that line
        last = whole.rpartition(b"\n")[2] + b"\n" if whole else b""
    try:
        torn = bool(last) and not (last.endswith(b"\n") and isinstance(json.loads(last), dict))
    except ValueError:
        torn = True
    if not torn:
        return []
    os.truncate(path, size - len(last))
    return [f"{path.name}: the torn last line {path.read_bytes().count(LINE_END) + 1} was cut"]
