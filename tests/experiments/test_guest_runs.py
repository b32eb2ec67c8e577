"""Whole runs in guests: they repeat to the last byte, and leave nothing when they are stopped."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.analysis import remake
from experiments.harness import run_scenario
from experiments.progress import Progress
from experiments.scenario import Scenario, load

pytestmark = [pytest.mark.guest, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
RECORDS = ("steps-rank0.jsonl", "steps-rank1.jsonl", "evals.jsonl", "links.jsonl", "events.jsonl")


def _run(scenario: Scenario, folder: Path, jobs: int) -> dict[str, bytes]:
    """Run a scenario and return what it recorded, per cell and file, and its summary."""
    results = run_scenario(scenario, folder, jobs=jobs, progress=Progress())
    assert [result.status for result in results] == ["ok"] * len(results), results
    found = {
        f"{result.key}/{name}": (folder / "cells" / result.key / name).read_bytes()
        for result in results
        for name in (*RECORDS, "outcome.json")
    }
    remake(folder)
    found["summary.csv"] = (folder / "summary.csv").read_bytes()
    return found


def test_runs_repeat_to_the_last_byte(tmp_path: Path) -> None:
    """In sequence, in parallel under load, from another folder, never compiled: the same bytes."""
    scenario = load("smoke")
    first = _run(scenario, tmp_path / "a", jobs=1)
    for room in ("netsenseml", "topologies", "testbed", "experiments"):
        for bytecode in (ROOT / room).rglob("__pycache__"):
            shutil.rmtree(bytecode)
    load_command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(load_command) for _ in range(2)]
    try:
        second = _run(scenario, tmp_path / "a folder with a longer name" / "b", jobs=2)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert second.keys() == first.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_replicas_agree_and_bytes_are_explained(tmp_path: Path) -> None:
    found = _run(load("smoke"), tmp_path / "run", jobs=2)
    summary = found["summary.csv"].decode().splitlines()
    columns = summary[0].split(",")
    for row in summary[1:]:
        values = dict(zip(columns, row.split(","), strict=True))
        assert values["replicas_identical"] == "true"
        assert values["link_verdict"] == "ok"


def _living(folder: Path) -> list[str]:
    """Return the processes that work in `folder` or below."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(process / "cwd")
        except OSError:
            continue
        if where.startswith(str(folder)):
            found.append(f"{process.name} {where}")
    return found


@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_a_run_is_stopped(tmp_path: Path, number: int) -> None:
    moment = random.Random(int(number))
    command = [sys.executable, "-m", "experiments", "run", "smoke", "--results", str(tmp_path)]
    before = set(os.listdir("/dev/shm")), Path("/proc/mounts").read_text()
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not _living(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _living(tmp_path), "the run started no guest"
        time.sleep(moment.uniform(0, 8))
        run.send_signal(number)
        run.wait(timeout=120)  # after SIGINT it draws what there is, however slow the machine
    finally:
        run.kill()
        run.wait()
    time.sleep(2)
    assert _living(tmp_path) == []
    assert set(os.listdir("/dev/shm")) - before[0] == set()
    assert Path("/proc/mounts").read_text() == before[1]
