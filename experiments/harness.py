"""Run the cells of a scenario in guests, side by side, and see every one of them end.

A cell is self-contained: its folder holds all it is told (``cell.json``) and all it says. What
ran before it, beside it or how fast reaches nothing inside.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.guest import Guest, GuestFiles
from testbed.kernel import build as kernel_build

from . import datasets
from .atomic import write_json
from .errors import UserError
from .progress import Progress
from .scenario import Cell, Scenario, nearest

__all__ = ["CellResult", "resolve_cell", "run_scenario"]

DEVICES = Path(__file__).with_name("devices")
TASKS = Path(__file__).with_name("workloads")
WARMUP_STEPS = 3
_POLL_S = 0.2
_STALL_WALL_S = 300.0
_STACKS_WALL_S = 5.0


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
    device = yaml.safe_load(
        _named(DEVICES, ".yaml", "workload.device", work["device"]).read_text()
    )
    _named(TASKS, ".py", "workload.task", work["task"].replace("-", "_"))
    scale = device.pop("scale", 1.0)
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
        "workload": work,
        "device": device if scenario.clock == "virtual" else None,
        # the default of DDP, scaled like the model
        "bucket_cap_mb": round(25 / scale, 6),
        "topology": resolved["topology"],
        "events": resolved["events"],
        "traffic": resolved["traffic"],
        "timeout_s": scenario.end_s,
        "stall_s": min(120.0, scenario.end_s),
        "warmup_steps": min(WARMUP_STEPS, work["steps"] - 1),
    }


@dataclass
class _Running:
    cell: Cell
    guest: Guest
    folder: Path
    cpu: int
    steps: int = 0
    woken_at: float | None = None
    ending: bool = False


def _ensure_kernel(progress: Progress) -> Path:
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
    specs = [(cell, resolve_cell(scenario, cell)) for cell in scenario.cells()]
    datasets.check(scenario.workload.task)
    kernel = _ensure_kernel(progress)
    cpus = sorted(os.sched_getaffinity(0))
    waiting = list(specs)
    running: list[_Running] = []
    results: dict[str, CellResult] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell, spec = waiting.pop(0)
                taken = [run.cpu for run in running]
                cpu = min(cpus, key=taken.count)
                running.append(_start(kernel, run_dir, cell, spec, cpu))
                progress.cell_started(cell.key, spec["steps"])
            time.sleep(_POLL_S)
            for run in list(running):
                if _follow(run, progress):
                    running.remove(run)
                    result = _finish(run)
                    results[result.key] = result
                    progress.cell_ended(result.key, result.status, result.reason)
    finally:
        for run in running:
            run.guest.kill()
    return [results[cell.key] for cell, _ in specs]


def _start(
    kernel: Path, run_dir: Path, cell: Cell, spec: dict[str, Any], cpu: int
) -> _Running:
    folder = run_dir / "cells" / cell.key
    folder.mkdir(parents=True)
    write_json(folder / "cell.json", spec)
    guest = Guest(
        kernel,
        GuestFiles(folder),
        memory_mb=3072 + 384 * spec["world_size"],
        seed=cell.seed + 1,
        stall_s=_STALL_WALL_S,
        cpu=cpu,
    )
    return _Running(cell, guest, folder, cpu)


def _follow(run: _Running, progress: Progress) -> bool:
    """Look after a running guest; return whether it has ended."""
    if run.guest.poll() is not None:
        run.guest.kill()
        return True
    path = run.folder / "steps-rank0.jsonl"
    steps = path.read_bytes().count(b"\n") if path.exists() else 0
    if steps != run.steps:
        run.steps = steps
        progress.cell_step(run.cell.key, steps)
    now = time.monotonic()
    if run.woken_at is None and run.guest.stalled():
        run.guest.wake("stacks")
        run.woken_at = now
    elif run.woken_at is not None and now - run.woken_at > 2 * _STACKS_WALL_S:
        run.guest.kill()  # it answers no more
        return True
    elif run.woken_at is not None and now - run.woken_at > _STACKS_WALL_S and not run.ending:
        run.guest.wake("end")
        run.ending = True
    return False


def _finish(run: _Running) -> CellResult:
    path = run.folder / "outcome.json"
    if not path.exists():
        status = "timeout" if run.woken_at is not None else "failed"
        reason = "the guest's clock stood still" if run.woken_at is not None else _last_words(run)
        write_json(path, {"status": status, "reason": reason, "replicas_identical": None})
    outcome = json.loads(path.read_text())
    return CellResult(run.cell.key, outcome["status"], outcome.get("reason") or "")


def _last_words(run: _Running) -> str:
    console = (run.folder / "console.log").read_text(errors="replace")
    lines = console.partition("Kernel panic")[0].split("\n")
    said = [line for line in lines if line.strip()]
    return f"the guest ended early: {said[-1] if said else 'it said nothing'}"


