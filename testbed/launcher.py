"""Start a cell, on whichever back end, and follow it to its end, whatever that is."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from .cell import write_json
from .guest import PROJECT, Guest, GuestFiles, dying_with_parent
from .realwatch import MACHINE
from .starvation import CpuWatch

__all__ = ["CellRun", "GuestCell", "HostCell", "RealGuestCell", "host_command"]

_BASE_MB = 3072
_RANK_MB = 384
_STACKS_WALL_S = 5.0


def _ranks(spec: dict[str, Any]) -> int:
    """Return how many ranks the cell has, those of other jobs included."""
    return spec["world_size"] + sum(job["world_size"] for job in spec.get("jobs", ()))


class CellRun(Protocol):
    """A running cell, as the harness sees it on every back end."""

    folder: Path
    cpu: int | None

    def steps(self) -> int:
        """Return how many steps rank 0 has written down."""

    def poll(self) -> dict[str, Any] | None:
        """Look after the cell; return its outcome once it has ended."""

    def kill(self) -> None:
        """End the cell at once; what it wrote stays."""


class FolderRun:
    """What all back ends have in common: a cell is its folder.

    Parameters
    ----------
    folder
        The cell's folder, made here; ``cell.json`` and all records go there.
    spec
        What the cell is told; see `testbed.cell`.
    cpu
        The processor that the cell is kept on, where it is kept on one.
    """

    def __init__(self, folder: Path, spec: dict[str, Any], cpu: int | None) -> None:
        folder.mkdir(parents=True)
        write_json(folder / "cell.json", spec)
        self.folder = folder
        self.cpu = cpu
        self._counting = False

    def steps(self) -> int:
        """Return how many steps rank 0 has written down."""
        path = self.folder / "steps-rank0.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def poll(self) -> dict[str, Any] | None:
        """Look after the cell; return its outcome once it has ended."""
        raise NotImplementedError

    def kill(self) -> None:
        """End the cell at once; what it wrote stays."""
        raise NotImplementedError

    def wait(self, timeout_s: float = 600.0) -> dict[str, Any]:
        """Wait for the outcome; after `timeout_s` wall seconds the cell is killed."""
        deadline = time.monotonic() + timeout_s
        while (outcome := self.poll()) is None:
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"the cell in {self.folder} did not end in {timeout_s:g} s")
            time.sleep(0.05)
        return outcome

    def _outcome(self, status: str, reason: str) -> dict[str, Any]:
        """Return what the cell wrote of its end; if it did not, write that down."""
        path = self.folder / "outcome.json"
        if not path.exists():
            write_json(path, {"status": status, "reason": reason, "replicas_identical": None})
        return json.loads(path.read_text())

    def _last_words(self) -> str:
        console = (self.folder / "console.log").read_text(errors="replace")
        said = [line for line in console.partition("Kernel panic")[0].split("\n") if line.strip()]
        return said[-1] if said else "it said nothing"

    def _watch_cpu(self, watch: CpuWatch) -> None:
        """Take a sample; begin to count once the machine has been measured."""
        watch.sample()
        if not self._counting and (self.folder / MACHINE).exists():
            self._counting = True
            watch.restart()

    def _mark_starved(self, outcome: dict[str, Any], watch: CpuWatch) -> dict[str, Any]:
        """Add what the machine's processors did, and mark the run if they were short."""
        if "cpu" not in outcome:
            outcome["cpu"] = watch.report()
            if (why := watch.starved()) and outcome.get("link_verdict"):
                verdict = outcome["link_verdict"]
                outcome["link_verdict"] = why if verdict == "ok" else f"{why}; {verdict}"
            write_json(self.folder / "outcome.json", outcome)
        return outcome


