"""Boot one User-Mode Linux guest, watch it, and be sure that it ends.

A guest's virtual clock moves only while every task in it waits. What runs inside and how
long it takes in virtual time therefore depends on nothing outside, as long as nothing outside
reaches it: its command line, environment and console are the same wherever it is started.

With the distribution's prebuilt kernel the clock is the machine's own.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Guest", "GuestFiles", "compile_rooms", "dying_with_parent", "written_bytes"]

PROJECT = Path(__file__).resolve().parent.parent
INIT = Path(__file__).with_name("init.sh")
#: 2024-01-01T00:00:00Z in ns: the guest's date at boot, so that it does not depend on the host's
_START_NS = 1_704_067_200_000_000_000
#: reads of the clock at one instant that do not move it, until a cell says otherwise
_STARTING_READS = 32768
_UML_DIR = "uml"


@dataclass(frozen=True)
class GuestFiles:
    """Where on the host lies what the guest is shown, all read-only but the cell's folder."""

    cell: Path
    project: Path = PROJECT
    venv: Path = field(default_factory=lambda: Path(sys.prefix))
    python_home: Path = field(default_factory=lambda: Path(sys.base_prefix))

    def environment(self, command: str | None, more: str | None = None) -> str:
        """Return the text of ``guest.env``, which ``init.sh`` reads.

        `command` runs inside instead of a cell, `more` is put into its environment.
        """
        values = {
            "PROJECT": self.project,
            "VENV": self.venv,
            "PYTHON_HOME": self.python_home,
            "CELL": self.cell.resolve(),
        }
        lines = [f"{key}={shlex.quote(str(value))}" for key, value in values.items()]
        if command:
            lines.append(f"GUEST_COMMAND={shlex.quote(command)}")
        if more:
            lines.append(f"GUEST_MORE={shlex.quote(more)}")
        return "\n".join(lines) + "\n"


def written_bytes(folder: Path) -> int:
    """Return the bytes of all files in `folder`, whatever is renamed in it meanwhile."""
    size = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def compile_rooms(project: Path) -> None:
    """Leave bytecode beside every module of the project that a guest may import.

    A guest cannot write it. One that had to compile what another found compiled would do more
    work in virtual time, and end elsewhere in the last digits.
    """
    for room in ("netsenseml", "topologies", "testbed", "experiments", "tests"):
        if (project / room).is_dir():
            compileall.compile_dir(project / room, quiet=2)


def dying_with_parent() -> list[str]:
    """Return the command prefix for a process that is killed when this one ends, however it ends.

    The kernel tells it of no end before it asked to be told: then it has another parent by now.
    What the shell adds to the environment is taken out again.
    """
    check = f'[ "$PPID" = {os.getpid()} ] && exec env -u PWD -u OLDPWD -u SHLVL -u _ "$@"'
    return ["setpriv", "--pdeathsig", "KILL", "sh", "-c", check, "sh"]


def own_pids() -> list[str]:
    """Return the command prefix for a PID namespace whose processes all die with it."""
    rights = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    return ["unshare", *rights, "--pid", "--fork", "--kill-child"]


def _virtual_clock(seed: int, real_clock: bool, cell: bool) -> list[str]:
    """Return the boot parameters that differ between the patched kernel and the other."""
    if real_clock:
        # it keeps a file with its process id, and does not start where it cannot
        return [f"uml_dir={_UML_DIR}/"]
    return [
        *([f"time.free_reads={_STARTING_READS}"] if cell else []),
        "time-travel=inf-cpu",
        f"time-travel-start={_START_NS}",
        f"rngseed={seed:010d}",
        f"sch_netem.seed={seed:010d}",
    ]


