import json
from pathlib import Path

import pytest
from fixture_runs import congested_run, small_run, step, write_cell

from experiments.analysis import SUMMARY_COLUMNS, is_valid, load_run, ours_of, remake, speedups
from experiments.errors import UserError

COLUMNS = (
    "method,seed,status,world_size,steps,samples_per_second,step_ms_p50,step_ms_p95,"
    "compute_ms_p50,exposed_comm_ms_p50,wire_bytes_per_step,compression_ratio,final_accuracy,"
    "time_to_accuracy_s,link_verdict,replicas_identical"
)


def lines(run_dir: Path) -> list[str]:
    remake(run_dir)
    return (run_dir / "summary.csv").read_text().splitlines()


def test_every_value_of_a_run_checked_by_hand(tmp_path: Path) -> None:
    # Counted: steps 3 and 4 of two ranks. Rank 1 is the slowest: 0.1 + 0.4 s.
    # 4 x 32 samples / 0.5 s; steps 100, 100, 300, 400 ms; wire 4000, 4000, 2000, 2000 B.
    header, row = lines(small_run(tmp_path))
    assert header == COLUMNS == ",".join(SUMMARY_COLUMNS)
    assert row == (
        "netsense,0,ok,2,5,256.000,200.0000,385.0000,60.0000,140.0000,3000.0,1.3333,0.8000,"
        "3.400000,ok,true"
    )


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    names = ("summary.csv", "steps.parquet", "links.parquet", "evals.parquet", "events.parquet")
    made = []
    for folder in ("a", "b"):
        run_dir = congested_run(tmp_path / folder, seeds=(1, 0), count=30)
        remake(run_dir)
        remake(run_dir)
        made.append({name: (run_dir / name).read_bytes() for name in names})
    assert made[0] == made[1]
    assert b"\r" not in made[0]["summary.csv"]
    assert not [p.name for p in (tmp_path / "a").iterdir() if p.name.endswith(".part")]


def test_what_was_not_measured_is_empty(tmp_path: Path) -> None:
    write_cell(
        tmp_path, "fp16", steps={0: []},
        outcome={"status": "timeout", "link_verdict": None, "replicas_identical": None},
    )  # fmt: skip
    assert lines(tmp_path)[1] == "fp16,0,timeout,1,0,,,,,,,,,,,"


def test_steps_that_some_rank_did_not_finish_do_not_count(tmp_path: Path) -> None:
    full = [step(i, float(i), 0.5, 0.5) for i in range(6)]
    write_cell(tmp_path, "fp16", steps={0: full, 1: full[:5]}, outcome={"status": "timeout"})
    row = dict(zip(COLUMNS.split(","), lines(tmp_path)[1].split(","), strict=True))
    assert row["steps"] == "5"
    assert row["samples_per_second"] == "64.000"  # steps 3 and 4: 128 samples in 2 s


def test_without_the_records_of_a_rank_nothing_is_claimed(tmp_path: Path) -> None:
    rows = [step(i, float(i), 0.5, 0.5) for i in range(6)]
    write_cell(tmp_path, "fp16", steps={0: rows}, world_size=2)
    assert ",,,,,," in lines(tmp_path)[1]


def test_warm_up_is_what_the_cell_says(tmp_path: Path) -> None:
    rows = [step(0, 0.0, 5.0, 5.0), step(1, 10.0, 0.5, 0.5)]
    write_cell(tmp_path, "fp16", steps={0: rows}, outcome={"warmup_steps": 1})
    assert ",32.000,1000.0000," in lines(tmp_path)[1]


def test_a_run_that_time_ended_early_counts_half_of_its_steps(tmp_path: Path) -> None:
    rows = [step(i, float(i), 0.5, 0.5) for i in range(3)]
    write_cell(tmp_path, "fp16", steps={0: rows}, outcome={"warmup_steps": 3})
    assert ",32.000,1000.0000," in lines(tmp_path)[1]
    assert load_run(tmp_path).steps["counted"].tolist() == [False, False, True]


