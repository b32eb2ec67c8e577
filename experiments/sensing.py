"""The picture of an adaptive method at work: bandwidth sensed against real, and its decisions."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .analysis import RunTables, ours_of
from .canvas import INK, canvas, legend_above
from .style import style_of

__all__ = ["real_rate", "sensing", "spans"]

_TRAFFIC = "#F3E3C0"
_FAULT = "#F2C6C6"
_CODECS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#882255", "#56B4E9")
_CODEC_MARKERS = ("o", "s", "^", "D", "v", "P")


def real_rate(links: pd.DataFrame) -> pd.DataFrame:
    """Return the rate of the slowest link at each time: columns ``t_s`` and ``rate_mbps``."""
    known = links[links["asked_rate_mbps"].notna()] if len(links) else links
    if known.empty:
        return pd.DataFrame({"t_s": [], "rate_mbps": []})
    slowest = known.groupby("t_s")["asked_rate_mbps"].min().reset_index()
    return slowest.rename(columns={"asked_rate_mbps": "rate_mbps"})


def spans(events: pd.DataFrame, end_s: float) -> list[tuple[float, float]]:
    """Return when cross traffic ran, as merged (start, stop) pairs.

    A flow lasts from its ``flow-start`` to its ``flow-stop``, or to `end_s` without one.
    """
    open_at: dict[Any, float] = {}
    found: list[tuple[float, float]] = []
    for event in events.sort_values("actual_s").itertuples() if len(events) else ():
        if event.kind == "flow-start":
            open_at[event.flow] = float(event.actual_s)
        elif event.kind == "flow-stop" and event.flow in open_at:
            found.append((open_at.pop(event.flow), float(event.actual_s)))
    found += [(start, end_s) for start in open_at.values()]
    merged: list[tuple[float, float]] = []
    for start, stop in sorted(found):
        if start >= end_s:
            continue
        stop = min(stop, end_s)
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _pick(tables: RunTables) -> tuple[str, int] | None:
    """Return the adaptive method's label and its first seed with steps."""
    label = ours_of(tables.summary)
    if label is None or tables.steps.empty:
        return None
    seeds = sorted(tables.steps.loc[tables.steps["method"] == label, "seed"].unique())
    return (label, int(seeds[0])) if seeds else None


def _of(frame: pd.DataFrame, label: str, seed: int) -> pd.DataFrame:
    if frame.empty:
        return frame
    return frame[(frame["method"] == label) & (frame["seed"] == seed)]


def sensing(tables: RunTables) -> Figure | None:
    """Draw estimates of rank 0 above, compression ratio and codec below, events shaded.

    The first seed is drawn; None when there is no adaptive method.
    """
    picked = _pick(tables)
    if picked is None:
        return None
    steps = _of(tables.steps, *picked)
    steps = steps[steps["rank"] == steps["rank"].min()].sort_values("step")
    end_s = float(steps["t_end_s"].max())
    figure, (above, below) = canvas(5.0, 2, sharex=True, height_ratios=[1.15, 1])
    shades = _shade([above, below], _of(tables.events, *picked), end_s)
    lines = _bandwidth(above, steps, _of(tables.links, *picked), end_s, picked[0])
    codecs = _decisions(below, steps)
    above.set_xlim(0, end_s)
    below.set_xlabel(f"training time, seconds ({picked[0]}, seed {picked[1]})")
    if handles := [*lines, *shades, *codecs]:
        legend_above(figure, handles, 3)
    return figure


def _shade(axes: list[Axes], events: pd.DataFrame, end_s: float) -> list[Any]:
    """Shade cross traffic and mark faults; return what the legend needs."""
    handles: list[Any] = []
    busy = spans(events, end_s)
    for ax in axes:
        for start, stop in busy:
            ax.axvspan(start, stop, color=_TRAFFIC, lw=0, zorder=0.2)
    if busy:
        handles.append(Patch(color=_TRAFFIC, label="cross traffic"))
    faults = (
        events[events["kind"].isin(["rank-killed", "host-paused", "fault"])]
        if len(events)
        else events
    )
    for at_s in sorted(set(faults["actual_s"])) if len(faults) else ():
        for ax in axes:
            ax.axvline(at_s, color=_FAULT, lw=2, zorder=0.3)
    if len(faults):
        handles.append(Line2D([], [], color=_FAULT, lw=2, label="fault"))
    return handles


def _bandwidth(
    ax: Axes, steps: pd.DataFrame, links: pd.DataFrame, end_s: float, label: str
) -> list[Any]:
    handles: list[Any] = []
    real = real_rate(links[links["t_s"] <= end_s] if len(links) else links)
    known = steps[steps["bandwidth_mbps"].notna()]
    if len(real):
        times = [*real["t_s"], end_s]
        rates = [*real["rate_mbps"], real["rate_mbps"].iloc[-1]]
        handles += ax.plot(
            times, rates, drawstyle="steps-post", color=INK, lw=1.5, label="link rate"
        )
    if len(known):
        style = style_of(label)
        handles += ax.plot(
            known["t_end_s"], known["bandwidth_mbps"], lw=0.8, marker="o", ms=2.6,
            color=style.colour, label="sensed",
        )  # fmt: skip
    else:
        ax.text(0.5, 0.5, "no estimate was recorded", transform=ax.transAxes, ha="center")
    top = max(real["rate_mbps"].max() if len(real) else 0.0, 0.0)
    seen = float(known["bandwidth_mbps"].max()) if len(known) else 0.0
    # A single wild estimate must not press the rest flat: it is cut off at twice the link rate.
    ax.set_ylim(0, 1.1 * (min(seen, 2 * top) if top and seen > top else max(top, seen, 1.0)))
    ax.set_ylabel("bandwidth, Mbit/s")
    return handles


def _decisions(ax: Axes, steps: pd.DataFrame) -> list[Any]:
    rows = steps[(steps["wire_bytes"] > 0) & (steps["dense_bytes"] > 0)]
    ax.set_ylabel("compression ratio")
    if rows.empty:
        ax.text(0.5, 0.5, "no bytes were recorded", transform=ax.transAxes, ha="center")
        return []
    ratio = rows["dense_bytes"] / rows["wire_bytes"]
    ax.plot(rows["t_end_s"], ratio, drawstyle="steps-pre", color="#B0B0B0", lw=0.9)
    handles = []
    codecs = [str(c) for c in rows["codec"].dropna().unique()]
    for i, codec in enumerate(sorted(codecs)):
        own = rows["codec"] == codec
        look: dict[str, Any] = {
            "color": _CODECS[i % 6],
            "marker": _CODEC_MARKERS[i % 6],
            "ls": "",
            "ms": 4,
        }
        handles += ax.plot(rows["t_end_s"][own], ratio[own], label=f"sent: {codec}", **look)
    ax.set_yscale("log")
    low, high = float(min(ratio.min(), 1)) * 0.7, float(max(ratio.max(), 10)) * 1.5
    ax.set_ylim(low, high)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}\u00d7")
    ax.yaxis.set_minor_formatter(lambda value, _: "")
    return handles
