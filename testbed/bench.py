"""What a guest costs, and where the wall time of a cell goes until its first training step.

The guest cannot know wall time; the host sees its records appear and tells by that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies import build as build_topology

from .launcher import GuestCell
from .starvation import CpuWatch

__all__ = ["PHASES", "guest_costs", "time_start"]

#: Phase, and the record whose appearance ends it; with "+" once it is not empty
PHASES = (
    ("guest boots, net is built, shaped and probed", "events.jsonl"),
    ("torch and data are loaded, ranks are forked", "stacks-rank0.txt"),
    ("ranks meet, DDP is built", "steps-rank0.jsonl"),
    ("first step", "steps-rank0.jsonl+"),
)


def _there(folder: Path, record: str) -> bool:
    path = folder / record.removesuffix("+")
    return path.exists() and (not record.endswith("+") or path.stat().st_size > 0)


def time_start(
    kernel: Path, folder: Path, spec: dict[str, Any], cpu: int | None = None
) -> dict[str, float]:
    """Start a cell and return the wall seconds of each of its phases, to its first step.

    Parameters
    ----------
    kernel
        The guest kernel.
    folder
        A folder that does not exist yet.
    spec
        The cell, as `testbed.launcher.GuestCell` takes it.
    cpu
        The processor that the guest is kept on.
    """
    begin = time.monotonic()
    cell = GuestCell(kernel, folder, spec, cpu=cpu)
    seconds = {}
    try:
        for phase, record in PHASES:
            while not _there(folder, record):
                outcome = cell.poll()
                if outcome is not None and not _there(folder, record):
                    raise RuntimeError(f"the cell ended in '{phase}': {outcome['reason']}")
                time.sleep(0.01)
            now = time.monotonic()
            seconds[phase] = round(now - begin, 3)
            begin = now
    finally:
        cell.kill()
    return seconds


@dataclass(frozen=True)
class _Cost:
    """What a cell took: seconds by the wall, and seconds of a processor."""

    wall_s: float
    cpu_s: float

    def per(self, less: _Cost, units: float) -> dict[str, float]:
        """Return what one of `units` more costs than `less`."""
        return {
            "wall_s": round((self.wall_s - less.wall_s) / units, 5),
            "cpu_s": round((self.cpu_s - less.cpu_s) / units, 5),
        }


def _cost(kernel: Path, folder: Path, cpu: int, ranks: int, idle_s: int, megabytes: int) -> _Cost:
    star = {"builder": "star", "rate_mbps": 1000, "delay_ms": 1, "queue": {"bytes": 1_000_000}}
    spec = {
        "program": "testbed.plain_rank",
        "seed": 0,
        "world_size": ranks,
        "clock": "virtual",
        "segmentation": "auto",
        "topology": build_topology(star, ranks).to_dict(),
        "events": [],
        "traffic": [],
        "timeout_s": 3600.0,
        "stall_s": 600.0,
        "warmup_steps": 0,
        "idle_s": idle_s,
        "megabytes": megabytes,
    }
    begin_s = time.monotonic()
    cell = GuestCell(kernel, folder, spec, cpu=cpu)
    watch = CpuWatch(cell.pid)
    try:
        while (outcome := cell.poll()) is None:
            watch.sample()
            time.sleep(0.02)
    finally:
        cell.kill()
    if outcome["status"] != "ok":
        raise RuntimeError(f"a cell without torch failed: {outcome['reason']}")
    return _Cost(time.monotonic() - begin_s, watch.report()["ran_s"])


def guest_costs(
    kernel: Path, folder: Path, cpu: int, tell: Callable[[str], None] = lambda text: None
) -> dict[str, dict[str, float]]:
    """Measure what a guest costs, whatever is trained in it.

    Returns
    -------
    dict
        Wall seconds and processor seconds (they agree on a free processor) of: a cell of two
        ranks from boot to power-off, a rank more, a virtual second in which nothing happens, and
        a megabyte moved over two links of 1 Gbit/s.
    """
    few, many, idle_s, megabytes = 2, 10, 600, 100
    made = {}
    for name, how in {
        "plain": (few, 1, 0),
        "ranks": (many, 1, 0),
        "idle": (few, 1 + idle_s, 0),
        "moved": (few, 1, megabytes),
    }.items():
        tell(f"a cell of {how[0]} ranks, {how[1]} idle seconds, {how[2]} MB")
        made[name] = _cost(kernel, folder / name, cpu, *how)
    plain = made["plain"]
    return {
        "a cell of 2 ranks": {"wall_s": round(plain.wall_s, 3), "cpu_s": round(plain.cpu_s, 3)},
        "each further rank": made["ranks"].per(plain, many - few),
        "each idle virtual second": made["idle"].per(plain, idle_s),
        "each MB moved": made["moved"].per(plain, megabytes),
    }
