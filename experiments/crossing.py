"""Pictures over networks and methods: the efficiency heat map, and the break-even chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .canvas import INK, canvas, legend_above, plain_log
from .style import INVALID, marker_size, style_of

__all__ = ["Value", "break_even", "heat_map"]

#: A number, or why there is none ("" where none was planned).
Value = float | str

# from white to one blue: lightness alone orders it, whoever looks
_BLUES = LinearSegmentedColormap.from_list("share", ["#FFFFFF", "#9FC6E0", "#2B6CA3", "#08306B"])


def heat_map(values: Mapping[str, Mapping[str, Value]], methods: Sequence[str]) -> Figure | None:
    """Draw shares in [0, 1], a row per network and a column per method.

    Parameters
    ----------
    values : dict of str to dict of str to float or str
        By row, then by method.
    methods : sequence of str
        Columns.

    Returns
    -------
    Figure or None
        None without any number. A cell without one is hatched, and says why.
    """
    numbers = [v for row in values.values() for v in row.values() if isinstance(v, float)]
    if not numbers:
        return None
    figure, (ax,) = canvas(1.35 + 0.36 * len(values))
    for y, row in enumerate(values.values()):
        for x, method in enumerate(methods):
            _square(ax, x, y, row.get(method, ""))
    ax.set_xlim(-0.5, len(methods) - 0.5)
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.set_yticks(range(len(values)), list(values))
    ax.set_xticks(range(len(methods)), list(methods), rotation=35, ha="right")
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_title("efficiency: compute time / step time", fontsize=9.5, loc="left")
    return figure


def _square(ax: Axes, x: int, y: int, value: Value) -> None:
    if isinstance(value, float):
        ax.barh(y, 0.96, 0.92, left=x - 0.48, color=_BLUES(min(1.0, max(0.0, value))))
        ink = "white" if value > 0.55 else "black"
        text = f"{value:.2f}" if value >= 0.095 else f"{value:.3f}".removeprefix("0")
        ax.text(x, y, text, ha="center", va="center", color=ink, fontsize=8)
    elif value:
        ax.barh(y, 0.96, 0.92, left=x - 0.48, color="none", edgecolor=INVALID, hatch="////", lw=0)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        ax.text(x, y, value.split(" ")[0], ha="center", va="center", fontsize=6.5, bbox=box)


def break_even(
    panels: Mapping[str, Mapping[str, Mapping[float, float]]], dense: str = "allreduce"
) -> Figure | None:
    """Draw how many times as fast as dense each method trains, over the rate of the links.

    Parameters
    ----------
    panels : dict
        By model, method and rate (Mbit/s): throughput.
    dense : str
        The method that stands at 1.

    Returns
    -------
    Figure or None
        None where no method can be compared with dense. Above 1 a method pays.
    """
    ratios = {model: _over_dense(methods, dense) for model, methods in panels.items()}
    ratios = {model: methods for model, methods in ratios.items() if methods}
    if not ratios:
        return None
    figure, axes = canvas(0.9 + 2.5 * len(ratios), len(ratios), sharex=True)
    shown: list[str] = []
    for ax, (model, methods) in zip(axes, ratios.items(), strict=True):
        for method, points in methods.items():
            style = style_of(method)
            ax.plot(list(points), list(points.values()), color=style.colour, marker=style.marker,
                    ms=marker_size(style), mec="white", mew=0.5, lw=1.4)  # fmt: skip
            shown += [method] if method not in shown else []
        ax.axhline(1, color=INK, lw=1.2, ls=(0, (4, 3)))
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(model, fontsize=9.5, loc="left")
        low, high = ax.get_ylim()
        plain_log(ax.yaxis, low, high)
        ax.set_ylabel("times as fast as dense")
    rates = sorted({r for methods in ratios.values() for p in methods.values() for r in p})
    ticks = _apart(rates)
    axes[-1].set_xticks(ticks, [_rate(rate) for rate in ticks])
    axes[-1].xaxis.set_minor_formatter(lambda value, _: "")
    axes[-1].set_xlabel("rate of the links, bit/s")
    handles = [
        Line2D([], [], color=style_of(m).colour, marker=style_of(m).marker, label=m, mec="white",
               ms=marker_size(style_of(m)), mew=0.5, lw=1.4)
        for m in shown
    ]  # fmt: skip
    handles.append(Line2D([], [], color=INK, lw=1.2, ls=(0, (4, 3)), label=f"{dense}: break-even"))
    legend_above(figure, handles, 3)
    return figure


def _over_dense(
    methods: Mapping[str, Mapping[float, float]], dense: str
) -> dict[str, dict[float, float]]:
    base = methods.get(dense, {})
    found = {}
    for method, points in methods.items():
        known = {rate: points[rate] / base[rate] for rate in sorted(points) if base.get(rate)}
        if method != dense and known:
            found[method] = known
    return found


def _apart(rates: list[float]) -> list[float]:
    """Return those of sorted rates whose labels have room on a logarithmic axis."""
    least = (rates[-1] / rates[0]) ** (1 / 9)
    kept = rates[:1]
    for rate in rates[1:]:
        if rate >= least * kept[-1]:
            kept.append(rate)
    return kept


def _rate(rate_mbps: float) -> str:
    return f"{rate_mbps / 1000:.4g} G" if rate_mbps >= 1000 else f"{rate_mbps:.4g} M"
