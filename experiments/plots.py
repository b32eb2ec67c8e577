"""The pictures of a run, all of them; throughput is drawn here.

Each function takes the tables of a run and returns a figure, or None when the run holds nothing
to draw. Cells that ended badly, or whose links were off, are drawn as such and never averaged
in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .analysis import RunTables, ours_of, speedups
from .breakdown import breakdown, step_parts
from .canvas import (
    INK,
    SOFT,
    canvas,
    legend_above,
    method_axis,
    missing_row,
    plain_log,
    save,
    style_context,
)
from .learning import accuracy, accuracy_over_bytes
from .overview import good_cells, planned, seeds_text, state_of
from .sensing import sensing
from .stats import bootstrap
from .style import marker_size, style_of

__all__ = [
    "PLOTS",
    "Plot",
    "accuracy",
    "accuracy_over_bytes",
    "breakdown",
    "marker_size",
    "plain_log",
    "sensing",
    "step_parts",
    "throughput",
    "write_plots",
]


def throughput(tables: RunTables) -> Figure | None:
    """Draw samples per second of each method, and how much faster the adaptive one is.

    A bar is the median over seeds; with several seeds each is a dot, and from three on a line is
    the 95 % bootstrap interval of the median.
    """
    labels, ours = planned(tables), ours_of(tables.summary)
    gains = speedups(tables.summary, ours)
    rates = {x: good_cells(tables, x)["samples_per_second"].dropna() for x in labels}
    most = max((r.max() for r in rates.values() if len(r)), default=0.0)
    figure, (ax,) = canvas(0.75 + 0.42 * len(labels))
    limit = _compute_limit(tables)
    top = max(most, limit or 0.0) or 1.0
    ax.set_xlim(0, top * 1.02 if limit and limit > most * 1.15 else top * 1.13)
    for row, label in enumerate(labels):
        if not len(rates[label]):
            missing_row(ax, row, state_of(tables, label) or "no throughput")
            continue
        value = float(rates[label].median())
        ax.barh(row, value, 0.62, color=style_of(label).colour)
        if len(rates[label]) > 1:
            seeds = [row] * len(rates[label])
            ax.plot(rates[label], seeds, "o", ms=3, mfc="white", mec=INK, mew=0.7)
            spread = bootstrap(list(rates[label]))
            if spread is not None and spread.low is not None and spread.high is not None:
                ax.plot([spread.low, spread.high], [row, row], color=INK, lw=1.4)
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
    method_axis(ax, labels)
    ax.set_xlabel(f"training throughput, samples per second{seeds_text(tables)}")
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
    "accuracy-bytes": (
        accuracy_over_bytes,
        "Test accuracy over bytes sent",
        "Further left is better: the same accuracy for less traffic, whatever the network.",
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
        "Exposed communication is the time a step waits for the network beyond its compute; "
        "waiting for stragglers is the part in which other ranks still compute.",
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
