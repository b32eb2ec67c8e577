"""What works on this machine, per back end, and what mends the rest.

Takes well under 2 s, changes nothing, and needs nothing but the standard library: it is what to
ask when the set-up itself does not work.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import probes
from .kernel import build as kernel_build
from .modules import MODULES
from .needs import apt_line, missing, needs, packages

__all__ = ["BackEnd", "Lack", "diagnose", "main", "pick"]

ROOT = Path(__file__).resolve().parent.parent
_GUEST_GIB = 2.0
_UML = "/usr/bin/linux.uml"
#: of the set-up's needs, those of the kernel's build
_BUILDING = "building the guest kernel"
#: and those of every net
_RUNNING = {"util-linux", "mininet", "iproute2", "iperf3", "bridge-utils", "net-tools"}
_RUNNING |= {"procps", "hostname", "dataset-fashion-mnist"}
_REFUSED = {
    "netem": "delay_ms, jitter_ms and loss_pct are",
    "red": "aqm: red is",
    "fq_codel": "aqm: fq_codel is",
}


@dataclass(frozen=True)
class Lack:
    """Something a back end misses, and the command or deed that mends it."""

    what: str
    mend: str


@dataclass(frozen=True)
class BackEnd:
    """A way to run scenarios, and what keeps it from working here.

    Parameters
    ----------
    name
        As in the scenario's and the command line's words.
    summary
        What it is, in a line.
    lacks
        What is missing; it works if there is nothing.
    notes
        What it cannot do even when it works.
    clock
        ``virtual`` or ``real``.
    lacking_qdiscs
        Of netem (delay, jitter, loss, reordering), red and fq_codel, what its kernel has not.
    """

    name: str
    summary: str
    lacks: tuple[Lack, ...] = ()
    notes: tuple[str, ...] = field(default=())
    clock: str = "real"
    lacking_qdiscs: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether a scenario can run on it here and now."""
        return not self.lacks


def diagnose() -> list[BackEnd]:
    """Return every back end, in the order in which `pick` prefers them."""
    return [_guest_virtual(), _guest_real(), _host(), _cluster()]


def pick(back_ends: Iterable[BackEnd]) -> tuple[str | None, str]:
    """Return the back end that ``auto`` takes, None if there is none, and why."""
    passed: list[str] = []
    for back_end in back_ends:
        if back_end.name == "cluster":
            continue  # nobody but its user knows that there is one
        if back_end.works:
            why = f"; {', '.join(passed)} would come first" if passed else ""
            return back_end.name, f"the first that works{why}"
        passed.append(back_end.name)
    return None, "none works here"


def _lacking_packages(skip: str = "") -> list[Lack]:
    lacking = [need for need in missing(needs()) if need.why != skip]
    line = apt_line(packages(lacking))
    return [Lack(f"{need.lacks()[0]} ({need.why})", line) for need in lacking]


def _guest(source: list[Lack]) -> list[Lack]:
    """Return what a User-Mode Linux guest lacks, whichever its kernel."""
    lacks = list(source)
    if not probes.is_x86_64():
        lacks.append(Lack("an x86-64 processor", "use another machine"))
    if not probes.can_trace():
        mend = "allow ptrace (in a container: --cap-add=SYS_PTRACE)"
        lacks.append(Lack("leave to trace processes", mend))
    where = probes.guest_memory_folder()
    if not probes.executable_memory():
        lacks.append(Lack(f"leave to execute in {where}", f"mount -o remount,exec {where}"))
    free = probes.free_memory_gib()
    if free < _GUEST_GIB:
        mend = f"free memory, or mount -o remount,size=8G {where} (in a container: --shm-size=8g)"
        lacks.append(Lack(f"{_GUEST_GIB:g} GiB for a guest in {where}; {free:.1f} are free", mend))
    return lacks


def _python() -> list[Lack]:
    if os.access(ROOT / ".venv" / "bin" / "python", os.X_OK):
        made = ROOT / ".venv" / "made-from"
        return [] if made.exists() else [Lack("a whole .venv", "make setup")]
    return [] if _has_torch() else [Lack(".venv with the Python packages", "make setup")]


def _has_torch() -> bool:
    """Whether torch is installed beside this Python or in ``.venv``; it is not imported."""
    from importlib.util import find_spec

    in_venv = (ROOT / ".venv" / "lib").glob("python3*/site-packages/torch/version.py")
    return find_spec("torch") is not None or any(in_venv)


