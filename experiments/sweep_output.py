"""What a sweep shows: files, a table in the terminal, JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .analysis import ours_of
from .report import number_text
from .runs import short
from .sweep_report import MATRICES, headline, matrix, write_sweep_report
from .sweep_tables import SweepTables, remake_sweep

__all__ = ["make_sweep", "print_sweep", "sweep_json"]


def make_sweep(folder: Path) -> tuple[SweepTables, dict[str, Path]]:
    """Write tables, picture and page of a sweep; return the tables and where things are."""
    tables = remake_sweep(folder)
    page, plots = write_sweep_report(tables)
    paths = {"sweep": folder, "summary": folder / "summary.csv", "report": page}
    if plots:
        paths["plots"] = folder / "plots"
    return tables, paths


def print_sweep(tables: SweepTables, paths: dict[str, Path]) -> None:
    """Print throughput by variation and method, what went wrong, and the paths."""
    console = Console(highlight=False)
    title, form, _ = MATRICES["samples_per_second"]
    found = matrix(tables, "samples_per_second")
    several = len({scenario for scenario, _ in found.rows}) > 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    table.add_column("variation", no_wrap=True)
    ours = ours_of(tables.summary)
    for method in found.methods:
        style = "bold" if method == ours else None
        table.add_column(method, justify="right", no_wrap=True, style=style)
    for key, values in found.rows.items():
        texts = [number_text(v, form) if isinstance(v, float) else v for v in values.values()]
        table.add_row("/".join(key) if several else key[1], *texts)
    console.print(table)
    console.print(headline(tables), markup=False)
    for (scenario, variation, method, seed), notes in tables.notes.items():
        if notes:
            cell = f"{scenario}/{variation}/{method}-s{seed}"
            console.print(f"{cell}: {'; '.join(notes)}", markup=False)
    if tables.missing:
        console.print(f"{len(tables.missing)} cells have not run", markup=False)
    for name, path in paths.items():
        console.print(f"{name:<8} {short(path)}", markup=False, soft_wrap=True)


def sweep_json(tables: SweepTables, paths: dict[str, Path]) -> dict[str, Any]:
    """Return the summary and the paths as plain data without any NaN."""
    return {
        "sweep": tables.manifest["sweep"],
        "cells": json.loads(tables.summary.to_json(orient="records", double_precision=9)),
        "missing": tables.missing,
        "headline": headline(tables),
        "paths": {name: str(path) for name, path in paths.items()},
    }
