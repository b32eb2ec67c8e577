"""``bench``: where the wall time of a cell's start goes."""

from __future__ import annotations

import json as json_
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
    from ..harness import start_seconds
    from ..scenario import load

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        seconds = start_seconds(load(scenario), Path(folder))
    if json:
        print(json_.dumps(seconds, indent=2))
        return
    print(f"wall seconds of the start of a cell of {scenario}, on one processor:")
    for phase, value in seconds.items():
        print(f"  {value:7.2f}  {phase}")
    print(f"  {sum(seconds.values()):7.2f}  in all")
