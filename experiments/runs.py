"""Where runs live: ``results/<scenario>/<run-id>``, and ``latest`` beside them."""

from __future__ import annotations

import datetime
from pathlib import Path

from .errors import UserError

__all__ = ["RESULTS", "find_run", "new_run", "short"]

RESULTS = Path(__file__).parent.parent / "results"


def short(path: Path) -> str:
    """Return `path` as seen from the current directory, where that is shorter."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def new_run(results: Path, name: str, digest: str) -> Path:
    """Make the directory of a new run; its id is the UTC time and the start of the digest."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    for attempt in range(1, 100):
        more = "" if attempt == 1 else f"-{attempt}"
        run_dir = results / name / f"{now}-{digest[:8]}{more}"
        try:
            run_dir.mkdir(parents=True)
            return run_dir
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"--results {results}: cannot be written: {error.strerror}") from None
    raise UserError(f"--results {results / name}: has too many runs of this second")


def find_run(text: str, results: Path = RESULTS) -> Path:
    """Return the directory of a run named by a path, ``<scenario>/<run-id>``, or a scenario.

    A scenario's name means its latest run.
    """
    for path in (Path(text), results / text, results / text / "latest"):
        if (path / "cells").is_dir() or (path / "summary.csv").exists():
            return path.resolve()
    runs = sorted(p.parent.name for p in results.glob("*/latest"))
    known = f"; there are runs of: {', '.join(runs)}" if runs else ""
    raise UserError(f"no run '{text}': expected a directory of a run, or a scenario's name{known}")
