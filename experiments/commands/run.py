"""``run``: run a scenario and show what came out."""

from __future__ import annotations

import json as json_
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..runs import RESULTS

if TYPE_CHECKING:
    from ..analysis import RunTables

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
    from_: Annotated[
        Path | None, typer.Option("--from", help="Repeat the run of this manifest.json; compare.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where runs live.")] = RESULTS,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Run a scenario: measure, then write tables, pictures and a page."""
    if from_ is not None:
        given = {"SCENARIO": scenario, "--seeds": seeds, "--methods": methods, "--steps": steps}
        for name, value in given.items():
            if value is not None:
                raise UserError(f"{name}: expected none with --from: the manifest says it all")
        return _repeat(from_, results, jobs, json)
    from ..scenario import load, names

    if not scenario:
        raise UserError(f"which scenario? There are: {', '.join(names())}")
    chosen = load(scenario).narrowed(
        methods=None if methods is None else _words(methods),
        seeds=None if seeds is None else _seeds(seeds),
        steps=steps,
    )
    from ..output import exit_code

    resolved, command = chosen.resolved(), _command("run", scenario)
    run_dir = _measure(resolved, results, _at_once(resolved, jobs), command)
    tables, data = _publish(run_dir, show=not json)
    if json:
        print(json_.dumps(data, indent=2, sort_keys=True, allow_nan=False))
    return exit_code(tables)


def _at_once(resolved: dict[str, Any], jobs: int | None) -> int:
    # real time bears no company
    return 1 if resolved["clock"] == "real" else jobs or len(os.sched_getaffinity(0))


def _repeat(path: Path, results: Path, jobs: int | None, as_json: bool) -> int:
    """Repeat a run and say whether the numbers are the same: 0 if they are, otherwise 2."""
    from ..manifest import new_manifest
    from ..records import read_manifest
    from ..repeat import changes_since, first_difference, read_run_manifest

    old = read_run_manifest(path)
    resolved, command = old["scenario"], _command("run", "--from", str(path))
    changes = changes_since(old, new_manifest(resolved, old["digest"], command))
    told = "as it was then: code, versions, machine" if not changes else "not as it was then:"
    print("\n  ".join([told, *changes]), file=sys.stderr)
    run_dir = _measure(resolved, results, _at_once(resolved, jobs), command)
    _, data = _publish(run_dir, show=not as_json)
    difference = first_difference(old, read_manifest(run_dir))
    if as_json:
        data |= {"changes": changes, "same": difference is None, "difference": difference}
        print(json_.dumps(data, indent=2, sort_keys=True, allow_nan=False))
    elif difference is None:
        print("the numbers are the same")
    else:
        print(f"the numbers are NOT the same: {difference}")
    return 0 if difference is None else 2


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _seeds(text: str) -> list[int]:
    from ..scenario import SEED_LIMIT

    words = _words(text)
    if not words or not all(word.isdecimal() and int(word) < SEED_LIMIT for word in words):
        expected = f"whole numbers below {SEED_LIMIT} such as 0,1,2"
        raise UserError(f"--seeds: expected {expected}; got '{text}'")
    seeds = [int(word) for word in words]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds: expected each once; got '{text}'")
    return seeds


def _command(*words: str) -> str:
    """Return the command that repeats this run."""
    typed = sys.argv[1:] if sys.argv[1:2] == ["run"] else words
    return shlex.join(["python", "-m", "experiments", *typed])


def _publish(run_dir: Path, show: bool = True) -> tuple[RunTables, dict[str, Any]]:
    """Make what a run shows, point ``latest`` to it; return its tables, and all as plain data."""
    from ..atomic import point
    from ..manifest import update
    from ..output import make_all, print_run, run_json

    tables, paths = make_all(run_dir)
    update(run_dir, summary=(run_dir / "summary.csv").read_text().splitlines())
    point(run_dir.parent / "latest", run_dir.name)
    if show:
        print_run(tables, paths)
    return tables, run_json(tables, paths)


def _measure(resolved: dict[str, Any], results: Path, jobs: int, command: str) -> Path:
    """Run all cells; return the directory that holds their raw records."""
    from rich.console import Console

    from ..harness import run_resolved
    from ..manifest import new_manifest, update
    from ..progress import TerminalProgress
    from ..runs import new_run
    from ..scenario import digest_of

    digest = digest_of(resolved)
    run_dir = new_run(results, resolved["name"], digest)
    update(run_dir, **new_manifest(resolved, digest, command))
    started = time.monotonic()
    try:
        with TerminalProgress(Console(stderr=True)) as progress:
            run_resolved(resolved, run_dir, jobs=jobs, progress=progress)
    except UserError:
        _discard(run_dir)
        raise
    except KeyboardInterrupt:
        print(
            f"interrupted; finished cells are kept: python -m experiments report {run_dir}",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    update(run_dir, run_id=run_dir.name, wall_s=round(time.monotonic() - started, 1))
    return run_dir


def _discard(run_dir: Path) -> None:
    """Remove the directory of a run that started nothing."""
    if not any((run_dir / "cells").glob("*/*")):
        (run_dir / "manifest.json").unlink(missing_ok=True)
        for folder in (run_dir / "cells", run_dir):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