class GuestCell(FolderRun):
    """A cell in a guest on a virtual clock.

    Parameters
    ----------
    kernel
        The guest kernel.
    folder, spec, cpu
        See `FolderRun`.
    stall_wall_s
        Wall seconds without a sign of life after which its clock counts as standing still.
    """

    _real_clock = False

    def __init__(
        self,
        kernel: Path,
        folder: Path,
        spec: dict[str, Any],
        *,
        cpu: int | None = None,
        stall_wall_s: float = 300.0,
    ) -> None:
        super().__init__(folder, spec, cpu)
        self._memory_mb = spec.get("memory_mb") or _BASE_MB + _RANK_MB * _ranks(spec)
        self._guest = Guest(
            kernel,
            GuestFiles(folder),
            memory_mb=self._memory_mb,
            seed=spec["seed"] + 1,
            stall_s=stall_wall_s,
            cpu=cpu,
            real_clock=self._real_clock,
        )
        self._woken_at: float | None = None
        self._ending = False

    @property
    def pid(self) -> int:
        """The first process of all that belong to the cell."""
        return self._guest.pid

    def poll(self) -> dict[str, Any] | None:
        """Look after the cell; return its outcome once it has ended."""
        if self._guest.poll() is None and not self._wake_or_give_up():
            return None
        self._guest.kill()
        if self._woken_at is not None:
            return self._outcome("timeout", "the guest's clock stood still")
        return self._outcome("failed", f"the guest ended early: {self._last_words()}")

    def _outcome(self, status: str, reason: str) -> dict[str, Any]:
        """Say so, too, where the guest as a whole ran out of memory: what follows is chance."""
        outcome = super()._outcome(status, reason)
        console = (self.folder / "console.log").read_text(errors="replace")
        cause = f"; the guest ran out of its {self._memory_mb} MB of memory"
        ran_out = outcome["status"] != "ok" and "Out of memory: Killed process" in console
        if ran_out and not outcome["reason"].endswith(cause):
            outcome["reason"] += cause
            write_json(self.folder / "outcome.json", outcome)
        return outcome

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

    def kill(self) -> None:
        """End the cell at once; what it wrote stays."""
        self._guest.kill()


class RealGuestCell(GuestCell):
    """A cell in a guest on the machine's clock, with the distribution's kernel."""

    _real_clock = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = CpuWatch(self.pid)

    def poll(self) -> dict[str, Any] | None:
        """Look after the cell; return its outcome once it has ended."""
        self._watch_cpu(self._watch)
        outcome = super().poll()
        return None if outcome is None else self._mark_starved(outcome, self._watch)


#: The first process must neither reach nor change what is the host's: limits that Mininet would
#: raise for the whole machine, shared memory and temporary files that would outlive it.
_CONTAIN = """
for part in fs kernel vm; do
    mount --bind /proc/sys/$part /proc/sys/$part
    mount -o remount,ro,bind /proc/sys/$part
done
mount -t tmpfs none /dev/shm
export TMPDIR=/dev/shm
ip link set lo up
exec "$@"
"""


def host_command() -> list[str]:
    """Return the command prefix for namespaces that end with this process, however it ends."""
    command = [*dying_with_parent(), "unshare", "--net", "--pid", "--mount"]
    command += ["--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
    return [*command, "sh", "-ec", _CONTAIN, "sh"]


class HostCell(FolderRun):
    """A cell in namespaces of the host's own kernel, which end with their first process.

    Parameters
    ----------
    folder, spec, cpu
        See `FolderRun`; it is kept on no processor.
    """

    def __init__(self, folder: Path, spec: dict[str, Any], *, cpu: int | None = None) -> None:
        super().__init__(folder, spec, cpu)
        command = [*host_command(), sys.executable, "-m", "testbed.first"]
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with open(folder / "console.log", "wb") as console:
            self._process = subprocess.Popen(
                [*command, str(folder.resolve())],
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **threads, "PYTHONHASHSEED": "0"},
            )
        self._watch = CpuWatch(self._process.pid)

    @property
    def pid(self) -> int:
        """The first process of all that belong to the cell."""
        return self._process.pid

    def poll(self) -> dict[str, Any] | None:
        """Look after the cell; return its outcome once it has ended."""
        self._watch_cpu(self._watch)
        if self._process.poll() is None:
            return None
        self.kill()
        outcome = self._outcome("failed", f"the cell ended early: {self._last_words()}")
        return self._mark_starved(outcome, self._watch)

    def kill(self) -> None:
        """End the cell at once; what it wrote stays."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
