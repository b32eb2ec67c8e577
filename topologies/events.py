"""What happens to a network over time, expanded to single changes.

A scenario lists entries such as ``{kind: square, links: "h*-s0", field: rate_mbps, …}``;
`expand_events` turns them into `LinkEvent` and `Fault` records sorted by time. Expansion
depends on nothing but the entry: random walks carry their own seed.
"""

from __future__ import annotations

import fnmatch
import inspect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .checks import (
    RATES_MBPS,
    SpecError,
    boolean,
    choice,
    integer,
    known_keys,
    nearest,
    number,
    shown,
    text,
)
from .spec import Topology
from .traces import read_trace

__all__ = ["KINDS", "Fault", "LinkEvent", "expand_events"]

_LIMITS = {
    "rate_mbps": RATES_MBPS,
    "delay_ms": (0.0, 60_000.0),
    "jitter_ms": (0.0, 60_000.0),
    "loss_pct": (0.0, 100.0),
}
_MOST_EVENTS = 100_000


@dataclass(frozen=True)
class LinkEvent:
    """A change of a link, made in place.

    Parameters
    ----------
    at_s : float
        When, in seconds since the first training step.
    link : str
        Name of the link.
    changes : dict
        New values of ``rate_mbps``, ``delay_ms``, ``jitter_ms``, ``loss_pct``, or ``up``.
    sender : str, optional
        Only the direction in which this node sends; None is both.
    """

    at_s: float
    link: str
    changes: dict[str, float | bool]
    sender: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with ``kind``."""
        return {"kind": "link", **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LinkEvent:
        """Make an event from what `to_dict` returns."""
        return cls(data["at_s"], data["link"], dict(data["changes"]), data.get("sender"))


@dataclass(frozen=True)
class Fault:
    """Something breaks: a rank is killed for good, or a host is paused for a while.

    Parameters
    ----------
    at_s : float
        When, in seconds since the first training step.
    kind : {"rank-killed", "host-paused"}
    host : str
        Where.
    duration_s : float, optional
        Length of a pause.
    """

    at_s: float
    kind: str
    host: str
    duration_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def _value(field: str, value: object, key: str | None = None) -> float:
    choice("field", field, _LIMITS)
    return number(key or field, value, *_LIMITS[field])


def _times(start_s: object, stop_s: object, every_s: object) -> list[float]:
    """Return start_s, start_s + every_s, … up to and including stop_s."""
    start = number("start_s", start_s, 0, unit="s")
    stop = number("stop_s", stop_s, start, above=True, unit="s (start_s)")
    every = number("every_s", every_s, 0, above=True, unit="s")
    count = (stop - start) / every + 1e-9
    if count > _MOST_EVENTS:
        raise SpecError("every_s", f"expands to {count:.6g} changes; at most {_MOST_EVENTS}")
    return [round(start + i * every, 6) for i in range(math.floor(count) + 1)]


def _links(topology: Topology, patterns: object) -> list[str]:
    """Return the links matching a name, a glob pattern, or a list of these."""
    listed = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(listed, Sequence) or not listed:
        raise SpecError("links", "expected a link name, a pattern such as 'h*-s0', or a list")
    names = [k.name for k in topology.links]
    found: list[str] = []
    for pattern in listed:
        matches = fnmatch.filter(names, pattern) if isinstance(pattern, str) else []
        if not matches:
            hint = nearest(pattern, names) or f"; valid: {', '.join(names)}"
            raise SpecError("links", f"no link matches {shown(pattern)}{hint}")
        found += [m for m in matches if m not in found]
    return found


def _nodes(topology: Topology, value: object) -> list[str]:
    valid = topology.nodes()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, Sequence) or not listed:
        raise SpecError("nodes", "expected a node name or a list of them")
    for node in listed:
        if node not in valid:
            hint = nearest(node, valid) or f"; valid: {', '.join(valid)}"
            raise SpecError("nodes", f"no host or switch {shown(node)}{hint}")
    return list(listed)


def _rank_host(topology: Topology, value: object) -> str:
    """Return the name of a host that holds a rank: on others there is nothing to stop."""
    valid = topology.rank_hosts()
    if not isinstance(value, str) or value not in valid:
        hint = nearest(value, valid)
        raise SpecError(
            "host", f"expected a host with a rank ({', '.join(valid)}); got {shown(value)}{hint}"
        )
    return value


Made = list["LinkEvent | Fault"]


def _each(
    topology: Topology, links: object, sender: object, steps: list[tuple[float, dict[str, Any]]]
) -> Made:
    """Return one event per link and step; refuse a `sender` that is not on the link."""
    made: Made = []
    for name in _links(topology, links):
        link = topology.link(name)
        if sender is not None and sender not in (link.a, link.b):
            raise SpecError("sender", f"expected {link.a} or {link.b}; got {shown(sender)}")
        made += [LinkEvent(t, name, dict(changes), sender) for t, changes in steps]  # type: ignore[arg-type]
    return made


def _set(
    topology: Topology, *, at_s: Any, links: Any, rate_mbps: Any = None, delay_ms: Any = None,
    jitter_ms: Any = None, loss_pct: Any = None, up: Any = None, sender: Any = None,
) -> Made:  # fmt: skip
    """Set new values at one time."""
    given = dict(rate_mbps=rate_mbps, delay_ms=delay_ms, jitter_ms=jitter_ms, loss_pct=loss_pct)
    changes: dict[str, Any] = {k: _value(k, v) for k, v in given.items() if v is not None}
    if up is not None:
        changes["up"] = boolean("up", up)
    if not changes:
        raise SpecError("", f"changes nothing; give one of {', '.join([*_LIMITS, 'up'])}")
    return _each(topology, links, sender, [(number("at_s", at_s, 0, unit="s"), changes)])


def _ramp(
    topology: Topology, *, links: Any, field: Any, start_s: Any, stop_s: Any, every_s: Any,
    from_value: Any, to_value: Any, sender: Any = None,
) -> Made:  # fmt: skip
    """Go from one value to another in equal steps."""
    first, last = _value(field, from_value, "from_value"), _value(field, to_value, "to_value")
    times = _times(start_s, stop_s, every_s)
    share = [i / max(1, len(times) - 1) for i in range(len(times))]
    steps = [
        (t, {field: round(first + s * (last - first), 6)})
        for t, s in zip(times, share, strict=True)
    ]
    return _each(topology, links, sender, steps)


def _square(
    topology: Topology, *, links: Any, field: Any, start_s: Any, stop_s: Any, low: Any, low_s: Any,
    high: Any, high_s: Any, sender: Any = None,
) -> Made:  # fmt: skip
    """Alternate: `low` for `low_s`, `high` for `high_s`, and `high` again at the end."""
    first, second = _value(field, low, "low"), _value(field, high, "high")
    low_s = number("low_s", low_s, 0, above=True, unit="s")
    high_s = number("high_s", high_s, 0, above=True, unit="s")
    steps = []
    for t in _times(start_s, stop_s, low_s + high_s):
        if t < stop_s:
            steps.append((t, {field: first}))
        if t + low_s < stop_s:
            steps.append((round(t + low_s, 6), {field: second}))
    if steps[-1][1] == {field: first}:
        steps.append((float(stop_s), {field: second}))
    return _each(topology, links, sender, steps)


def _walk(
    topology: Topology, *, links: Any, field: Any, start_s: Any, stop_s: Any, every_s: Any,
    from_value: Any, low: Any, high: Any, step_pct: Any, seed: Any, sender: Any = None,
) -> Made:  # fmt: skip
    """Multiply by a random factor within `step_pct` each time, held between two bounds.

    All links of one entry take the same walk.
    """
    value = _value(field, from_value, "from_value")
    least, most = _value(field, low, "low"), _value(field, high, "high")
    if not least <= value <= most:
        raise SpecError("from_value", f"expected low ({least:g}) to high ({most:g})")
    size = number("step_pct", step_pct, 0, 90, above=True, unit="percent") / 100
    draw = random.Random(integer("seed", seed, 0))
    steps = []
    for t in _times(start_s, stop_s, every_s):
        steps.append((t, {field: round(value, 6)}))
        value = min(most, max(least, value * (1 + size * (2 * draw.random() - 1))))
    return _each(topology, links, sender, steps)


def _trace(
    topology: Topology, *, links: Any, file: Any, stop_s: Any, start_s: Any = 0.0,
    every_s: Any = 0.1, format: Any = "auto", scale: Any = 1.0, least_mbps: Any = 0.1,
    sender: Any = None,
) -> Made:  # fmt: skip
    """Replay a recorded rate, repeated until `stop_s`; rates below `least_mbps` become it."""
    recorded, length_s = read_trace(file, format, every_s)
    start = number("start_s", start_s, 0, unit="s")
    stop = number("stop_s", stop_s, start, above=True, unit="s (start_s)")
    factor = number("scale", scale, 0, above=True)
    least = _value("rate_mbps", least_mbps, "least_mbps")
    if len(recorded) * (stop - start) / length_s > _MOST_EVENTS:
        raise SpecError("stop_s", f"expands to more than {_MOST_EVENTS} changes")
    steps: list[tuple[float, dict[str, Any]]] = []
    offset = start
    while offset < stop:
        for time_s, rate_mbps in recorded:
            rate = max(least, round(rate_mbps * factor, 6))
            changed = not steps or steps[-1][1]["rate_mbps"] != rate
            if offset + time_s < stop and changed:
                steps.append((round(offset + time_s, 6), {"rate_mbps": rate}))
        offset += length_s
    return _each(topology, links, sender, steps)


def _partition(topology: Topology, *, nodes: Any, at_s: Any, until_s: Any) -> Made:
    """Take down every link between `nodes` and the rest, then bring them up again."""
    group = set(_nodes(topology, nodes))
    cut = [k.name for k in topology.links if (k.a in group) != (k.b in group)]
    if not cut:
        raise SpecError("nodes", "expected some but not all nodes")
    start = number("at_s", at_s, 0, unit="s")
    stop = number("until_s", until_s, start, above=True, unit="s (at_s)")
    return _each(topology, cut, None, [(start, {"up": False}), (stop, {"up": True})])


def _rank_killed(topology: Topology, *, host: Any, at_s: Any) -> Made:
    """Kill the rank on one host, for good."""
    name = _rank_host(topology, host)
    return [Fault(number("at_s", at_s, 0, unit="s"), "rank-killed", name)]


def _host_paused(topology: Topology, *, host: Any, at_s: Any, duration_s: Any) -> Made:
    """Stop all processes of one rank's host for a while."""
    name = _rank_host(topology, host)
    length = number("duration_s", duration_s, 0, above=True, unit="s")
    return [Fault(number("at_s", at_s, 0, unit="s"), "host-paused", name, length)]


