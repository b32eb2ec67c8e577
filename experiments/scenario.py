"""Scenario files: what to run on which network, checked completely before anything starts.

A scenario is ``experiments/scenarios/<name>.yaml``. Unknown keys, wrong types and impossible
values are refused with one line naming the file, the key and what was expected.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from topologies import Fault, Flow, Job, LinkEvent, SpecError, Topology, phases
from topologies import build as build_topology
from topologies.events import expand_events
from topologies.shape import SHAPE_FIELDS
from topologies.traffic import expand_jobs, expand_traffic

from .consistency import check_consistency
from .errors import UserError
from .mistakes import explain, hint
from .runs import short
from .sections import Cell, Method, Positive, Share, Strict, Workload, default_label
from .yamlfile import named_file, read_mapping

__all__ = [
    "SCENARIOS",
    "SCHEMA",
    "SEED_LIMIT",
    "Cell",
    "Method",
    "Scenario",
    "Workload",
    "check",
    "default_label",
    "digest_of",
    "load",
    "names",
    "path_of",
]

SCENARIOS = Path(__file__).parent / "scenarios"
SEED_LIMIT = 2**31
Seed = Annotated[int, Field(ge=0, lt=SEED_LIMIT)]
SCHEMA = 1  # of a resolved scenario; part of its digest


class Scenario(Strict):
    """A checked scenario; see `load`.

    Parameters
    ----------
    description : str
        One line saying whom it stands for.
    world_size : int
        Ranks.
    clock : {"virtual", "real"}
    backend : {"auto", "guest", "guest-real", "host", "cluster"}
        What the network is made of; see `testbed.backends`.
    topology : dict, optional
        For `topologies.build`; a cluster has its own.
    events, traffic : list of dict
        For `topologies.expand_events`, and for `topologies.expand_traffic` and `expand_jobs`.
    workload : Workload
    methods : list of str or Method
    seeds : list of int
    target_accuracy : float, optional
        Share of the test set for ``time_to_accuracy_s``.
    segmentation : {"auto", "on", "off"}
        Whether frames may be super-packets of several segments; auto lets the testbed decide.
    timeout_s : float, optional
        Seconds of training after which a cell is stopped; see `end_s`.
    """

    description: Annotated[str, Field(min_length=1, max_length=200)]
    world_size: Annotated[int, Field(strict=True, ge=2, le=1024)]
    clock: Literal["virtual", "real"] = "virtual"
    backend: Literal["auto", "guest", "guest-real", "host", "cluster"] = "auto"
    topology: dict[str, Any] | None = None
    events: list[dict[str, Any]] = Field(default_factory=list)
    traffic: list[dict[str, Any]] = Field(default_factory=list)
    workload: Workload
    methods: Annotated[list[str | Method], Field(min_length=1)]
    seeds: Annotated[list[Seed], Field(min_length=1)] = Field(default_factory=lambda: [0])
    target_accuracy: Share | None = None
    segmentation: Literal["auto", "on", "off"] = "auto"
    timeout_s: Positive | None = None

    _name: str = PrivateAttr(default="scenario")
    _file: Path = PrivateAttr(default=Path())

    @property
    def name(self) -> str:
        """Name of the scenario: that of its file."""
        return self._name

    @property
    def end_s(self) -> float:
        """Seconds of training after which a cell counts as timed out.

        `timeout_s`, or a minute per step, at least ten minutes.
        """
        return self.timeout_s or max(600.0, 60.0 * self.workload.steps)

    @functools.cached_property
    def network(self) -> Topology:
        """The topology, built."""
        asked = self.topology
        return _keyed("topology", lambda: build_topology(asked, self.world_size))

    @functools.cached_property
    def changes(self) -> tuple[LinkEvent | Fault, ...]:
        """Every change of the network, sorted by time."""
        if self.topology is None:
            return ()
        folder = self._file.parent
        expand = functools.partial(expand_events, self.events, self.network, self.end_s, folder)
        made = tuple(_keyed("events", expand))
        _keyed("events", lambda: phases(self.network, made))  # what they ask for together
        return made

    @property
    def longest_outage_s(self) -> float:
        """Seconds of the longest pause of a host or cut of a link; 0 if it never ends."""
        longest = 0.0
        down: dict[tuple[str, str | None], float] = {}
        for event in self.changes:
            if isinstance(event, Fault):
                longest = max(longest, event.duration_s or 0.0)
            elif event.changes.get("up") is False:
                down.setdefault((event.link, event.sender), event.at_s)
            elif event.changes.get("up") is True:
                start_s = down.pop((event.link, event.sender), event.at_s)
                longest = max(longest, event.at_s - start_s)
        return longest

    @functools.cached_property
    def flows(self) -> tuple[Flow, ...]:
        """Every flow of cross traffic, sorted by start."""
        if self.topology is None:
            return ()
        expand = functools.partial(expand_traffic, self.traffic, self.network, self.end_s)
        return tuple(_keyed("traffic", expand))

    @functools.cached_property
    def jobs(self) -> tuple[Job, ...]:
        """Training jobs of others, on hosts of their own."""
        if self.topology is None:
            return ()
        expand = functools.partial(expand_jobs, self.traffic, self.network, self.end_s)
        return tuple(_keyed("traffic", expand))

    @functools.cached_property
    def arms(self) -> tuple[Method, ...]:
        """The methods, each with its label."""
        made = [Method(name=m) if isinstance(m, str) else m for m in self.methods]
        return tuple(m.model_copy(update={"label": m.label or default_label(m)}) for m in made)

    def cells(self) -> list[Cell]:
        """Return every method with every seed, methods in the order of the file."""
        return [
            Cell(arm.label, arm.name, dict(arm.options), seed)
            for arm in self.arms
            for seed in self.seeds
        ]

    def resolved(self) -> dict[str, Any]:
        """Return plain sorted data with topology, events, traffic and defaults written out."""
        data = self.model_dump(mode="json")
        data |= {
            "schema": SCHEMA,
            "name": self.name,
            "topology": None if self.topology is None else self.network.to_dict(),
            "events": [event.to_dict() for event in self.changes],
            "traffic": [flow.to_dict() for flow in self.flows],
            "jobs": [job.to_dict() for job in self.jobs],
            "methods": [arm.model_dump(mode="json") for arm in self.arms],
            "timeout_s": self.end_s,
            # after an outage TCP may wait as long again before it tries
            "stall_s": min(120.0 + 2 * self.longest_outage_s, self.end_s),
        }
        return json.loads(json.dumps(data, sort_keys=True, allow_nan=False))

    def digest(self) -> str:
        """Return the SHA-256 of `resolved`, in hexadecimal."""
        return digest_of(self.resolved())

    def narrowed(
        self,
        *,
        methods: Iterable[str] | None = None,
        seeds: Iterable[int] | None = None,
        steps: int | None = None,
    ) -> Scenario:
        """Return a checked copy with fewer methods (by label), other seeds or other steps."""
        data = self.model_dump()
        if methods is not None:
            labels = [arm.label for arm in self.arms]
            for label in (wanted := list(methods)):
                if label not in labels:
                    said = f"scenario {self.name} has no '{label}'{hint(label, labels)}"
                    raise UserError(f"--methods: {said}")
            data["methods"] = [a.model_dump() for a in self.arms if a.label in wanted]
        if seeds is not None:
            data["seeds"] = list(seeds)
        if steps is not None:
            data["workload"]["steps"] = steps
            every = data["workload"]["eval_every"]
            data["workload"]["eval_every"] = min(every, steps) if every else None
            data["timeout_s"] = self.end_s  # events keep their place
        return check(data, self.name, self._file)


def digest_of(resolved: dict[str, Any]) -> str:
    """Return the SHA-256 of a resolved scenario, in hexadecimal."""
    text = json.dumps(resolved, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _keyed(section: str, make: Any) -> Any:
    """Call `make`; put errors of a specification below the scenario's `section`."""
    try:
        return make()
    except SpecError as error:
        raise error.under(section) from None


