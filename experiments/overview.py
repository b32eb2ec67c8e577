"""The run at a glance: a row per method, and one sentence. For the page and the terminal."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from .analysis import RunTables, is_valid, ours_of, speedups
from .stats import Estimate

__all__ = [
    "OFF",
    "MethodRow",
    "good_cells",
    "headline",
    "overview",
    "planned",
    "seeds_text",
    "state_of",
]

OFF = "link not as asked"


@dataclass(frozen=True)
class MethodRow:
    """One method, the median over its valid seeds; None is "not measured".

    Parameters
    ----------
    label : str
    state : str
        Why it has no valid cell; empty if it has one.
    seeds, planned : int
        Valid seeds, and seeds recorded.
    gain : Estimate, optional
        How many times faster the adaptive method is.
    """

    label: str
    state: str
    seeds: int
    planned: int
    gain: Estimate | None
    samples_per_second: float | None
    step_ms_p50: float | None
    step_ms_p95: float | None
    compute_ms_p50: float | None
    exposed_comm_ms_p50: float | None
    wire_bytes_per_step: float | None
    compression_ratio: float | None
    final_accuracy: float | None
    time_to_accuracy_s: float | None


_MEDIANS = tuple(name for name in MethodRow.__annotations__ if name not in
                 ("label", "state", "seeds", "planned", "gain"))  # fmt: skip


def planned(tables: RunTables) -> list[str]:
    """Return the labels of all methods of the scenario, also of those not run."""
    scenario = tables.manifest.get("scenario") or {}
    labels = [str(arm["label"]) for arm in scenario.get("methods", [])]
    return list(dict.fromkeys([*labels, *tables.summary["method"]]))


def state_of(tables: RunTables, label: str) -> str:
    """Return why a method has no valid cell, or an empty string if it has one."""
    rows = tables.summary[tables.summary["method"] == label]
    if rows.empty:
        return "not run"
    if is_valid(rows).any():
        return ""
    bad = rows[rows["status"] != "ok"]
    return OFF if bad.empty else str(bad["status"].iloc[0])


def good_cells(tables: RunTables, label: str) -> pd.DataFrame:
    """Return the summary's rows of a method that may be compared."""
    rows = tables.summary[tables.summary["method"] == label]
    return rows[is_valid(rows)]


def seeds_text(tables: RunTables) -> str:
    """Return how many repetitions a picture shows, as the end of an axis label."""
    counts = [len(good_cells(tables, label)) for label in planned(tables)]
    known = sorted({count for count in counts if count})
    if not known:
        return ""
    return f" (n = {known[0]})" if len(known) == 1 else f" (n = {known[0]} to {known[-1]})"


def _median(values: pd.Series) -> float | None:
    known = values.dropna()
    return float(known.median()) if len(known) else None


def overview(tables: RunTables) -> list[MethodRow]:
    """Return a row per method, in the order of the scenario.

    Values of cells that are not valid are left out; time to accuracy is left out unless every
    valid seed reached the target.
    """
    gains = speedups(tables.summary)
    made = []
    for label in planned(tables):
        rows = tables.summary[tables.summary["method"] == label]
        good = rows[is_valid(rows)]
        values = {name: _median(good[name]) for name in _MEDIANS}
        if good["time_to_accuracy_s"].isna().any():
            values["time_to_accuracy_s"] = None
        state = state_of(tables, label)
        made.append(MethodRow(label, state, len(good), len(rows), gains.get(label), **values))
    return made


def headline(tables: RunTables) -> str:
    """Return what the run says about the adaptive method, in one or two sentences."""
    ours, rows = ours_of(tables.summary), overview(tables)
    gains = {row.label: row.gain for row in rows if row.gain is not None}
    own = next((row for row in rows if row.label == ours), None)
    if ours is None or own is None:
        return "This run holds no adaptive method to compare."
    if own.state:
        return f"{ours} has no valid result here: {own.state}."
    if not gains:
        return f"{ours} is the only method with a valid result here."
    times = [f"{gain.median:.2f} times as fast as {label}" for label, gain in gains.items()]
    said = f"{ours} trains {_join(times)}."
    dense = next((row for row in rows if row.label == "allreduce"), None)
    if dense and dense.final_accuracy is not None and own.final_accuracy is not None:
        points = 100 * (own.final_accuracy - dense.final_accuracy)
        than = f"{abs(points):.1f} points {'above' if points > 0 else 'below'}"
        than = "as with" if abs(points) < 0.05 else than
        accuracy = f"{own.final_accuracy:.1%}, {than} allreduce"
        said += f" After the same number of steps its test accuracy is {accuracy}."
    return said


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
