"""A scenario on a cluster: two torchrun nodes on loopback, started as on two machines."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.cluster import interface_to
from experiments.cluster import main as cluster_main
from experiments.errors import UserError
from experiments.harness import choose_backend, resolve_cell
from experiments.scenario import load
from netsenseml.native import kernels

ROOT = Path(__file__).parent.parent.parent
PROGRAM = ("-m", "experiments.cluster")
FAULTY = str(Path(__file__).with_name("cluster_with_faults.py"))


def nodes(
    results: Path, *words: str, program: tuple[str, ...] = PROGRAM
) -> list[subprocess.CompletedProcess]:
    """Run the cluster's program on two nodes of one process each."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    running = [
        subprocess.Popen(
            [*command, f"--node-rank={n}", *program, *words, "--results", str(results)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )
        for n in range(2)
    ]
    done = []
    for process in running:
        out, err = process.communicate()
        done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return done


def test_two_nodes_train_and_leave_a_run(tmp_path: Path) -> None:
    first, second = nodes(tmp_path, "smoke-cluster", "--steps", "3")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    run = tmp_path / "smoke-cluster" / "latest"
    assert (run / "summary.csv").read_text().count(",ok,2,3,") == 2
    assert (run / "report.html").exists()
    assert json.loads((run / "manifest.json").read_text())["backend"] == "cluster"
    for label in ("allreduce", "netsense"):
        cell = run / "cells" / f"{label}-s0"
        outcome = json.loads((cell / "outcome.json").read_text())
        assert outcome["replicas_identical"] is True
        assert outcome["link_verdict"] is None  # nothing was asked of the links
        for path in outcome["link_check"]["paths"]:
            assert path["asked_rate_mbps"] is None
            assert path["got_rate_mbps"] > 0
            assert path["got_rtt_ms"] > 0
        assert [rank["interface"] for rank in outcome["ranks"]] == ["lo", "lo"]
        # the clock is real: kernels of this machine's cache are used where it has them
        assert [rank["native"] for rank in outcome["ranks"]] == [kernels() is not None] * 2
        for rank in (0, 1):
            lines = (cell / f"steps-rank{rank}.jsonl").read_text().splitlines()
            assert len(lines) == 3


def test_a_cell_that_fails_is_recorded_and_the_rest_go_on(tmp_path: Path) -> None:
    done = nodes(tmp_path, "smoke-cluster", "--steps", "3", program=(FAULTY, "raise"))
    assert all(d.returncode for d in done)
    assert "exitcode  : 2" in done[0].stderr
    run = tmp_path / "smoke-cluster" / "latest"
    outcome = json.loads((run / "cells" / "allreduce-s0" / "outcome.json").read_text())
    assert outcome["status"] == "failed"
    assert outcome["reason"] == "rank 1: ValueError: this rank is faulty"
    assert outcome["replicas_identical"] is None
    rows = (run / "summary.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:3] for row in rows] == [
        ["allreduce", "0", "failed"], ["netsense", "0", "ok"],
    ]  # fmt: skip
    assert (run / "report.html").exists()


def test_what_was_measured_before_a_rank_died_is_written(tmp_path: Path) -> None:
    done = nodes(tmp_path, "smoke-cluster", "--steps", "3", program=(FAULTY, "die"))
    assert all(d.returncode for d in done)
    run = tmp_path / "smoke-cluster" / "latest"
    rows = (run / "summary.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:3] for row in rows] == [
        ["allreduce", "0", "ok"], ["netsense", "0", "failed"],
    ]  # fmt: skip
    assert (run / "report.html").exists()


def test_the_interface_is_that_towards_the_master() -> None:
    assert interface_to("127.0.0.1") == "lo"


def test_a_cluster_is_started_by_torchrun() -> None:
    scenario = load("smoke-cluster")
    spec = resolve_cell(scenario, scenario.cells()[0])
    assert spec["topology"] is None
    with pytest.raises(UserError, match=r"torchrun .* -m experiments\.cluster smoke-cluster"):
        choose_backend(scenario.resolved(), spec)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["smoke"], "backend: expected cluster under torchrun; smoke has another"),
        (["smoke-cluster", "--world-size", "3"], "world_size: expected the 3 ranks"),
    ],
)
def test_a_plan_is_checked_before_anything_is_made(
    tmp_path: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments, "--results", str(tmp_path)]) == 1
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_options_are_checked_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "experiments" / "scenarios" / "smoke-cluster.yaml").read_text()
    scenario = tmp_path / "wrong.yaml"
    bad = "methods: [{name: topk, options: {ratio: 7}}]"
    scenario.write_text(text.replace("methods: [allreduce, netsense]", bad))
    assert main(["plan", str(scenario), "--results", str(tmp_path / "results")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: scenario wrong: methods: TopKOptions.ratio = 7")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [([], "scenario"), (["smoke-cluster", "--steps", "some"], "--steps: invalid int value")],
)
def test_a_mistyped_command_is_one_line_of_the_first_rank(
    arguments: list[str],
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit) as ended:
            cluster_main(arguments)
        said = capsys.readouterr().err
        assert ended.value.code == 1
        assert said.count("\n") == lines
        assert text in said or rank == "1"


@pytest.mark.gpu
def test_two_nodes_share_a_gpu(tmp_path: Path) -> None:
    text = (ROOT / "experiments" / "scenarios" / "smoke-cluster.yaml").read_text()
    scenario = tmp_path / "gpu.yaml"
    scenario.write_text(text.replace("device: cpu", "device: cuda"))
    done = nodes(tmp_path, str(scenario), "--steps", "3")
    assert [d.returncode for d in done] == [0, 0], done[0].stderr
