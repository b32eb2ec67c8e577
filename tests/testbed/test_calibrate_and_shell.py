"""``python -m testbed calibrate|shell``, as a person calls them."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from testbed import asked, calibrate
from testbed.__main__ import main
from testbed.backends import Choice
from topologies.traffic import CONGESTION_CONTROLS

ROOT = Path(__file__).parent.parent.parent
COMMANDS = "h0 ping -c 2 h1\nexit\n"


def called(*words: str, text: str = "") -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "testbed", *words]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True)


@pytest.mark.guest
def test_a_network_is_measured() -> None:
    done = called("calibrate", "star", "ranks=3", "rate_mbps=30", "delay_ms=2", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["backend"], found["link_verdict"]) == (0, "guest", "ok")
    assert len(found["paths"]) == 3
    for path in found["paths"]:
        assert path["got_rate_mbps"] == pytest.approx(30, rel=0.01)
        assert path["got_rtt_ms"] == pytest.approx(8, abs=0.1)


@pytest.mark.alone
@pytest.mark.root
def test_the_host_s_network_is_measured_with_its_ceiling() -> None:
    words = ("star", "ranks=2", "rate_mbps=20", "delay_ms=0", "queue_bytes=100000")
    done = called("calibrate", *words, "--backend", "host")
    assert "Mbit/s per host, unshaped" in done.stdout, done.stderr
    assert "h0>h1" in done.stdout
    assert done.returncode in (0, 2)  # a busy machine is marked
    assert ("verdict: ok" in done.stdout) == (done.returncode == 0)


@pytest.mark.guest
def test_commands_piped_into_a_guest_s_prompt() -> None:
    done = called("shell", "smoke", text=COMMANDS)
    assert "2 packets transmitted, 2 received, 0% packet loss" in done.stdout, done.stderr
    assert "rtt min/avg/max/mdev = 4.03" in done.stdout  # four links of 1 ms
    assert done.returncode == 0


@pytest.mark.guest
def test_the_guest_has_each_congestion_control_that_traffic_may_ask_for() -> None:
    path = "/proc/sys/net/ipv4/tcp_available_congestion_control"
    done = called("shell", "smoke", text=f"h0 cat {path}\nexit\n")
    found = next(line for line in done.stdout.splitlines() if "cubic" in line)
    assert sorted(found.split()) == sorted(CONGESTION_CONTROLS)


@pytest.mark.root
def test_commands_piped_into_the_host_s_prompt() -> None:
    done = called("shell", "smoke-real", "--backend", "host", text="links\n" + COMMANDS)
    assert "2 packets transmitted, 2 received" in done.stdout, done.stderr
    assert "h0-eth0<->s0-eth1 (OK OK)" in done.stdout
    assert done.returncode == 0


@pytest.mark.guest
def test_a_person_at_a_terminal() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "testbed", "shell", "smoke"])
    said, typed = b"", [b"h0 hostname\r", b"exit\r"]
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                data = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            said += data
        if typed and said.count(b"mininet> ") == 3 - len(typed):
            os.write(terminal, typed.pop(0))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert b"\nh0\r" in said


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["congestd"], "no scenario or builder 'congestd'; did you mean 'congested'?"),
        (["star", "rate_mps=3"], "star: rate_mps: unknown key; did you mean 'rate_mbps'?"),
        (["star", "rate_mbps"], "rate_mbps: expected key=value, such as rate_mbps=50"),
        (["star", "ranks=x"], "ranks: expected a whole number from 1 to 4096; got 'x'"),
        (
            ["star", "ranks=" + "9" * 5000],
            "expected a whole number from 1 to 4096; got inf",
        ),
        (["star", "rate_mbps=1e400"], "rate_mbps: expected a number from 0.001 to 1000000"),
        (["st\nar"], "no scenario or builder 'st ar'; did you mean 'star'?"),
        (["smoke-cluster"], "topology: is missing, so there is no network to make"),
    ],
)
@pytest.mark.parametrize("verb", ["calibrate", "shell"])
def test_mistakes_are_one_line(
    verb: str, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *words]) == 1
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("world_size: 3\n", "world_size: the key is there twice, in line 1 and in line 4"),
        ("clock: cpu\n", "clock: expected one of virtual, real; got 'cpu'"),
        ("backend: gest\n", "backend: expected one of"),
        ("segmentation: maybe\n", "segmentation: expected one of auto, on, off; got 'maybe'"),
        ("more: [\n", "line 5 is not YAML"),
    ],
)
def test_mistakes_in_a_scenario_are_one_line(
    change: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "world_size: 2\ndescription: mine\n"
        "topology: {builder: star, rate_mbps: 1, delay_ms: 1}\n" + change
    )
    assert main(["calibrate", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: {words}")
    assert said.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_calibration_leaves_nothing(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    killed = []

    class Run:
        def poll(self) -> None:
            assert list(tmp_path.glob("calibrate-*/cell"))
            os.kill(os.getpid(), number)

        def kill(self) -> None:
            killed.append(True)

    def start(name: str, folder: Path, spec: dict, **more: object) -> Run:
        folder.mkdir()
        return Run()

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(calibrate, "choose", lambda *given: Choice("host", "asked for"))
    monkeypatch.setattr(calibrate, "start", start)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["calibrate", "star"]) == 130
    assert (killed, list(tmp_path.iterdir())) == ([True], [])
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_back_end_brings_its_clock(capsys: pytest.CaptureFixture[str]) -> None:
    from testbed import doctor, probes

    net = asked.read(["smoke"])
    assert (net.clock, net.topology.rank_hosts()) == ("virtual", ["h0", "h1"])
    assert asked.read(["smoke-real"]).clock == "real"
    there = probes.qdiscs()
    if os.geteuid() == 0 and there and not there["netem"]:
        assert next(b for b in doctor.diagnose() if b.name == "host").works
        assert main(["calibrate", "smoke", "--backend", "host"]) == 1  # it asks for delay
        assert "delay_ms: this kernel has no netem" in capsys.readouterr().err