KINDS: Mapping[str, Callable[..., Made]] = {
    "host-paused": _host_paused,
    "partition": _partition,
    "ramp": _ramp,
    "rank-killed": _rank_killed,
    "set": _set,
    "square": _square,
    "trace": _trace,
    "walk": _walk,
}


def expand_events(
    entries: object, topology: Topology, end_s: float, folder: Path | None = None
) -> list[LinkEvent | Fault]:
    """Expand a scenario's event entries to single changes, sorted by time.

    Parameters
    ----------
    entries : list of dict
        Each with ``kind`` (``set`` if left out) and that kind's fields; see `KINDS`.
    topology : Topology
        Whose links and hosts the entries name.
    end_s : float
        No event may come later.
    folder : Path, optional
        What the ``file`` of a trace is relative to.
    """
    if not isinstance(entries, (list, tuple)):
        raise SpecError("", f"expected a list; got {type(entries).__name__}")
    made: Made = []
    for i, entry in enumerate(entries):
        try:
            made += _expand_one(entry, topology, end_s, folder)
        except SpecError as error:
            raise error.under(i) from None
    return sorted(made, key=lambda event: event.at_s)


def _expand_one(entry: object, topology: Topology, end_s: float, folder: Path | None) -> Made:
    values = dict(entry) if isinstance(entry, Mapping) else known_keys("", entry, ["kind"])
    expand = KINDS[choice("kind", values.pop("kind", "set"), KINDS)]
    fields = list(inspect.signature(expand).parameters.values())[1:]
    needed = [p.name for p in fields if p.default is p.empty]
    known_keys("", values, [*(p.name for p in fields), "kind"], needed)
    if "file" in values:
        values["file"] = (folder or Path()) / text("file", values["file"])
    made = expand(topology, **values)
    late = max((e.at_s for e in made), default=0.0)
    if late > end_s:
        key = "at_s" if "at_s" in values else "stop_s"
        raise SpecError(key, f"{late:g} s is after the end of the scenario ({end_s:g} s)")
    return made
