"""What is asked of tc, what it is taken to have done, and that nothing wrong passes."""

from __future__ import annotations

import json

import pytest

from testbed.aqm import BURST_BYTES, bucket_differences, bucket_lines
from testbed.shaping import (
    Direction,
    Shaper,
    ShapingError,
    differences,
    netem_arguments,
    queue_limit,
)
from topologies import GilbertElliott, Queue, Shape, star

# `tc -s -j qdisc show` of iproute2 6.1, one entry, as printed for the arguments below
CAPTURED = json.loads("""
{"kind": "netem", "handle": "1:", "dev": "s0-eth1", "root": true, "refcnt": 2,
 "options": {"limit": 52, "delay": {"delay": 0.001, "jitter": 0, "correlation": 0},
 "rate": {"rate": 12500000, "packetoverhead": 0, "cellsize": 0, "celloverhead": 0},
 "loss-random": {"loss": 0.01, "correlation": 0}, "ecn": false, "gap": 0},
 "bytes": 1986000, "packets": 1337, "drops": 125, "overlimits": 0, "requeues": 0,
 "backlog": 0, "qlen": 0}
""")
SHAPE = Shape(rate_mbps=100, delay_ms=1, loss_pct=1, queue=Queue(bytes=65536))


def direction(shape: Shape = SHAPE, **more: object) -> Direction:
    return Direction("h0-s0", "s0", "h0", "s0-eth1", shape, 65536, **more)  # type: ignore[arg-type]


def test_units_are_explicit() -> None:
    assert netem_arguments(direction()) == [
        *("netem", "limit", "52", "rate", "100000000bit"),
        *("delay", "1000.000us", "loss", "random", "1%"),
    ]


def test_limit_holds_queue_and_what_is_under_way() -> None:
    wide = Shape(rate_mbps=1000, delay_ms=100, queue=Queue(bytes=1_500_000))
    assert queue_limit(wide, 1_500_000) >= 1.1 * 1e9 / 8 * 0.1 / 1514


def test_what_was_captured_agrees() -> None:
    assert differences(direction(), CAPTURED) == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("kind",), "noqueue", "asked for netem"),
        (("options", "rate", "rate"), 100_000_000, "rate_mbps asked 100, got 800"),
        (("options", "limit"), 1000, "queue limit"),
        (("options", "delay", "delay"), 0.002, "delay_ms asked 1, got 2"),
        (("options", "delay", "jitter"), 0.001, "jitter_ms"),
        (("options", "loss-random", "loss"), 0.0, "loss_pct"),
    ],
)
def test_planted_differences_are_caught(path: tuple[str, ...], value: object, says: str) -> None:
    wrong = json.loads(json.dumps(CAPTURED))
    place = wrong
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (text,) = differences(direction(), wrong)
    assert says in text


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (Shape(rate_mbps=0.001, delay_ms=1, loss_pct=1), "rate_mbps asked 0.001, got 0"),
        (Shape(rate_mbps=100, delay_ms=1, loss_pct=1e-6), "loss_pct asked 1e-06, got 0"),
    ],
)
def test_what_tc_rounds_to_nothing_is_caught(shape: Shape, says: str) -> None:
    got = json.loads(json.dumps(CAPTURED))
    got["options"]["rate"]["rate"] = 0 if shape.rate_mbps < 1 else 12_500_000
    got["options"]["loss-random"]["loss"] = 0 if shape.loss_pct < 1 else 0.01
    assert any(says in text for text in differences(direction(shape), got))


def test_a_bucket_rounds_its_rate_to_whole_bytes() -> None:
    shape = Shape(rate_mbps=0.123457, delay_ms=1, aqm="bfifo")

    def below(rate: int) -> list[dict[str, object]]:
        return [{"kind": "tbf", "handle": "2:", "options": {"rate": rate, "burst": BURST_BYTES}}]

    assert bucket_differences("s0>h0", shape, 65536, below(15_432)) == []
    assert bucket_differences("s0>h0", shape, 65536, below(15_430)) != []
    assert bucket_differences("s0>h0", shape, 65536, below(0)) != []


def test_qdisc_that_is_gone_is_caught() -> None:
    assert differences(direction(), {}) != []


def test_link_that_is_down_loses_all() -> None:
    assert netem_arguments(direction(up=False))[-2:] == ["loss", "100%"]


