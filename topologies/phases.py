"""What is asked of each direction of a link, from one change to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from .checks import SpecError
from .events import Fault, LinkEvent
from .shape import Shape
from .spec import Topology

__all__ = ["Phase", "changed", "phases"]


@dataclass(frozen=True)
class Phase:
    """A time in which nothing is changed on one direction of a link.

    Parameters
    ----------
    link, sender, receiver : str
    number : int
        0 is from the start to the first change, and so on.
    start_s : float
        When it begins, in seconds since the first training step.
    shape : Shape
    up : bool
        Whether the link carries anything.
    """

    link: str
    sender: str
    receiver: str
    number: int
    start_s: float
    shape: Shape
    up: bool = True

    @property
    def direction(self) -> str:
        """``sender>receiver``, as records call it."""
        return f"{self.sender}>{self.receiver}"


def changed(shape: Shape, changes: dict[str, Any]) -> Shape:
    """Return `shape` with the changes of a `LinkEvent`, ``up`` left out."""
    return replace(shape, **{k: v for k, v in changes.items() if k != "up"})


def phases(topology: Topology, events: Iterable[LinkEvent | Fault]) -> list[Phase]:
    """Return the phases of every direction, in order of time for each.

    Raises
    ------
    SpecError
        If changes together ask for what no link can do, such as more jitter than delay.
    """
    found: dict[tuple[str, str], list[Phase]] = {}
    for link in topology.links:
        for sender, receiver, shape in link.directions():
            found[link.name, sender] = [Phase(link.name, sender, receiver, 0, 0.0, shape)]
    for event in events:
        if isinstance(event, Fault):
            continue
        link = topology.link(event.link)
        for sender in (link.a, link.b) if event.sender is None else (event.sender,):
            own = found[link.name, sender]
            last = own[-1]
            try:
                shape = changed(last.shape, event.changes)
            except SpecError as error:
                raise SpecError("", f"{link.name} at {event.at_s:g} s: {error}") from None
            up = bool(event.changes.get("up", last.up))
            new = replace(last, start_s=event.at_s, shape=shape, up=up)
            if event.at_s > last.start_s:
                own.append(replace(new, number=last.number + 1))
            else:
                own[-1] = new
    return [phase for own in found.values() for phase in own]
