"""Cross traffic: what else uses the network, expanded to timed flows."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import Any

from .checks import SpecError, choice, integer, known_keys, nearest, number, text
from .spec import Topology

__all__ = ["Flow", "Traffic", "expand_traffic"]

_KINDS = ("iperf3-tcp", "iperf3-udp")
_MOST_FLOWS = 10_000


@dataclass(frozen=True)
class Flow:
    """One run of a generator: it starts, sends for a while, and ends.

    Parameters
    ----------
    start_s, duration_s : float
        When and how long; `duration_s` None means until the training ends.
    kind : {"iperf3-tcp", "iperf3-udp"}
    source, sink : str
        Data flows from `source` to `sink`.
    flows : int
        Parallel connections.
    congestion_control : str, optional
        For TCP.
    rate_mbps : float, optional
        Limit, all parallel connections together; always set for UDP.
    """

    start_s: float
    duration_s: float | None
    kind: str
    source: str
    sink: str
    flows: int = 1
    congestion_control: str | None = None
    rate_mbps: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Traffic:
    """A source of cross traffic.

    Parameters
    ----------
    kind : {"iperf3-tcp", "iperf3-udp"}
    source, sink : str
        Data flows from host `source` to host `sink`.
    flows : int
        Parallel connections.
    congestion_control : str
        For TCP.
    rate_mbps : float, optional
        Sending rate; needed for UDP, a limit for TCP.
    start_s : float
        First start.
    stop_s : float, optional
        End; None is the end of the training, which bursts may not have.
    on_s, off_s : float, optional
        Bursts: send for `on_s`, be quiet for `off_s`, repeat.
    seed : int, optional
        With it each burst and pause is drawn evenly from 0.5 to 1.5 times its length.
    """

    kind: str
    source: str
    sink: str
    flows: int = 1
    congestion_control: str | None = None
    rate_mbps: float | None = None
    start_s: float = 0.0
    stop_s: float | None = None
    on_s: float | None = None
    off_s: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        choice("kind", self.kind, _KINDS)
        integer("flows", self.flows, 1, 128)  # iperf3's own limit
        if self.kind == "iperf3-udp":
            if self.rate_mbps is None:
                raise SpecError("rate_mbps", "is missing; iperf3-udp needs one")
            if self.congestion_control is not None:
                raise SpecError("congestion_control", "means nothing for iperf3-udp")
        if self.congestion_control is not None:
            text("congestion_control", self.congestion_control)
        if self.rate_mbps is not None:
            number("rate_mbps", self.rate_mbps, 0, 1_000_000, above=True, unit="Mbit/s")
        number("start_s", self.start_s, 0, unit="s")
        if self.stop_s is not None:
            number("stop_s", self.stop_s, self.start_s, above=True, unit="s (start_s)")
        if (self.on_s is None) != (self.off_s is None):
            raise SpecError(
                "off_s" if self.off_s is None else "on_s", "is missing; bursts need both"
            )
        if self.on_s is None and self.seed is not None:
            raise SpecError("seed", "means nothing without on_s and off_s")
        if self.on_s is not None:
            number("on_s", self.on_s, 0.01, unit="s")
            number("off_s", self.off_s, 0.01, unit="s")
            if self.stop_s is None:
                raise SpecError("stop_s", "is missing; bursts need an end")
        if self.seed is not None:
            integer("seed", self.seed, 0)

    def expand(self) -> list[Flow]:
        """Return the flows in order of time."""
        same = (self.kind, self.source, self.sink, self.flows, self.congestion_control)
        if self.on_s is None or self.off_s is None or self.stop_s is None:
            length = None if self.stop_s is None else round(self.stop_s - self.start_s, 6)
            return [Flow(float(self.start_s), length, *same, self.rate_mbps)]
        draw = None if self.seed is None else random.Random(self.seed)
        flows: list[Flow] = []
        now = float(self.start_s)
        while now < self.stop_s:
            on = self.on_s * (1 if draw is None else 0.5 + draw.random())
            off = self.off_s * (1 if draw is None else 0.5 + draw.random())
            length = round(min(on, self.stop_s - now), 6)
            if length >= 0.01:
                flows.append(Flow(round(now, 6), length, *same, self.rate_mbps))
            if len(flows) > _MOST_FLOWS:
                raise SpecError("stop_s", f"expands to more than {_MOST_FLOWS} flows")
            now += on + off
        return flows


def expand_traffic(entries: object, topology: Topology, end_s: float) -> list[Flow]:
    """Expand a scenario's traffic entries to flows, sorted by start.

    Parameters
    ----------
    entries : list of dict
        Fields of `Traffic`.
    topology : Topology
        Whose hosts the entries name.
    end_s : float
        No flow may start later.
    """
    if not isinstance(entries, (list, tuple)):
        raise SpecError("", f"expected a list; got {type(entries).__name__}")
    hosts = [h.name for h in topology.hosts]
    flows: list[Flow] = []
    for i, entry in enumerate(entries):
        try:
            flows += _traffic(entry, hosts, end_s).expand()
        except SpecError as error:
            raise error.under(i) from None
    return sorted(flows, key=lambda flow: flow.start_s)


def _traffic(entry: object, hosts: list[str], end_s: float) -> Traffic:
    fields = [f.name for f in dataclasses.fields(Traffic)]
    values = known_keys("", entry, fields, ["kind", "source", "sink"])
    for end in ("source", "sink"):
        if values[end] not in hosts:
            hint = nearest(values[end], hosts) or f"; valid: {', '.join(hosts)}"
            raise SpecError(end, f"no host {values[end]!r}{hint}")
    if values["source"] == values["sink"]:
        raise SpecError("sink", f"expected another host than '{values['source']}'")
    traffic = Traffic(**values)
    for name in ("start_s", "stop_s"):
        if (value := getattr(traffic, name)) is not None and value > end_s:
            raise SpecError(name, f"{value:g} s is after the end of the scenario ({end_s:g} s)")
    return traffic
