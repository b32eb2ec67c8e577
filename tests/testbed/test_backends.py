"""Every back end that this machine has, by the same tests; then what only some of them do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guest_cells import cell_spec, ended, records, start_on

from experiments.harness import resolve_cell
from experiments.scenario import load
from testbed.backends import CLOCKS, ChoiceError, choose, refusals
from testbed.doctor import BackEnd, Lack, diagnose
from testbed.realwatch import RealLinkWatch
from testbed.starvation import CpuWatch, descendants
from topologies import build as build_topology

pytestmark = pytest.mark.alone

EMULATED = ("guest", "guest-real", "host")
ROOT = Path(__file__).parent.parent.parent
#: What each can do here: the host's kernel has no netem on every machine
NETWORK = {
    "guest": {"rate_mbps": 100, "delay_ms": 1},
    "guest-real": {"rate_mbps": 50, "delay_ms": 2},
    "host": {"rate_mbps": 50, "delay_ms": 0},
}
needs_guest = pytest.mark.guest
marked = [
    pytest.param("guest", marks=pytest.mark.guest),
    pytest.param("guest-real", marks=pytest.mark.guest),
    pytest.param("host", marks=pytest.mark.root),
]


def spec_on(backend: str, program: str = "idle", world: int = 2, **more: Any) -> dict[str, Any]:
    """Return a cell that the back end can run."""
    network = NETWORK[backend] | more.pop("network", {})
    return cell_spec(program, world, clock=CLOCKS[backend], network=network, **more)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    found = next(b for b in diagnose() if b.name == request.param)
    if not found.works:
        pytest.skip("; ".join(f"{lack.what}: {lack.mend}" for lack in found.lacks))
    return request.param


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Cells that train, by back end; each is run once."""
    return {"folder": tmp_path_factory.mktemp("trained")}


