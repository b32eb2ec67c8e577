"""Queues, losses and links: what happens to a frame between two nodes.

A link has two directions. Its own fields shape the direction from `a` to `b`; `reverse` holds
what differs on the way back. Rate is per direction, delay is one way and per link: in a star
with 15 ms links a ping takes 60 ms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .checks import SpecError, boolean, choice, integer, known_keys, number, rate, text

__all__ = [
    "AQMS",
    "FRAME_BYTES",
    "SHAPE_FIELDS",
    "GilbertElliott",
    "Link",
    "Queue",
    "Shape",
    "shape_dict",
    "shape_values",
]

FRAME_BYTES = 1514  # a full Ethernet frame at MTU 1500, as the queue counts it
AQMS = ("pfifo", "bfifo", "red", "fq_codel")


@dataclass(frozen=True)
class Queue:
    """Depth of a link's queue, given in exactly one of three ways.

    Parameters
    ----------
    bytes : int, optional
        Depth in bytes.
    packets : int, optional
        Depth in full frames of 1514 bytes.
    bdp : float, optional
        Depth as a multiple of the bandwidth-delay product: the link's rate times the longest
        round trip between two hosts whose path uses the link.
    """

    bytes: int | None = None
    packets: int | None = None
    bdp: float | None = None

    def __post_init__(self) -> None:
        given = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) is not None]
        if len(given) != 1:
            raise SpecError("", "expected exactly one of bytes, packets, bdp")
        if self.bytes is not None:
            integer("bytes", self.bytes, FRAME_BYTES)
        if self.packets is not None:
            integer("packets", self.packets, 1, 1_000_000)
        if self.bdp is not None:
            number("bdp", self.bdp, 0, 1000, above=True)

    @classmethod
    def from_dict(cls, data: object) -> Queue:
        """Build a queue from ``{"bytes": …}``, ``{"packets": …}`` or ``{"bdp": …}``."""
        if isinstance(data, cls):
            return data
        return cls(**known_keys("", data, ["bytes", "packets", "bdp"]))

    def to_dict(self) -> dict[str, Any]:
        """Return the one field that is set."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


@dataclass(frozen=True)
class GilbertElliott:
    """Bursty loss: a two-state chain, stepped per packet.

    Parameters
    ----------
    p_pct : float
        Chance of going from good to bad, percent per packet.
    r_pct : float
        Chance of going from bad to good, percent per packet.
    loss_bad_pct, loss_good_pct : float
        Loss within each state, percent.

    Notes
    -----
    As netem's ``loss gemodel``; Gilbert (1960) and Elliott (1963), Bell System Technical
    Journal.
    """

    p_pct: float
    r_pct: float
    loss_bad_pct: float = 100.0
    loss_good_pct: float = 0.0

    def __post_init__(self) -> None:
        number("p_pct", self.p_pct, 0, 100, above=True, unit="percent")
        number("r_pct", self.r_pct, 0, 100, above=True, unit="percent")
        number("loss_bad_pct", self.loss_bad_pct, 0, 100, unit="percent")
        number("loss_good_pct", self.loss_good_pct, 0, 100, unit="percent")

    @property
    def mean_loss_pct(self) -> float:
        """Long-run loss in percent."""
        bad = self.p_pct / (self.p_pct + self.r_pct)
        return bad * self.loss_bad_pct + (1 - bad) * self.loss_good_pct

    @classmethod
    def from_dict(cls, data: object) -> GilbertElliott | None:
        """Build from ``{"kind": "gilbert-elliott", …}``; ``independent`` or null give None."""
        if data is None or isinstance(data, cls):
            return data
        if data == "independent":
            return None
        fields = [f.name for f in dataclasses.fields(cls)]
        values = known_keys("", data, ["kind", *fields], ["kind"])
        kind = choice("kind", values.pop("kind"), ["independent", "gilbert-elliott"])
        if kind == "independent":
            known_keys("", values, [])
            return None
        known_keys("", values, fields, ["p_pct", "r_pct"])
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields with ``kind``."""
        return {"kind": "gilbert-elliott", **dataclasses.asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What one direction of a link does to frames.

    Parameters
    ----------
    rate_mbps : float
        Layer-2 rate, 1 Mbit = 1 000 000 bit; at least 0.001.
    delay_ms : float
        One-way delay.
    loss_pct : float
        Independent loss per frame; 0 with a `loss_model`.
    jitter_ms : float
        Spread of the delay.
    jitter_keeps_order : bool
        Whether frames keep their order under jitter. If not, TCP sees reordering as loss.
    reorder_pct, duplicate_pct, corrupt_pct : float
        Share of frames treated so, percent.
    loss_model : GilbertElliott, optional
        Bursty instead of independent loss.
    queue : Queue
        Depth of the queue in front of the rate limit; 1 BDP unless said otherwise.
    aqm : {"pfifo", "bfifo", "red", "fq_codel"}
        How the queue is managed: first in, first out and full is full; the same in bytes, for
        rates that change: what is queued leaves at the rate of now, not at that of when it came;
        random early detection between a sixth and a half of its depth; or fair queueing with
        controlled delay.
    ecn : bool
        Whether a managed queue marks frames instead of dropping them; hosts then speak ECN.
    """

    rate_mbps: float
    delay_ms: float
    loss_pct: float = 0.0
    jitter_ms: float = 0.0
    jitter_keeps_order: bool = True
    reorder_pct: float = 0.0
    duplicate_pct: float = 0.0
    corrupt_pct: float = 0.0
    loss_model: GilbertElliott | None = None
    queue: Queue = field(default_factory=lambda: Queue(bdp=1.0))
    aqm: str = "pfifo"
    ecn: bool = False

    def __post_init__(self) -> None:
        rate("rate_mbps", self.rate_mbps)
        number("delay_ms", self.delay_ms, 0, 60_000, unit="ms")
        number("jitter_ms", self.jitter_ms, 0, 60_000, unit="ms")
        boolean("jitter_keeps_order", self.jitter_keeps_order)
        for name in ("loss_pct", "reorder_pct", "duplicate_pct", "corrupt_pct"):
            number(name, getattr(self, name), 0, 100, unit="percent")
        if self.jitter_ms > self.delay_ms:
            raise SpecError("jitter_ms", f"expected at most delay_ms ({self.delay_ms:g})")
        if self.reorder_pct and not self.delay_ms:
            raise SpecError("reorder_pct", "expected delay_ms above 0: nothing to overtake")
        if self.loss_model is not None and self.loss_pct:
            raise SpecError("loss_pct", "expected 0 beside a loss_model")
        if not isinstance(self.queue, Queue):
            raise SpecError("queue", "expected one of bytes, packets, bdp")
        choice("aqm", self.aqm, AQMS)
        if boolean("ecn", self.ecn) and self.aqm in ("pfifo", "bfifo"):
            raise SpecError("ecn", "expected an aqm that marks: red or fq_codel")

    @property
    def mean_loss_pct(self) -> float:
        """Long-run loss in percent, whatever the model."""
        return self.loss_pct if self.loss_model is None else self.loss_model.mean_loss_pct


