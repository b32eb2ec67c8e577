"""``report``: make tables, pictures and the page of a run again, from its raw records."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from ..runs import RESULTS, find_run

__all__ = ["report"]


def report(
    run: Annotated[
        str, typer.Argument(help="A run's or sweep's directory, or a scenario: its latest run.")
    ],
    results: Annotated[Path, typer.Option(help="Where runs live.")] = RESULTS,
    off_links: Annotated[
        bool, typer.Option("--off-links", help="Count cells whose links were not as asked.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make the tables, pictures and page of a run again, from its raw records."""
    from ..sweep_tables import is_sweep

    folder = find_run(run, results)
    if is_sweep(folder):
        _of_sweep(folder, json)
        return
    from ..output import make_all, print_run, run_json

    tables, paths = make_all(folder, off_links)
    if json:
        print(json_.dumps(run_json(tables, paths), indent=2, sort_keys=True, allow_nan=False))
    else:
        print_run(tables, paths)


def _of_sweep(folder: Path, as_json: bool) -> None:
    from ..sweep_output import make_sweep, print_sweep, sweep_json

    tables, paths = make_sweep(folder)
    if as_json:
        print(json_.dumps(sweep_json(tables, paths), indent=2, sort_keys=True, allow_nan=False))
    else:
        print_sweep(tables, paths)
