"""How every picture is drawn and saved: sizes, fonts, and files that repeat byte for byte.

Only `Figure` objects and the Agg and SVG canvases are used, so no display is needed and nothing
global is changed. Pictures are narrow, so that their letters stay readable on a phone.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .atomic import write_with

__all__ = ["INK", "SOFT", "canvas", "legend_above", "save", "style_context"]

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
