"""``sweep``: run many variations of scenarios, those that have no result yet."""

from __future__ import annotations

import json as json_
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..runs import RESULTS, short

if TYPE_CHECKING:
    from ..sweep import PlannedCell, SweepResult
    from ..sweepfile import Sweep

__all__ = ["sweep"]


def sweep(
    name: Annotated[
        str | None, typer.Argument(help="A sweep's name, or a path to a .yaml file.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cells at the same time; default: one per core.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Only cells whose key matches or contains this: '*topk*'")
    ] = None,
    fail_fast: Annotated[bool, typer.Option(help="Stop at the first cell that fails.")] = False,
    dry_run: Annotated[bool, typer.Option(help="List the cells; run nothing.")] = False,
    results: Annotated[Path, typer.Option(help="Where runs live.")] = RESULTS,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Run every cell of a sweep that has no result yet, then write tables and a page of all."""
    from ..sweep import folder_of, plan
    from ..sweepfile import load, names

    if not name:
        raise UserError(f"which sweep? There are: {', '.join(names())}")
    chosen = load(name)
    folder = folder_of(chosen, results)
    if dry_run:
        _list(folder, plan(chosen, only=only), json)
        return 0
    result = _run(chosen, folder, name, jobs=jobs, only=only, fail_fast=fail_fast)
    from ..sweep_output import make_sweep, print_sweep, sweep_json

    tables, paths = make_sweep(folder)
    ran = {"ran": result.ran, "bad": result.bad, "skipped": result.skipped}
    if json:
        data = {**sweep_json(tables, paths), **ran}
        print(json_.dumps(data, indent=2, sort_keys=True, allow_nan=False))
    else:
        print_sweep(tables, paths)
        if result.skipped:
            print(f"stopped early: {len(result.skipped)} cells were not run")
    return 0 if result.ok else 2


def _list(folder: Path, cells: list[PlannedCell], as_json: bool) -> None:
    from ..store import CellStore

    store = CellStore(folder)
    found: list[dict[str, Any]] = []
    for cell in cells:
        outcome = store.outcome(cell.digest) or {}
        status = outcome.get("status")
        found.append(
            {"key": cell.key, "cell": cell.digest, "status": status,
             "done": store.done(cell.digest)}
        )  # fmt: skip
    if as_json:
        print(json_.dumps(found, indent=2, sort_keys=True))
        return
    width = max(len(entry["key"]) for entry in found)
    for entry in found:
        state = entry["status"] or "to run"
        again = "" if entry["done"] or not entry["status"] else ", to run again"
        print(f"{entry['key']:<{width}}  {entry['cell']}  {state}{again}")
    missing = len({entry["cell"] for entry in found if not entry["done"]})
    print(f"{len(found)} cells, {missing} to run, in {short(folder)}")


def _run(chosen: Sweep, folder: Path, name: str, **options: Any) -> SweepResult:
    from rich.console import Console

    from ..progress import SweepProgress
    from ..sweep import run_sweep

    words = sys.argv[1:] if sys.argv[1:2] == ["sweep"] else ["sweep", name]
    command = shlex.join(["python", "-m", "experiments", *words])
    try:
        with SweepProgress(Console(stderr=True)) as progress:
            return run_sweep(chosen, folder, progress=progress, command=command, **options)
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on: {command}", file=sys.stderr)
        raise typer.Exit(130) from None
