"""Sweeps: what runs, what is not run again, and what a killed one leaves.

The cells are small real processes here (`process_engine`); `test_guest_sweep` has real guests.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fixture_sweeps import run
from process_engine import Plan, ProcessEngine
from rich.console import Console

import experiments.identity
from experiments.errors import UserError
from experiments.identity import Identities
from experiments.progress import SweepProgress
from experiments.sweep import PlannedCell


def changed(cell: PlannedCell, identities: Identities, **spec: object) -> PlannedCell:
    """Return a cell that is told something else."""
    told = {**cell.spec, **spec}
    return replace(cell, spec=told, digest=identities.digest(told))


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
