"""Start a cell in a guest of its own and follow it to its end, whatever that is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from .cell import write_json
from .guest import Guest, GuestFiles

__all__ = ["GuestCell"]

_BASE_MB = 3072
_RANK_MB = 384
_STACKS_WALL_S = 5.0
#: what only the boot needs; paths of this machine have no place among records
_OF_THIS_MACHINE = ("guest.env", "init.sh")


class GuestCell:
    """A running cell.

    Parameters
    ----------
    kernel
        The guest kernel.
    folder
        The cell's folder, made here; ``cell.json`` and all records go there.
    spec
        What the guest is told; see `testbed.cell`.
    cpu
        The processor that the guest is kept on.
    stall_wall_s
        Wall seconds without a sign of life after which its clock counts as standing still.
    """

    def __init__(
        self,
        kernel: Path,
        folder: Path,
        spec: dict[str, Any],
        *,
        cpu: int | None = None,
        stall_wall_s: float = 300.0,
    ) -> None:
        folder.mkdir(parents=True)
        write_json(folder / "cell.json", spec)
        self.folder = folder
        self.cpu = cpu
        self._guest = Guest(
            kernel,
            GuestFiles(folder),
            memory_mb=spec.get("memory_mb") or _BASE_MB + _RANK_MB * spec["world_size"],
            seed=spec["seed"] + 1,
            stall_s=stall_wall_s,
            cpu=cpu,
        )
        self._woken_at: float | None = None
        self._ending = False

    def running(self) -> bool:
        """Whether the guest still runs."""
        return self._guest.poll() is None

    def steps(self) -> int:
        """Return how many steps rank 0 has written down."""
        path = self.folder / "steps-rank0.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def poll(self) -> dict[str, Any] | None:
        """Look after the cell; return its outcome once it has ended."""
        if self._guest.poll() is None and not self._wake_or_give_up():
            return None
        self._guest.kill()
        for name in _OF_THIS_MACHINE:
            (self.folder / name).unlink(missing_ok=True)
        path = self.folder / "outcome.json"
        if not path.exists():
            stood = self._woken_at is not None
            reason = "the guest's clock stood still" if stood else self._last_words()
            status = "timeout" if stood else "failed"
            write_json(path, {"status": status, "reason": reason, "replicas_identical": None})
        return json.loads(path.read_text())

    def _wake_or_give_up(self) -> bool:
        """Wake the watchdog of a guest whose clock stands still; True if that was in vain."""
        now = time.monotonic()
        if self._woken_at is None:
            if self._guest.stalled():
                self._guest.wake("stacks")
                self._woken_at = now
            return False
        waited_s = now - self._woken_at
        if waited_s > _STACKS_WALL_S and not self._ending:
            self._guest.wake("end")
            self._ending = True
        return waited_s > 3 * _STACKS_WALL_S

    def wait(self, timeout_s: float = 600.0) -> dict[str, Any]:
        """Wait for the outcome; after `timeout_s` wall seconds the cell is killed."""
        deadline = time.monotonic() + timeout_s
        while (outcome := self.poll()) is None:
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"the cell in {self.folder} did not end in {timeout_s:g} s")
            time.sleep(0.05)
        return outcome

    def kill(self) -> None:
        """End the cell at once; what it wrote stays."""
        self._guest.kill()

    def _last_words(self) -> str:
        console = (self.folder / "console.log").read_text(errors="replace")
        said = [line for line in console.partition("Kernel panic")[0].split("\n") if line.strip()]
        return f"the guest ended early: {said[-1] if said else 'it said nothing'}"
