"""Links on a real clock: what `tc` is asked, and that a difference is found."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from testbed.shaping import ShapingError
from testbed.tokens import TokenShaper, burst_bytes
from topologies import build as build_topology

PORTS = {"h0-s0": ("h0-eth0", "s0-eth1"), "h1-s0": ("h1-eth0", "s0-eth2")}


class Kernel:
    """Keeps what it is told and shows a table of qdiscs that a test may spoil."""

    def __init__(self, shown: list[dict[str, Any]] | None = None) -> None:
        self.told: list[str] = []
        self.shown = shown

    def run(self, command: list[str], text: str) -> str:
        self.told += text.splitlines()
        return json.dumps(self.shown or [])


def star(**link: Any) -> Any:
    values = {"rate_mbps": 80, "delay_ms": 0, "queue": {"bytes": 100_000}} | link
    return build_topology({"builder": "star", **values}, 2)


def bucket(device: str, rate_mbps: float = 80, queue: int = 100_000, **more: Any) -> Any:
    rate = rate_mbps * 1e6 / 8
    options = {"rate": rate, "burst": burst_bytes(rate_mbps), "lat": round(queue / rate * 1e6)}
    return {"kind": "tbf", "handle": "1:", "root": True, "dev": device, "options": options} | more


DEVICES = ("in0", "s0-eth1", "in1", "s0-eth2")


def test_a_millisecond_may_leave_at_once_but_two_frames_always() -> None:
    assert burst_bytes(100) == 12_500
    assert burst_bytes(1) == 3028


def test_without_netem_a_bucket_is_all() -> None:
    kernel = Kernel([bucket(device) for device in DEVICES])
    TokenShaper(star(), PORTS, kernel.run, netem=False).apply()
    adds = [line for line in kernel.told if "root" in line]
    assert len(adds) == 4
    limit = 100_000 + burst_bytes(80)
    rate = f"rate 80000000bit burst {burst_bytes(80)} limit {limit}"
    assert adds[0] == f"qdisc add dev in0 root handle 1: tbf {rate}"


def test_with_netem_the_delay_comes_first_and_has_no_rate() -> None:
    shaper = TokenShaper(star(delay_ms=5, loss_pct=1), PORTS, Kernel().run, netem=True)
    delay, rate = shaper._lines("add", next(iter(shaper.directions.values())))
    assert "root handle 1: netem limit 1000000 delay 5000.000us loss random 1" in delay
    assert "rate" not in delay
    assert "parent 1:1 handle 2: tbf rate 80000000bit" in rate


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda shown: shown.pop(), "s0>h1: asked for tbf on s0-eth2, got None"),
        (lambda s: s[0]["options"].update(rate=80e6), "h0>s0: rate_mbps asked 80, got 640"),
        (lambda s: s[0]["options"].update(burst=1 << 20), "h0>s0: burst (bytes) asked 10000"),
        (lambda s: s[0]["options"].update(lat=100), "h0>s0: queue (bytes) asked 100000"),
    ],
)
def test_planted_faults_are_found(spoil: Any, text: str) -> None:
    shown = [bucket(device) for device in DEVICES]
    spoil(shown)
    with pytest.raises(ShapingError) as error:
        TokenShaper(star(), PORTS, Kernel(shown).run, netem=False).apply()
    assert text in str(error.value)


@pytest.mark.root
def test_a_real_kernel_shows_what_it_was_asked() -> None:
    lines = ["ip link add in0 type ifb", "ip link set in0 up", "ip link add dev0 type bridge"]
    shaper = TokenShaper(star(rate_mbps=33.3), PORTS, Kernel().run, netem=False)
    direction = next(iter(shaper.directions.values()))
    lines += ["tc " + line for line in shaper._lines("add", direction)]
    lines += ["tc -s -j qdisc show dev in0"]
    command = ["unshare", "--net", "sh", "-ec", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    from testbed.tokens import bucket_differences

    (shown,) = json.loads(done.stdout)
    assert bucket_differences(direction, shown) == []
