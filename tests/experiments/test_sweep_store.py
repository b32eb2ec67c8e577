"""Sweeps that are killed, that meet, and that find torn files.

The cells are small real processes here (`process_engine`).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from fixture_sweeps import STEPS, run
from process_engine import Plan, store_plan

import experiments.identity
from experiments.errors import UserError
from experiments.store import CellStore

PROGRAM = Path(__file__).with_name("process_engine.py")


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
            assert "is in use by" in text  # not by whom, before the other has written it
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
