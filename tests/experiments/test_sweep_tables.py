import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from fixture_runs import congested_run

from experiments.__main__ import main
from experiments.analysis import SUMMARY_COLUMNS, ours_of, remake
from experiments.errors import UserError
from experiments.overview import overview
from experiments.sweep_report import headline, matrix, write_sweep_report
from experiments.sweep_tables import is_sweep, load_sweep, remake_sweep

RATES = (30, 100)
AXES = ["topology.rate_mbps", "net"]


def congested_sweep(
    folder: Path, seeds: tuple[int, ...] = (0, 1), rates: tuple[int, ...] = RATES, count: int = 20
) -> Path:
    """Write a sweep of cells that never ran: six methods at two rates, the first one named."""
    (folder / "cells").mkdir(parents=True)
    cells, scenarios = [], {}
    for number, rate in enumerate(rates):
        run_dir = congested_run(folder / "run", seeds=seeds, count=count + number % 2 * 10)
        scenario = json.loads((run_dir / "manifest.json").read_text())["scenario"]
        scenarios[f"fixture/rate_mbps={rate}"] = scenario
        for cell in sorted((run_dir / "cells").iterdir()):
            label, _, seed = cell.name.rpartition("-s")
            digest = f"{number}{cell.name}".replace(".", "-")
            cell.rename(folder / "cells" / digest)
            axes = {"topology.rate_mbps": rate} | ({"net": "slow"} if not number else {})
            entry = {"scenario": "fixture", "variation": f"rate_mbps={rate}", "axes": axes}
            cells.append({**entry, "method": label, "seed": int(seed), "cell": digest})
        shutil.rmtree(run_dir)
    order = [arm["label"] for arm in scenario["methods"]]
    cells.sort(
        key=lambda c: (c["axes"]["topology.rate_mbps"], order.index(c["method"]), c["seed"])
    )
    manifest = {"sweep": {"name": "fixture", "description": "Two rates", "axes": AXES}}
    manifest |= {"cells": cells, "scenarios": scenarios, "command": "make it"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return congested_sweep(tmp_path / "sweep")


def cell_of(folder: Path, number: int) -> Path:
    manifest = json.loads((folder / "manifest.json").read_text())
    return folder / "cells" / manifest["cells"][number]["cell"]


def test_a_row_per_cell_with_columns_that_tell_the_variation(folder: Path) -> None:
    tables = remake_sweep(folder)
    header, *rows = (folder / "summary.csv").read_text().splitlines()
    assert header.split(",") == ["scenario", "variation", *AXES, *SUMMARY_COLUMNS, "cell"]
    assert len(rows) == 2 * 6 * 2
    assert rows[0].startswith("fixture,rate_mbps=30,30,slow,allreduce,0,ok,4,20,")
    assert rows[-1].startswith("fixture,rate_mbps=100,100,,netsense,1,ok,4,30,")
    assert tables.axes == AXES
    assert tables.summary["topology.rate_mbps"].tolist() == [30] * 12 + [100] * 12
    assert tables.variations == [("fixture", "rate_mbps=30"), ("fixture", "rate_mbps=100")]
    assert tables.missing == []
    for name in ("steps", "links", "evals", "events"):
        frame = getattr(tables, name)
        assert list(frame.columns[:4]) == ["scenario", "variation", "method", "seed"]
    assert len(tables.steps) == 2 * 6 * 4 * (20 + 30)


def test_the_same_records_give_the_same_bytes_wherever_they_lie(
    folder: Path, tmp_path: Path
) -> None:
    names = ("summary.csv", "steps.parquet", "links.parquet", "evals.parquet", "events.parquet")
    remake_sweep(folder)
    first = {name: (folder / name).read_bytes() for name in names}
    moved = folder.rename(tmp_path / "moved")
    assert load_sweep(moved).summary.equals(remake_sweep(moved).summary)
    assert {name: (moved / name).read_bytes() for name in names} == first


def test_one_variation_is_a_run(folder: Path, tmp_path: Path) -> None:
    one = remake_sweep(folder).of("fixture", "rate_mbps=30")
    same = remake(congested_run(tmp_path / "run", seeds=(0, 1), count=20))
    pd.testing.assert_frame_equal(one.summary, same.summary)
    assert len(one.steps) == len(same.steps)
    assert overview(one) == overview(same)
    assert ours_of(one.summary) == "netsense"


def test_what_has_not_run_and_what_failed_is_shown_as_such(folder: Path) -> None:
    shutil.rmtree(cell_of(folder, 0))
    shutil.rmtree(cell_of(folder, 1))
    bad = cell_of(folder, 2) / "outcome.json"
    bad.write_text(json.dumps(json.loads(bad.read_text()) | {"status": "timeout", "reason": "x"}))
    tables = remake_sweep(folder)
    assert tables.missing == [f"fixture/rate_mbps=30/allreduce-s{seed}" for seed in (0, 1)]
    assert len(tables.summary) == 22
    assert tables.notes["fixture", "rate_mbps=30", "fp16", 0] == ["x"]
    found = matrix(tables, "samples_per_second")
    row = found.rows["fixture", "rate_mbps=30"]
    assert row["allreduce"] == "not run"
    assert isinstance(row["fp16"], float)  # of the seed that ended well
    page, _ = write_sweep_report(tables)
    text = page.read_text()
    assert "2 cells have not run: fixture/rate_mbps=30/allreduce-s0" in text
    assert "1 cells timeout: fixture/rate_mbps=30/fp16-s0" in text


def test_the_page_is_self_contained_also_with_many_cells(tmp_path: Path) -> None:
    folder = congested_sweep(tmp_path / "sweep", (0,), tuple(range(10, 90)), 4)
    tables = remake_sweep(folder)
    assert len(tables.summary) == 480
    page, plots = write_sweep_report(tables)
    text = page.read_text()
    assert plots == []  # too many rows for a picture
    assert len(text) < 1_500_000
    for outside in ("http://", "https://", "src=", "<link", "@import", str(tmp_path)):
        assert outside not in text.replace("http://www.w3.org", "")


def test_the_headline_counts_variations(folder: Path) -> None:
    tables = remake_sweep(folder)
    assert headline(tables).startswith("Of 2 variations, netsense is the fastest method in ")


def test_the_headline_compares_with_the_methods_that_lose_nothing(folder: Path) -> None:
    tables = remake_sweep(folder)
    frame = tables.summary
    for column, values in (
        ("samples_per_second", {"fp16": 400.0, "netsense": 300.0, "topk-0.01": 1000.0}),
        ("final_accuracy", {"topk-0.01": 0.7, "allreduce": 0.804, "netsense": 0.798}),
    ):
        frame[column] = frame["method"].map(values).fillna(200.0 if "second" in column else 0.8)
    text = headline(tables)
    assert "it reaches at least 0.75 of the fastest's throughput" in text  # of fp16's
    assert "is itself within half a point in 0 of 2" in text
    frame.loc[frame["method"] == "allreduce", "status"] = "failed"
    assert "half a point" not in headline(tables)


def test_the_command_line_makes_the_page_of_a_sweep(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_sweep(folder)
    assert main(["report", str(folder)]) == 0
    assert "rate_mbps=100" in capsys.readouterr().out
    assert (folder / "report.html").exists()
    assert (folder / "plots" / "throughput.svg").exists()
    assert main(["report", str(folder), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["cells"]) == 24
    assert data["missing"] == []


def test_what_is_no_sweep_or_has_no_tables(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no sweep"):
        load_sweep(tmp_path)
    with pytest.raises(UserError, match=r"has no summary\.csv"):
        load_sweep(folder)
