"""Sweeps: what runs, what is not run again, and what a killed one leaves.

The cells are small real processes here (`process_engine`); `test_guest_sweep` has real guests.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from process_engine import Plan, ProcessEngine, Said, store_plan
from rich.console import Console

import experiments.identity
from experiments.errors import UserError
from experiments.identity import Identities
from experiments.progress import SweepProgress
from experiments.store import CellStore
from experiments.sweep import PlannedCell, SweepResult, plan, run_planned
from experiments.sweepfile import load

PROGRAM = Path(__file__).with_name("process_engine.py")
STEPS = 8


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Two rates, two methods, twenty seeds: eighty cells."""
    path = tmp_path_factory.mktemp("plan") / "small.yaml"
    path.write_text(
        f"""
description: Small cells
scenarios: [smoke]
set: {{workload.steps: {STEPS}, seeds: {list(range(20))}, methods: [fp16, netsense]}}
grid: {{topology.rate_mbps: [100, 1000]}}
"""
    )
    sweep, identities = load(path), Identities()
    return sweep, plan(sweep, identities=identities), identities


@pytest.fixture
def small(large: Plan) -> Plan:
    """The first three seeds: twelve cells."""
    sweep, cells, identities = large
    return sweep, [cell for cell in cells if cell.seed < 3], identities


def changed(cell: PlannedCell, identities: Identities, **spec: object) -> PlannedCell:
    """Return a cell that is told something else."""
    told = {**cell.spec, **spec}
    return replace(cell, spec=told, digest=identities.digest(told))


def run(
    small: Plan, folder: Path, engine: ProcessEngine | None = None, **more: object
) -> SweepResult:
    engine = engine or ProcessEngine(folder / "log")
    folder.mkdir(exist_ok=True)
    more = {"engine": engine, "progress": Said(), **more}
    return run_planned(*small, folder, **more)  # type: ignore[arg-type]


