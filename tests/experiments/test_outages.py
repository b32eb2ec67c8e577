from pathlib import Path
from typing import Any

import pytest
from fixture_runs import step, write_cell, write_manifest

from experiments.analysis import load_run, remake
from experiments.outages import job_lines, outage_lines
from experiments.records import read_cell


def event(kind: str, at_s: float, where: str, detail: dict[str, Any]) -> dict[str, Any]:
    times = {"requested_s": at_s, "actual_s": at_s + 1e-6}
    return {**times, "kind": kind, "link": where, "detail": detail}


def down(at_s: float, link: str, up: bool = False) -> dict[str, Any]:
    return event("link", at_s, link, {"up": up})


def cell(
    tmp_path: Path,
    events: list[dict[str, Any]],
    stall_s: float = 0.0,
    slow_s: float = 0.0,
    **outcome: Any,
) -> Any:
    """A cell of steps of 100 ms of which the one at 1 s takes longer, and that before by a bit."""
    steps, now = [], 0.0
    for number in range(20):
        took = 0.1 + {9: slow_s, 10: stall_s}.get(number, 0.0)
        steps.append(step(number, now, took / 2, took / 2))
        now += took
    ending = {"status": "ok", "virtual_s": now} | outcome
    if ending["status"] != "ok":
        steps = steps[:11]
    write_cell(tmp_path, "allreduce", 0, steps={0: steps, 1: steps}, events=events, outcome=ending)
    return read_cell(tmp_path / "cells" / "allreduce-s0")


def test_a_pause_that_training_waits_for(tmp_path: Path) -> None:
    events = [
        event("host-paused", 1.02, "h1", {"rank": 1, "duration_s": 2}),
        event("host-resumed", 3.02, "h1", {"rank": 1}),
    ]
    (line,) = outage_lines(cell(tmp_path, events, stall_s=2.0))
    assert line == (
        "h1 paused at 1.020 s for 2 s: stalled from 1.020 to 3.100 s,"
        " recovered 0.080 s after it ended"
    )


def test_a_slow_step_before_the_stall_is_not_the_stall(tmp_path: Path) -> None:
    events = [
        event("host-paused", 1.02, "h1", {"rank": 1, "duration_s": 2}),
        event("host-resumed", 3.02, "h1", {"rank": 1}),
    ]
    (line,) = outage_lines(cell(tmp_path, events, stall_s=1.8, slow_s=0.2))
    assert line.endswith("stalled from 1.200 to 3.100 s, recovered 0.080 s after it ended")


def test_links_that_go_down_together_are_one_outage(tmp_path: Path) -> None:
    links = ("h0-s0", "h1-s0")
    events = [down(1.05, k) for k in links] + [down(1.55, k, up=True) for k in links]
    (line,) = outage_lines(cell(tmp_path, events, stall_s=1.0))
    assert line.startswith("h0-s0, h1-s0 down at 1.050 s for 0.5 s: stalled from 1.050 to 2.100 s")


def test_an_outage_that_nobody_noticed(tmp_path: Path) -> None:
    events = [down(0.55, "x0-s0"), down(0.6, "x0-s0", up=True)]
    (line,) = outage_lines(cell(tmp_path, events))
    assert line.endswith("went on, step 6 took 100 ms")


def test_a_rank_that_was_killed_ends_it(tmp_path: Path) -> None:
    events = [event("rank-killed", 1.15, "h1", {"rank": 1})]
    reason = "rank 1 died at step 12"
    found = cell(tmp_path, events, status="failed", reason=reason, virtual_s=1.25)
    (line,) = outage_lines(found)
    assert line == (
        "rank killed on h1 at 1.150 s for good: the training ended 0.100 s later,"
        " failed: rank 1 died at step 12"
    )


def test_a_link_that_never_comes_back(tmp_path: Path) -> None:
    reason = "no rank finished a step for 120 s; rank 0 is at step 12"
    found = cell(tmp_path, [down(1.15, "h0-s0")], status="timeout", reason=reason, virtual_s=121)
    (line,) = outage_lines(found)
    assert "h0-s0 down at 1.150 s for good: the training ended 119.850 s later, timeout" in line


def test_the_run_s_notes_tell_what_broke_and_who_trained_beside(tmp_path: Path) -> None:
    found = cell(tmp_path, [down(0.55, "x0-s0")])
    folder = tmp_path / "cells" / "allreduce-s0" / "job-rival"
    folder.mkdir()
    own = tmp_path / "cells" / "allreduce-s0" / "steps-rank0.jsonl"
    (folder / "steps-rank0.jsonl").write_bytes(own.read_bytes())
    (line,) = job_lines(read_cell(tmp_path / "cells" / "allreduce-s0"))
    assert line == "beside it, job rival trained 20 steps in 2.00 s, 100.0 ms each"
    write_manifest(tmp_path, ["allreduce"], [0])
    notes = remake(tmp_path).notes["allreduce", 0]
    assert notes == [*outage_lines(found), line]
    assert load_run(tmp_path).notes["allreduce", 0] == notes


@pytest.mark.parametrize("asked", [False, True])
def test_cells_on_other_links_count_only_where_asked_for(tmp_path: Path, asked: bool) -> None:
    from experiments.analysis import is_valid
    from experiments.overview import overview

    cell(tmp_path, [], link_verdict="h0>s0: rate_mbps asked 100, got 800")
    write_manifest(tmp_path, ["allreduce"], [0])
    tables = remake(tmp_path, off_links=asked)
    assert bool(is_valid(tables.summary).all()) is asked
    (row,) = overview(tables)
    assert (row.seeds, row.state) == ((1, "") if asked else (0, "link not as asked"))
