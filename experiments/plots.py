"""The pictures of a run: throughput, accuracy, sensing, and where a step's time goes.

Each function takes the tables of a run and returns a figure, or None when the run holds nothing
to draw. Cells that ended badly, or whose links were off, are drawn as such and never averaged
in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .analysis import RunTables, is_valid, ours_of, speedups
from .canvas import INK, SOFT, canvas, legend_above, save, style_context
from .overview import OFF, planned, state_of
from .sensing import sensing
from .style import INVALID, PARTS, Style, style_of

__all__ = [
    "PLOTS",
    "Plot",
    "accuracy",
    "breakdown",
    "marker_size",
    "plain_log",
    "sensing",
    "throughput",
    "write_plots",
]


def _good(tables: RunTables, label: str) -> pd.DataFrame:
    rows = tables.summary[tables.summary["method"] == label]
    return rows[is_valid(rows)]


def _method_axis(ax: Axes, labels: list[str]) -> None:
    """List methods from top to bottom."""
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.45, -0.55)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)


def _missing(ax: Axes, row: int, state: str) -> None:
    """Mark a method that has no valid cell."""
    place = ax.get_yaxis_transform()
    ax.barh(row, 1, 0.62, color="none", edgecolor=INVALID, hatch="////", lw=0, transform=place)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    ax.text(0.5, row, state, va="center", ha="center", color="#555555", transform=place, bbox=box)


def throughput(tables: RunTables) -> Figure | None:
    """Draw samples per second of each method, and how much faster the adaptive one is.

    A bar is the median over seeds; with several seeds each is a dot.
    """
    labels, ours = planned(tables), ours_of(tables.summary)
    gains = speedups(tables.summary, ours)
    rates = {x: _good(tables, x)["samples_per_second"].dropna() for x in labels}
    most = max((r.max() for r in rates.values() if len(r)), default=0.0)
    figure, (ax,) = canvas(0.75 + 0.42 * len(labels))
    limit = _compute_limit(tables)
    top = max(most, limit or 0.0) or 1.0
    ax.set_xlim(0, top * 1.02 if limit and limit > most * 1.15 else top * 1.13)
    for row, label in enumerate(labels):
        if not len(rates[label]):
            _missing(ax, row, state_of(tables, label) or "no throughput")
            continue
        value = float(rates[label].median())
        ax.barh(row, value, 0.62, color=style_of(label).colour)
        if len(rates[label]) > 1:
            seeds = [row] * len(rates[label])
            ax.plot(rates[label], seeds, "o", ms=3, mfc="white", mec=INK, mew=0.7)
        gap = top * (0.012 if len(rates[label]) == 1 else 0.025)
        if value > 0.5 * top:  # beside the bar it would cross the line of the limit
            ink = _ink_on(style_of(label).colour)
            ax.text(
                rates[label].min() - gap, row, f"{value:,.0f}", va="center", ha="right", color=ink
            )
        else:
            ax.text(rates[label].max() + gap, row, f"{value:,.0f}", va="center", bbox=_PAPER)
        if label in gains:
            _beside(ax, row, f"{gains[label].median:.2f}\u00d7")
    if gains:
        _beside(ax, -0.75, f"{ours}\nis faster", va="bottom")
    if limit:
        ax.axvline(limit, color=SOFT, lw=1.2, ls=(0, (4, 3)), zorder=0.5)
        line = Line2D([], [], color=SOFT, lw=1.2, ls=(0, (4, 3)), label="no communication at all")
        legend_above(figure, [line], 1)
    _method_axis(ax, labels)
    ax.set_xlabel("training throughput, samples per second")
    return figure


_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}


def _ink_on(colour: str) -> str:
    """Return black or white, whichever reads better on `colour` (WCAG relative luminance)."""
    channels = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)
    ]
    luminance = 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]
    return "white" if luminance < 0.25 else "black"


def _beside(ax: Axes, row: float, words: str, va: str = "center") -> None:
    """Write into the column to the right of the bars."""
    place = ax.get_yaxis_transform()
    ax.text(1.03, row, words, va=va, ha="left", transform=place, color="#A04400")


def _compute_limit(tables: RunTables) -> float | None:
    """Return the throughput if communication took no time: samples over compute time."""
    if tables.steps.empty:
        return None
    counted = tables.steps[tables.steps["counted"] & (tables.steps["compute_s"] > 0)]
    if counted.empty:
        return None
    ranks = counted.groupby("rank")
    return float((ranks["samples"].sum() / ranks["compute_s"].sum()).sum())


def accuracy(tables: RunTables) -> Figure | None:
    """Draw test accuracy over training time; thin lines are seeds, the thick one their median."""
    evals = tables.evals
    if evals.empty or not evals["accuracy"].notna().any():
        return None
    figure, (ax,) = canvas(3.7)
    handles = []
    ends = []
    for label in planned(tables):
        style, state = style_of(label), state_of(tables, label)
        rows = evals[(evals["method"] == label) & evals["accuracy"].notna()]
        if state == OFF:
            rows = rows.iloc[:0]
        elif not state:
            rows = rows[rows["seed"].isin(_good(tables, label)["seed"])]
        look: dict[str, Any] = {"color": style.colour, "ls": ":" if state else "-"}
        if rows.empty and not state:
            state = "not evaluated"
        if rows["seed"].nunique() > 1:
            for _, one in rows.groupby("seed"):
                ax.plot(one["t_s"], one["accuracy"], lw=0.7, alpha=0.45, **look)
        middle = rows.groupby("step")[["t_s", "accuracy"]].median()
        mark: dict[str, Any] = {
            "marker": style.marker,
            "ms": marker_size(style),
            "mec": "white",
            "mew": 0.5,
        }
        ax.plot(middle["t_s"], middle["accuracy"], lw=1.6, **mark, **look)
        ends += [middle["t_s"].max()] if len(middle) else []
        name = f"{label} ({state})" if state else label
        handles.append(
            Line2D(
                [],
                [],
                marker=style.marker,
                ms=marker_size(style),
                mec="white",
                mew=0.5,
                label=name,
                **look,
            )
        )
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
    ax.set_xlabel(f"{_clock(tables)} training time, seconds")
    legend_above(figure, handles, 3)
    return figure


def marker_size(style: Style) -> float:
    """Return the size, in points, at which a method's marker looks as large as others."""
    return 10.0 if style.marker == "*" else 5.5  # a star has little area for its width


