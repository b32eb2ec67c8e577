"""The back ends by name: what each cannot do, which one to take, and how to start a cell on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .doctor import BackEnd, diagnose
from .launcher import CellRun, GuestCell, HostCell, RealGuestCell

__all__ = [
    "CLOCKS",
    "NAMES",
    "ON_ONE_MACHINE",
    "Choice",
    "ChoiceError",
    "choose",
    "refusals",
    "start",
]

#: Back ends and their clocks; the first that works is what ``auto`` takes
CLOCKS = {"guest": "virtual", "guest-real": "real", "host": "real", "cluster": "real"}
NAMES = tuple(CLOCKS)
#: those that make a network where there is none
ON_ONE_MACHINE = ("guest", "guest-real", "host")
#: Debian's and Ubuntu's package ``user-mode-linux``
REAL_KERNEL = Path("/usr/bin/linux.uml")
_NETEM_ONLY = {
    "delay_ms": "delay",
    "jitter_ms": "jitter",
    "loss_pct": "loss",
    "loss_model": "loss",
    "reorder_pct": "reordering",
    "duplicate_pct": "duplication",
    "corrupt_pct": "corruption",
}


class ChoiceError(Exception):
    """No back end can run this; the text names the key and what would be right."""


@dataclass(frozen=True)
class Choice:
    """A back end and why it was taken."""

    name: str
    why: str


def _values(spec: Mapping[str, Any]) -> Iterable[tuple[str, str, Any]]:
    """Yield (where in the scenario, field, value) of all that is asked of links, ever."""
    for number, link in enumerate(spec["topology"]["links"]):
        for field, value in [*link.items(), *link.get("reverse", {}).items()]:
            yield f"topology: link {link.get('name', number)}", field, value
    for event in spec["events"]:
        for field, value in (event.get("changes") or {}).items():
            yield f"events: at {event['at_s']:g} s", field, value


def refusals(name: str, spec: Mapping[str, Any], lacking: Collection[str] = ()) -> list[str]:
    """Return what a back end cannot do of a cell, one line each; empty if it can do all.

    Parameters
    ----------
    name
        The back end.
    spec
        With plain ``topology``, ``events`` and ``workload``.
    lacking
        Of netem, red and fq_codel, what the host's kernel has not.
    """
    device = (spec.get("workload") or {}).get("device")
    wrong = []
    if device == "cuda" and name in ("guest", "guest-real"):
        wrong.append(f"workload.device: no GPU reaches a guest; '{name}' runs on processors")
    if device in ("cpu", "cuda") and CLOCKS[name] == "virtual":
        wrong.append(
            f"workload.device: a virtual clock charges a device's profile; '{device}' takes real"
            " time, so it needs clock: real"
        )
    if CLOCKS[name] == "real":
        wrong += [
            f"topology: link {link.get('name', number)}: jitter_ms: on a real clock jitter lets"
            " frames overtake; expected jitter_keeps_order: false, or backend: guest"
            for number, link in enumerate(spec["topology"]["links"])
            if link.get("jitter_ms") and link.get("jitter_keeps_order", True)
        ]
    if name == "host":
        wrong += _host_refusals(spec, lacking)
    return wrong


def _host_refusals(spec: Mapping[str, Any], lacking: Collection[str]) -> list[str]:
    wrong = [
        f"topology: host {host['name']}: {key}: the back end 'host' sets no limits of hosts"
        for host in spec["topology"]["hosts"]
        for key in ("cpu", "memory_mb")
        if host.get(key) is not None
    ]
    wrong += [
        f"{where}: aqm: this kernel has no {value}; expected pfifo, or backend: guest"
        for where, field, value in _values(spec)
        if field == "aqm" and value in lacking
    ]
    if "netem" not in lacking:
        return wrong
    for where, field, value in _values(spec):
        if field in _NETEM_ONLY and value:
            wrong.append(
                f"{where}: {field}: this kernel has no netem, so the back end 'host' cannot do"
                f" {_NETEM_ONLY[field]}; expected 0, or backend: guest or guest-real"
            )
        elif field == "up" and not value:
            wrong.append(f"{where}: a link cannot go down without netem; use backend: guest")
        elif field == "queue" and "bdp" in value:
            wrong.append(
                f"{where}: queue: without delay the bandwidth-delay product is 0; expected bytes"
                " or packets"
            )
    return wrong


def choose(
    wanted: str, clock: str, spec: Mapping[str, Any], back_ends: list[BackEnd] | None = None
) -> Choice:
    """Return the back end for a cell.

    Parameters
    ----------
    wanted
        One of `NAMES`, or ``auto``: the first of the clock's that works here and can do all that
        is asked; never ``cluster``.
    clock
        ``virtual`` or ``real``.
    spec
        As for `refusals`.
    back_ends
        The doctor's findings; asked for if not given.

    Raises
    ------
    ChoiceError
        If there is none.
    """
    found = {b.name: b for b in (diagnose() if back_ends is None else back_ends)}
    if wanted == "auto":
        names = [n for n in NAMES if CLOCKS[n] == clock and n != "cluster"]
    else:
        if CLOCKS[wanted] != clock:
            raise ChoiceError(f"clock: expected {CLOCKS[wanted]} with backend: {wanted}")
        names = [wanted]
    passed: list[str] = []
    for name in names:
        lacks = [f"{lack.what} is missing ({lack.mend})" for lack in found[name].lacks]
        problems = lacks + refusals(name, spec, found[name].lacking_qdiscs)
        if not problems:
            why = "asked for" if wanted != "auto" else "the first that can do it"
            return Choice(name, "; ".join([why, *passed]))
        passed.append(f"{name}: {problems[0]}")
    if len(passed) == 1:
        raise ChoiceError(passed[0].partition(": ")[2])
    raise ChoiceError(f"backend: none can run this here; {'; '.join(passed)}")


def start(
    name: str, folder: Path, spec: dict[str, Any], *, kernel: Path | None, cpu: int | None
) -> CellRun:
    """Start a cell on a back end.

    Parameters
    ----------
    name
        ``guest``, ``guest-real`` or ``host``; a cluster is started from outside.
    folder
        The cell's folder, not there yet.
    spec
        What the cell is told.
    kernel
        The guest kernel, for ``guest``.
    cpu
        The processor to keep a guest on.
    """
    if name == "host":
        return HostCell(folder, spec)
    if name == "guest-real":
        return RealGuestCell(REAL_KERNEL, folder, spec, cpu=cpu)
    assert kernel is not None
    return GuestCell(kernel, folder, spec, cpu=cpu)
