"""Cells for tests: a small net, a program, and what came of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from testbed.backends import start
from testbed.guest import Guest, GuestFiles
from testbed.kernel import build
from testbed.launcher import CellRun, GuestCell
from topologies import build as build_topology


def cell_spec(program: str, world: int = 2, **more: Any) -> dict[str, Any]:
    """Return a cell of `program` (a module of this folder's programs) on a star."""
    network = {"builder": "star", "rate_mbps": 200, "delay_ms": 1, "queue": {"bytes": 262144}}
    network |= more.pop("network", {})
    return {
        "program": f"tests.testbed.programs.{program}",
        "seed": 0,
        "world_size": world,
        "clock": "virtual",
        "segmentation": "auto",
        "topology": build_topology(network, world).to_dict(),
        "events": [],
        "traffic": [],
        "timeout_s": 600.0,
        "stall_s": 60.0,
        "warmup_steps": 0,
    } | more


def run_cell(folder: Path, spec: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Run a cell to its end, on one processor, and return its outcome."""
    options.setdefault("cpu", max(os.sched_getaffinity(0)))
    return GuestCell(build.ensure(), folder, spec, **options).wait()


def start_on(backend: str, folder: Path, spec: dict[str, Any]) -> CellRun:
    """Start a cell on a back end, a guest on one processor."""
    kernel = build.ensure() if backend == "guest" else None
    return start(backend, folder, spec, kernel=kernel, cpu=max(os.sched_getaffinity(0)))


def ended(run: CellRun, timeout_s: float = 600.0) -> dict[str, Any]:
    """Wait for a cell's outcome; kill it if it takes longer."""
    deadline = time.monotonic() + timeout_s
    while (outcome := run.poll()) is None:
        if time.monotonic() > deadline:
            run.kill()
            raise TimeoutError(f"{run.folder} did not end in {timeout_s:g} s")
        time.sleep(0.05)
    return outcome


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the lines of one of a cell's record files."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def run_program(folder: Path, module: str, timeout_s: float = 300.0, **plan: Any) -> Any:
    """Run a program of this folder's programs as a guest's only one; return its result.

    It finds `plan` in ``/cell/plan.json`` and leaves ``/cell/result.json``.
    """
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    guest = Guest(
        build.ensure(),
        GuestFiles(folder),
        memory_mb=2048,
        seed=plan.get("seed", 1),
        command=f"/opt/venv/bin/python -m tests.testbed.programs.{module}",
        cpu=max(os.sched_getaffinity(0)),
    )
    deadline = time.monotonic() + timeout_s
    try:
        while guest.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        guest.kill()
    path = folder / "result.json"
    said = (folder / "console.log").read_text(errors="replace")[-3000:]
    assert path.exists(), said
    return json.loads(path.read_text())