class Guest:
    """A running guest. Its files, console and signs of life are in the cell's folder.

    Parameters
    ----------
    kernel
        The User-Mode Linux program.
    files
        What the guest is shown.
    memory_mb
        Its memory; pages are taken from the host as they are touched.
    seed
        Seed of the kernel's random numbers and of netem's, at least 1.
    stall_s
        Wall seconds without a sign of life after which the clock counts as standing still.
    command
        What to run inside instead of a cell (a shell command line without quotes).
    cpu
        The processor that the guest is kept on. The kernel and the process it runs take turns;
        on two processors each turn wakes one up, which takes several times as long.
    real_clock
        Whether `kernel` is the distribution's, on the machine's clock.
    console
        What the guest's console is: its standard input and output. None: a pipe, and
        ``console.log``.
    """

    def __init__(
        self,
        kernel: Path,
        files: GuestFiles,
        *,
        memory_mb: int = 4096,
        seed: int = 1,
        stall_s: float = 180.0,
        command: str | None = None,
        cpu: int | None = None,
        real_clock: bool = False,
        console: tuple[int, int] | None = None,
    ) -> None:
        self.files = files
        self._real_clock = real_clock
        self.stall_s = stall_s
        cell = files.cell
        compile_rooms(files.project)
        (cell / "guest.env").write_text(
            files.environment(command, "UML_MODULES=1" if real_clock else None)
        )
        (cell / "init.sh").write_bytes(INIT.read_bytes())
        (cell / "init.sh").chmod(0o755)
        arguments = [
            f"mem={memory_mb}M",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "init=/proc/self/cwd/init.sh",
            "con0=fd:0,fd:1",
            "con=null",
            "loglevel=1" if real_clock else "quiet",
            *_virtual_clock(seed, real_clock, command is None),
            "norandmaps",
            # seeded at boot: without it the first random number waits for minutes of entropy
            "random.trust_cpu=on",
            "random.trust_bootloader=on",
        ]
        # The kernel lays out its memory behind its own heap: a random heap would be a random
        # memory size.
        prefix = [*dying_with_parent(), "setarch", "-R"]
        if cpu is not None:
            prefix += ["taskset", "--cpu-list", str(cpu)]
        if real_clock:
            # our kernel is patched to take its processes along when it is killed, this one not
            prefix += [*own_pids(), "sh", "-c", '"$@"; exit $?', "sh"]
        with open(cell / "console.log", "wb") as log:
            self._process = subprocess.Popen(
                [*prefix, str(kernel), *arguments],
                cwd=cell,
                stdin=console[0] if console else subprocess.PIPE,
                stdout=console[1] if console else log,
                stderr=log if console else subprocess.STDOUT,
                start_new_session=True,
                # no HOME: the kernel would leave a folder for its pid there
                env={"PATH": os.environ.get("PATH", ""), "HOME": "/proc/self/nowhere"},
            )
        self._seen: tuple[int, float] = (0, time.monotonic())

    @property
    def pid(self) -> int:
        """The first process of all that belong to the guest, or what it was."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the guest's exit status, None while it runs."""
        return self._process.poll()

    def stalled(self) -> bool:
        """Whether nothing inside has given a sign of life for `stall_s` wall seconds."""
        size, now = written_bytes(self.files.cell), time.monotonic()
        if size != self._seen[0]:
            self._seen = (size, now)
        return now - self._seen[1] > self.stall_s

    def wake(self, word: str) -> None:
        """Say a word to the watchdog inside, by its console.

        On ``stacks`` it has each rank write where it stands, on ``end`` it ends the cell. The
        guest's clock may stand still, so nothing in it can wait for a time: a line on the
        console is an interrupt from outside, which gets through, and then the ranks must run
        before the next.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ProcessLookupError, FileNotFoundError):
            self._process.stdin.write(word.encode() + b"\n")
            self._process.stdin.flush()
            if self._real_clock:
                return
            # A process that makes no system call leaves its kernel no chance to take a turn: stop
            # it, once the kernel has had the time to see the line.
            time.sleep(0.3)
            pid = self._process.pid
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGALRM)

    def kill(self) -> None:
        """End the guest at once, with every process in it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self.files.cell / _UML_DIR, ignore_errors=True)
        if self._process.stdin is not None:
            self._process.stdin.close()