def _guest_virtual() -> BackEnd:
    try:
        built = kernel_build.kernel_path().exists()
    except kernel_build.KernelError:
        built = False
    lacks = _guest(_lacking_packages(skip=_BUILDING if built else ""))
    lacks += _python()
    if not built:
        lacks.append(Lack("the guest kernel", "make setup"))
    return BackEnd(
        "guest",
        "Linux guest on a virtual clock: no root, repeats to the last digit",
        tuple(lacks),
        clock="virtual",
    )


def _guest_real() -> BackEnd:
    lacks = []
    if not Path(_UML).exists() or not any(MODULES.glob("*/modules.dep")):
        lacks.append(Lack(f"{_UML} with its modules", apt_line(["user-mode-linux"])))
    if not probes.own_pids():
        mend = (
            "run as root, or allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1"
        )
        lacks.append(Lack("leave to make PID namespaces", mend))
    return BackEnd(
        "guest-real",
        "Linux guest on the machine's clock, with the distribution's kernel: no root",
        (*_guest(_running(lacks)), *_python()),
        ("one processor per guest; the machine's load shows in the results",),
    )


def _running(lacks: list[Lack]) -> list[Lack]:
    """Add what is missing of all that a net on a real clock is run with."""
    lacking = missing(need for need in needs() if need.package in _RUNNING)
    line = apt_line(packages(lacking))
    return lacks + [Lack(f"{need.lacks()[0]} ({need.why})", line) for need in lacking]


def _host() -> BackEnd:
    lacks, notes = _running([]), []
    if os.geteuid() != 0:
        lacks.append(Lack("root", "run as root"))
    there = probes.qdiscs()
    if there is None:
        notes.append("the kernel's shapers could not be tried")
    elif not there["tbf"]:
        lacks.append(Lack("tbf in the host's kernel", "modprobe sch_tbf, or use another kernel"))
    lacking = tuple(n for n in _REFUSED if there is not None and not there[n])
    notes += [
        f"no {name} in the host's kernel: {_REFUSED[name]} refused"
        f" (modprobe sch_{name}, if it has it)"
        for name in lacking
    ]
    return BackEnd(
        "host",
        "Mininet on the host's kernel and clock",
        (*lacks, *_python()),
        tuple(notes),
        lacking_qdiscs=lacking,
    )


def _cluster() -> BackEnd:
    lacks = [] if _has_torch() else [Lack("torch", "make setup")]
    return BackEnd(
        "cluster",
        "machines you have, under torchrun",
        tuple(lacks),
        ("nothing is emulated, only measured; auto never takes it",),
    )


def _as_json(back_ends: list[BackEnd]) -> dict[str, Any]:
    name, why = pick(back_ends)
    real, why_real = pick(b for b in back_ends if b.clock == "real")
    return {
        "auto": name,
        "why": why,
        "auto_real": real,
        "why_real": why_real,
        "python": {"running": sys.executable, "venv": _venv_python()},
        "back_ends": [{"works": b.works, **asdict(b)} for b in back_ends],
    }


def _venv_python() -> str | None:
    python = ROOT / ".venv" / "bin" / "python"
    return os.path.realpath(python) if os.access(python, os.X_OK) else None


def _print(back_ends: list[BackEnd]) -> None:
    colours = ("\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m") if sys.stdout.isatty() else [""] * 4
    green, red, dim, plain = colours
    for back_end in back_ends:
        mark = f"{green}works{plain}" if back_end.works else f"{red}no   {plain}"
        print(f"{back_end.name:<14} {mark}  {back_end.summary}")
        mends: dict[str, list[str]] = {}
        for lack in back_end.lacks:
            mends.setdefault(lack.mend, []).append(lack.what)
        for mend, lost in mends.items():
            print(f"{'':15}missing: {', '.join(lost)}\n{'':15}  {dim}mend:{plain} {mend}")
        for note in back_end.notes:
            print(f"{'':15}note: {note}")
    name, why = pick(back_ends)
    print(f"\nauto takes {name or 'nothing'}: {why}.")
    name, why = pick(b for b in back_ends if b.clock == "real")
    print(f"With clock: real it takes {name or 'nothing'}: {why}.")
    print(f"Python: {sys.executable} asks; runs use {_venv_python() or 'none yet: make setup'}.")


def main(as_json: bool = False) -> int:
    """Print the diagnosis; return 0 if some back end works, else 1."""
    back_ends = diagnose()
    if as_json:
        print(json.dumps(_as_json(back_ends), indent=2, allow_nan=False))
    else:
        _print(back_ends)
    return 0 if pick(back_ends)[0] else 1
