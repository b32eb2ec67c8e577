"""The network that a person names on a command line: a scenario's, or a builder with values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies import SpecError, Topology
from topologies import build as build_topology
from topologies.builders import BUILDERS
from topologies.checks import choice, nearest

from .backends import ON_ONE_MACHINE

__all__ = ["HELP", "AskError", "AskedNet", "read"]

SCENARIOS = Path(__file__).parent.parent / "experiments" / "scenarios"
HELP = "a scenario's name, a path to a .yaml, or a builder with values: star ranks=4 rate_mbps=50"

_CHOICES = {
    "clock": ("virtual", "real"),
    "backend": ("auto", *ON_ONE_MACHINE),
    "segmentation": ("auto", "on", "off"),
}


class AskError(Exception):
    """No network can be made of what was named; the text says why, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@dataclass(frozen=True)
class AskedNet:
    """A network to look at, with what else of a scenario bears on it."""

    name: str
    topology: Topology
    clock: str = "virtual"
    backend: str = "auto"
    segmentation: str = "auto"

    def cell(self, program: str | None = None) -> dict[str, Any]:
        """Return a cell on this network that trains nothing."""
        return {
            "program": program,
            "seed": 0,
            "world_size": len(self.topology.rank_hosts()),
            "clock": self.clock,
            "segmentation": self.segmentation,
            "topology": self.topology.to_dict(),
            "events": [],
            "traffic": [],
            "timeout_s": 600.0,
            "stall_s": 60.0,
            "warmup_steps": 0,
        }


def read(words: list[str]) -> AskedNet:
    """Return the network that `words` name.

    Raises
    ------
    AskError
        One line: what is wrong and what would be right.
    """
    name, *values = words
    try:
        if name in BUILDERS or values:
            return _built(name, values)
        return _of_scenario(name)
    except SpecError as error:
        raise AskError(f"{name}: {error}") from None


def _built(name: str, values: list[str]) -> AskedNet:
    given: dict[str, Any] = {"builder": name, "rate_mbps": 100, "delay_ms": 1}
    ranks: Any = 4
    for value in values:
        key, equals, text = value.partition("=")
        if not equals:
            raise AskError(f"{value}: expected key=value, such as rate_mbps=50")
        if key == "ranks":
            ranks = _number(text)
        elif key in ("queue_bytes", "queue_bdp", "queue_packets"):
            given["queue"] = {key.removeprefix("queue_"): _number(text)}
        else:
            given[key] = _number(text)
    return AskedNet(name, build_topology(given, ranks))


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _of_scenario(name: str) -> AskedNet:
    from .yamltext import YamlError, read_yaml

    path = Path(name) if name.endswith((".yaml", ".yml")) else SCENARIOS / f"{name}.yaml"
    if not path.is_file():
        known = sorted([*(p.stem for p in SCENARIOS.glob("*.yaml")), *BUILDERS])
        hint = nearest(name, known) or f"; there are: {', '.join(known)}"
        raise AskError(f"no scenario or builder '{name}'{hint}")
    try:
        data = read_yaml(path)
    except YamlError as error:
        raise AskError(f"{name}: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("world_size"), int):
        raise AskError(f"{name}: expected a scenario with world_size and topology")
    if not data.get("topology"):
        raise AskError(f"{name}: topology: is missing, so there is no network to make")
    try:
        topology = build_topology(data["topology"], data["world_size"])
    except SpecError as error:
        raise error.under("topology") from None
    more = {key: choice(key, data[key], valid) for key, valid in _CHOICES.items() if key in data}
    return AskedNet(path.stem, topology, **more)