def plain_log(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis with 1, 2, 5, 10, … instead of powers."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**d for d in decades for m in (1, 2, 5)]
    axis.set_ticks([t for t in ticks if low <= t <= high])
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")


def _clock(tables: RunTables) -> str:
    return str((tables.manifest.get("scenario") or {}).get("clock", "virtual"))


def breakdown(tables: RunTables) -> Figure | None:
    """Draw where the mean step's time goes: compute, encode and decode, exposed communication."""
    if tables.steps.empty:
        return None
    labels = planned(tables)
    figure, (ax,) = canvas(0.95 + 0.42 * len(labels))
    parts = {label: step_parts(tables, label) for label in labels}
    most = max((sum(p.values()) for p in parts.values() if p), default=0.0) or 1.0
    ax.set_xlim(0, most * 1.14)
    for row, label in enumerate(labels):
        if not parts[label]:
            _missing(ax, row, state_of(tables, label) or "no steps")
            continue
        left = 0.0
        for part, value in parts[label].items():
            ax.barh(row, value, 0.62, left=left, color=PARTS[part])
            left += value
        ax.text(left + most * 0.012, row, f"{left:,.0f} ms", va="center")
    _method_axis(ax, labels)
    ax.set_xlabel("mean time of a step, milliseconds")
    legend_above(figure, [Patch(color=c, label=p) for p, c in PARTS.items()], 3)
    return figure


def step_parts(tables: RunTables, label: str) -> dict[str, float]:
    """Return the parts of a method's mean counted step in ms; {} without valid cells."""
    seeds = _good(tables, label)["seed"]
    steps = tables.steps
    rows = steps[(steps["method"] == label) & steps["counted"] & steps["seed"].isin(seeds)]
    if rows.empty:
        return {}
    whole = float((rows["t_end_s"] - rows["t_start_s"]).mean() * 1e3)
    compute = min(whole, float(rows["compute_s"].fillna(0).mean() * 1e3))
    code_s = rows["encode_s"].fillna(0) + rows["decode_s"].fillna(0)
    code = min(whole - compute, float(code_s.mean() * 1e3))
    return dict(zip(PARTS, (compute, code, whole - compute - code), strict=True))


@dataclass(frozen=True)
class Plot:
    """A picture that was written: its name, heading, one sentence of help, and its SVG file."""

    name: str
    title: str
    caption: str
    svg: Path


PLOTS: dict[str, tuple[Callable[[RunTables], Figure | None], str, str]] = {
    "throughput": (
        throughput,
        "Training throughput",
        "Longer is better. Beside each bar: its value, and how many times faster the adaptive "
        "method is. The dashed line is the speed of the accelerators alone.",
    ),
    "accuracy": (
        accuracy,
        "Test accuracy over training time",
        "Further left is better: the same accuracy, sooner. Pauses for evaluation do not count.",
    ),
    "sensing": (
        sensing,
        "What was sensed and what was decided",
        "Above: the bandwidth that the adaptive method estimates against the rate the links "
        "really had. Below: how much smaller it made the gradients in answer.",
    ),
    "breakdown": (
        breakdown,
        "Where a step's time goes",
        "Exposed communication is the time a step waits for the network beyond its compute.",
    ),
}


def write_plots(tables: RunTables) -> list[Plot]:
    """Draw every picture into the run's ``plots`` directory as SVG and PNG."""
    made = []
    with style_context():
        for name, (draw, title, caption) in PLOTS.items():
            figure = draw(tables)
            if figure is not None:
                svg, _ = save(figure, tables.run_dir / "plots" / name)
                made.append(Plot(name, title, caption, svg))
    return made
