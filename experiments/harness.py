"""Run the cells of a scenario in guests, side by side, and see every one of them end.

A cell is self-contained: its folder holds all it is told (``cell.json``) and all it says. What
ran before it, beside it or how fast reaches nothing inside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.backends import Choice, ChoiceError, choose
from testbed.bench import guest_costs, time_start
from testbed.doctor import BackEnd
from testbed.kernel import build as kernel_build

from . import datasets
from .engine import LocalEngine, Task, place
from .errors import UserError
from .identity import PROGRAM, tasks_of
from .manifest import cell_facts, update
from .methods import REAL_DEVICES, task_names
from .mistakes import no_such
from .profiles import load_profile, needed_mb
from .progress import Progress
from .scenario import Cell, Scenario

__all__ = [
    "CellResult",
    "cell_spec",
    "check_options",
    "choices_of",
    "choose_backend",
    "ensure_kernel",
    "guest_cost_table",
    "resolve_cell",
    "run_cells",
    "run_resolved",
    "run_scenario",
    "start_seconds",
]

WARMUP_STEPS = 3
_ENDLESS_STEPS = 1_000_000


@dataclass(frozen=True)
class CellResult:
    """How a cell ended: its key, its status and, unless that is ok, why; its wall seconds."""

    key: str
    status: str
    reason: str
    wall_s: float


def _known_task(key: str, name: str) -> None:
    """Refuse a task that is not there: a manifest may come from another version."""
    if name not in (valid := task_names()):
        raise UserError(f"{key}: {no_such(name, valid)}")


def resolve_cell(scenario: Scenario, cell: Cell) -> dict[str, Any]:
    """Return all that the guest is told of a cell; nothing in it depends on where it runs."""
    return cell_spec(scenario.resolved(), cell)


def cell_spec(resolved: dict[str, Any], cell: Cell) -> dict[str, Any]:
    """Return all that the guest is told of a cell of a resolved scenario."""
    work, virtual = resolved["workload"], resolved["clock"] == "virtual"
    device: dict[str, Any] = {}
    scale = 1.0
    if work["device"] not in REAL_DEVICES:
        device, scale = load_profile(work["device"])
    parameters = device.pop("parameters", None)
    _known_task("workload.task", work["task"])
    return {
        "program": PROGRAM,
        "scenario": resolved["name"],
        "label": cell.label,
        "method": cell.method,
        "options": cell.options,
        "seed": cell.seed,
        "world_size": resolved["world_size"],
        "steps": work["steps"],
        "batch_size": work["batch_size"],
        "target_accuracy": resolved["target_accuracy"],
        "clock": resolved["clock"],
        "segmentation": resolved["segmentation"],
        "workload": work,
        "device": device if virtual else None,
        # the default of DDP, scaled like the model
        "bucket_cap_mb": round(25 / scale, 6),
        "topology": resolved["topology"],
        "events": resolved["events"],
        "traffic": resolved["traffic"],
        "timeout_s": resolved["timeout_s"],
        "stall_s": resolved["stall_s"],
        "memory_mb": needed_mb(parameters, resolved["world_size"], cell.method),
        "jobs": [_job(job, work) for job in resolved["jobs"]],
        "warmup_steps": min(WARMUP_STEPS, work["steps"] - 1),
    }


def _job(job: dict[str, Any], work: dict[str, Any]) -> dict[str, Any]:
    """Return what the ranks of another job are told, beside what all ranks are."""
    task = job["task"] or work["task"]
    _known_task("traffic.task", task)
    own = {
        "task": task,
        "batch_size": job["batch_size"] or work["batch_size"],
        "steps": job["steps"] or _ENDLESS_STEPS,
        "schedule": "constant" if job["steps"] is None else work["schedule"],
        "eval_every": None,
        "straggler": None,
    }
    return {
        "name": job["name"],
        "hosts": job["hosts"],
        "start_s": job["start_s"],
        "label": job["name"],
        "method": job["method"],
        "options": job["options"],
        "seed": job["seed"],
        "world_size": len(job["hosts"]),
        "workload": {**work, **own},
    }


def choices_of(spec: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the methods in a cell with their options: its own, and those of jobs beside it."""
    return [(one["method"], one["options"]) for one in (spec, *spec["jobs"])]


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