def starts(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_every_cell_runs_once_and_a_rerun_runs_nothing(small: Plan, tmp_path: Path) -> None:
    engine = ProcessEngine(tmp_path / "log", slots=3)
    first = run(small, tmp_path, engine)
    assert first.ok
    assert engine.most == 3
    assert len(first.ran) == 12
    assert sorted(starts(tmp_path)) == sorted(set(starts(tmp_path)))
    second = run(small, tmp_path)
    assert second.ok
    assert second.ran == {}
    assert len(starts(tmp_path)) == 12
    assert sorted(p.name for p in (tmp_path / "cells").iterdir()) == sorted(
        cell.digest for cell in small[1]
    )


def test_a_cell_is_self_contained_and_names_no_path_of_this_machine(
    small: Plan, tmp_path: Path
) -> None:
    run(small, tmp_path, only="rate_mbps=100/fp16-s0")
    (cell,) = (tmp_path / "cells").iterdir()
    names = {path.name for path in cell.iterdir()}
    assert names == {"cell.json", "outcome.json", "provenance.json", "steps-rank0.jsonl"}
    provenance = json.loads((cell / "provenance.json").read_text())
    assert provenance["identity"]["cell"] == json.loads((cell / "cell.json").read_text())
    assert provenance["wall_s"] >= provenance["start_s"] > 0
    for path in cell.iterdir():
        assert str(tmp_path) not in path.read_text()
        assert str(experiments.identity.ROOT) not in path.read_text()


def test_only_runs_what_matches(small: Plan, tmp_path: Path) -> None:
    result = run(small, tmp_path, only="*netsense-s[01]")
    assert len(result.ran) == 4
    assert all("netsense" in key for key in result.ran)
    with pytest.raises(UserError, match="no cell matches 'nothing'"):
        run(small, tmp_path, only="nothing")


def test_a_failure_does_not_stop_the_rest_and_is_tried_again(small: Plan, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    first = run(small, tmp_path, only="fp16")
    assert not first.ok
    assert len(first.ran) == len(first.bad) == 6
    (tmp_path / "broken").unlink()
    second = run(small, tmp_path, only="fp16")
    assert second.ok
    assert len(second.ran) == 6


def test_fail_fast_stops_and_leaves_no_process(small: Plan, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    engine = ProcessEngine(tmp_path / "log")
    result = run(small, tmp_path, engine, fail_fast=True)
    assert len(result.ran) == 1
    assert len(result.skipped) == 11
    assert all(job._process.poll() is not None for job in engine._jobs)
    assert not [p for p in (tmp_path / "cells").iterdir() if p.name.startswith(".")]


def test_real_time_bears_no_company(small: Plan, tmp_path: Path) -> None:
    sweep, cells, known = small
    cells = [changed(c, known, clock="real") if c.seed == 1 else c for c in cells if c.seed < 2]

    class Watched(ProcessEngine):
        def submit(self, folder, spec):  # type: ignore[no-untyped-def]
            others = [job for job in self._jobs if job._process.poll() is None]
            if spec["clock"] == "real" or any(j.real for j in others):
                assert not others
            job = super().submit(folder, spec)
            job.real = spec["clock"] == "real"
            return job

    result = run((sweep, cells, known), tmp_path, Watched(tmp_path / "log", slots=4))
    assert len(result.ran) == 8


def test_large_cells_do_not_run_beside_each_other(small: Plan, tmp_path: Path) -> None:
    sweep, cells, known = small
    cells = [changed(cell, known, memory_mb=3000) for cell in cells[:3]]
    engine = ProcessEngine(tmp_path / "log", slots=4)
    engine.memory_mb = 5000
    assert len(run((sweep, cells, known), tmp_path, engine).ran) == 3
    assert engine.most == 1


def test_a_small_cell_runs_beside_a_large_one_that_another_waits_for(
    small: Plan, tmp_path: Path
) -> None:
    sweep, cells, known = small
    sizes = (3000, 3000, 1000)
    cells = [changed(c, known, memory_mb=m) for c, m in zip(cells[:3], sizes, strict=True)]
    engine = ProcessEngine(tmp_path / "log", slots=4)
    engine.memory_mb = 5000
    assert len(run((sweep, cells, known), tmp_path, engine).ran) == 3
    assert engine.most == 2
    # the two that start at once may write their lines in either order
    assert starts(tmp_path)[2].endswith(f"s{cells[1].seed}")


def test_an_edited_option_is_a_new_cell_and_the_others_stay(small: Plan, tmp_path: Path) -> None:
    sweep, cells, known = small
    edited = [
        changed(c, known, options={"max_ratio": 9.0}) if c.label == "netsense" else c
        for c in cells
    ]
    run(small, tmp_path)
    result = run((sweep, edited, known), tmp_path)
    assert len(result.ran) == 6
    assert all("/netsense-s" in key for key in result.ran)
    assert run(small, tmp_path).ran == {}  # and back again


def test_equal_cells_of_two_variations_run_once(small: Plan, tmp_path: Path) -> None:
    sweep, cells, known = small
    again = [replace(c, variation=replace(c.variation, name="again")) for c in cells[:6]]
    result = run((sweep, [*cells[:6], *again], known), tmp_path)
    assert len(result.ran) == 6
    assert len(starts(tmp_path)) == 6
    assert len(result.cells) == 12


def test_code_edited_while_it_runs_is_noticed(
    small: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import experiments.sweep

    monkeypatch.setattr(
        experiments.sweep, "code_files", lambda *_: {"netsenseml/hook.py": "other"}
    )
    with pytest.raises(UserError, match="was changed while the sweep ran"):
        run(small, tmp_path)
    assert list((tmp_path / "cells").iterdir()) == []


def damage(cells: Path) -> list[str]:
    """Return what is wrong with the finished cells of a store."""
    wrong = []
    for cell in cells.iterdir():
        if cell.name.startswith("."):
            continue
        rows = (cell / "steps-rank0.jsonl").read_text().splitlines()
        whole = [json.loads(row) for row in rows]
        if [row["step"] for row in whole] != list(range(STEPS)):
            wrong.append(f"{cell.name}: {len(whole)} steps")
        for name in ("cell.json", "outcome.json", "provenance.json"):
            json.loads((cell / name).read_text())
    return wrong


def program(large: Plan, folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start the program on ``folder/store``; return it and the log of its cells."""
    if not (folder / "plan").exists():
        store_plan(large, folder / "plan")
    log = folder / "log"
    started = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder / "plan"), str(folder / "store"), str(log)],
        env={"PYTHONPATH": str(experiments.identity.ROOT), "PATH": os.environ["PATH"]},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return started, log


def journal(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_twenty_kills_lose_only_what_was_running_and_repeat_nothing(
    large: Plan, tmp_path: Path
) -> None:
    """SIGKILL at random moments; then the sweep is finished, by the program itself."""
    cells = large[1]
    store = CellStore(tmp_path / "store")
    rate = "topology.rate_mbps"
    named = {c.digest: f"{c.variation.axes[rate]} {c.label} s{c.seed}" for c in cells}
    moment = random.Random(20250616)
    said, before, done = "", 0, set[str]()
    for _ in range(20):
        running, log = program(large, tmp_path)
        deadline = time.monotonic() + 60
        # half of the moments from the start of the program, half from that of its cells
        if moment.random() < 0.5:
            while not log.exists() or len(log.read_text().splitlines()) == before:
                assert running.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.005)
        time.sleep(moment.uniform(0, 0.8))
        running.kill()
        said += running.communicate()[0]
        started = log.read_text().splitlines() if log.exists() else []
        assert not done & set(started[before:])  # nothing that had a result ran again
        before = len(started)
        done = {named[c.digest] for c in cells if store.done(c.digest)}
        if store.cells.exists():
            assert damage(store.cells) == []
    assert "removed, to run again" in said
    assert 0 < len(done) < 80  # the kills came while there was something to do
    running, log = program(large, tmp_path)
    said = running.communicate()[0]
    assert running.returncode == 0, said
    started = log.read_text().splitlines()
    assert {store.done(c.digest) for c in cells} == {True}
    assert damage(store.cells) == []
    assert [p.name for p in store.folder.rglob(".*")] == [".lock"]
    assert len(set(started)) == len(cells) == 80
    assert len(started) <= 80 + 2 * 20  # two run at a time: at most these are lost by a kill
    ended = Counter(event["cell"] for event in journal(store.folder) if event["event"] == "ended")
    assert max(ended.values()) == 1


def test_two_sweeps_on_one_store(small: Plan, tmp_path: Path) -> None:
    both = [program(small, tmp_path)[0] for _ in range(2)]
    said = [running.communicate()[0] for running in both]
    started = (tmp_path / "log").read_text().splitlines()
    assert sorted(started) == sorted(set(started))
    assert len(started) == 12
    assert damage(tmp_path / "store" / "cells") == []
    for running, text in zip(both, said, strict=True):
        if running.returncode:  # else it came when the other had ended
            assert "is in use by process" in text
            assert "wait for it, or stop it" in text


def test_the_lock_is_told_in_one_line(small: Plan, tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    with store.locked(), pytest.raises(UserError) as caught:
        run(small, tmp_path)
    assert "is in use by process" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert run(small, tmp_path, only="fp16-s0").ok


def test_torn_lines_are_repaired_and_reported(
    small: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small, tmp_path, only="fp16-s0")
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"event": "star')
    torn = sorted((tmp_path / "cells").iterdir())[0]
    records = torn / "steps-rank0.jsonl"
    records.write_text(records.read_text()[:-10])
    capsys.readouterr()
    again = run(small, tmp_path, only="fp16-s0")
    said = capsys.readouterr().out
    assert "journal.jsonl: the torn last line 5 was cut" in said
    assert f"cell {torn.name}: steps-rank0.jsonl: the torn last line {STEPS} was cut" in said
    assert len(again.ran) == 1
    assert damage(tmp_path / "cells") == []
    events = Counter(event["event"] for event in journal(tmp_path))
    assert events == {"started": 3, "ended": 3}


def test_every_end_is_told_with_where_the_whole_stands(small: Plan, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    run(small, tmp_path, only="fp16-s0")
    out = io.StringIO()
    with SweepProgress(Console(file=out, width=200)) as progress:
        run(small, tmp_path, only="fp16-s", progress=progress)
    lines = out.getvalue().splitlines()
    assert lines[0] == "6 cells; 2 at a time; time left unknown until a cell has run"
    ended = [line for line in lines if ": failed" in line]
    assert len(ended) == 6
    assert re.search(r"fp16-s.: failed; 1 of 6 done, 1 running, 1 failed, ", ended[0])
    assert ended[-1].endswith("6 of 6 done, 0 running, 6 failed")


def test_the_manifest_says_what_stands_where(small: Plan, tmp_path: Path) -> None:
    run(small, tmp_path, only="fp16-s0")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len(manifest["cells"]) == 12
    assert manifest["cells"][0]["axes"] == {"topology.rate_mbps": 100}
    assert manifest["sweep"]["axes"] == ["topology.rate_mbps"]
    resolved = manifest["scenarios"]["smoke/rate_mbps=1000"]
    assert resolved == yaml.safe_load(json.dumps(small[0].variations[1].scenario.resolved()))
    assert "testbed/cell.py" in manifest["code"]