def names() -> list[str]:
    """Return the names of the scenarios that come with the project."""
    return sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def load(name_or_path: str | Path) -> Scenario:
    """Read and check a scenario.

    Parameters
    ----------
    name_or_path : str or Path
        A shipped scenario's name, or a path that ends in ``.yaml``.

    Raises
    ------
    UserError
        One line: file, key, what was expected, nearest valid name.
    """
    path = path_of(name_or_path)
    return check(read_mapping(path, list(Scenario.model_fields)), path.stem, path)


def path_of(name_or_path: str | Path) -> Path:
    """Return the file of a scenario, named or given as a path; a `UserError` if there is none."""
    return named_file("scenario", SCENARIOS, name_or_path)


def check(data: dict[str, Any], name: str, file: Path = Path("scenario")) -> Scenario:
    """Return the scenario that `data` describes, validated as far as possible without running.

    Parameters
    ----------
    data : dict
        As in a scenario's file.
    name : str
        The scenario's name.
    file : Path
        Where `data` is from: named in errors, and traces are looked for beside it.

    Raises
    ------
    UserError
        One line: file, key, what was expected, nearest valid name.
    """
    try:
        scenario = Scenario.model_validate(data)
        scenario._name = name
        scenario._file = file
        check_consistency(scenario)
        scenario.resolved()
    except ValidationError as error:
        raise UserError(f"{short(file)}: {explain(error, _SECTIONS)}") from None
    except SpecError as error:
        raise UserError(f"{short(file)}: {error}") from None
    return scenario


# Where a key may stand, for the message about one that stands elsewhere.
_SECTIONS = {
    "": list(Scenario.model_fields),
    "workload": list(Workload.model_fields),
    "methods": list(Method.model_fields),
    "topology": list(SHAPE_FIELDS),
}
