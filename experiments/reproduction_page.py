"""The page and the document of the reproduction, both from one set of texts and tables."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from .atomic import write_text
from .breakdown import breakdown
from .canvas import save, style_context
from .claims import Claim, claims, spread
from .crossing import break_even, heat_map
from .learning import accuracy, accuracy_over_bytes
from .plots import Plot, throughput
from .report import TEMPLATES, inline, number_text
from .reproduction import BASELINES, CONSTRAINED, DENSE, OURS, WORDS, Reproduction, named
from .sensing import sensing
from .style import style_of

__all__ = ["write_document", "write_page", "write_places"]

_RATES = {"200m": 200.0, "500m": 500.0, "800m": 800.0, "10g": 10_000.0}
_COLUMNS = (
    "model", "network", "method", "task", "factor", "status", "samples_per_second", "step_ms",
    "compute_ms_p50", "efficiency", "compression_ratio", "netsense_is_faster", "link_verdict",
)  # fmt: skip


def _value(found: Reproduction, place: tuple[str, str], method: str, column: str) -> float | str:
    value = found.value(place, method, column)
    return found.state(place, method) if value is None else value


def _matrix(found: Reproduction, column: str, form: str) -> list[dict[str, Any]]:
    """Return a row per place with a text per method."""
    rows = []
    for place in found.places:
        values = {m: _value(found, place, m, column) for m in found.methods}
        known = [v for v in values.values() if isinstance(v, float)]
        best = max(known) if known else None
        texts = [
            {"text": number_text(v, form) if isinstance(v, float) else v, "best": v == best}
            for v in values.values()
        ]
        rows.append({"model": place[0], "network": WORDS.get(place[1], place[1]), "cells": texts})
    return rows


def _gain_rows(found: Reproduction) -> list[dict[str, Any]]:
    rows = []
    for place in found.places:
        gains = {m: found.gain(place, m) for m in found.methods if m != OURS}
        texts = [number_text(g, ".2f") if g else found.state(place, m) for m, g in gains.items()]
        rows.append({"model": place[0], "network": WORDS.get(place[1], place[1]), "cells": texts})
    return rows


def _spreads(found: Reproduction) -> list[tuple[str, str]]:
    """Return the speed-ups over each method: smallest, median, largest, over all cells."""
    rows = []
    for method in found.methods:
        if method != OURS:
            values = list(found.gains((method,), CONSTRAINED).values())
            rows.append((method, spread(values)))
    rows.append(("all that compress", spread(list(found.gains(BASELINES, CONSTRAINED).values()))))
    return rows


def _plots(found: Reproduction) -> list[Plot]:
    """Draw what the page shows, into ``plots``."""
    folder = found.tables.folder / "plots"
    made: list[Plot] = []

    def keep(name: str, title: str, caption: str, figure: Any) -> None:
        if figure is not None:
            made.append(Plot(name, title, caption, save(figure, folder / name)[0]))

    shares = {
        f"{model}, {network}": {
            m: _value(found, (model, network), m, "efficiency") for m in found.methods
        }
        for model, network in found.places
    }
    rates: dict[str, dict[str, dict[float, float]]] = {}
    for model, network in found.places:
        for method in found.methods:
            value = found.value((model, network), method, "samples_per_second")
            if network in _RATES and value is not None:
                rates.setdefault(model, {}).setdefault(method, {})[_RATES[network]] = value
    with style_context():
        keep("efficiency", "Efficiency by network and method",
             "1 is the limit: the network costs nothing. Empty: not part of this run.",
             heat_map(shares, found.methods))  # fmt: skip
        keep("break-even", "Where compression pays",
             "Above the dashed line a method trains faster than dense all-reduce. Networks that "
             "stay the same only.", break_even(rates))  # fmt: skip
        for place in found.learning_places[:1]:
            if (run := found.run_of("accuracy", place)) is not None:
                keep("accuracy", f"Test accuracy over time, {WORDS.get(place[1], place[1])}",
                     "Real training. Further left is better.", accuracy(run))  # fmt: skip
                keep("accuracy-bytes", "Test accuracy over bytes sent",
                     "Further left is better: less traffic for the same accuracy.",
                     accuracy_over_bytes(run))  # fmt: skip
        for place in found.places:
            where = named(place)
            run = found.run_of("throughput", place)
            if run is None or place[1] not in ("200m", "degrading", "fluctuating"):
                continue
            keep(
                f"throughput-{'-'.join(place)}",
                f"Throughput, {where}",
                "The dashed line is the speed of the accelerators alone.",
                throughput(run),
            )
            if place[1] == "200m":
                keep(f"breakdown-{'-'.join(place)}", f"Where a step's time goes, {where}",
                     "Exposed communication is what the network costs beyond compute and coding.",
                     breakdown(run))  # fmt: skip
            else:
                keep(f"sensing-{'-'.join(place)}", f"Sensed and decided, {where}",
                     "Above: estimated bandwidth against the links' real rate, both of the scaled "
                     "network. Below: the compression chosen in answer.",
                     sensing(run))  # fmt: skip
    return made


def _discussion(found: Reproduction) -> list[tuple[str, str]]:
    """Return (heading, text) on every difference to the paper, with this run's numbers."""
    ends = found.last_strength("netsense-paper")
    ratios = "; ".join(f"{named(place)}: {r:.3g}" for place, r in ends.items())
    said = f" Here it ended at {ratios}." if ratios else ""
    index = _index_bytes(found)
    lost = found.accuracy_lost()
    points = ", ".join(f"{m} {lost[m]:+.1f}" for m in found.methods if m in lost and m != DENSE)
    equal = []
    for place in found.learning_places:
        at_s, best = found.best_at_equal_time(place)
        if at_s is not None:
            texts = ", ".join(
                f"{m} {'not evaluated yet' if a is None else f'{a:.1%}'}" for m, a in best.items()
            )
            equal.append(
                f"{WORDS.get(place[1], place[1])} after {at_s:.1f} s of training: {texts}"
            )
    estimates = [t for t, device in found.devices.items() if device.get("kind") != "measured"]
    return [
        ("The published rule does not sense bandwidth",
         "It cuts its ratio when the bytes in flight exceed 0.9 of the bandwidth-delay product, "
         "which it takes from the same transfers: the highest D/T times the shortest T. Where a "
         "transfer is bound by bandwidth that product is the bytes themselves, so the rule "
         "always cuts, at any bandwidth, by 5 % a step; it needs some ninety steps from 0.7 to "
         f"0.01, and a short run sees it on its way down.{said}"),
        ("Sparse all-gather breaks even below 10 %",
         "An all-gather moves (N-1) k b bytes per rank where a dense ring moves 2(N-1)/N 4n: "
         "with 8 ranks sparse is smaller below k/n = 8.3 % with fp32 values and int64 indices, "
         "12.5 % with int32, 16.7 % with fp16 and int32. TopK-0.1 in the authors' format is "
         "therefore slower than no compression on a link that is the bottleneck, and a speed-up "
         "over it says little about speed."),
        ("Index bytes",
         "The public code counts value bytes only; two thirds of what it sends are indices. "
         f"Everything here is counted.{index}"),
        ("Full precision at ratio 1",
         "No compression is a dense all-reduce here, for netsense-paper too. An all-gather with "
         "a ratio near 1 would move nine times as much."),
        ("Accuracy",
         "The paper trains for hours on GPUs; here a small network learns Fashion-MNIST on the "
         "same network, scaled to its size."
         + (f" Points below dense at equal steps: {points}." if points else "")
         + (f" Best accuracy at equal time, {'; '.join(equal)}." if equal else "")),
        ("Latency",
         "The paper does not give its network's; here a round trip is 0.2 ms, as in one room. "
         "Methods with several rounds per bucket depend on it."),
        ("Compute times",
         f"Charged from device profiles; estimates for {', '.join(estimates) or 'none'}. The "
         "paper's GPU is not known to us. Faster accelerators make every network more "
         "constrained and every speed-up larger; efficiency falls with them."),
        ("Scaling by similarity",
         "Model, rates, queues and buckets are divided by one factor; latency, compute and encode "
         "times stay. Frames do not shrink: at a scaled rate one takes longer, which is counted "
         "against every method. Bytes of low-rank methods follow widths instead of parameters: on "
         "a model with widths divided by w they weigh w times too much, against them and against "
         "netsense when it uses them."),
    ]  # fmt: skip


