"""Wait until an instant of the clock, to the nanosecond.

On the virtual clock work takes no time, yet the clock creeps where it is read very often (a loop
that polls it would never end otherwise). So before what is measured a cell waits for a round
time, far enough apart that the creep does not reach the next one. What the kernel's own timers
keep from before still shifts later times by a few hundred nanoseconds.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import time

__all__ = ["wait_for_round_time", "wait_until"]

ROUND_S = 10.0
_LIBC = ctypes.CDLL(None, use_errno=True)
_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def wait_until(at_s: float) -> None:
    """Wait until ``time.monotonic()`` is `at_s`; not at all if that has passed.

    ``time.sleep`` takes a difference, whose rounding depends on when it was taken.
    """
    seconds, nanoseconds = divmod(round(at_s * 1e9), 10**9)
    until = ctypes.byref(_Timespec(seconds, nanoseconds))
    while code := _LIBC.clock_nanosleep(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, until, None):
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


def wait_for_round_time() -> None:
    """Wait until the clock is at the next multiple of ten seconds."""
    wait_until(math.ceil(time.monotonic() / ROUND_S) * ROUND_S)
