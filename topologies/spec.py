"""Hosts, switches and the graph that links make of them."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from .checks import SpecError, boolean, integer, known_keys, nearest, number, shown, text
from .shape import FRAME_BYTES, Link

__all__ = ["Host", "Switch", "Topology"]

_INTERFACE_CHARS = 15  # Linux: IFNAMSIZ without the closing zero
_NAME = re.compile(r"[a-z][a-z0-9]*")
_RANK = re.compile(r"h(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Host:
    """A container-like machine.

    Parameters
    ----------
    name : str
        ``h<rank>`` for the host of a rank; any other name for further hosts.
    cpu : float, optional
        Share of one core, 0 to 1 per core; None is unlimited.
    memory_mb : int, optional
        Memory limit; None is unlimited.
    """

    name: str
    cpu: float | None = None
    memory_mb: int | None = None

    def __post_init__(self) -> None:
        if self.cpu is not None:
            number("cpu", self.cpu, 0, 4096, above=True, unit="cores")
        if self.memory_mb is not None:
            integer("memory_mb", self.memory_mb, 1)


@dataclass(frozen=True)
class Switch:
    """A learning bridge."""

    name: str


def _node(kind: type, data: object) -> Any:
    """Build a host or switch from its name or from a mapping of its fields."""
    if isinstance(data, str):
        return kind(data)
    fields = [f.name for f in dataclasses.fields(kind)]
    return kind(**known_keys("", data, fields, ["name"]))


def _rtt_ms(link: Link) -> float:
    """Return the delay of both directions together."""
    return link.delay_ms + link.shape(link.b).delay_ms


@dataclass(frozen=True)
class Topology:
    """A connected graph of hosts and switches.

    Parameters
    ----------
    name : str
        What it is called in records.
    hosts : tuple of Host
    switches : tuple of Switch
    links : tuple of Link
    stp : bool
        Whether the switches run the spanning tree protocol. Without it a loop of bridges
        circulates broadcasts for ever, so a graph with a loop is refused.

    Raises
    ------
    SpecError
        For a graph that is unconnected, loops, repeats a name, or names interfaces too long.
    """

    name: str
    hosts: tuple[Host, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    stp: bool = False

    def __post_init__(self) -> None:
        for name in ("hosts", "switches", "links"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        text("name", self.name)
        boolean("stp", self.stp)
        self._check_names()
        self._check_links()
        self._check_reach()

    def _check_names(self) -> None:
        seen: set[str] = set()
        for group in ("hosts", "switches"):
            for i, node in enumerate(getattr(self, group)):
                key = f"{group}.{i}.name"
                if not isinstance(node.name, str) or not _NAME.fullmatch(node.name):
                    raise SpecError(key, f"expected a-z then a-z0-9; got {shown(node.name)}")
                if node.name in seen:
                    raise SpecError(key, f"'{node.name}' is used twice")
                seen.add(node.name)
                ports = sum(node.name in (k.a, k.b) for k in self.links)
                if len(f"{node.name}-eth{ports}") > _INTERFACE_CHARS:
                    most = _INTERFACE_CHARS - len(f"-eth{ports}")
                    raise SpecError(
                        key,
                        f"'{node.name}' is too long for interface names; at most {most} letters",
                    )

    def _check_links(self) -> None:
        nodes = self.nodes()
        names: set[str] = set()
        for i, link in enumerate(self.links):
            if link.name in names:
                raise SpecError(f"links.{i}.name", f"'{link.name}' is used twice")
            names.add(link.name)
            for end in ("a", "b"):
                node = getattr(link, end)
                if node not in nodes:
                    hint = nearest(node, nodes) or f"; valid: {', '.join(nodes)}"
                    raise SpecError(f"links.{i}.{end}", f"'{node}' is no host or switch{hint}")
            if link.a == link.b:
                raise SpecError(f"links.{i}.b", f"expected another node than '{link.a}'")
        hosts = {h.name for h in self.hosts}
        for host in self.hosts:
            if sum(host.name in (k.a, k.b) for k in self.links) > 1:
                raise SpecError("links", f"host '{host.name}' has several links; expected one")
        if any(k.a in hosts and k.b in hosts for k in self.links) and len(self.links) > 1:
            raise SpecError("links", "a link between two hosts leaves the others unreachable")

    def _check_reach(self) -> None:
        if not self.hosts:
            raise SpecError("hosts", "expected at least one host")
        nodes = self.nodes()
        reached = set(self._tree(nodes[0]))
        lost = [n for n in nodes if n not in reached]
        if lost:
            raise SpecError("links", f"nothing connects {', '.join(lost)} with {nodes[0]}")
        if len(self.links) != len(nodes) - 1 and not self.stp:
            raise SpecError(
                "links", "the graph has a loop and bridges without stp flood it; set stp: true"
            )

    def nodes(self) -> list[str]:
        """Return the names of all hosts, then of all switches."""
        return [*(h.name for h in self.hosts), *(s.name for s in self.switches)]

    def rank_hosts(self) -> list[str]:
        """Return the hosts named ``h<rank>``, by rank."""
        ranks = [h.name for h in self.hosts if _RANK.fullmatch(h.name)]
        return sorted(ranks, key=lambda name: int(name[1:]))

    def link(self, name: str) -> Link:
        """Return the link called `name`."""
        for link in self.links:
            if link.name == name:
                return link
        names = [k.name for k in self.links]
        hint = nearest(name, names) or f"; valid: {', '.join(names)}"
        raise SpecError("link", f"no link '{name}'{hint}")

    def _tree(self, start: str) -> dict[str, Link | None]:
        """Return, for each node reachable from `start`, the link it is first reached by."""
        came: dict[str, Link | None] = {start: None}
        queue = [start]
        for node in queue:
            for link in self.links:
                if node in (link.a, link.b) and link.other(node) not in came:
                    came[link.other(node)] = link
                    queue.append(link.other(node))
        return came

    def path(self, a: str, b: str) -> list[tuple[Link, str]]:
        """Return the hops from `a` to `b` as (link, sending node); fewest hops under stp."""
        nodes = self.nodes()
        for node in (a, b):
            if node not in nodes:
                raise SpecError("", f"no host or switch '{node}'{nearest(node, nodes)}")
        came = self._tree(a)
        hops: list[tuple[Link, str]] = []
        node = b
        while (link := came[node]) is not None:
            node = link.other(node)
            hops.append((link, node))
        return hops[::-1]

    def rtt_ms(self, a: str, b: str) -> float:
        """Return the unloaded round trip from `a` to `b`, without serialization."""
        return sum(_rtt_ms(link) for link, _ in self.path(a, b))

    def bottleneck_mbps(self, a: str, b: str) -> float:
        """Return the smallest rate on the way from `a` to `b`."""
        rates = [k.shape(sender).rate_mbps for k, sender in self.path(a, b)]
        if not rates:
            raise SpecError("", f"'{a}' and '{b}' are the same host")
        return min(rates)

    def bdp_bytes(self, link: Link | str, sender: str | None = None) -> int:
        """Return rate times the longest round trip through `link`, in bytes.

        `sender` picks the direction; it defaults to the link's `a`.
        """
        link = self.link(link) if isinstance(link, str) else link
        longest = self._longest_rtt_ms(link)
        return round(link.shape(sender or link.a).rate_mbps * 1e6 / 8 * longest / 1e3)

    def _longest_rtt_ms(self, link: Link) -> float:
        """Return the longest round trip between two hosts whose path uses `link`."""
        names = [h.name for h in self.hosts]
        if not self.stp:  # a tree: the farthest host on either side, and the link itself
            near, far = (
                max(
                    (rtt for n, rtt in self._rtts_ms(end, link).items() if n in names),
                    default=None,
                )
                for end in (link.a, link.b)
            )
            return 0.0 if near is None or far is None else near + far + _rtt_ms(link)
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        used = [p for p in pairs if any(hop.name == link.name for hop, _ in self.path(*p))]
        return max((self.rtt_ms(a, b) for a, b in used), default=0.0)

    def _rtts_ms(self, start: str, without: Link) -> dict[str, float]:
        """Return the round trips from `start` to all nodes reachable without one link."""
        rtts = {start: 0.0}
        queue = [start]
        for node in queue:
            for link in self.links:
                if link is not without and node in (link.a, link.b):
                    other = link.other(node)
                    if other not in rtts:
                        rtts[other] = rtts[node] + _rtt_ms(link)
                        queue.append(other)
        return rtts

    def queue_bytes(self, link: Link | str, sender: str) -> int:
        """Return the depth of the queue in front of `link` at `sender`, in bytes.

        A multiple of the BDP is never resolved to less than two full frames.
        """
        link = self.link(link) if isinstance(link, str) else link
        queue = link.shape(sender).queue
        if queue.bytes is not None:
            return queue.bytes
        if queue.packets is not None:
            return queue.packets * FRAME_BYTES
        return max(2 * FRAME_BYTES, round((queue.bdp or 0) * self.bdp_bytes(link, sender)))

    @classmethod
    def from_dict(cls, data: object) -> Topology:
        """Build a topology from plain data; the inverse of `to_dict`."""
        fields = [f.name for f in dataclasses.fields(cls)]
        values = known_keys("", data, fields, ["hosts", "links"])
        kinds: dict[str, type] = {"hosts": Host, "switches": Switch, "links": Link}
        for group, kind in kinds.items():
            entries = values.get(group, [])
            if not isinstance(entries, (list, tuple)):
                raise SpecError(group, f"expected a list; got {type(entries).__name__}")
            made = []
            for i, entry in enumerate(entries):
                try:
                    made.append(Link.from_dict(entry) if kind is Link else _node(kind, entry))
                except SpecError as error:
                    raise error.under(i).under(group) from None
            values[group] = tuple(made)
        values.setdefault("name", "graph")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with every default written out."""
        return {
            "name": self.name,
            "hosts": [dataclasses.asdict(h) for h in self.hosts],
            "switches": [dataclasses.asdict(s) for s in self.switches],
            "links": [k.to_dict() for k in self.links],
            "stp": self.stp,
        }
