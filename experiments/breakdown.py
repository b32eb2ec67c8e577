"""The picture of where a step's time goes."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .analysis import RunTables
from .canvas import canvas, legend_above, method_axis, missing_row
from .overview import good_cells, planned, seeds_text, state_of
from .style import PARTS

__all__ = ["breakdown", "step_parts"]


def breakdown(tables: RunTables) -> Figure | None:
    """Draw the parts of each method's mean step, over ranks, counted steps and seeds."""
    if tables.steps.empty:
        return None
    labels = planned(tables)
    parts = {label: step_parts(tables, label) for label in labels}
    shown = [p for p in PARTS if any(of.get(p, 0.0) > 0.0005 for of in parts.values())]
    figure, (ax,) = canvas(0.95 + 0.42 * len(labels))
    most = max((sum(p.values()) for p in parts.values() if p), default=0.0) or 1.0
    ax.set_xlim(0, most * 1.14)
    for row, label in enumerate(labels):
        if not parts[label]:
            missing_row(ax, row, state_of(tables, label) or "no steps")
            continue
        left = 0.0
        for part, value in parts[label].items():
            ax.barh(row, value, 0.62, left=left, color=PARTS[part])
            left += value
        ax.text(left + most * 0.012, row, f"{left:,.0f} ms", va="center")
    method_axis(ax, labels)
    ax.set_xlabel(f"mean time of a step, milliseconds{seeds_text(tables)}")
    legend_above(figure, [Patch(color=PARTS[p], label=p) for p in shown], 2)
    return figure


def step_parts(tables: RunTables, label: str) -> dict[str, float]:
    """Return the parts of a method's mean counted step in ms; {} without valid cells.

    Waiting for stragglers is what the slowest rank of a step computes longer than a rank itself;
    exposed communication is the rest of the time that is neither compute nor coding.
    """
    seeds = good_cells(tables, label)["seed"]
    steps = tables.steps
    rows = steps[(steps["method"] == label) & steps["counted"] & steps["seed"].isin(seeds)]
    if rows.empty:
        return {}
    whole = float((rows["t_end_s"] - rows["t_start_s"]).mean() * 1e3)
    own = rows["compute_s"].fillna(0)
    compute = min(whole, float(own.mean() * 1e3))
    code_s = rows["encode_s"].fillna(0) + rows["decode_s"].fillna(0)
    code = min(whole - compute, float(code_s.mean() * 1e3))
    wait = min(whole - compute - code, _straggling_ms(rows, own))
    values = (compute, code, whole - compute - code - wait, wait)
    return dict(zip(PARTS, values, strict=True))


def _straggling_ms(rows: pd.DataFrame, own: pd.Series) -> float:
    slowest = own.groupby([rows["seed"], rows["step"]]).transform("max")
    return float((slowest - own).mean() * 1e3)
