"""Links of every kind, measured in a guest; and links that are not what was asked."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from guest_cells import run_program

pytestmark = pytest.mark.guest

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "slow": {"rate_mbps": 8, "delay_ms": 20},
    "fast": {"rate_mbps": 10_000, "delay_ms": 0.05, "queue": {"bytes": 524_288}},
    "far": {"delay_ms": 150, "queue": {"packets": 100}},
    "lossy": {"loss_pct": 1},
    "bursty": {"loss_model": {"kind": "gilbert-elliott", "p_pct": 1, "r_pct": 20}},
    "doubling": {"duplicate_pct": 2},
    "breaking": {"corrupt_pct": 2},
    "overtaking": {"reorder_pct": 5, "delay_ms": 10},
    "jittery": {"jitter_ms": 2, "delay_ms": 10},
    "unordered": {"jitter_ms": 2, "delay_ms": 10, "jitter_keeps_order": False},
    "bytes": {"aqm": "bfifo", "queue": {"bytes": 100_000}},
    "red": {"aqm": "red", "ecn": True, "queue": {"bytes": 400_000}},
    "fq_codel": {"aqm": "fq_codel", "queue": {"bytes": 400_000}},
    "uneven": {"rate_mbps": 20, "reverse": {"rate_mbps": 2, "delay_ms": 5}},
}
CHANGES = [{"rate_mbps": 25.0}, {"delay_ms": 7.5}, {"rate_mbps": 400.0, "loss_pct": 5.0}]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What links of every kind did in one guest."""
    folder = tmp_path_factory.mktemp("links") / "all"
    parts = ["shaped", "planted", "forgotten", "changing", "speeding", "crowded", "flooded"]
    return run_program(folder, "properties", parts=parts, shapes=SHAPES, changes=CHANGES)


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_link_does_what_it_is_asked(found: dict[str, Any], name: str, way: str) -> None:
    result = found["shaped"][f"{name} {way}"]
    assert result["wrong"] == [], result["probe"]


def test_what_waits_leaves_at_the_new_rate(found: dict[str, Any]) -> None:
    took_ms = found["speeding"]
    # 40 frames at 1 Mbit/s take 485 ms; 8.2 of them are through after 100 ms, then it is 100. A
    # token bucket ends the frame under way, of 12 ms, as it began it.
    assert took_ms["pfifo to 100"] == pytest.approx(103.9, abs=0.5)
    assert took_ms["bfifo to 100"] == pytest.approx(113, abs=4)
    # at 100 Mbit/s 16.5 are through after 3 ms; the rest takes 12.1 ms a frame, but for what a
    # token bucket lets through at once
    assert took_ms["pfifo to 1"] == pytest.approx(287.5, abs=6)
    assert took_ms["bfifo to 1"] == pytest.approx(275, abs=13)


def test_a_link_changes_in_place_to_what_it_is_asked(found: dict[str, Any]) -> None:
    for change, result in found["changing"].items():
        assert result["wrong"] == [], change


@pytest.mark.parametrize("when", ["all", "slower", "lossy", "fast"])
def test_many_links_are_measured_like_one(found: dict[str, Any], when: str) -> None:
    delay_ms, off_ms = (0.05, 0.01) if when == "fast" else (1.0, 0.002)
    for name, result in found["crowded"][when].items():
        assert result["wrong"] == [], name
        assert result["probe"]["delay_ms"] == pytest.approx(delay_ms, abs=off_ms), name


def test_a_frame_broken_elsewhere_is_not_held_against_a_link(found: dict[str, Any]) -> None:
    assert found["flooded"] == {"came": True, "broken": 0}


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("removed", "rate_mbps asked 100, got inf in a long transfer"),
        ("unit", "rate_mbps asked 100, got 80"),
        ("limit", "queue (frames, with those under way) asked 52, got 12"),
        ("burst", "rate_mbps asked 100, got inf in a short transfer"),
        ("delay", "delay_ms asked 1, got 3.0"),
    ],
)
def test_a_planted_fault_is_measured(found: dict[str, Any], fault: str, says: str) -> None:
    assert any(says in text for text in found["planted"][fault]), found["planted"][fault]


