"""Faults planted while ranks of a real cell move bytes: the verdict of the run names each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from guest_cells import cell_spec, run_cell

from testbed.kernel import build
from testbed.launcher import GuestCell

pytestmark = pytest.mark.guest

LOSSY = {"network": {"rate_mbps": 100, "delay_ms": 1, "loss_pct": 1, "queue": {"bytes": 262144}}}
CROSS = {
    "start_s": 0.2,
    "duration_s": None,
    "kind": "iperf3-udp",
    "source": "x0",
    "sink": "h1",
    "flows": 1,
    "congestion_control": None,
    "rate_mbps": 1.0,
}


def outcome(folder: Path, **more: Any) -> dict[str, Any]:
    """Run a cell that somebody meddles with."""
    return run_cell(folder / "cell", cell_spec("meddle", step_bytes=100_000, **more))


def test_a_run_that_nobody_meddles_with_is_ok(tmp_path: Path) -> None:
    assert outcome(tmp_path)["link_verdict"] == "ok"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("qdisc del dev s0-eth2 root", "s0>h1: its qdisc is gone at"),
        (
            "qdisc change dev s0-eth2 root handle 1: netem limit 190 rate 1600mbit delay 1ms",
            "s0>h1: rate_mbps asked 200, got 1600",
        ),
    ],
)
def test_a_link_changed_by_somebody_else_is_named(tmp_path: Path, fault: str, says: str) -> None:
    found = outcome(tmp_path, fault=fault)
    assert found["status"] == "ok"
    assert any(says in text for text in found["link_deviations"])
    assert found["link_verdict"] != "ok"


def test_bytes_that_went_past_the_link_are_missed(tmp_path: Path) -> None:
    found = outcome(tmp_path, bypass=True)
    assert "h0: its link carried" in found["link_verdict"]
    assert "its hook explains 2000000" in found["link_verdict"]


def test_an_iperf3_that_died_is_named(tmp_path: Path) -> None:
    network = {"extra_hosts": 1}
    found = outcome(tmp_path, fault="iperf3", traffic=[CROSS], network=network)
    assert "iperf3 flow 0 x0>h1 ended by itself" in found["link_deviations"]


def test_loss_acts_on_frames_however_tcp_hands_them_over(tmp_path: Path) -> None:
    found = outcome(tmp_path, segmentation="on", **LOSSY)
    assert found["link_verdict"] == "ok"
    (row,) = [r for r in found["link_check"]["losses"] if r["direction"] == "h0>s0"]
    assert row["frames"] > 1300


def test_super_packets_left_on_in_a_lossy_scenario_are_caught(tmp_path: Path) -> None:
    # the guest kernel takes them apart: have it do as the stock kernel does
    kernel = tmp_path / "kernel"
    kernel.write_text(f'#!/bin/sh\nexec {build.ensure()} "$@" sch_netem.wire=0\n')
    kernel.chmod(0o755)
    spec = cell_spec("meddle", step_bytes=2_000_000, segmentation="on", **LOSSY)
    found = GuestCell(kernel, tmp_path / "cell", spec).wait()
    assert any("asked to lose 1 % of" in text for text in found["link_deviations"])


def link_event(at_s: float, link: str, up: bool) -> dict[str, Any]:
    return {"kind": "link", "at_s": at_s, "link": link, "sender": None, "changes": {"up": up}}


def test_a_cell_lives_through_a_cable_pulled_and_a_host_paused(tmp_path: Path) -> None:
    pause = {"kind": "host-paused", "at_s": 0.5, "host": "h1", "duration_s": 1.0}
    events = [pause, link_event(2.05, "h1-s0", False), link_event(3.05, "h1-s0", True)]
    found = outcome(tmp_path, events=events, steps=40)
    assert (found["status"], found["link_verdict"]) == ("ok", "ok")
    assert found["virtual_s"] > 40 * 0.1 + 2


def test_a_cable_that_stays_out_ends_the_cell(tmp_path: Path) -> None:
    found = outcome(tmp_path, events=[link_event(0.5, "h0-s0", False)], stall_s=30.0)
    assert found["status"] == "timeout"
    assert found["reason"].startswith("no rank finished a step for 30 s")
    assert found["virtual_s"] < 35


def test_another_job_runs_beside_and_records_apart(tmp_path: Path) -> None:
    job = {"name": "rival", "hosts": ["x0", "x1"], "world_size": 2, "start_s": 0.5, "seed": 3}
    found = outcome(
        tmp_path, jobs=[{**job, "steps": 1000, "step_bytes": 50_000}], network={"extra_hosts": 2}
    )
    assert (found["status"], found["link_verdict"]) == ("ok", "ok")
    assert 10 <= found["jobs"]["rival"] < 20  # it began later, and ended with the other
    assert (tmp_path / "cell" / "job-rival" / "stacks-rank1.txt").exists()


def test_another_job_that_fails_is_named(tmp_path: Path) -> None:
    job = {"name": "rival", "hosts": ["x0", "x1"], "world_size": 2, "start_s": 0.5, "seed": 3}
    found = outcome(
        tmp_path, jobs=[{**job, "steps": 1000, "step_bytes": -1}], network={"extra_hosts": 2}
    )
    assert found["status"] == "ok"
    assert "job rival: " in found["link_verdict"]
