"""What the training did when something broke: stalled, went on, or ended."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable

from .records import CellRecord, Row

__all__ = ["job_lines", "outage_lines"]

_STALL = 1.5  # times the usual step


def _outages(events: Iterable[Row]) -> list[tuple[str, float, float | None]]:
    """Return what broke, when, and when it was mended (None: never), by time."""
    found: dict[tuple[str, float], list[str]] = {}
    mended: dict[str, list[float]] = {}
    for event in events:
        kind, at_s = event.get("kind"), event.get("actual_s")
        where = str(event.get("link") or event.get("host") or "")
        detail = event.get("detail")
        up = detail.get("up") if isinstance(detail, dict) else None
        if at_s is None:
            continue
        if kind in ("rank-killed", "host-paused"):
            what = "rank killed on" if kind == "rank-killed" else "paused"
            found.setdefault((what, event["requested_s"]), []).append(where)
        elif kind == "link" and up is False:
            found.setdefault(("down", event["requested_s"]), []).append(where)
        elif kind == "host-resumed" or up is True:
            mended.setdefault(where, []).append(at_s)
    outages = []
    for (what, at_s), places in sorted(found.items(), key=lambda item: item[0][1]):
        ends = [min((t for t in mended.get(p, []) if t > at_s), default=None) for p in places]
        names = ", ".join(dict.fromkeys(places))
        said = f"{what} {names}" if what.endswith(" on") else f"{names} {what}"
        known = [end for end in ends if end is not None]
        outages.append((said, at_s, max(known) if len(known) == len(ends) else None))
    return outages


def _finished(cell: CellRecord) -> list[float]:
    """Return when all ranks had finished each step."""
    columns = zip(*cell.steps.values(), strict=False)
    return [max(row["t_end_s"] for row in column) for column in columns]


def outage_lines(cell: CellRecord) -> list[str]:
    """Return a line for each thing that broke in a cell: when, and what the training did.

    A step counts as stalled if it took half as long again as the usual one before; of the one
    under way and the next, the longer is told of.
    """
    done = _finished(cell)
    times = [0.0, *done]
    lines = []
    for said, at_s, end_s in _outages(cell.events):
        lasted = "for good" if end_s is None else f"for {end_s - at_s:.3g} s"
        lines.append(f"{said} at {at_s:.3f} s {lasted}: {_reaction(cell, times, at_s, end_s)}")
    return lines


def _reaction(cell: CellRecord, times: list[float], at_s: float, end_s: float | None) -> str:
    step = next((i for i in range(1, len(times)) if times[i] > at_s), None)
    if step is None:
        ended_s = cell.outcome.get("virtual_s")
        after = "" if ended_s is None else f" {ended_s - at_s:.3f} s later"
        if cell.status == "ok":
            return "the training had ended"
        return f"the training ended{after}, {cell.status}: {cell.reason or 'no reason given'}"
    before = [b - a for a, b in itertools.pairwise(times[1:step])][-20:]
    usual_s = statistics.median(before) if before else None
    # what broke may show one step later, if this one was all but done
    seen = [n for n in (step, step + 1) if n < len(times)]
    number = max(seen, key=lambda n: times[n] - times[n - 1])
    if usual_s is not None and times[number] - times[number - 1] > _STALL * usual_s:
        stall = f"stalled from {max(at_s, times[number - 1]):.3f} to {times[number]:.3f} s"
        if end_s is not None and times[number] > end_s:
            return f"{stall}, recovered {times[number] - end_s:.3f} s after it ended"
        return f"{stall} and went on"
    if step == len(times) - 1 and cell.status != "ok":
        return f"the training ended in the next step, {cell.status}: {cell.reason}"
    return f"went on, step {step} took {1e3 * (times[step] - times[step - 1]):.0f} ms"


def job_lines(cell: CellRecord) -> list[str]:
    """Return a line for each job that trained beside the one under test."""
    lines = []
    for name, rows in cell.jobs.items():
        if not rows:
            lines.append(f"beside it, job {name} finished no step")
            continue
        took_s = rows[-1]["t_end_s"] - rows[0]["t_start_s"]
        steps_ms = statistics.median(1e3 * (r["t_end_s"] - r["t_start_s"]) for r in rows)
        lines.append(
            f"beside it, job {name} trained {len(rows)} steps in {took_s:.2f} s,"
            f" {steps_ms:.1f} ms each"
        )
    return lines