def test_a_planted_fault_is_read_back(found: dict[str, Any]) -> None:
    assert found["planted"]["before"] == []
    assert sorted({text.split(":")[0] for text in found["planted"]["read back"]}) == [
        f"s0>h{i}" for i in range(5)
    ]


def test_tc_that_fails_stops(found: dict[str, Any]) -> None:
    assert "Qdisc not found" in found["planted"]["tc"]


def test_a_change_that_never_happened_stops(found: dict[str, Any]) -> None:
    assert "rate_mbps asked 50, got 100" in found["forgotten"]["change"]


def test_drops_repeat_with_the_seed(tmp_path: Path) -> None:
    shapes = {name: SHAPES[name] for name in ("lossy", "bursty")}
    lost = [
        [
            result["probe"]["lost_digest"]
            for result in run_program(
                tmp_path / name, "properties", parts=["shaped"], shapes=shapes, seed=seed
            )["shaped"].values()
        ]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert lost[0] == lost[1]
    assert all(a != c for a, c in zip(lost[0], lost[2], strict=True))
    assert len(set(lost[0])) == 4  # no direction draws like another


QUEUES: dict[str, dict[str, Any]] = {
    "bdp": {"rate_mbps": 100, "delay_ms": 1, "queue": {"bdp": 1}},
    "red": {
        "rate_mbps": 20,
        "delay_ms": 5,
        "queue": {"bytes": 100_000},
        "aqm": "red",
        "ecn": True,
    },
    "fq_codel": {"rate_mbps": 20, "delay_ms": 5, "queue": {"bytes": 200_000}, "aqm": "fq_codel"},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What two real TCP flows made of a link, the second 2 s after the first: every meeting."""
    folder = tmp_path_factory.mktemp("sharing")
    plain = {"bdp": QUEUES["bdp"]}
    found = run_program(folder / "a", "sharing", queues=plain, seconds=8, times=4)
    managed = {name: QUEUES[name] for name in ("red", "fq_codel")}
    return found | run_program(folder / "b", "sharing", queues=managed, seconds=6, times=1)


def shares(meetings: list[dict[str, Any]], from_s: float, to_s: float) -> float:
    """Return the second flow's part of the link, in seconds since it came; mean over meetings."""
    late, half = 4, slice(int(2 * from_s), int(2 * to_s))
    parts = []
    for found in meetings:
        first, second = (sum(rates[half]) for rates in (found["first"][late:], found["second"]))
        parts.append(second / (first + second))
    return statistics.mean(parts)


def test_two_long_flows_share_a_queue_of_one_bdp(shared: dict[str, Any]) -> None:
    for found in shared["bdp"]:
        # 1448 of 1514 bytes
        assert sum(found["first"][1:4]) / 3 == pytest.approx(95.6, rel=0.01)
        assert found["wrong"] == []
        assert found["drops"] > 0
    assert 0.4 <= shares(shared["bdp"], 0, 7) <= 0.6


def test_a_competitor_takes_its_share_within_2_s(shared: dict[str, Any]) -> None:
    assert 0.35 <= shares(shared["bdp"], 1, 2) <= 0.65
    assert 0.45 <= shares(shared["fq_codel"], 0.5, 2) <= 0.55


def test_managed_queues_do_what_they_are_for(shared: dict[str, Any]) -> None:
    (red,) = shared["red"]
    assert red["marked"] > 20
    assert red["drops"] == 0  # ECN marks instead
    assert 0.47 <= shares(shared["fq_codel"], 1, 5) <= 0.53
    assert all(found["wrong"] == [] for meetings in shared.values() for found in meetings)
