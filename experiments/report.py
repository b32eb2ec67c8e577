"""The page of a run: one file, no external resources, readable on a phone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from .analysis import RunTables, is_valid, ours_of
from .atomic import write_text
from .overview import MethodRow, headline, overview
from .plots import Plot
from .records import read_cell
from .stats import Estimate
from .style import style_of

__all__ = ["TEMPLATES", "facts", "gain_text", "inline", "number_text", "write_report"]

TEMPLATES = Path(__file__).parent / "templates"


def number_text(value: float | None, form: str) -> str:
    """Return a formatted number, or a dash for what was not measured."""
    return "\u2013" if value is None or value != value else format(value, form)


def gain_text(gain: Estimate | None) -> str:
    """Return a speed-up with its interval, where there is one."""
    if gain is None:
        return "\u2013"
    text = f"{gain.median:.2f}\u00d7"
    if gain.low is not None and gain.high is not None:
        text += f" ({gain.low:.2f}\u2013{gain.high:.2f})"
    return text


def _row(row: MethodRow, ours: str | None) -> dict[str, Any]:
    kilobytes = None if row.wire_bytes_per_step is None else row.wire_bytes_per_step / 1e3
    cells = [
        number_text(row.samples_per_second, ",.0f"),
        "" if row.label == ours else gain_text(row.gain),
        number_text(row.final_accuracy, ".1%"),
        number_text(row.time_to_accuracy_s, ",.2f"),
        number_text(row.step_ms_p50, ",.1f"),
        number_text(row.step_ms_p95, ",.1f"),
        number_text(row.exposed_comm_ms_p50, ",.1f"),
        number_text(kilobytes, ",.1f"),
        number_text(row.compression_ratio, ",.1f"),
    ]
    return {
        "label": row.label,
        "state": row.state,
        "colour": style_of(row.label).colour,
        "cells": cells,
    }


def _cells(tables: RunTables) -> list[dict[str, Any]]:
    made = []
    for row in tables.summary.to_dict("records"):
        notes = tables.notes.get((row["method"], row["seed"]), [])
        same = row["replicas_identical"]
        made.append(
            {
                "method": row["method"],
                "seed": row["seed"],
                "status": row["status"],
                "verdict": "not measured" if pd.isna(row["link_verdict"]) else row["link_verdict"],
                "identical": "\u2013" if pd.isna(same) else "yes" if same else "NO",
                "note": "; ".join(notes),
            }
        )
    return made


def _verdict(summary: pd.DataFrame) -> str:
    measured = summary["link_verdict"].dropna()
    off = measured[measured != "ok"]
    if measured.empty:
        return "The links were not measured in this run."
    if off.empty:
        return f"Yes: the links were as asked in all {len(measured)} cells that measured them."
    fate = "are left out of speed-ups and pictures"
    if is_valid(summary)[off.index].any():
        fate = "count in speed-ups and pictures because that was asked for"
    return (
        f"Not everywhere: in {len(off)} of {len(measured)} cells the links were off. These cells "
        f"{fate}."
    )


def _warnings(tables: RunTables) -> list[str]:
    """Return what a reader must know before believing the numbers."""
    summary, found = tables.summary, []
    bad = summary[summary["status"] != "ok"]
    if len(bad):
        kinds = ", ".join(f"{n} {status}" for status, n in bad["status"].value_counts().items())
        found.append(f"{len(bad)} of {len(summary)} cells did not end well: {kinds}.")
    verdict = summary["link_verdict"]
    off = summary[(summary["status"] == "ok") & verdict.notna() & (verdict != "ok")]
    for cell in off.itertuples():
        found.append(f"{cell.method} seed {cell.seed}: link not as asked: {cell.link_verdict}.")
    split = summary[summary["replicas_identical"].eq(False)]
    for label in dict.fromkeys(split["method"]):
        found.append(f"{label}: the ranks ended with different parameters.")
    dense = summary[is_valid(summary) & (summary["compression_ratio"].round(3) == 1)]
    for label in dict.fromkeys(dense["method"]):
        if label != "allreduce":
            found.append(f"{label}: never compressed anything in the steps that count.")
    return found


def _basis(rows: Sequence[MethodRow]) -> str:
    most = max((row.seeds for row in rows), default=0)
    if most <= 1:
        return "One seed each."
    spread = " In brackets: 95 % bootstrap interval." if most >= 3 else ""
    return f"Medians over up to {most} seeds.{spread}"


_TOO_LONG = ("scenario", "scenarios", "cells", "code", "summary", "packages")


def facts(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what of a manifest fits on a page: not scenarios, cells, code and its changes."""
    found = []
    for key, value in sorted(manifest.items()):
        if key in _TOO_LONG or value in (None, "", {}, []):
            continue
        if key == "git":
            value = {k: v for k, v in value.items() if k != "diff"}
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in sorted(value.items()) if v is not None)
        found.append((key.replace("_", " "), str(value)))
    return found


def inline(svg: Path, name: str) -> Markup:
    """Return an SVG for a page: no prolog, ids that no other picture of the page has."""
    text = svg.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    return Markup(re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1))


def device_note(run_dir: Path) -> str:
    """Return where the compute times of a run come from; an estimate is called one."""
    for path in sorted(run_dir.glob("cells/*")):
        device = read_cell(path).meta.get("device")
        if device and device.get("kind") == "measured":
            return f"measured: {device['description']} ({device['source']})."
        if device:
            return f"an estimate: {device['description']}. {device['formula']}"
    return "not measured here."


def write_report(tables: RunTables, plots: Sequence[Plot]) -> Path:
    """Write ``report.html`` of a run.

    Parameters
    ----------
    tables : RunTables
        From `experiments.analysis.load_run` or `remake`.
    plots : sequence of Plot
        From `experiments.plots.write_plots`; their SVG files are put into the page.

    Returns
    -------
    Path
        The page.
    """
    scenario = tables.manifest.get("scenario") or {}
    target = scenario.get("target_accuracy")
    workload = scenario.get("workload") or {}
    rows = overview(tables)
    name = str(scenario.get("name") or tables.run_dir.name)
    counted = tables.steps[~tables.steps["counted"]] if len(tables.steps) else tables.steps
    skipped = int(counted["step"].nunique()) if len(counted) else 0
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.get_template("report.html").render(
        name=name,
        description=scenario.get("description", ""),
        headline=headline(tables),
        warnings=_warnings(tables),
        ours=ours_of(tables.summary),
        target="target" if target is None else f"{target:.0%}",
        rows=[_row(row, ours_of(tables.summary)) for row in rows],
        basis=_basis(rows),
        plots=[
            {"title": p.title, "caption": p.caption, "svg": inline(p.svg, p.name)} for p in plots
        ],
        verdict=_verdict(tables.summary),
        cells=_cells(tables),
        command=tables.manifest.get("command") or f"make experiment SCENARIO={name}",
        facts=facts(tables.manifest),
        warmup=f"{skipped} steps of warm-up" if skipped else "no warm-up",
        clock=scenario.get("clock", "virtual"),
        device=workload.get("device", "unknown"),
        device_note=device_note(tables.run_dir),
    )
    path = tables.run_dir / "report.html"
    write_text(path, page)
    return path
