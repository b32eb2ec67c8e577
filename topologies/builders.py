"""Common shapes of networks, each a function that returns a `Topology`.

Ranks sit on hosts ``h0 … h{ranks-1}``; `extra_hosts` adds ``x0, x1, …`` for cross traffic,
spread over the switches like the ranks. Every link is named ``"<a>-<b>"``, host first.
No builder makes a loop: plain bridges would flood it.

Common parameters
-----------------
ranks : int
    Hosts for ranks.
rate_mbps, delay_ms
    Of each host's own link, per direction and one way.
queue : Queue or dict, optional
    In front of each link; 1 BDP unless said otherwise.
extra_hosts : int
    Further hosts.
shape : keyword arguments
    Any further field of `Shape` (``loss_pct``, ``jitter_ms``, …), for every link.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from . import checks
from .checks import SpecError, choice, integer, known_keys, nearest, number
from .shape import SHAPE_FIELDS, Link, shape_values
from .spec import Host, Switch, Topology

__all__ = ["BUILDERS", "build", "dumbbell", "leaf_spine", "ring", "star", "tree", "two_sites"]


class _Draft:
    """A topology under construction; names links and applies the common shape."""

    def __init__(self, name: str, ranks: int, extra_hosts: int, shape: Mapping[str, Any]) -> None:
        self.name = name
        self.ranks = integer("ranks", ranks, 1, 4096)
        self.extra = integer("extra_hosts", extra_hosts, 0, 4096)
        self.shape = shape_values(known_keys("", shape, SHAPE_FIELDS))
        self.switches: list[str] = []
        self.links: list[Link] = []

    def switch(self, name: str) -> str:
        self.switches.append(name)
        return name

    def link(self, a: str, b: str, **own: Any) -> None:
        values = {k: v for k, v in own.items() if v is not None}
        self.links.append(Link(name=f"{a}-{b}", a=a, b=b, **{**self.shape, **values}))

    def attach(self, place: Callable[[int], str], extra: Callable[[int], str]) -> None:
        """Link rank i to switch ``place(i)`` and extra host i to ``extra(i)``."""
        for i in range(self.ranks):
            self.link(f"h{i}", place(i))
        for i in range(self.extra):
            self.link(f"x{i}", extra(i))

    def done(self) -> Topology:
        names = [f"h{i}" for i in range(self.ranks)] + [f"x{i}" for i in range(self.extra)]
        hosts = tuple(Host(n) for n in names)
        switches = tuple(Switch(n) for n in self.switches)
        return Topology(self.name, hosts, switches, tuple(self.links))


def _draft(
    name: str, ranks: int, rate: float, delay: float, queue: Any, extra: int, shape: Any
) -> _Draft:
    values = {"rate_mbps": rate, "delay_ms": delay, **shape}
    return _Draft(name, ranks, extra, values if queue is None else {**values, "queue": queue})


def star(
    ranks: int, *, rate_mbps: float, delay_ms: float, queue: Any = None, extra_hosts: int = 0,
    **shape: Any,
) -> Topology:  # fmt: skip
    """All hosts on one switch ``s0``."""
    draft = _draft("star", ranks, rate_mbps, delay_ms, queue, extra_hosts, shape)
    hub = draft.switch("s0")
    draft.attach(lambda i: hub, lambda i: hub)
    return draft.done()


def _two_sided(
    name: str, draft: _Draft, rate: float, delay: float, queue: Any, middle: str
) -> Topology:
    """Put the first half of the ranks on ``s0``, the rest on ``s1``, and join the two."""
    left, right = draft.switch("s0"), draft.switch("s1")
    half = (draft.ranks + 1) // 2
    draft.attach(lambda i: left if i < half else right, lambda i: right if i % 2 else left)
    checks.rate(f"{middle}_rate_mbps", rate)
    number(f"{middle}_delay_ms", delay, 0, 60_000, unit="ms")
    own = shape_values({} if queue is None else {"queue": queue})
    draft.link(left, right, rate_mbps=rate, delay_ms=delay, **own)
    return draft.done()


def dumbbell(
    ranks: int, *, rate_mbps: float, delay_ms: float, bottleneck_rate_mbps: float,
    bottleneck_delay_ms: float | None = None, bottleneck_queue: Any = None, queue: Any = None,
    extra_hosts: int = 0, **shape: Any,
) -> Topology:  # fmt: skip
    """Two switches ``s0`` and ``s1`` with a bottleneck between; half of the ranks on each.

    Extra hosts alternate: ``x0`` left, ``x1`` right.
    """
    draft = _draft("dumbbell", ranks, rate_mbps, delay_ms, queue, extra_hosts, shape)
    delay = delay_ms if bottleneck_delay_ms is None else bottleneck_delay_ms
    return _two_sided(
        "dumbbell", draft, bottleneck_rate_mbps, delay, bottleneck_queue, "bottleneck"
    )


def two_sites(
    ranks: int, *, rate_mbps: float, delay_ms: float, wan_rate_mbps: float, wan_delay_ms: float,
    wan_queue: Any = None, queue: Any = None, extra_hosts: int = 0, **shape: Any,
) -> Topology:  # fmt: skip
    """Two LANs joined by a WAN link ``s0-s1``; half of the ranks on each site."""
    draft = _draft("two_sites", ranks, rate_mbps, delay_ms, queue, extra_hosts, shape)
    return _two_sided("two_sites", draft, wan_rate_mbps, wan_delay_ms, wan_queue, "wan")


def ring(
    ranks: int, *, rate_mbps: float, delay_ms: float, trunk_rate_mbps: float | None = None,
    trunk_delay_ms: float | None = None, queue: Any = None, extra_hosts: int = 0, **shape: Any,
) -> Topology:  # fmt: skip
    """One switch per rank, each linked to the next, the last one NOT to the first.

    The cable that would close the ring is the one a spanning tree would block, so it is left
    out: neighbours are one trunk apart, ranks 0 and N-1 are the whole line apart.
    """
    draft = _draft("ring", ranks, rate_mbps, delay_ms, queue, extra_hosts, shape)
    names = [draft.switch(f"s{i}") for i in range(draft.ranks)]
    draft.attach(lambda i: names[i], lambda i: names[i % len(names)])
    for a, b in itertools.pairwise(names):
        draft.link(a, b, rate_mbps=trunk_rate_mbps, delay_ms=trunk_delay_ms)
    return draft.done()


def tree(
    ranks: int, *, rate_mbps: float, delay_ms: float, fanout: int = 2, depth: int = 2,
    trunk_rate_mbps: float | None = None, trunk_delay_ms: float | None = None, queue: Any = None,
    extra_hosts: int = 0, **shape: Any,
) -> Topology:  # fmt: skip
    """A tree of switches, `depth` levels with `fanout` children; ranks fill the leaves in turn.

    ``s0`` is the root; the last ``fanout ** (depth - 1)`` switches are the leaves.
    """
    draft = _draft("tree", ranks, rate_mbps, delay_ms, queue, extra_hosts, shape)
    integer("fanout", fanout, 1, 64)
    integer("depth", depth, 1, 6)
    level = [draft.switch("s0")]
    for _ in range(depth - 1):
        below = []
        for parent in level:
            for _ in range(fanout):
                child = draft.switch(f"s{len(draft.switches)}")
                draft.link(child, parent, rate_mbps=trunk_rate_mbps, delay_ms=trunk_delay_ms)
                below.append(child)
        level = below
    _spread(draft, level)
    return draft.done()


def _spread(draft: _Draft, leaves: list[str]) -> None:
    """Attach neighbouring ranks to the same leaf, extra hosts in turn."""
    each = -(-draft.ranks // len(leaves))
    draft.attach(lambda i: leaves[i // each], lambda i: leaves[i % len(leaves)])


def leaf_spine(
    ranks: int, *, rate_mbps: float, delay_ms: float, leaves: int = 2,
    oversubscription: float = 1.0, spine_delay_ms: float | None = None, queue: Any = None,
    extra_hosts: int = 0, **shape: Any,
) -> Topology:  # fmt: skip
    """Leaf switches ``s1 … s{leaves}`` below one spine ``s0``.

    Several spines would loop. One spine whose uplinks carry what all of them would together is
    the same network under ideal load balancing: the uplink of a leaf has the rate of the rank
    hosts below it divided by `oversubscription`.
    """
    draft = _draft("leaf_spine", ranks, rate_mbps, delay_ms, queue, extra_hosts, shape)
    integer("leaves", leaves, 1, draft.ranks)
    number("oversubscription", oversubscription, 0, 1000, above=True)
    checks.rate("rate_mbps", rate_mbps)
    spine = draft.switch("s0")
    names = [draft.switch(f"s{i + 1}") for i in range(leaves)]
    uplink = min(1_000_000.0, rate_mbps * -(-draft.ranks // leaves) / oversubscription)
    for leaf in names:
        draft.link(leaf, spine, rate_mbps=uplink, delay_ms=spine_delay_ms)
    _spread(draft, names)
    return draft.done()


BUILDERS: Mapping[str, Callable[..., Topology]] = {
    "dumbbell": dumbbell,
    "leaf_spine": leaf_spine,
    "ring": ring,
    "star": star,
    "tree": tree,
    "two_sites": two_sites,
}


def _override(topology: Topology, hosts: Any, links: Any) -> Topology:
    """Return `topology` with the named hosts and links changed."""
    data = topology.to_dict()
    for group, changes in (("hosts", hosts), ("links", links)):
        if not isinstance(changes, Mapping):
            raise SpecError(group, f"expected a mapping of {group[:-1]} names to changed fields")
        names = [entry["name"] for entry in data[group]]
        for name, fields in changes.items():
            if name not in names:
                hint = nearest(name, names) or f"; valid: {', '.join(names)}"
                raise SpecError(f"{group}.{name}", f"no such {group[:-1]}{hint}")
            valid = ["cpu", "memory_mb"] if group == "hosts" else [*SHAPE_FIELDS, "reverse"]
            entry = data[group][names.index(name)]
            entry.update(known_keys(f"{group}.{name}", fields, valid))
            try:
                Link.from_dict(entry) if group == "links" else Host(**entry)
            except SpecError as error:
                raise error.under(name).under(group) from None
    return Topology.from_dict(data)


def build(data: object, ranks: int) -> Topology:
    """Build the topology that plain data describes.

    Parameters
    ----------
    data : dict
        Either ``builder`` with that builder's parameters, and optionally ``hosts`` and
        ``links``, mappings from a name to fields that differ there (a slow link, a CPU limit);
        or an explicit graph with ``hosts``, ``switches`` and ``links`` lists.
    ranks : int
        How many ranks need a host.
    """
    if not isinstance(data, Mapping) or "builder" not in data:
        if isinstance(data, Mapping) and "links" not in data:
            raise SpecError("builder", f"is missing; valid: {', '.join(BUILDERS)}, or a graph")
        topology = Topology.from_dict(data)
    else:
        values = dict(data)
        builder = BUILDERS[choice("builder", values.pop("builder"), BUILDERS)]
        hosts, links = values.pop("hosts", {}), values.pop("links", {})
        own = [
            p.name
            for p in inspect.signature(builder).parameters.values()
            if p.kind != p.VAR_KEYWORD
        ]
        own.remove("ranks")
        needed = [p.name for p in inspect.signature(builder).parameters.values()
                  if p.default is p.empty and p.kind == p.KEYWORD_ONLY]  # fmt: skip
        known_keys("", values, dict.fromkeys([*own, *SHAPE_FIELDS, "hosts", "links"]), needed)
        topology = _override(builder(ranks, **values), hosts, links)
    wanted = [f"h{i}" for i in range(ranks)]
    if topology.rank_hosts() != wanted:
        found = ", ".join(topology.rank_hosts()) or "none"
        raise SpecError(
            "hosts", f"expected {wanted[0]} to {wanted[-1]}, one per rank; got {found}"
        )
    return topology
