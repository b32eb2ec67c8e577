"""``run``: run a scenario and show what came out."""

from __future__ import annotations

import json as json_
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..runs import RESULTS

if TYPE_CHECKING:
    from ..scenario import Scenario

__all__ = ["run"]


def run(
    scenario: Annotated[
        str | None, typer.Argument(help="A scenario's name (see list), or a path to a .yaml file.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cells at the same time; default: one per core.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds instead of the file's: 0,1,2")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these: allreduce,netsense")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps instead of the file's.")] = None,
    results: Annotated[Path, typer.Option(help="Where runs live.")] = RESULTS,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Run a scenario: measure, then write tables, pictures and a page."""
    from ..scenario import load, names

    if not scenario:
        raise UserError(f"which scenario? There are: {', '.join(names())}")
    chosen = load(scenario).narrowed(
        methods=None if methods is None else _words(methods),
        seeds=None if seeds is None else _seeds(seeds),
        steps=steps,
    )
    cores = len(os.sched_getaffinity(0))
    at_once = 1 if chosen.clock == "real" else jobs or cores  # real time bears no company
    run_dir = _measure(chosen, results, at_once, _command(scenario))
    from ..output import exit_code, make_all, print_run, run_json

    tables, paths = make_all(run_dir)
    _publish(run_dir)
    if json:
        print(json_.dumps(run_json(tables, paths), indent=2, sort_keys=True, allow_nan=False))
    else:
        print_run(tables, paths)
    return exit_code(tables)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _seeds(text: str) -> list[int]:
    words = _words(text)
    if not words or not all(word.isdecimal() for word in words):
        raise UserError(f"--seeds: expected whole numbers such as 0,1,2; got '{text}'")
    return [int(word) for word in words]


def _command(scenario: str) -> str:
    """Return the command that repeats this run."""
    if sys.argv[1:2] == ["run"]:
        return shlex.join(["python", "-m", "experiments", *sys.argv[1:]])
    return shlex.join(["python", "-m", "experiments", "run", scenario])


def _publish(run_dir: Path) -> None:
    from ..atomic import point

    point(run_dir.parent / "latest", run_dir.name)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _measure(scenario: Scenario, results: Path, jobs: int, command: str) -> Path:
    """Run all cells; return the directory that holds their raw records."""
    from rich.console import Console

    from ..harness import run_scenario
    from ..manifest import new_manifest, update
    from ..progress import TerminalProgress
    from ..runs import new_run

    run_dir = new_run(results, scenario.name, scenario.digest())
    update(run_dir, **new_manifest(scenario.resolved(), scenario.digest(), command))
    before = signal.signal(signal.SIGTERM, _interrupt)  # one way to shut down
    started = time.monotonic()
    try:
        with TerminalProgress(Console(stderr=True)) as progress:
            run_scenario(scenario, run_dir, jobs=jobs, progress=progress)
    except UserError:
        _discard(run_dir)
        raise
    except KeyboardInterrupt:
        print(
            f"interrupted; finished cells are kept: python -m experiments report {run_dir}",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    update(run_dir, run_id=run_dir.name, wall_s=round(time.monotonic() - started, 1))
    return run_dir


def _discard(run_dir: Path) -> None:
    """Remove the directory of a run that started nothing."""
    if not any((run_dir / "cells").glob("*/*")):
        (run_dir / "manifest.json").unlink(missing_ok=True)
        for folder in (run_dir / "cells", run_dir):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