SHAPE_FIELDS = tuple(f.name for f in dataclasses.fields(Shape))


def shape_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` with its nested queue and loss model turned into objects."""
    values = dict(data)
    for name, make in (("queue", Queue.from_dict), ("loss_model", GilbertElliott.from_dict)):
        if name in values:
            try:
                values[name] = make(values[name])
            except SpecError as error:
                raise error.under(name) from None
    return values


def shape_dict(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with nested objects turned into plain dicts."""
    return {k: v.to_dict() if hasattr(v, "to_dict") else v for k, v in values.items()}


@dataclass(frozen=True, kw_only=True)
class Link(Shape):
    """A cable between nodes `a` and `b`, shaped in both directions.

    Parameters
    ----------
    name : str
        Unique name; builders use ``"<a>-<b>"``.
    a, b : str
        The nodes it joins. The inherited fields shape a to b.
    reverse : dict
        Fields of `Shape` that differ from b to a, for asymmetric links.
    """

    name: str
    a: str
    b: str
    reverse: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text("name", self.name)
        text("a", self.a)
        text("b", self.b)
        super().__post_init__()
        try:
            values = shape_values(known_keys("", self.reverse, SHAPE_FIELDS))
            object.__setattr__(self, "reverse", values)
            self.shape(self.b)
        except SpecError as error:
            raise error.under("reverse") from None

    def other(self, node: str) -> str:
        """Return the node at the other end."""
        return self.b if node == self.a else self.a

    def shape(self, sender: str) -> Shape:
        """Return the shape of frames that `sender` puts on this link."""
        values = {name: getattr(self, name) for name in SHAPE_FIELDS}
        if sender == self.b:
            values.update(self.reverse)
        return Shape(**values)

    def directions(self) -> Iterator[tuple[str, str, Shape]]:
        """Yield (sender, receiver, shape) for a to b, then b to a."""
        yield self.a, self.b, self.shape(self.a)
        yield self.b, self.a, self.shape(self.b)

    @classmethod
    def from_dict(cls, data: object) -> Link:
        """Build a link from plain data; the name defaults to ``"<a>-<b>"``."""
        valid = ["name", "a", "b", *SHAPE_FIELDS, "reverse"]
        values = shape_values(known_keys("", data, valid, ["a", "b", "rate_mbps", "delay_ms"]))
        values.setdefault("name", f"{values['a']}-{values['b']}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain data; `from_dict` reverses it."""
        values = {name: getattr(self, name) for name in ("name", "a", "b", *SHAPE_FIELDS)}
        return {**shape_dict(values), "reverse": shape_dict(self.reverse)}
