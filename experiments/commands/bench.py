"""``bench``: where the wall time of a cell's start goes."""

from __future__ import annotations

import json as json_
import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["bench"]


def bench(
    scenario: Annotated[
        str, typer.Argument(help="The scenario whose first cell is started.")
    ] = "congested",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time the start of a cell, from booting its guest to the first step of its ranks."""
    from testbed.bench import time_start

    from ..harness import ensure_kernel, resolve_cell
    from ..progress import Progress
    from ..scenario import load

    chosen = load(scenario)
    spec = resolve_cell(chosen, chosen.cells()[0])
    kernel = ensure_kernel(Progress())
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cpu = max(os.sched_getaffinity(0))
        seconds = time_start(kernel, Path(folder) / "cell", spec, cpu)
    if json:
        print(json_.dumps(seconds, indent=2))
        return
    print(f"wall seconds of the start of a cell of {scenario}, on one processor:")
    for phase, value in seconds.items():
        print(f"  {value:7.2f}  {phase}")
    print(f"  {sum(seconds.values()):7.2f}  in all")
