"""A run of a plan of sweep cells that are small real processes."""

from __future__ import annotations

from pathlib import Path

from process_engine import Plan, ProcessEngine, Said

from experiments.sweep import SweepResult, run_planned

__all__ = ["STEPS", "run"]

STEPS = 8


def run(
    small: Plan, folder: Path, engine: ProcessEngine | None = None, **more: object
) -> SweepResult:
    engine = engine or ProcessEngine(folder / "log")
    folder.mkdir(exist_ok=True)
    more = {"engine": engine, "progress": Said(), **more}
    return run_planned(*small, folder, **more)  # type: ignore[arg-type]