def _index_bytes(found: Reproduction) -> str:
    for place in found.places:
        theirs = found.value(place, "topk-0.1-int64", "wire_bytes_per_step")
        ours = found.value(place, "topk-0.1", "wire_bytes_per_step")
        if theirs and ours:
            return (
                f" For the same tenth of the gradient a rank sends {theirs / 1e6:.2f} MB in their"
                f" format and {ours / 1e6:.2f} MB in ours ({theirs / ours:.1f} times less)."
            )
    return ""


def _context(found: Reproduction, listed: list[Claim]) -> dict[str, Any]:
    manifest = found.tables.manifest
    quick = manifest["sweep"]["name"].endswith("quick")
    ended = found.tables.summary
    devices = {
        task: {"kind": d.get("kind", "estimate"), "text": d.get("description", ""),
               "formula": d.get("formula", ""), "source": d.get("source", "")}
        for task, d in found.devices.items()
    }  # fmt: skip
    return {
        "claims": [{**vars(c), "verdict": c.verdict} for c in listed],
        "met": sum(c.holds is True for c in listed),
        "missed": sum(c.holds is False for c in listed),
        "unknown": sum(c.holds is None for c in listed),
        "methods": [{"label": m, "colour": style_of(m).colour} for m in found.methods],
        "throughput": _matrix(found, "samples_per_second", ",.0f"),
        "efficiency": _matrix(found, "efficiency", ".3f"),
        "others": [m for m in found.methods if m != OURS],
        "gains": _gain_rows(found),
        "spreads": _spreads(found),
        "discussion": _discussion(found),
        "devices": devices,
        "quick": quick,
        "command": manifest.get("command") or "make reproduce",
        "cells": len(manifest["cells"]),
        "ended": len(ended),
        "bad": int((ended["status"] != "ok").sum()),
        "missing": found.tables.missing,
        "commit": (manifest.get("git") or {}).get("commit", "") if manifest.get("git") else "",
    }


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=lambda name: bool(name and name.endswith(".html")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write_page(found: Reproduction) -> Path:
    """Write ``report.html`` of the reproduction: self-contained, every claim first."""
    plots = [
        {"title": p.title, "caption": p.caption, "svg": inline(p.svg, p.name)}
        for p in _plots(found)
    ]
    rows = [
        {"key": f"{r['scenario']}/{r['variation']}/{r['method']}-s{r['seed']}",
         "status": r["status"], "verdict": _plain(r["link_verdict"])}
        for r in found.tables.summary.to_dict("records")
    ]  # fmt: skip
    page = (
        _environment()
        .get_template("reproduction.html")
        .render(**_context(found, claims(found)), plots=plots, rows=rows)
    )
    path = found.tables.folder / "report.html"
    write_text(path, page)
    return path


def write_document(found: Reproduction, path: Path) -> Path:
    """Write the claims, tables and discussion as Markdown."""
    text = _environment().get_template("reproduction.md").render(**_context(found, claims(found)))
    write_text(path, text)
    return path


def write_places(found: Reproduction, path: Path) -> Path:
    """Write one row per model, network and method, with speed-up and efficiency, as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in found.cells.to_dict("records"):
        place = (row["model"], row["network"])
        gain = found.gain(place, row["method"]) if row["method"] != OURS else None
        row["netsense_is_faster"] = gain
        writer.writerow(_plain(row.get(column)) for column in _COLUMNS)
    write_text(path, out.getvalue())
    return path


def _plain(value: Any) -> str:
    if value is None or pd.isna(value):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
