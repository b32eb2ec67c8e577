import json
from pathlib import Path

import pytest
from fixture_runs import small_run, step, write_cell, write_manifest

from experiments.errors import UserError
from experiments.records import read_cell, read_run


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    return small_run(tmp_path) / "cells" / "netsense-s0"


def test_a_whole_cell(cell: Path) -> None:
    record = read_cell(cell)
    assert (record.label, record.seed, record.status, record.reason) == ("netsense", 0, "ok", "")
    assert {rank: len(rows) for rank, rows in record.steps.items()} == {0: 5, 1: 5}
    assert record.links == []
    assert record.problems == []


def test_a_torn_last_line_is_dropped_and_reported(cell: Path) -> None:
    path = cell / "steps-rank1.jsonl"
    path.write_text(path.read_text()[:-30])
    record = read_cell(cell)
    assert len(record.steps[1]) == 4
    assert record.problems == ["steps-rank1.jsonl: the torn last line 5 was dropped"]
    assert record.status == "ok"


def test_damage_in_the_middle_fails_the_cell(cell: Path) -> None:
    path = cell / "steps-rank0.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:10], *lines[3:]]))
    record = read_cell(cell)
    assert record.status == "failed"
    assert record.reason == "steps-rank0.jsonl line 3 is damaged"


def test_a_line_without_its_times_fails_the_cell(cell: Path) -> None:
    path = cell / "steps-rank0.jsonl"
    path.write_text('{"step": 0, "t_start_s": null, "t_end_s": 1, "samples": 1}\n')
    assert read_cell(cell).reason == "steps-rank0.jsonl line 1 has no number t_start_s"


def test_a_cell_that_crashed_left_no_outcome(cell: Path) -> None:
    (cell / "outcome.json").unlink()
    record = read_cell(cell)
    assert record.status == "failed"
    assert "no outcome" in record.reason


def test_an_empty_directory_is_a_failed_cell(tmp_path: Path) -> None:
    folder = tmp_path / "topk-0.1-s12"
    folder.mkdir()
    record = read_cell(folder)
    assert (record.label, record.seed, record.status) == ("topk-0.1", 12, "failed")


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), None])
def test_a_loss_that_is_no_number_is_divergence(tmp_path: Path, loss: float | None) -> None:
    rows = [step(0, 0, 1, 1), step(1, 2, 1, 1, loss=loss)]
    record = read_cell(write_cell(tmp_path, "fp16", steps={0: rows}))
    assert record.status == "diverged"
    assert record.steps[0][1]["loss"] is None


def test_an_unknown_status_is_not_believed(cell: Path) -> None:
    (cell / "outcome.json").write_text(json.dumps({"status": "fine"}))
    assert read_cell(cell).status == "failed"


def test_cells_come_in_the_order_of_the_scenario(tmp_path: Path) -> None:
    for label in ("netsense", "allreduce", "zip"):
        for seed in (10, 2):
            write_cell(tmp_path, label, seed, steps={0: [step(0, 0, 1, 1)]})
    write_manifest(tmp_path, ["netsense", "fp16", "allreduce"], [2, 10])
    assert [(c.label, c.seed) for c in read_run(tmp_path)] == [
        ("netsense", 2), ("netsense", 10), ("allreduce", 2), ("allreduce", 10), ("zip", 2),
        ("zip", 10),
    ]  # fmt: skip


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run"):
        read_run(tmp_path)
