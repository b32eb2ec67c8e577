"""Run the cells of a scenario in guests, side by side, and see every one of them end.

A cell is self-contained: its folder holds all it is told (``cell.json``) and all it says. What
ran before it, beside it or how fast reaches nothing inside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.bench import time_start
from testbed.kernel import build as kernel_build
from testbed.launcher import GuestCell

from . import datasets
from .errors import UserError
from .profiles import load_profile, needed_mb
from .progress import Progress
from .scenario import Cell, Scenario, nearest

__all__ = [
    "CellResult",
    "ensure_kernel",
    "resolve_cell",
    "run_cells",
    "run_scenario",
    "start_seconds",
]

TASKS = Path(__file__).with_name("workloads")
WARMUP_STEPS = 3
_POLL_S = 0.2


@dataclass(frozen=True)
class CellResult:
    """How a cell ended: its key, its status and, unless that is ok, why."""

    key: str
    status: str
    reason: str


def _named(folder: Path, suffix: str, key: str, name: str) -> Path:
    path = folder / f"{name}{suffix}"
    if not path.is_file():
        known = sorted(p.stem.replace("_", "-") for p in folder.glob(f"[a-z]*{suffix}"))
        hint = nearest(name, known) or f"; valid: {', '.join(known)}"
        raise UserError(f"{key}: no '{name}'{hint}")
    return path


def resolve_cell(scenario: Scenario, cell: Cell) -> dict[str, Any]:
    """Return all that the guest is told of a cell; nothing in it depends on where it runs."""
    resolved = scenario.resolved()
    work = resolved["workload"]
    device, scale = load_profile(work["device"])
    parameters = device.pop("parameters", None)
    _named(TASKS, ".py", "workload.task", work["task"].replace("-", "_"))
    return {
        "program": "experiments.rank",
        "scenario": scenario.name,
        "label": cell.label,
        "method": cell.method,
        "options": cell.options,
        "seed": cell.seed,
        "world_size": scenario.world_size,
        "steps": work["steps"],
        "batch_size": work["batch_size"],
        "target_accuracy": scenario.target_accuracy,
        "clock": scenario.clock,
        "segmentation": scenario.segmentation,
        "workload": work,
        "device": device if scenario.clock == "virtual" else None,
        # the default of DDP, scaled like the model
        "bucket_cap_mb": round(25 / scale, 6),
        "topology": resolved["topology"],
        "events": resolved["events"],
        "traffic": resolved["traffic"],
        "timeout_s": scenario.end_s,
        "stall_s": min(120.0, scenario.end_s),
        "memory_mb": needed_mb(parameters, scenario.world_size),
        "warmup_steps": min(WARMUP_STEPS, work["steps"] - 1),
    }


def ensure_kernel(progress: Progress) -> Path:
    """Return the guest kernel, built if need be; a `UserError` says what it lacks."""
    last = ""

    def tell(text: str, share: float | None) -> None:
        nonlocal last
        line = f"{text} … {share:.0%}" if share and round(share * 100) % 20 == 0 else text
        if line != last:
            last = line
            progress.note(line)

    try:
        return kernel_build.ensure(tell)
    except kernel_build.KernelError as error:
        raise UserError(str(error)) from None


def _check_options(scenario: Scenario) -> None:
    """Ask the library, in a process of its own: it needs torch, and the harness must not."""
    asked = [[arm.name, arm.options] for arm in scenario.arms]
    answer = subprocess.run(
        [sys.executable, "-m", "netsenseml", "check"],
        input=json.dumps(asked),
        text=True,
        capture_output=True,
        cwd=Path(__file__).parent.parent,
    )
    if answer.returncode:
        said = (answer.stdout.strip() or answer.stderr.strip()).splitlines()
        raise UserError(f"methods: {said[0] if answer.stdout.strip() else said[-1]}")


def run_scenario(
    scenario: Scenario, run_dir: Path, *, jobs: int, progress: Progress
) -> list[CellResult]:
    """Run every cell of a scenario; the results are the same for any number of `jobs`.

    Parameters
    ----------
    scenario
        What to run.
    run_dir
        Cells go to ``cells/<label>-s<seed>/`` in it.
    jobs
        Guests at the same time.
    progress
        Told of everything.

    Raises
    ------
    UserError
        Before anything is started, if something it needs is missing.
    """
    if scenario.clock != "virtual":
        raise UserError("clock: expected virtual; the real clock needs another back end")
    specs = [(run_dir / "cells" / c.key, resolve_cell(scenario, c)) for c in scenario.cells()]
    datasets.check(scenario.workload.task)
    _check_options(scenario)
    return run_cells(specs, jobs=jobs, progress=progress)


def run_cells(
    specs: list[tuple[Path, dict[str, Any]]], *, jobs: int, progress: Progress
) -> list[CellResult]:
    """Run cells, each in its folder and in a guest of its own, at most `jobs` at a time.

    Parameters
    ----------
    specs
        Folders, not there yet and named by the cells' keys, and what `resolve_cell` made.
    """
    kernel = ensure_kernel(progress)
    cpus = sorted(os.sched_getaffinity(0))
    waiting = list(specs)
    running: dict[Path, GuestCell] = {}
    shown: dict[Path, int] = {}
    results: dict[Path, CellResult] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                folder, spec = waiting.pop(0)
                taken = [run.cpu for run in running.values()]
                cpu = min(cpus, key=taken.count)
                running[folder] = GuestCell(kernel, folder, spec, cpu=cpu)
                progress.cell_started(folder.name, spec["steps"])
            time.sleep(_POLL_S)
            for folder, run in list(running.items()):
                outcome = run.poll()
                if (steps := run.steps()) != shown.get(folder):
                    shown[folder] = steps
                    progress.cell_step(folder.name, steps)
                if outcome is not None:
                    del running[folder]
                    reason = outcome.get("reason") or ""
                    results[folder] = CellResult(folder.name, outcome["status"], reason)
                    progress.cell_ended(folder.name, outcome["status"], reason)
    finally:
        for run in running.values():
            run.kill()
    return [results[folder] for folder, _ in specs]


def start_seconds(scenario: Scenario, folder: Path) -> dict[str, float]:
    """Start the first cell of a scenario in `folder`; return the wall seconds of each phase."""
    cell = scenario.cells()[0]
    spec = resolve_cell(scenario, cell)
    cpu = max(os.sched_getaffinity(0))
    return time_start(ensure_kernel(Progress()), folder / cell.key, spec, cpu)
