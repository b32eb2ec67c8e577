"""Cells in a real guest: what goes wrong is named, ranks are contained, times are kept."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest
from guest_cells import cell_spec, records, run_cell

from testbed import launcher
from testbed.guest import PROJECT, GuestFiles
from topologies import Topology

pytestmark = pytest.mark.guest


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("raise", "failed", "rank 1: ValueError: planted"),
        ("die", "failed", "rank 1 died at step 2"),
        ("sleep", "timeout", "no rank finished a step for 60 s; rank 1 is at step 2"),
    ],
)
def test_first_cause_is_named(tmp_path: Path, fault: str, status: str, reason: str) -> None:
    outcome = run_cell(tmp_path / "cell", cell_spec("idle", fault=fault))
    assert (outcome["status"], outcome["reason"]) == (status, reason)


def test_late_rank_says_where_it_waits(tmp_path: Path) -> None:
    run_cell(tmp_path / "cell", cell_spec("idle", fault="sleep"))
    assert "in go_wrong" in (tmp_path / "cell" / "stacks-rank1.txt").read_text()


def test_clock_that_stands_still_is_noticed(tmp_path: Path) -> None:
    outcome = run_cell(tmp_path / "cell", cell_spec("idle", fault="spin"), stall_wall_s=25)
    assert outcome["status"] == "timeout"
    assert "clock stood still" in outcome["reason"]
    assert "in go_wrong" in (tmp_path / "cell" / "stacks-rank1.txt").read_text()


def test_a_guest_that_runs_out_of_memory_says_so(tmp_path: Path) -> None:
    outcome = run_cell(tmp_path / "cell", cell_spec("grow", mb=2000, memory_mb=1024))
    assert outcome["status"] == "failed"
    assert outcome["reason"].endswith("; the guest ran out of its 1024 MB of memory")


def test_events_happen_on_time_and_in_place(tmp_path: Path) -> None:
    changes = {"rate_mbps": 50, "delay_ms": 3.0}
    event = {"kind": "link", "at_s": 0.2345, "link": "h0-s0", "sender": None, "changes": changes}
    outcome = run_cell(tmp_path / "cell", cell_spec("idle", events=[event]))
    assert outcome["status"] == "ok"
    assert outcome["link_verdict"] == "ok"
    (record,) = records(tmp_path / "cell", "events.jsonl")
    assert record["actual_s"] == pytest.approx(0.2345, abs=0.001)
    last = [s for s in records(tmp_path / "cell", "links.jsonl") if s["link"] == "h0-s0"][-1]
    assert (last["asked_rate_mbps"], last["asked_delay_ms"]) == (50, 3.0)


def test_paths_are_what_was_asked(tmp_path: Path) -> None:
    network = {"rate_mbps": 50, "delay_ms": 15}
    outcome = run_cell(tmp_path / "cell", cell_spec("idle", network=network))
    for probe in outcome["link_check"]["paths"]:
        assert probe["asked_rtt_ms"] == pytest.approx(60, abs=0.1)  # four links, one way each
        assert probe["got_rtt_ms"] == pytest.approx(probe["asked_rtt_ms"], abs=0.1)
        assert probe["got_rate_mbps"] == pytest.approx(50, rel=0.01)


def test_host_is_a_container(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    spec = cell_spec(
        "look",
        host_paths=[str(secret), "/home", "/etc/shadow", "/old"],
        write_paths=["/usr/x", "/etc/../usr/lib/x", "/opt/project/x", "/opt/venv/x", "/cell/ok"],
        addresses=["127.0.0.1", "8.8.8.8", "10.0.0.77"],
    )
    first, second = run_cell(tmp_path / "cell", spec)["ranks"]
    assert (first["host"], second["host"]) == ("h0", "h1")
    assert first["interfaces"] == ["lo", "h0-eth0"]
    assert first["hides"] == spec["host_paths"]
    assert first["writes"] == ["/cell/ok"]
    assert first["reaches"] == []
    assert 1 in first["processes"]
    assert len(first["processes"]) < 5  # its own PID namespace


def test_random_numbers_repeat_with_the_seed(tmp_path: Path) -> None:
    more = {"host_paths": [], "write_paths": [], "addresses": []}
    drawn = [
        run_cell(tmp_path / name, cell_spec("look", seed=seed, **more))["ranks"][0]["random"]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_reads_of_the_clock_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At boot or while a program loads, as many more as a fuller folder might cause."""
    taken = {}
    for name, at_boot, in_program in (("as it is", 0, 0), ("more", 5000, 0), ("later", 0, 7000)):
        project = tmp_path / "project" / name
        for room in ("netsenseml", "topologies", "testbed", "tests"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(PROJECT / room, project / room, ignore=ignored)
        with (project / "testbed" / "__init__.py").open("a") as first:
            first.write(f"\nimport time\n\nfor _ in range({at_boot}):\n    time.monotonic()\n")
        files = functools.partial(GuestFiles, project=project)
        monkeypatch.setattr(launcher, "GuestFiles", files)
        spec = cell_spec("ring", sizes=[1 << 20], clock_reads=in_program)
        outcome = run_cell(tmp_path / name, spec)
        assert outcome["status"] == "ok"
        taken[name] = (
            outcome["ranks"],
            outcome["virtual_s"],
            records(tmp_path / name, "links.jsonl"),
        )
    assert taken["more"] == taken["as it is"]
    assert taken["later"] == taken["as it is"]


@pytest.mark.parametrize(("mb", "status"), [(100, "ok"), (400, "failed")])
def test_host_keeps_to_its_memory(tmp_path: Path, mb: int, status: str) -> None:
    hosts = [{"name": "h0"}, {"name": "h1", "memory_mb": 256}]
    links = [{"a": h["name"], "b": "s0", "rate_mbps": 100, "delay_ms": 1} for h in hosts]
    graph = {"hosts": hosts, "switches": ["s0"], "links": links}
    spec = cell_spec("grow", mb=mb) | {"topology": Topology.from_dict(graph).to_dict()}
    outcome = run_cell(tmp_path / "cell", spec)
    assert outcome["status"] == status
    if status == "failed":
        assert outcome["reason"].startswith("rank 1 died")