def check_options(methods: Iterable[tuple[str, dict[str, Any]]], where: str) -> None:
    """Ask the library, in a process of its own: it needs torch, and the harness must not.

    Parameters
    ----------
    methods
        Names and options; each different pair is asked about once.
    where
        What they are of, for the message.

    Raises
    ------
    UserError
        For the first that the library refuses.
    """
    asked = list({json.dumps(m, sort_keys=True): list(m) for m in methods}.values())
    answer = subprocess.run(
        [sys.executable, "-m", "netsenseml", "check"],
        input=json.dumps(asked),
        text=True,
        capture_output=True,
        cwd=Path(__file__).parent.parent,
    )
    if answer.returncode:
        said = (answer.stdout.strip() or answer.stderr.strip()).splitlines()
        raise UserError(f"{where}: methods: {said[0] if answer.stdout.strip() else said[-1]}")


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
    return run_resolved(scenario.resolved(), run_dir, jobs=jobs, progress=progress)


def run_resolved(
    resolved: dict[str, Any], run_dir: Path, *, jobs: int, progress: Progress
) -> list[CellResult]:
    """Do what `run_scenario` does with a scenario that was resolved before."""
    cells = [
        Cell(arm["label"], arm["name"], arm["options"], seed)
        for arm in resolved["methods"]
        for seed in resolved["seeds"]
    ]
    specs = [(run_dir / "cells" / cell.key, cell_spec(resolved, cell)) for cell in cells]
    backend = choose_backend(resolved, specs[0][1])
    for task in tasks_of(specs[0][1]):
        datasets.check(task)
    methods = (choice for _, spec in specs for choice in choices_of(spec))
    check_options(methods, f"scenario {resolved['name']}")
    run_dir.mkdir(parents=True, exist_ok=True)
    update(run_dir, backend=backend.name, backend_why=backend.why)
    results = run_cells(specs, backend=backend.name, jobs=jobs, progress=progress)
    facts = {r.key: cell_facts(run_dir / "cells" / r.key, r.wall_s) for r in results}
    update(run_dir, cells=facts)
    return results


def choose_backend(
    resolved: dict[str, Any], spec: dict[str, Any], back_ends: list[BackEnd] | None = None
) -> Choice:
    """Return the back end for a scenario; a `UserError` says why there is none.

    Parameters
    ----------
    resolved, spec
        The scenario, and what one of its cells is told.
    back_ends
        The doctor's findings; asked for if not given.
    """
    if resolved["backend"] == "cluster":
        raise UserError(
            "backend: a cluster is started from its machines: torchrun --nnodes=N"
            f" --nproc-per-node=M … -m experiments.cluster {resolved['name']}"
        )
    try:
        return choose(resolved["backend"], resolved["clock"], spec, back_ends)
    except ChoiceError as error:
        raise UserError(str(error)) from None


def run_cells(
    specs: list[tuple[Path, dict[str, Any]]],
    *,
    backend: str = "guest",
    jobs: int,
    progress: Progress,
) -> list[CellResult]:
    """Run cells, each in its folder and in a guest of its own, at most `jobs` at a time.

    Parameters
    ----------
    specs
        Folders, not there yet and named by the cells' keys, and what `resolve_cell` made.
    backend
        The back end that all of them run on.
    """
    kernel = ensure_kernel(progress) if backend == "guest" else None
    engine = LocalEngine(kernel, jobs)
    tasks = [Task(folder.name, folder, {**spec, "backend": backend}) for folder, spec in specs]
    results: dict[Path, CellResult] = {}
    for placed in place(engine, tasks, progress):
        if placed.outcome is not None:
            results[placed.task.folder] = CellResult(
                placed.task.key,
                placed.outcome["status"],
                placed.outcome.get("reason") or "",
                round(placed.wall_s, 1),
            )
    return [results[folder] for folder, _ in specs]


def start_seconds(scenario: Scenario, folder: Path) -> dict[str, float]:
    """Start the first cell of a scenario in `folder`; return the wall seconds of each phase."""
    cell = scenario.cells()[0]
    spec = resolve_cell(scenario, cell)
    cpu = max(os.sched_getaffinity(0))
    return time_start(ensure_kernel(Progress()), folder / cell.key, spec, cpu)


def guest_cost_table(folder: Path, progress: Progress) -> dict[str, dict[str, float]]:
    """Measure in `folder` what a guest costs, whatever it trains; see `testbed.bench`."""
    cpu = max(os.sched_getaffinity(0))
    return guest_costs(ensure_kernel(progress), folder, cpu, progress.note)
