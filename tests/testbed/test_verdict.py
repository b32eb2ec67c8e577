"""Verdicts from counters: links that do what was asked pass, planted faults do not."""

from __future__ import annotations

import random
from typing import Any

import pytest

from testbed.calibration import PathProbe, deviations
from testbed.phasecheck import binomial_range
from testbed.verdict import Deviation, byte_check, loss_check, rate_check, verdict
from topologies import star


def samples(mbps: float, asked: float, backlog: int = 20_000_000) -> list[dict[str, Any]]:
    """Return what a link's counters show over a second at a steady rate."""
    return [
        {
            "t_s": i * 0.1,
            "direction": "h0>s0",
            "tx_bytes": round(mbps * 1e6 / 8 * i * 0.1),
            "backlog_bytes": backlog,
            "asked_rate_mbps": asked,
            "asked_delay_ms": 1.0,
        }
        for i in range(11)
    ]


def test_full_link_passes() -> None:
    table, wrong = rate_check(samples(1000, 1000), 0.01)
    assert wrong == []
    assert table[0]["most_mbps"] == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize(
    ("mbps", "says"), [(8000, "sent 7994"), (1030, "sent 1024"), (900, "a queue stood")]
)
def test_wrong_rates_are_caught(mbps: float, says: str) -> None:
    _, wrong = rate_check(samples(mbps, 1000), 0.01)
    assert len(wrong) == 1
    assert says in wrong[0]


@pytest.mark.parametrize("backlog", [0, 1_000_000])
def test_link_that_may_have_been_idle_says_nothing(backlog: int) -> None:
    assert rate_check(samples(3, 1000, backlog=backlog), 0.01)[1] == []


def test_change_of_rate_is_not_held_against_it() -> None:
    before, after = samples(1000, 1000), samples(100, 100)
    for sample in after:
        sample["t_s"] += 1.1
        sample["tx_bytes"] += 130_000_000
    assert rate_check(before + after, 0.01)[1] == []


def test_bytes_are_explained_by_headers_and_messages() -> None:
    hook, rounds = 10_000_000, 600
    payload = hook + 308 * rounds
    frames = payload // 1448 + 5000  # and acknowledgements, which hold no bytes
    table, wrong = byte_check({"h0": (payload + 66 * frames, frames)}, {"h0": (hook, rounds)})
    assert wrong == []
    assert table[0]["unexplained"] == 0


@pytest.mark.parametrize("factor", [0.3, 1.2])
def test_bytes_that_went_elsewhere_are_caught(factor: float) -> None:
    _, wrong = byte_check({"h0": (round(factor * 1e7), 0)}, {"h0": (10**7, 0)})
    assert len(wrong) == 1


def probe(**more: Any) -> PathProbe:
    values = {
        "asked_rtt_ms": 4.0,
        "got_rtt_ms": 4.01,
        "asked_rate_mbps": 100,
        "got_rate_mbps": 99.9,
    }
    return PathProbe("h0", "h1", **(values | more))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"got_rtt_ms": 8.0}, "RTT asked 4.000 ms, got 8.000"),
        ({"got_rtt_ms": None}, "no answer"),
        ({"got_rate_mbps": 800}, "rate asked 100 Mbit/s, got 800"),
        ({"got_rate_mbps": None}, "no answer"),
    ],
)
def test_paths_that_are_off_are_caught(more: dict[str, Any], says: str) -> None:
    net = star(ranks=2, rate_mbps=100, delay_ms=1)
    assert deviations(probe(), net, 0.01, 0.01, 0.1) == []
    (text,) = deviations(probe(**more), net, 0.01, 0.01, 0.1)
    assert says in text


@pytest.mark.parametrize(
    ("got", "frames", "good"),
    [(9814.827, 40, True), (9600.0, 40, False), (9814.827, 0, False), (10_300.0, 40, True)],
)
def test_a_few_frames_at_a_high_rate_are_not_told_finer_than_the_clock(
    got: float, frames: int, good: bool
) -> None:
    net = star(ranks=2, rate_mbps=10_000, delay_ms=1)
    found = probe(asked_rate_mbps=10_000, got_rate_mbps=got, frames=frames)
    assert (deviations(found, net, 0.01, 0.01, 0.1) == []) is good


def losses(frames: int, dropped: int, pct: float, **more: Any) -> list[dict[str, Any]]:
    """Return samples of a link that dropped some of its frames evenly over a second."""
    return [
        {
            **sample,
            "drops": round(dropped * i / 10),
            "tx_packets": round((frames - dropped) * i / 10),
            "asked_loss_pct": pct,
            **more,
        }
        for i, sample in enumerate(samples(100, 1000, backlog=0))
    ]


def least(frames: int, pct: float, name: str) -> float:
    return binomial_range(frames, pct / 100)[0]


@pytest.mark.parametrize(("dropped", "good"), [(90, True), (5000, True), (40, False), (0, False)])
def test_too_few_lost_frames_are_caught(dropped: int, good: bool) -> None:
    table, wrong = loss_check(losses(10_000, dropped, 1.0), least)
    assert (wrong == []) is good
    assert table[0]["frames"] == 10_000


def test_what_was_queued_before_a_link_went_down_still_leaves() -> None:
    down = losses(100, 100, 100.0, phase=1)
    down[0]["backlog_bytes"] = 3000
    for sample in down[1:]:
        sample["tx_packets"] += 2
    assert loss_check(down, least)[1] == []
    for sample in down[5:]:
        sample["tx_packets"] += 10
    (text,) = loss_check(down, least)[1]
    assert text.startswith("h0>s0: asked to lose 100 % of 100 frames")


@pytest.mark.parametrize("share", [0.001, 0.01, 0.2])
def test_the_range_holds_99_of_100_draws(share: float) -> None:
    draw = random.Random(1)
    low, high = binomial_range(2000, share)
    held = sum(low <= sum(draw.random() < share for _ in range(2000)) <= high for _ in range(300))
    assert held >= 295
    assert high - low < 2 * 3.5 * (2000 * share) ** 0.5 + 4


def test_the_verdict_is_the_worst_and_says_how_many_more() -> None:
    assert verdict([]) == "ok"
    assert verdict(["died"]) == "died"
    few, many = Deviation("rate 2 % off", 2.0), Deviation("delay 30 % off", 30.0)
    assert verdict([few, many, few]) == "delay 30 % off (and 1 more)"
    assert verdict([few, many, "died"]) == "died (and 2 more)"


def test_a_change_of_phase_is_not_held_against_either() -> None:
    before, after = samples(1000, 1000), samples(1000, 1000)
    for sample in after:
        sample |= {"t_s": sample["t_s"] + 1.1, "phase": 1}
        sample["tx_bytes"] += 1_000_000_000
    table, wrong = rate_check(before + after, 0.01)
    assert wrong == []
    assert [row["phase"] for row in table] == [0, 1]