def test_bursty_loss_is_spelt_in_full() -> None:
    shape = Shape(rate_mbps=100, delay_ms=1, loss_model=GilbertElliott(1.0, 25.0))
    assert netem_arguments(direction(shape))[-6:] == [
        *("loss", "gemodel", "1.0%", "25.0%", "100.0%", "0.0%")
    ]


class FakeTc:
    """Keeps what is asked and shows it back, or something else instead."""

    def __init__(self, fail: str = "", stuck: bool = False) -> None:
        self.fail, self.stuck = fail, stuck
        self.limit: dict[str, str] = {}

    def __call__(self, command: list[str], text: str) -> str:
        if self.fail and self.fail in text:
            raise ShapingError(f"`{command[0]}`: planted")
        for line in text.splitlines():
            words = line.split()
            if (
                words[:1] == ["qdisc"]
                and "netem" in words
                and not (self.stuck and words[1] == "change")
            ):
                self.limit[words[3]] = words[words.index("rate") + 1].removesuffix("bit")
        if command[:2] == ["tc", "-s"]:
            return json.dumps([self._entry(device) for device in self.limit])
        return ""

    def _entry(self, device: str) -> dict[str, object]:
        entry = json.loads(json.dumps(CAPTURED)) | {"dev": device}
        entry["options"] |= {"rate": {"rate": int(self.limit[device]) // 8}, "loss-random": {}}
        rate = int(self.limit[device]) / 1e6
        shape = Shape(rate_mbps=rate, delay_ms=1)
        entry["options"]["limit"] = queue_limit(shape, 65536)
        return entry


def shaper(tc: FakeTc) -> Shaper:
    net = star(ranks=2, rate_mbps=100, delay_ms=1, queue={"bytes": 65536})
    ports = {"h0-s0": ("h0-eth0", "s0-eth1"), "h1-s0": ("h1-eth0", "s0-eth2")}
    return Shaper(net, ports, tc)


def test_each_direction_is_shaped_at_the_switch() -> None:
    made = shaper(FakeTc())
    made.apply()
    devices = {name: d.device for name, d in made.directions.items()}
    assert devices == {"h0>s0": "in0", "s0>h0": "s0-eth1", "h1>s0": "in1", "s0>h1": "s0-eth2"}


@pytest.mark.parametrize(
    "shape",
    [
        Shape(rate_mbps=100, delay_ms=1, aqm="red"),
        Shape(rate_mbps=100, delay_ms=1, reorder_pct=5),
        Shape(rate_mbps=100, delay_ms=1, jitter_ms=0.5, jitter_keeps_order=False),
    ],
)
def test_what_a_rate_in_netem_would_spoil_is_below_it(shape: Shape) -> None:
    assert "rate" not in netem_arguments(direction(shape))
    bucket, *queue = bucket_lines("add", "s0-eth1", shape, 65536)
    assert "parent 1:1 handle 2: tbf rate 100000000bit" in bucket
    assert [line.split()[8] for line in queue] == (["red"] if shape.aqm == "red" else [])


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (Shape(rate_mbps=100, delay_ms=1, loss_model=GilbertElliott(1.0, 25.0)), "loss r_pct"),
        (Shape(rate_mbps=100, delay_ms=1, reorder_pct=5.0), "reorder_pct"),
    ],
)
def test_setting_that_tc_dropped_is_caught(shape: Shape, says: str) -> None:
    assert any(says in text for text in differences(direction(shape), CAPTURED))


def test_failing_tc_stops() -> None:
    with pytest.raises(ShapingError, match="planted"):
        shaper(FakeTc(fail="qdisc add")).apply()


def test_change_that_never_happened_is_caught() -> None:
    made = shaper(FakeTc(stuck=True))
    made.apply()
    with pytest.raises(ShapingError, match="rate_mbps asked 50, got 100"):
        made.change(["h0>s0"], {"rate_mbps": 50})


def test_change_is_in_place_and_read_back() -> None:
    made = shaper(FakeTc())
    made.apply()
    made.change(["h0>s0"], {"rate_mbps": 50})
    assert made.directions["h0>s0"].shape.rate_mbps == 50
    assert made.directions["s0>h0"].shape.rate_mbps == 100
