"""What the rate of a path is read from, on transfers whose every byte is known."""

from __future__ import annotations

import pytest

from testbed.tokens import burst_bytes
from testbed.transfers import fastest_third_mbps, second_half_mbps, transfer_s
from topologies.shape import FRAME_BYTES

SECONDS = 1.5


def transfer(mbps: float, held_up: tuple[float, float] = (9.0, 9.0)) -> list[tuple[float, int]]:
    """Return points a millisecond apart; nothing comes while the machine is held up."""
    per_ms = mbps * 1e6 / 8 / 1000 * 1448 / FRAME_BYTES
    points, total = [], 0.0
    for ms in range(1, 1500):
        at_s = ms / 1000
        if not held_up[0] <= at_s < held_up[1]:
            total += per_ms
            points.append((at_s, round(total)))
    return points


@pytest.mark.parametrize("mbps", [1, 48, 50, 1000])
def test_both_readings_tell_a_steady_rate(mbps: float) -> None:
    assert second_half_mbps(transfer(mbps), SECONDS) == pytest.approx(mbps, rel=1e-3)
    assert fastest_third_mbps(transfer(mbps), SECONDS) == pytest.approx(mbps, rel=1e-3)


@pytest.mark.parametrize("begin", [0.1, 0.4, 0.9, 1.2])
def test_a_machine_held_up_for_a_moment_is_no_slow_link(begin: float) -> None:
    points = transfer(50, (begin, begin + 0.1))
    assert fastest_third_mbps(points, SECONDS) == pytest.approx(50, rel=1e-3)


def test_what_a_queue_takes_in_at_once_does_not_count() -> None:
    points = [(at_s, got + 500_000) for at_s, got in transfer(50)]
    assert fastest_third_mbps([(0.001, 500_000), *points], SECONDS) == pytest.approx(50, rel=1e-3)


def test_too_little_is_no_rate() -> None:
    for points in ([], [(0.1, 1000)], [(1.4, 1000)]):
        assert fastest_third_mbps(points, SECONDS) is None
        assert second_half_mbps(points, SECONDS) is None


@pytest.mark.parametrize("mbps", [0.5, 1, 10, 50, 1000])
def test_what_a_bucket_sends_at_once_is_less_than_a_link_may_be_off(mbps: float) -> None:
    third = transfer_s(mbps, 0.001) / 3 * mbps * 1e6 / 8
    assert burst_bytes(mbps) <= 0.03 * third
    assert transfer_s(mbps, 0.001) <= 10
