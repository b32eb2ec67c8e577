"""What a finished run shows: files, a table in the terminal, JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .analysis import RunTables, is_valid, ours_of, remake, speedups
from .overview import MethodRow, headline, overview
from .plots import write_plots
from .report import gain_text, number_text, write_report
from .runs import short

__all__ = ["exit_code", "make_all", "print_run", "run_json"]


def make_all(run_dir: Path, off_links: bool = False) -> tuple[RunTables, dict[str, Path]]:
    """Write tables, pictures and the page of a run; return the tables and where things are.

    `off_links` lets cells count whose links were not as asked.
    """
    tables = remake(run_dir, off_links)
    plots = write_plots(tables)
    page = write_report(tables, plots)
    paths = {"run": run_dir, "summary": run_dir / "summary.csv", "report": page}
    if plots:
        paths["plots"] = run_dir / "plots"
    return tables, paths


def exit_code(tables: RunTables) -> int:
    """Return 0 if every planned cell ended well, otherwise 2."""
    scenario = tables.manifest.get("scenario") or {}
    cells = len(scenario.get("methods", [])) * len(scenario.get("seeds", []))
    good = int((tables.summary["status"] == "ok").sum())
    return 0 if good == max(cells, len(tables.summary)) else 2


def _row(row: MethodRow, ours: str | None) -> list[str]:
    if row.state:
        return [row.label, *["-"] * 7]  # the notes below say why
    return [
        row.label,
        number_text(row.samples_per_second, ",.0f"),
        "" if row.label == ours else gain_text(row.gain),
        number_text(row.step_ms_p50, ",.1f"),
        number_text(row.exposed_comm_ms_p50, ",.1f"),
        number_text(row.compression_ratio, ",.1f"),
        number_text(row.final_accuracy, ".1%"),
        number_text(row.time_to_accuracy_s, ",.2f"),
    ]


def print_run(tables: RunTables, paths: dict[str, Path]) -> None:
    """Print the table of methods, the headline, what went wrong, and the paths."""
    console = Console(highlight=False)
    ours = ours_of(tables.summary)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("method", no_wrap=True)
    for name in (
        "samples/s", f"{ours or 'adaptive'}\nis faster", "step\nms", "exposed\nms", "ratio",
        "accuracy", "to target\ns",
    ):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for row in overview(tables):
        table.add_row(*_row(row, ours), style="bold" if row.label == ours else None)
    console.print(table)
    console.print(headline(tables), markup=False)
    for note in _notes(tables):
        console.print(note, markup=False)
    for name, path in paths.items():
        console.print(f"{name:<8} {short(path)}", markup=False, soft_wrap=True)


def _notes(tables: RunTables) -> list[str]:
    """Return a line for each cell that cannot be compared, or whose files had problems."""
    made = []
    for cell, good in zip(tables.summary.itertuples(), is_valid(tables.summary), strict=True):
        notes = list(tables.notes.get((cell.method, cell.seed), []))
        if not good:
            off = f"link not as asked: {cell.link_verdict}"
            notes.insert(0, off if cell.status == "ok" else cell.status)
        if notes:
            made.append(f"{cell.method} seed {cell.seed}: {'; '.join(notes)}")
    return made + [f"{row.label}: not run" for row in overview(tables) if not row.planned]


def run_json(tables: RunTables, paths: dict[str, Path]) -> dict[str, Any]:
    """Return the summary, the speed-ups and the paths as plain data without any NaN."""
    cells = json.loads(tables.summary.to_json(orient="records", double_precision=9))
    gains = {label: vars(gain) for label, gain in speedups(tables.summary).items()}
    return {
        "scenario": (tables.manifest.get("scenario") or {}).get("name"),
        "digest": tables.manifest.get("digest"),
        "cells": cells,
        "speedups": {"of": ours_of(tables.summary), "over": gains},
        "headline": headline(tables),
        "paths": {name: str(path) for name, path in paths.items()},
    }