def train(backend: str, trained: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Train 3 steps of smoke with 2 ranks, real data, real DDP."""
    folder = trained["folder"] / backend
    if backend not in trained:
        scenario = load("smoke").narrowed(methods=["netsense"], steps=3)
        spec = resolve_cell(scenario, scenario.cells()[0])
        network = {"builder": "star", "queue": {"bytes": 262144}} | NETWORK[backend]
        spec["topology"] = build_topology(network, 2).to_dict()
        spec["clock"] = CLOCKS[backend]
        if spec["clock"] == "real":
            spec["device"] = None
            spec["workload"]["device"] = "cpu"
        trained[backend] = ended(start_on(backend, folder, spec))
    return folder, trained[backend]


@pytest.mark.parametrize("backend", marked, indirect=True)
def test_trains(backend: str, trained: dict[str, Any]) -> None:
    folder, outcome = train(backend, trained)
    assert outcome["status"] == "ok", outcome["reason"]
    assert outcome["replicas_identical"] is True
    for rank in (0, 1):
        steps = records(folder, f"steps-rank{rank}.jsonl")
        assert [s["step"] for s in steps] == [0, 1, 2]
        assert all(0 < s["compute_s"] < s["t_end_s"] - s["t_start_s"] for s in steps)


@pytest.mark.parametrize("backend", marked, indirect=True)
def test_links_are_what_was_asked(backend: str, trained: dict[str, Any], tmp_path: Path) -> None:
    _, outcome = train(backend, trained)
    if CLOCKS[backend] == "real" and outcome["link_verdict"] != "ok":
        # the machine may have been held up by others for a moment: once more
        _, outcome = train(backend, {"folder": tmp_path})
    cpu = outcome.get("cpu")
    if cpu is not None and "starved" in outcome["link_verdict"]:
        pytest.skip(f"a busy machine, rightly marked: {cpu}")
    assert outcome["link_verdict"] == "ok"
    rate, rtt, floor_ms = (0.01, 0.01, 0.1) if backend == "guest" else RealLinkWatch.tolerances
    assert len(outcome["link_check"]["paths"]) == 2
    for path in outcome["link_check"]["paths"]:
        allowed_ms = max(rtt * path["asked_rtt_ms"], floor_ms)
        assert path["asked_rate_mbps"] == NETWORK[backend]["rate_mbps"]
        assert path["got_rate_mbps"] == pytest.approx(path["asked_rate_mbps"], rel=rate)
        assert path["got_rtt_ms"] == pytest.approx(path["asked_rtt_ms"], abs=allowed_ms)


@pytest.mark.parametrize("backend", marked, indirect=True)
def test_hosts_are_apart_and_nothing_of_the_host_s_network_is_there(
    backend: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    with socket.create_server(("0.0.0.0", 0)) as server:
        own = socket.gethostbyname(socket.gethostname())
        spec = spec_on(
            backend,
            "look",
            host_paths=[str(secret), "/home", "/etc/shadow"],
            write_paths=["/usr/x", "/opt/project/x", "/opt/venv/x", str(secret), "/cell/ok"],
            addresses=["127.0.0.1", own, "10.0.0.77"],
            port=server.getsockname()[1],
        )
        run = start_on(backend, tmp_path / "cell", spec)
        listening: set[str] = set()
        while (outcome := run.poll()) is None:
            listening |= _listening(run.pid)  # type: ignore[attr-defined]
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()  # nobody came
    assert outcome["status"] == "ok", outcome["reason"]
    assert listening == set()
    for number, seen in enumerate(outcome["ranks"]):
        assert seen["host"] == f"h{number}"
        assert seen["interfaces"] == ["lo", f"h{number}-eth0"]
        assert seen["reaches"] == []
        if backend != "host":  # there, a rank is a process of the user, and of the host's files
            assert seen["hides"] == spec["host_paths"]
            assert seen["writes"] == ["/cell/ok"]
    assert secret.read_text() == "of the host" or backend == "host"


def _listening(pid: int) -> set[str]:
    """Return the sockets that listen in this network namespace and belong to a process tree."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        inodes |= {f"socket:[{line.split()[9]}]" for line in lines if line.split()[3] == "0A"}
    held = set()
    for process in descendants(pid):
        try:
            held |= {os.readlink(f) for f in Path(f"/proc/{process}/fd").iterdir()}
        except OSError:
            continue
    return inodes & held


@pytest.mark.parametrize("backend", marked, indirect=True)
def test_link_changes_in_place(backend: str, tmp_path: Path) -> None:
    event = {"kind": "link", "at_s": 0.2, "link": "h0-s0", "sender": None}
    spec = spec_on(backend, events=[event | {"changes": {"rate_mbps": 20}}])
    outcome = ended(start_on(backend, tmp_path / "cell", spec))
    assert outcome["status"] == "ok", outcome["reason"]
    (record,) = records(tmp_path / "cell", "events.jsonl")
    assert record["requested_s"] == 0.2
    last = [s for s in records(tmp_path / "cell", "links.jsonl") if s["link"] == "h0-s0"][-1]
    assert last["asked_rate_mbps"] == 20


@pytest.mark.root
def test_rates_above_the_machine_s_own_are_refused_with_the_number(tmp_path: Path) -> None:
    spec = spec_on("host", network={"rate_mbps": 400_000})
    outcome = ended(start_on("host", tmp_path / "cell", spec))
    assert outcome["status"] == "failed"
    assert "asks for 400000 Mbit/s, but on a real clock this machine carries" in outcome["reason"]


@pytest.mark.root
def test_a_starved_run_is_marked(tmp_path: Path) -> None:
    world = 4 * len(os.sched_getaffinity(0))
    spec = spec_on("host", "burn", world, busy_s=1.5, network={"rate_mbps": 1})
    outcome = ended(start_on("host", tmp_path / "cell", spec))
    assert outcome["status"] == "ok", outcome["reason"]
    assert outcome["cpu"]["wait_share"] > 0.4
    assert outcome["link_verdict"].startswith("starved: its processes waited for a processor")


@pytest.fixture
def beside_busy_loops() -> Iterator[list[str]]:
    """Keep one processor busy; yield the prefix of a command that has to share it."""
    cpu = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    loop = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen([*cpu, *loop]) for _ in range(3)]
    yield cpu
    for busy in loops:
        busy.kill()
        busy.wait()


