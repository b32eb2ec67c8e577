"""Where the wall time of a cell goes: from booting the guest to the first training step.

The guest cannot know wall time; the host sees its records appear and tells by that.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from .launcher import GuestCell

__all__ = ["PHASES", "time_start"]

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
