"""A sweep in real guests: killed and gone on with, it gives what an undisturbed one gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import experiments.identity

pytestmark = [pytest.mark.guest, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SWEEP = """
description: Two cells, the second of which is killed while it runs
scenarios: [smoke]
set: {workload.steps: 4, methods: [netsense]}
grid: {topology.rate_mbps: [100, 1000]}
"""
RECORDS = ("steps-rank0.jsonl", "steps-rank1.jsonl", "evals.jsonl", "links.jsonl", "outcome.json")


def command(folder: Path, *more: str) -> list[str]:
    sweep = str(folder / "two.yaml")
    return [
        sys.executable, "-m", "experiments", "sweep", sweep, "--jobs", "1",
        "--results", str(folder), *more,
    ]  # fmt: skip


def finished(store: Path) -> list[Path]:
    return [path for path in (store / "cells").glob("[!.]*")]


def test_a_killed_sweep_goes_on(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(SWEEP)
    store = tmp_path / "sweeps" / "two"
    run = subprocess.Popen(command(tmp_path), cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while not (finished(store) and list(store.glob("cells/.*/links.jsonl"))):
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    run.kill()
    run.wait()
    (first,) = finished(store)
    before = {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    again = subprocess.run(command(tmp_path, "--json"), cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "1 cell was running when the sweep was killed" in again.stderr
    data = json.loads(again.stdout)
    assert list(data["ran"].values()) == ["ok"]
    assert [cell["status"] for cell in data["cells"]] == ["ok", "ok"]
    assert {path.name: path.stat().st_mtime_ns for path in first.iterdir()} == before

    # the repeated cell is what it would have been: run it once more, by its own folder
    (second,) = [path for path in finished(store) if path != first]
    _check_folder(second, tmp_path)
    kept = {name: (second / name).read_bytes() for name in RECORDS}
    second.rename(tmp_path / "aside")
    done = subprocess.run(command(tmp_path, "--json"), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {name: (second / name).read_bytes() for name in RECORDS} == kept


def _check_folder(cell: Path, folder: Path) -> None:
    """Look for what a cell must tell, and for what ties it to this machine."""
    system = json.loads((cell / "system.json").read_text())
    assert system["sysctls"]["net.ipv4.tcp_no_metrics_save"] == "1"
    assert system["release"].startswith("6.")
    for when in ("before", "after"):
        shown = json.loads((cell / f"tc-{when}.json").read_text())
        netem = [entry for entry in shown if entry["kind"] == "netem"]
        assert len(netem) == 4
        assert {entry["options"]["rate"]["rate"] * 8 for entry in netem} == {1_000_000_000}
    sent = [
        sum(e["bytes"] for e in json.loads((cell / f"tc-{when}.json").read_text()))
        for when in ("before", "after")
    ]
    assert sent[1] > sent[0] + 1_000_000
    for path in cell.iterdir():
        text = path.read_text(errors="replace")
        for place in (folder, experiments.identity.ROOT, sys.prefix, os.uname().nodename):
            assert str(place) not in text, path.name
