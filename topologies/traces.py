"""Recorded link rates: the mahimahi format and plain ``time_s,rate_mbps`` CSV.

mahimahi (Netravali et al., USENIX ATC 2015): one line per packet-delivery opportunity, holding
its time in whole milliseconds; each delivers up to 1504 bytes, and the trace repeats after its
last time stamp.
"""

from __future__ import annotations

import math
from pathlib import Path

from .checks import SpecError, choice, number

__all__ = ["parse_csv", "parse_mahimahi", "read_trace"]

_DELIVERY_BYTES = 1504
_MOST_DIGITS = 12  # of a time stamp: thirty years
_MOST_WINDOWS = 1_000_000

Steps = list[tuple[float, float]]  # (time_s, rate_mbps), rising times from 0


def parse_mahimahi(text: str, every_s: float) -> tuple[Steps, float]:
    """Return the mean rate of each `every_s` window, and the length of the trace in seconds."""
    stamps: list[int] = []
    for n, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.strip().isdecimal() or len(line.strip()) > _MOST_DIGITS:
            raise SpecError("file", f"line {n}: expected a whole number of milliseconds")
        stamps.append(int(line))
        if len(stamps) > 1 and stamps[-1] < stamps[-2]:
            raise SpecError("file", f"line {n}: time goes backwards")
    if not stamps or stamps[-1] == 0:
        raise SpecError("file", "expected time stamps above 0")
    length_s = stamps[-1] / 1e3
    windows = math.ceil(length_s / every_s - 1e-9)
    if windows > _MOST_WINDOWS:
        raise SpecError("every_s", f"makes {windows} windows; at most {_MOST_WINDOWS}")
    counts = [0] * windows
    for stamp in stamps:  # a delivery at time t uses the window that ends at or after t
        counts[max(0, math.ceil(stamp / 1e3 / every_s - 1e-9) - 1)] += 1
    steps = []
    for i, count in enumerate(counts):
        window_s = min(every_s, length_s - i * every_s)
        steps.append((round(i * every_s, 6), count * _DELIVERY_BYTES * 8 / 1e6 / window_s))
    return steps, length_s


def parse_csv(text: str) -> tuple[Steps, float]:
    """Return the (time_s, rate_mbps) rows and the length, the last interval counted twice."""
    rows = [row.strip() for row in text.splitlines()]
    if not rows or [c.strip() for c in rows[0].split(",")] != ["time_s", "rate_mbps"]:
        raise SpecError("file", "line 1: expected the header time_s,rate_mbps")
    steps: Steps = []
    for n, row in enumerate(rows[1:], 2):
        if not row or row.startswith("#"):
            continue
        try:
            time_s, rate_mbps = (float(cell) for cell in row.split(","))
        except ValueError:
            raise SpecError("file", f"line {n}: expected two numbers; got {row[:40]!r}") from None
        number("file", time_s, 0, unit=f"seconds in line {n}")
        number("file", rate_mbps, 0, 1_000_000, unit=f"Mbit/s in line {n}")
        if steps and time_s <= steps[-1][0]:
            raise SpecError("file", f"line {n}: expected a later time than the line before")
        steps.append((time_s, rate_mbps))
    if not steps or steps[0][0] != 0:
        raise SpecError("file", "expected a first row at time 0")
    last = steps[-1][0] - steps[-2][0] if len(steps) > 1 else 1.0
    return steps, steps[-1][0] + last


def read_trace(path: Path, kind: str = "auto", every_s: float = 0.1) -> tuple[Steps, float]:
    """Read a trace file.

    Parameters
    ----------
    path : Path
        The file.
    kind : {"auto", "mahimahi", "csv"}
        ``auto`` takes ``.csv`` files as CSV and everything else as mahimahi.
    every_s : float
        Averaging window for mahimahi traces.

    Returns
    -------
    steps : list of (time_s, rate_mbps)
        Rising times; each rate holds until the next.
    length_s : float
        After which the trace may be repeated.
    """
    choice("format", kind, ["auto", "mahimahi", "csv"])
    window_s = number("every_s", every_s, 0.001, 60, unit="s")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # not text, or a name that no file can have
        reason = getattr(error, "strerror", None) or "not a text file"
        raise SpecError("file", f"cannot read {path}: {reason}") from None
    if kind == "csv" or (kind == "auto" and path.suffix == ".csv"):
        return parse_csv(text)
    return parse_mahimahi(text, window_s)
