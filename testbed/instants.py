"""Wait until an instant of the clock, to the nanosecond, and say how often reading it is free.

On the virtual clock work takes no time, yet the clock creeps where it is read very often at one
instant (a loop that polls it would never end otherwise). How often programs read it while they
start depends on what lies in the host's folders, so until the training begins tens of thousands of
reads are free, and before what is measured a cell waits for a round time, so far from the last
that no creep reaches it. From then on few are free: iperf3 polls, and would hold up the ranks.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import time
from pathlib import Path

__all__ = ["Alarm", "let_polling_pass", "wait_for_round_time", "wait_until"]

ROUND_S = 10.0
_LIBC = ctypes.CDLL(None, use_errno=True)
_TIMER_ABSTIME = 1
#: of the guest kernel: reads of the clock at one instant before it moves on
_FREE_READS = Path("/sys/module/time/parameters/free_reads")
_WHILE_TRAINING = 64


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """A file that a selector finds readable once ``time.monotonic()`` is at an instant.

    A selector's own timeout is a difference, so that when it ends depends on when it began.
    """

    def __init__(self) -> None:
        self._fd = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self._fd

    def set(self, at_s: float) -> None:
        """Go off at `at_s`, at once if that has passed, and not at what was set before."""
        spec = _Itimerspec(value=_timespec(at_s))
        if _LIBC.timerfd_settime(self._fd, _TIMER_ABSTIME, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")


def _timespec(at_s: float) -> _Timespec:
    seconds, nanoseconds = divmod(round(at_s * 1e9), 10**9)
    return _Timespec(seconds, nanoseconds)


def wait_until(at_s: float) -> None:
    """Wait until ``time.monotonic()`` is `at_s`; not at all if that has passed.

    ``time.sleep`` takes a difference, whose rounding depends on when it was taken.
    """
    until = ctypes.byref(_timespec(at_s))
    while code := _LIBC.clock_nanosleep(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, until, None):
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


def wait_for_round_time() -> None:
    """Wait until the clock is at the next multiple of ten seconds."""
    wait_until(math.ceil(time.monotonic() / ROUND_S) * ROUND_S)


def let_polling_pass() -> None:
    """Let the virtual clock move on soon where a program polls it, from now on."""
    _FREE_READS.write_text(f"{_WHILE_TRAINING}\n")
