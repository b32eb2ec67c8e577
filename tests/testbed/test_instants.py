"""An alarm goes off at an instant, not after a while."""

from __future__ import annotations

import selectors
import time

import pytest

from testbed.instants import Alarm


@pytest.fixture
def alarm() -> Alarm:
    return Alarm()


def has_gone_off(alarm: Alarm, timeout_s: float | None = 0) -> bool:
    with selectors.SelectSelector() as selector:
        selector.register(alarm, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def test_goes_off_at_its_instant_and_not_before(alarm: Alarm) -> None:
    at_s = time.monotonic() + 0.02
    alarm.set(at_s)
    assert has_gone_off(alarm, None)
    assert time.monotonic() >= at_s


def test_an_instant_that_has_passed_is_now(alarm: Alarm) -> None:
    alarm.set(time.monotonic() - 5)
    assert has_gone_off(alarm, 10)


def test_only_what_was_set_last_counts(alarm: Alarm) -> None:
    assert not has_gone_off(alarm)
    alarm.set(time.monotonic() - 5)
    assert has_gone_off(alarm, 10)
    alarm.set(time.monotonic() + 1000)
    assert not has_gone_off(alarm)