def test_time_to_accuracy_is_the_first_evaluation_that_reaches_it(tmp_path: Path) -> None:
    evals = [
        {"step": i, "t_s": i + 0.5, "accuracy": a, "loss": 1.0}
        for i, a in enumerate((0.5, 0.75, 0.6, 0.9))
    ]
    write_cell(tmp_path, "fp16", steps={0: [step(0, 0.0, 1.0, 1.0)]}, evals=evals)
    assert ",0.9000,1.500000," in lines(tmp_path)[1]


def test_a_cell_that_stopped_early_has_no_final_accuracy(tmp_path: Path) -> None:
    evals = [{"step": 1, "t_s": 1.0, "accuracy": 0.9, "loss": 1.0}]
    rows = [step(0, 0.0, 1.0, 1.0)]
    write_cell(tmp_path, "fp16", steps={0: rows}, evals=evals, outcome={"status": "timeout"})
    assert ",,1.000000,ok,true" in lines(tmp_path)[1]


def test_divergence_is_a_status_not_a_number(tmp_path: Path) -> None:
    rows = [step(i, float(i), 0.5, 0.5, loss=float("nan")) for i in range(5)]
    evals = [{"step": 4, "t_s": 5.0, "accuracy": float("nan"), "loss": float("nan")}]
    write_cell(tmp_path, "fp16", steps={0: rows}, evals=evals)
    text = "\n".join(lines(tmp_path))
    assert "fp16,0,diverged,1,5,32.000," in text
    assert "nan" not in text.lower()
    tables = load_run(tmp_path)
    assert tables.evals["accuracy"].isna().all()
    assert not is_valid(tables.summary).any()


def test_parquet_has_a_row_per_rank_and_step(tmp_path: Path) -> None:
    steps = remake(small_run(tmp_path)).steps
    assert list(steps.columns[:5]) == ["method", "seed", "rank", "step", "counted"]
    assert len(steps) == 10
    assert steps["counted"].sum() == 4
    assert steps["bandwidth_mbps"].isna().all()


def test_further_fields_are_kept(tmp_path: Path) -> None:
    rows = [step(0, 0.0, 1.0, 1.0, my_estimate=0.5)]
    write_cell(tmp_path, "fp16", steps={0: rows})
    assert remake(tmp_path).steps["my_estimate"].tolist() == [0.5]


def test_speedups_are_medians_over_seeds_with_an_interval(tmp_path: Path) -> None:
    tables = remake(congested_run(tmp_path, seeds=(0, 1, 2), count=40))
    found = speedups(tables.summary)
    assert ours_of(tables.summary) == "netsense"
    assert set(found) == {"allreduce", "fp16", "topk-0.1", "topk-0.01", "powersgd"}
    gain = found["allreduce"]
    assert gain.n == 3
    assert gain.low is not None
    assert gain.high is not None
    assert 1 < gain.low <= gain.median <= gain.high


def test_cells_on_wrong_links_are_left_out(tmp_path: Path) -> None:
    run_dir = congested_run(tmp_path, count=10)
    path = run_dir / "cells" / "fp16-s0" / "outcome.json"
    outcome = json.loads(path.read_text()) | {"link_verdict": "h0-s0: rate 9 % below asked"}
    path.write_text(json.dumps(outcome))
    summary = remake(run_dir).summary
    assert "fp16" not in speedups(summary)
    assert "allreduce" in speedups(summary)
    assert is_valid(summary).sum() == 5


def test_loading_what_has_no_tables(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no summary\.csv"):
        load_run(tmp_path)


def test_tables_can_be_moved(tmp_path: Path) -> None:
    run_dir = small_run(tmp_path / "here")
    before = remake(run_dir).summary
    moved = run_dir.rename(tmp_path / "there")
    assert load_run(moved).summary.equals(before)