def test_waiting_for_a_processor_is_seen(beside_busy_loops: list[str]) -> None:
    work = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([*beside_busy_loops, sys.executable, "-c", work]) as process:
        watch = CpuWatch(process.pid)
        ticker = threading.Event()
        while process.poll() is None:
            watch.sample()
            ticker.wait(0.05)
    assert watch.report()["wait_share"] > 0.4
    assert "waited for a processor" in (watch.starved() or "")


def test_an_idle_process_is_not_starved() -> None:
    with subprocess.Popen(["sleep", "0.3"]) as process:
        watch = CpuWatch(process.pid)
        process.wait()
        watch.sample()
    assert watch.report()["ran_s"] < 0.3


def _found(**works: bool) -> list[BackEnd]:
    return [
        BackEnd(name, "", () if works.get(name.replace("-", "_"), True) else (Lack("x", "do y"),))
        for name in CLOCKS
    ]


def test_auto_takes_what_the_clock_and_the_network_allow() -> None:
    spec = cell_spec("idle", network={"delay_ms": 0})
    assert choose("auto", "virtual", spec, _found()).name == "guest"
    assert choose("auto", "real", spec, _found()).name == "guest-real"
    choice = choose("auto", "real", spec, _found(guest_real=False))
    assert choice.name == "host"
    assert "guest-real: x is missing (do y)" in choice.why
    with pytest.raises(ChoiceError, match=r"^x is missing \(do y\)$"):
        choose("auto", "virtual", spec, _found(guest=False))
    with pytest.raises(ChoiceError, match=r"^clock: expected real with backend: host$"):
        choose("host", "virtual", spec, _found())


@pytest.mark.parametrize(
    ("network", "text"),
    [
        ({"delay_ms": 2}, "link h0-s0: delay_ms: this kernel has no netem"),
        ({"loss_pct": 1}, "link h0-s0: loss_pct: this kernel has no netem"),
        ({"queue": {"bdp": 1}}, "link h0-s0: queue: without delay"),
    ],
)
def test_a_host_without_netem_refuses_by_name(network: dict[str, Any], text: str) -> None:
    spec = spec_on("host", network=network)
    assert text in refusals("host", spec, lacking=("netem",))[0]
    assert refusals("host", spec) == []
    assert refusals("guest-real", spec) == []


def test_a_real_clock_refuses_jitter_in_order_and_a_queue_that_the_kernel_lacks() -> None:
    spec = spec_on("guest-real", network={"delay_ms": 5, "jitter_ms": 1})
    assert "link h0-s0: jitter_ms: on a real clock" in refusals("guest-real", spec)[0]
    spec = spec_on("host", network={"aqm": "red"})
    assert refusals("host", spec) == []
    assert "link h0-s0: aqm: this kernel has no red" in refusals("host", spec, ("red",))[0]


def test_a_host_without_netem_refuses_events_and_limits() -> None:
    event = {"kind": "link", "at_s": 3, "link": "h0-s0", "sender": None}
    spec = spec_on("host", events=[event | {"changes": {"up": False}}])
    spec["topology"]["hosts"][0]["memory_mb"] = 100
    wrong = refusals("host", spec, lacking=("netem",))
    assert "host h0: memory_mb" in wrong[0]
    assert wrong[1].startswith("events: at 3 s: a link cannot go down")


def test_no_gpu_reaches_a_guest() -> None:
    spec = spec_on("host") | {"workload": {"device": "cuda"}}
    assert refusals("host", spec) == []
    assert "no GPU reaches a guest" in refusals("guest-real", spec)[0]
    assert "needs clock: real" in refusals("guest", spec)[1]


@pytest.mark.gpu
@pytest.mark.parametrize("backend", [pytest.param("host", marks=pytest.mark.root)], indirect=True)
def test_trains_on_a_gpu_over_the_emulated_network(backend: str, tmp_path: Path) -> None:
    scenario = load("smoke-real").narrowed(methods=["allreduce"], steps=3)
    spec = resolve_cell(scenario, scenario.cells()[0])
    spec["workload"]["device"] = "cuda"
    outcome = ended(start_on(backend, tmp_path / "cell", spec))
    assert outcome["status"] == "ok", outcome["reason"]
    # had NCCL gone around the links, their counters would not have what the hook accounts for
    assert "link carried" not in outcome["link_verdict"]
