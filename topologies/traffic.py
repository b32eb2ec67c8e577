"""Cross traffic: what else uses the network, expanded to timed flows."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .checks import (
    SpecError,
    choice,
    integer,
    known_keys,
    nearest,
    number,
    rate,
    scalar,
    shown,
    text,
)
from .spec import Topology

__all__ = ["CONGESTION_CONTROLS", "Flow", "Job", "Traffic", "expand_jobs", "expand_traffic"]

#: what the guest's kernel is built with
CONGESTION_CONTROLS = ("bbr", "bic", "cubic", "dctcp", "htcp", "reno", "westwood")
_KINDS = ("iperf3-tcp", "iperf3-udp")
_TRAINING = "training"
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
    congestion_control : str, optional
        For TCP: one of `CONGESTION_CONTROLS`.
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
        choice("kind", self.kind, [*_KINDS, _TRAINING])
        integer("flows", self.flows, 1, 128)  # iperf3's own limit
        if self.kind == "iperf3-udp":
            if self.rate_mbps is None:
                raise SpecError("rate_mbps", "is missing; iperf3-udp needs one")
            if self.congestion_control is not None:
                raise SpecError("congestion_control", "means nothing for iperf3-udp")
        if self.congestion_control is not None:
            choice("congestion_control", self.congestion_control, CONGESTION_CONTROLS)
        if self.rate_mbps is not None:
            rate("rate_mbps", self.rate_mbps)
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


@dataclass(frozen=True)
class Job:
    """Another training job beside the one under test, on hosts of its own.

    Parameters
    ----------
    hosts : tuple of str
        A rank on each.
    method : str
        How it compresses.
    options : dict
        Of its method.
    name : str
        For its records.
    task : str, optional
        What it trains; None is what the job under test trains.
    batch_size, steps : int, optional
        None is the batch size of the job under test, and as many steps as there is time for.
    start_s : float
        When it begins.
    seed : int
    """

    hosts: tuple[str, ...]
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    name: str = "rival"
    task: str | None = None
    batch_size: int | None = None
    steps: int | None = None
    start_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.hosts, (list, tuple)) or len(self.hosts) < 2:
            raise SpecError(
                "hosts", f"expected a list of at least two hosts; got {shown(self.hosts)}"
            )
        object.__setattr__(self, "hosts", tuple(self.hosts))
        for name in ("method", "name"):
            text(name, getattr(self, name))
        if not re.fullmatch(r"[a-z0-9-]+", self.name):
            raise SpecError("name", f"expected a-z, 0-9 and -; got {shown(self.name)}")
        if not isinstance(self.options, dict):
            raise SpecError("options", f"expected a mapping; got {shown(self.options)}")
        for name, value in self.options.items():
            scalar(f"options.{text('options', name)}", value)
        if self.task is not None:
            text("task", self.task)
        for name in ("batch_size", "steps"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), 1)
        number("start_s", self.start_s, 0, unit="s")
        integer("seed", self.seed, 0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**dataclasses.asdict(self), "hosts": list(self.hosts)}


def _is_job(entry: object) -> bool:
    return isinstance(entry, Mapping) and entry.get("kind") == _TRAINING


def expand_jobs(entries: object, topology: Topology, end_s: float) -> list[Job]:
    """Return the training jobs among a scenario's traffic entries: those of kind ``training``.

    Parameters
    ----------
    entries : list of dict
        ``kind: training`` and fields of `Job`; other kinds are left to `expand_traffic`.
    topology : Topology
        Whose hosts the entries name; those of the job under test are taken.
    end_s : float
        No job may start later.
    """
    free = [h.name for h in topology.hosts if h.name not in topology.rank_hosts()]
    jobs: list[Job] = []
    for i, entry in enumerate(entries if isinstance(entries, (list, tuple)) else []):
        if not _is_job(entry):
            continue
        try:
            fields = [f.name for f in dataclasses.fields(Job)]
            values = known_keys("", entry, ["kind", *fields], ["hosts", "method"])
            values.pop("kind")
            job = Job(**values)
            for host in job.hosts:
                if host not in free:
                    hint = nearest(host, free) or f"; free: {', '.join(free) or 'none'}"
                    raise SpecError("hosts", f"{shown(host)} is not free for a job{hint}")
                free.remove(host)
            if job.name in [other.name for other in jobs]:
                raise SpecError("name", f"'{job.name}' is used twice")
            if job.start_s > end_s:
                raise SpecError("start_s", f"{job.start_s:g} s is after the end ({end_s:g} s)")
        except SpecError as error:
            raise error.under(i) from None
        jobs.append(job)
    return jobs


def expand_traffic(entries: object, topology: Topology, end_s: float) -> list[Flow]:
    """Expand a scenario's traffic entries to flows, sorted by start.

    Parameters
    ----------
    entries : list of dict
        Fields of `Traffic`; those of kind ``training`` are left to `expand_jobs`.
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
        if _is_job(entry):
            continue
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
            raise SpecError(end, f"no host {shown(values[end])}{hint}")
    if values["source"] == values["sink"]:
        raise SpecError("sink", f"expected another host than '{values['source']}'")
    traffic = Traffic(**values)
    for name in ("start_s", "stop_s"):
        if (value := getattr(traffic, name)) is not None and value > end_s:
            raise SpecError(name, f"{value:g} s is after the end of the scenario ({end_s:g} s)")
    return traffic
