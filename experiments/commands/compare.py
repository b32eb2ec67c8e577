"""``compare``: what differs between two runs."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated, Any

import typer

from ..runs import RESULTS, find_run

__all__ = ["compare"]

_COLUMNS = {
    "samples_per_second": (",.0f", True),
    "step_ms_p50": (",.1f", True),
    "compression_ratio": (",.1f", True),
    "final_accuracy": (".1%", False),
    "time_to_accuracy_s": (",.2f", True),
}


def compare(
    run_a: Annotated[str, typer.Argument(help="A run's directory, or a scenario.")],
    run_b: Annotated[str, typer.Argument(help="The run to compare it with.")],
    results: Annotated[Path, typer.Option(help="Where runs live.")] = RESULTS,
    off_links: Annotated[
        bool, typer.Option("--off-links", help="Count cells whose links were not as asked.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how the methods of two runs differ: first run, second run, change."""
    from ..analysis import load_run

    first, second = (load_run(find_run(run, results), off_links) for run in (run_a, run_b))
    same = [(t.run_dir / "summary.csv").read_bytes() for t in (first, second)]
    data: dict[str, Any] = {
        "runs": [str(first.run_dir), str(second.run_dir)],
        "same_scenario": first.manifest.get("digest") == second.manifest.get("digest"),
        "same_summary": same[0] == same[1],
        "methods": _differences(first, second),
    }
    if json:
        print(json_.dumps(data, indent=2, sort_keys=True, allow_nan=False))
    else:
        _print(data)


def _differences(first: Any, second: Any) -> dict[str, dict[str, list[float | None]]]:
    """Return for each method and column the two values, None where not measured."""
    from ..overview import overview

    rows = [{row.label: row for row in overview(tables)} for tables in (first, second)]
    return {
        label: {
            column: [getattr(r[label], column) if label in r else None for r in rows]
            for column in _COLUMNS
        }
        for label in dict.fromkeys([*rows[0], *rows[1]])
    }


def _print(data: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from ..report import number_text

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("method", "value", "first", "second", "change"):
        table.add_column(name, justify="left" if name in ("method", "value") else "right")
    for label, columns in data["methods"].items():
        for i, (column, (a, b)) in enumerate(columns.items()):
            form, relative = _COLUMNS[column]
            cells = [number_text(a, form), number_text(b, form), _change(a, b, relative)]
            table.add_row("" if i else label, column, *cells)
    console.print(table)
    scenario = "the same scenario" if data["same_scenario"] else "DIFFERENT scenarios"
    summary = "identical byte for byte" if data["same_summary"] else "not identical"
    console.print(f"The runs are of {scenario}; their summary.csv are {summary}.", markup=False)


def _change(a: float | None, b: float | None, relative: bool) -> str:
    """Return the change in percent, or in percentage points."""
    if a is None or b is None or (relative and not a):
        return ""
    if a == b:
        return "same"
    return f"{100 * (b / a - 1):+.2f} %" if relative else f"{100 * (b - a):+.2f} points"
