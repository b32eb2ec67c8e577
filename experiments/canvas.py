"""How every picture is drawn and saved: sizes, fonts, and files that repeat byte for byte.

Only `Figure` objects and the Agg and SVG canvases are used, so no display is needed and nothing
global is changed. Pictures are narrow, so that their letters stay readable on a phone.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .atomic import write_with
from .style import INVALID

__all__ = [
    "INK",
    "SOFT",
    "canvas",
    "legend_above",
    "method_axis",
    "missing_row",
    "plain_log",
    "save",
    "style_context",
]

INK = "#222222"
SOFT = "#8A8A8A"
_WIDTH_IN = 5.6
_RC: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "netsenseml",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def style_context() -> Any:
    """Return the context in which figures are made and saved."""
    return matplotlib.rc_context(_RC)


def canvas(height_in: float, rows: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure of the common width with `rows` axes above each other."""
    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, squeeze=False, **options)[:, 0]
    return figure, list(axes)


def legend_above(figure: Figure, handles: list[Any], columns: int) -> None:
    """Put a legend above all axes, where it can hide no data."""
    names = [handle.get_label() for handle in handles]
    figure.legend(
        handles, names, loc="outside upper left", ncols=columns, handlelength=1.8,
        columnspacing=1.4, borderpad=0.1,
    )  # fmt: skip


def method_axis(ax: Axes, labels: list[str]) -> None:
    """List methods from top to bottom."""
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.45, -0.55)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)


def missing_row(ax: Axes, row: int, state: str) -> None:
    """Mark a method that has no valid cell, and say why."""
    place = ax.get_yaxis_transform()
    ax.barh(row, 1, 0.62, color="none", edgecolor=INVALID, hatch="////", lw=0, transform=place)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    ax.text(0.5, row, state, va="center", ha="center", color="#555555", transform=place, bbox=box)


def plain_log(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis with 1, 2, 5, 10, … instead of powers."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**d for d in decades for m in (1, 2, 5)]
    axis.set_ticks([t for t in ticks if low <= t <= high])
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.svg and `stem`.png, the same bytes for the same figure."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    fixed: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
    }
    for kind, metadata in fixed.items():
        path = stem.with_name(f"{stem.name}.{kind}")
        write = functools.partial(figure.savefig, format=kind, dpi=160, metadata=metadata)
        write_with(path, write)
        paths.append(path)
    return paths
