"""The pictures of learning: test accuracy over training time, and over bytes sent."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .analysis import RunTables
from .canvas import SOFT, canvas, legend_above, plain_log
from .overview import OFF, good_cells, planned, state_of
from .stats import bootstrap
from .style import Style, marker_size, style_of

__all__ = ["accuracy", "accuracy_over_bytes", "evals_with_bytes"]


def accuracy(tables: RunTables) -> Figure | None:
    """Draw test accuracy over training time; thin lines are seeds, the thick one their median."""
    clock = str((tables.manifest.get("scenario") or {}).get("clock", "virtual"))
    return _curves(tables, tables.evals, "t_s", f"{clock} training time, seconds")


def accuracy_over_bytes(tables: RunTables) -> Figure | None:
    """Draw test accuracy over the bytes that a rank has handed to collectives."""
    known = evals_with_bytes(tables)
    if known.empty or not known["sent_mb"].notna().any():
        return None
    return _curves(tables, known, "sent_mb", "handed to collectives by one rank, MB")


def evals_with_bytes(tables: RunTables) -> pd.DataFrame:
    """Return the evaluations with a column ``sent_mb``: what one rank had sent by then, in MB.

    The mean over ranks of the bytes handed to collectives, control messages included.
    """
    evals = tables.evals
    if evals.empty or tables.steps.empty:
        return evals.assign(sent_mb=float("nan"))
    steps = tables.steps
    sent = steps["wire_bytes"].fillna(0) + steps["control_bytes"].fillna(0)
    means = sent.groupby([steps["method"], steps["seed"], steps["step"]]).mean()
    made = []
    for (method, seed), rows in evals.groupby(["method", "seed"], sort=False):
        if (method, seed) not in means.index.droplevel("step"):
            continue
        total = means.loc[(method, seed)].sort_index().cumsum()
        sofar = [float(total[total.index < step].max()) / 1e6 for step in rows["step"]]
        made.append(rows.assign(sent_mb=sofar))
    return pd.concat(made) if made else evals.iloc[:0].assign(sent_mb=[])


def _curves(tables: RunTables, evals: pd.DataFrame, x: str, x_label: str) -> Figure | None:
    if evals.empty or not evals["accuracy"].notna().any():
        return None
    figure, (ax,) = canvas(3.9)
    handles, ends = [], []
    for label in planned(tables):
        style, state = style_of(label), state_of(tables, label)
        rows = evals[(evals["method"] == label) & evals["accuracy"].notna()]
        if state == OFF:
            rows = rows.iloc[:0]
        elif not state:
            rows = rows[rows["seed"].isin(good_cells(tables, label)["seed"])]
        look: dict[str, Any] = {"color": style.colour, "ls": ":" if state else "-"}
        if rows.empty and not state:
            state = "not evaluated"
        seeds = rows["seed"].nunique()
        if seeds > 1:
            _spread(ax, rows, x, look)
        middle = rows.groupby("step")[[x, "accuracy"]].median()
        ax.plot(middle[x], middle["accuracy"], lw=1.6, **look, **_mark(style))
        ends += [middle[x].max()] if len(middle) else []
        note = state or (f"n = {seeds}" if seeds > 1 else "")
        name = f"{label} ({note})" if note else label
        handles.append(Line2D([], [], label=name, **look, **_mark(style)))
    if ends and max(ends) > 5 * min(ends):
        ax.set_xscale("log")
        plain_log(ax.xaxis, *ax.get_xlim())
    target = (tables.manifest.get("scenario") or {}).get("target_accuracy")
    if target:
        ax.axhline(target, color=SOFT, lw=1.2, ls=(0, (4, 3)), zorder=0.5)
        line = Line2D([], [], color=SOFT, lw=1.2, ls=(0, (4, 3)), label=f"target {target:.0%}")
        handles.append(line)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_ylabel("test accuracy")
    ax.set_xlabel(x_label)
    legend_above(figure, handles, 3)
    return figure


def _mark(style: Style) -> dict[str, Any]:
    return {"marker": style.marker, "ms": marker_size(style), "mec": "white", "mew": 0.5}


def _spread(ax: Axes, rows: pd.DataFrame, x: str, look: dict[str, Any]) -> None:
    """Draw each seed, and from three on the interval of their median at each evaluation."""
    for _, one in rows.groupby("seed"):
        ax.plot(one[x], one["accuracy"], lw=0.7, alpha=0.45, **look)
    places, low, high = [], [], []
    for _, at in rows.groupby("step"):
        found = bootstrap(list(at["accuracy"]))
        if found is not None and found.low is not None and found.high is not None:
            places.append(float(at[x].median()))
            low.append(found.low)
            high.append(found.high)
    if places:
        ax.fill_between(places, low, high, color=look["color"], alpha=0.15, lw=0)
