"""``bench``: where the wall time of a cell's start goes, and what a guest costs."""

from __future__ import annotations

import json as json_
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["bench"]


def bench(
    scenario: Annotated[
        str, typer.Argument(help="The scenario whose first cell is started.")
    ] = "congested",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time the start of a cell, up to the first step of its ranks, and a guest's running costs."""
    from ..harness import guest_cost_table, start_seconds
    from ..progress import TerminalProgress
    from ..scenario import load

    chosen = load(scenario)
    with (
        TerminalProgress(Console(stderr=True)) as progress,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
    ):
        progress.note(f"the start of a cell of {scenario}")
        seconds = start_seconds(chosen, Path(folder))
        costs = guest_cost_table(Path(folder), progress)
    if json:
        print(json_.dumps({"start_s": seconds, "costs": costs}, indent=2))
        return
    print(f"wall seconds of the start of a cell of {scenario}, on one processor:")
    for phase, value in seconds.items():
        print(f"  {value:7.2f}  {phase}")
    print(f"  {sum(seconds.values()):7.2f}  in all")
    print("seconds by the wall, and of a processor (on a free one they agree):")
    for what, cost in costs.items():
        print(f"  {cost['wall_s']:8.4f} {cost['cpu_s']:8.4f}  {what}")
