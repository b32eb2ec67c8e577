"""The page and the picture of a sweep: which method is fastest where, and how much that costs.

A value is the median over the valid seeds of a method in a variation. What did not end well,
and what has not run, is shown as such.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .analysis import is_valid, ours_of
from .atomic import write_text
from .canvas import canvas, legend_above, save, style_context
from .methods import is_adaptive
from .overview import OFF
from .plots import Plot, marker_size, plain_log
from .report import TEMPLATES, facts, inline, number_text
from .style import style_of
from .sweep_tables import SweepTables

__all__ = ["MATRICES", "Matrix", "matrix", "throughput", "write_sweep_report"]

DENSE = "allreduce"  # what the others' accuracy is compared with
_MOST_ROWS = 60  # of a picture

#: column of the summary -> heading, format, whether more is better (None: neither)
MATRICES: dict[str, tuple[str, str, bool | None]] = {
    "samples_per_second": ("Training throughput, samples/s", ",.0f", True),
    "final_accuracy": ("Test accuracy at the end", ".1%", True),
    "exposed_comm_ms_p50": ("Exposed communication, ms per step", ",.1f", False),
    "compression_ratio": ("Compression ratio", ",.1f", None),
}


@dataclass(frozen=True)
class Matrix:
    """Medians over valid seeds of one column, variations by methods.

    Parameters
    ----------
    column : str
        Of the summary.
    methods : list of str
        Labels.
    rows : dict of (str, str) to dict of str to float or str
        By (scenario, variation), then by method: the value, or why there is none.
    """

    column: str
    methods: list[str]
    rows: dict[tuple[str, str], dict[str, float | str]]


def matrix(tables: SweepTables, column: str) -> Matrix:
    """Return one column of the summary as a table of variations by methods."""
    planned: dict[tuple[str, str], list[str]] = {}
    for cell in tables.manifest["cells"]:
        planned.setdefault((cell["scenario"], cell["variation"]), []).append(cell["method"])
    methods = list(dict.fromkeys(m for labels in planned.values() for m in labels))
    groups = dict(list(tables.summary.groupby(["scenario", "variation", "method"])))
    rows: dict[tuple[str, str], dict[str, float | str]] = {}
    for key, labels in planned.items():
        found = {label: _value(groups.get((*key, label)), column) for label in methods}
        rows[key] = {k: "" if k not in labels else v for k, v in found.items()}
    return Matrix(column, methods, rows)


def _value(cells: pd.DataFrame | None, column: str) -> float | str:
    if cells is None:
        return "not run"
    good = cells[is_valid(cells)]
    if good.empty:
        bad = cells[cells["status"] != "ok"]
        return OFF if bad.empty else str(bad["status"].iloc[0])
    known = good[column].dropna()
    return float(known.median()) if len(known) else "\u2013"


def throughput(tables: SweepTables) -> Figure | None:
    """Draw a row per variation and a mark per method: how fast each trains."""
    found = matrix(tables, "samples_per_second")
    rows = {
        key: known
        for key, values in found.rows.items()
        if (known := {m: v for m, v in values.items() if isinstance(v, float) and v > 0})
    }
    if not rows or len(rows) > _MOST_ROWS:
        return None
    figure, (ax,) = canvas(1.1 + 0.34 * len(rows))
    several = len({scenario for scenario, _ in rows}) > 1
    values = [v for known in rows.values() for v in known.values()]
    low, high = min(values) / 1.15, max(values) * 1.15
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    plain_log(ax.xaxis, low, high)
    for y, known in enumerate(rows.values()):
        for method, value in known.items():
            style = style_of(method)
            ax.plot(value, y, style.marker, color=style.colour, ms=marker_size(style), alpha=0.9)
    names = ["\n".join(key) if several else key[1] for key in rows]
    ax.set_yticks(range(len(rows)), names)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel("training throughput, samples per second")
    drawn = [m for m in found.methods if any(m in known for known in rows.values())]
    handles = [
        Line2D([], [], ls="", color=style_of(m).colour, marker=style_of(m).marker,
               ms=marker_size(style_of(m)), label=m)
        for m in drawn
    ]  # fmt: skip
    legend_above(figure, handles, 3)
    return figure


def _best(values: dict[str, float | str], more: bool | None) -> float | None:
    known = [v for v in values.values() if isinstance(v, float)]
    return None if more is None or len(set(known)) < 2 else (max if more else min)(known)


def _shown(tables: SweepTables, column: str) -> dict[str, Any]:
    title, form, more = MATRICES[column]
    found = matrix(tables, column)
    rows = []
    for (scenario, variation), values in found.rows.items():
        best = _best(values, more)
        cells = [
            {"text": number_text(v, form) if isinstance(v, float) else v,
             "best": v == best, "bad": isinstance(v, str)}
            for v in values.values()
        ]  # fmt: skip
        rows.append({"scenario": scenario, "variation": variation, "cells": cells})
    methods = [{"label": m, "colour": style_of(m).colour} for m in found.methods]
    return {"title": title, "methods": methods, "rows": rows}


def _cells(tables: SweepTables) -> list[dict[str, Any]]:
    made = []
    for row in tables.summary.to_dict("records"):
        key = (row["scenario"], row["variation"], row["method"], row["seed"])
        verdict = row["link_verdict"]
        made.append(
            {
                "key": f"{key[0]}/{key[1]}/{key[2]}-s{key[3]}",
                "status": row["status"],
                "rate": number_text(row["samples_per_second"], ",.0f"),
                "verdict": "not measured" if pd.isna(verdict) else verdict,
                "identical": {True: "yes", False: "NO"}.get(row["replicas_identical"], "\u2013"),
                "note": "; ".join(tables.notes.get(key, [])),
                "cell": row["cell"],
            }
        )
    return made


def _warnings(tables: SweepTables) -> list[str]:
    summary, found = tables.summary, []
    if tables.missing:
        found.append(f"{len(tables.missing)} cells have not run: {_some(tables.missing)}.")
    bad = summary[summary["status"] != "ok"]
    for status, cells in bad.groupby("status"):
        found.append(f"{len(cells)} cells {status}: {_some(_keys(cells))}.")
    off = summary[(summary["status"] == "ok") & ~is_valid(summary)]
    if len(off):
        found.append(f"In {len(off)} cells the links were not as asked: {_some(_keys(off))}.")
    split = summary[summary["replicas_identical"].eq(False)]
    if len(split):
        found.append(f"The ranks ended with different parameters: {_some(_keys(split))}.")
    return found


def _keys(cells: pd.DataFrame) -> list[str]:
    return [f"{c.scenario}/{c.variation}/{c.method}-s{c.seed}" for c in cells.itertuples()]


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def headline(tables: SweepTables) -> str:
    """Return in how many variations the adaptive method is fastest, or close to it.

    Once among all methods, and once among those that lose next to nothing: half a point of
    accuracy against dense gradients, see `_as_accurate`.
    """
    ours = ours_of(tables.summary)
    found = matrix(tables, "samples_per_second").rows
    known = {key: _numbers(row) for key, row in found.items()}
    against = {key: row for key, row in known.items() if ours in row and len(row) > 1}
    if ours is None or not against:
        return "Nothing here compares the adaptive method with another yet."
    first = sum(row[ours] == max(row.values()) for row in against.values())
    near = sum(row[ours] >= 0.95 * max(row.values()) for row in against.values())
    of = "the only variation" if len(against) == 1 else f"{len(against)} variations"
    text = (
        f"Of {of}, {ours} is the fastest method in {first}, and within 5 % of the fastest in"
        f" {near}."
    )
    accuracy = {k: _numbers(row) for k, row in matrix(tables, "final_accuracy").rows.items()}
    shares = {}
    for key, row in against.items():
        good = [row[label] for label in _as_accurate(accuracy[key]) if label in row]
        if good:
            shares[key] = row[ours] / max(good)
    if shares:
        worst = min(shares, key=lambda key: shares[key])
        text += (
            f" Of the fixed methods within half a point of {DENSE}'s accuracy it reaches at least"
            f" {shares[worst]:.2f} of the fastest's throughput (in {'/'.join(worst)}), and is"
            f" itself within half a point in"
            f" {sum(ours in _as_accurate(accuracy[key], ours) for key in shares)} of"
            f" {len(shares)}."
        )
    return text


def _numbers(row: dict[str, float | str]) -> dict[str, float]:
    return {label: value for label, value in row.items() if isinstance(value, float)}


def _as_accurate(accuracy: dict[str, float], *also: str) -> list[str]:
    """Fixed methods, and those named, that end within half a point of dense gradients or above."""
    if DENSE not in accuracy:
        return []
    return [
        label
        for label, value in accuracy.items()
        if value >= accuracy[DENSE] - 0.005 and (label in also or not is_adaptive(label))
    ]


def write_sweep_report(tables: SweepTables) -> tuple[Path, list[Plot]]:
    """Write ``report.html`` of a sweep and its pictures; return the page and the pictures."""
    plots = []
    with style_context():
        figure = throughput(tables)
        if figure is not None:
            svg, _ = save(figure, tables.folder / "plots" / "throughput")
            caption = "Further right is better. A mark is the median over seeds."
            plots.append(Plot("throughput", "Training throughput", caption, svg))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    seeds = tables.summary.groupby(["scenario", "variation", "method"]).size()
    page = environment.get_template("sweep.html").render(
        name=tables.manifest["sweep"]["name"],
        description=tables.manifest["sweep"]["description"],
        headline=headline(tables),
        warnings=_warnings(tables),
        plots=[
            {"title": p.title, "caption": p.caption, "svg": inline(p.svg, p.name)} for p in plots
        ],
        matrices=[_shown(tables, column) for column in MATRICES],
        seeds=int(seeds.max()) if len(seeds) else 0,
        cells=_cells(tables),
        command=tables.manifest["command"],
        facts=facts(tables.manifest),
    )
    path = tables.folder / "report.html"
    write_text(path, page)
    return path, plots
