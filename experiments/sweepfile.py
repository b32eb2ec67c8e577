"""Sweep files: many variations of scenarios, checked completely before anything starts.

A sweep is ``experiments/sweeps/<name>.yaml``; `docs/sweeps.md` describes it. Each combination
of the values in ``grid``, and each entry of ``variations``, of each scenario is a *variation*:
a scenario of its own, whose methods and seeds are its cells.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from topologies import SpecError
from topologies.checks import shown

from .errors import UserError
from .mistakes import explain
from .overrides import overridden
from .runs import short
from .scenario import Scenario, check
from .scenario import load as load_scenario
from .scenario import path_of as scenario_path
from .yamlfile import named_file, read_mapping

__all__ = ["BASE", "SWEEPS", "Sweep", "Variation", "load", "names"]

SWEEPS = Path(__file__).parent / "sweeps"
BASE = "base"  # a variation's name where a scenario is taken as it is

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
Scalar = bool | int | float | str
Changes = dict[str, Any]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Entry(_Strict):
    name: str
    set: Changes = {}
    scenarios: Annotated[list[str], Field(min_length=1)] | None = None


class _SweepFile(_Strict):
    description: Annotated[str, Field(min_length=1, max_length=200)]
    scenarios: Annotated[list[str], Field(min_length=1)]
    set: Changes = {}
    grid: Changes = {}
    variations: list[_Entry] = []


_SECTIONS = {"": list(_SweepFile.model_fields), "variations": list(_Entry.model_fields)}


@dataclass(frozen=True)
class Variation:
    """One scenario of a sweep.

    Parameters
    ----------
    scenario : Scenario
        With all its overrides.
    name : str
        Unique among the variations of the scenario's name, ``rate_mbps=100,world_size=8``.
    axes : dict of str to bool, int, float or str
        What is varied: the columns that tell this variation from others.
    """

    scenario: Scenario
    name: str = BASE
    axes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """``scenario/variation``, unique in a sweep."""
        return f"{self.scenario.name}/{self.name}"


@dataclass(frozen=True)
class Sweep:
    """Variations to run, from a file (`load`) or made in code.

    Parameters
    ----------
    name, description : str
    variations : sequence of Variation

    Raises
    ------
    UserError
        If there are none, or two have the same key.
    """

    name: str
    description: str
    variations: tuple[Variation, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "variations", tuple(self.variations))
        if not self.variations:
            raise UserError(f"sweep {self.name}: expected at least one variation")
        keys = [variation.key for variation in self.variations]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise UserError(f"sweep {self.name}: the variation '{twice[0]}' is there twice")

    @property
    def axes(self) -> list[str]:
        """The columns of all variations, in their order."""
        return list(dict.fromkeys(axis for v in self.variations for axis in v.axes))


def names() -> list[str]:
    """Return the names of the sweeps that come with the project."""
    return sorted(path.stem for path in SWEEPS.glob("*.yaml"))


def load(name_or_path: str | Path) -> Sweep:
    """Read and check a sweep, with every scenario in it.

    Parameters
    ----------
    name_or_path : str or Path
        A shipped sweep's name, or a path that ends in ``.yaml``.

    Raises
    ------
    UserError
        One line: file, key, what was expected, nearest valid name.
    """
    path = named_file("sweep", SWEEPS, name_or_path)
    try:
        file = _SweepFile.model_validate(read_mapping(path, _SECTIONS[""]))
        variations = list(_variations(file))
    except ValidationError as error:
        raise UserError(f"{short(path)}: {explain(error, _SECTIONS)}") from None
    except SpecError as error:
        raise UserError(f"{short(path)}: {error}") from None
    return Sweep(path.stem, file.description, tuple(variations))


def _variations(file: _SweepFile) -> Iterable[Variation]:
    for name in _known(file.scenarios, "scenarios"):
        if file.grid or not file.variations:
            for point in _points(file.grid):
                yield _vary(name, file.set, point, "grid")
        for i, entry in enumerate(file.variations):
            if entry.scenarios is None or name in _known(entry.scenarios, f"variations.{i}"):
                _check_name(f"variations.{i}.name", entry.name)
                yield _vary(name, file.set, [_entry(i, entry)], f"variations.{i}")


def _known(scenarios: list[str], key: str) -> list[str]:
    for i, name in enumerate(scenarios):
        if name in scenarios[:i]:
            raise SpecError(f"{key}.{i}", f"'{name}' is there twice")
        try:
            scenario_path(name)
        except UserError as error:
            raise SpecError(f"{key}.{i}", str(error)) from None
    return scenarios


@dataclass(frozen=True)
class _Value:
    """A value of an axis: its text in names, its columns and what it changes."""

    text: str
    columns: dict[str, Scalar]
    changes: Changes


def _entry(number: int, entry: _Entry) -> _Value:
    scalars = {k: v for k, v in entry.set.items() if isinstance(v, Scalar)}
    return _Value(entry.name, scalars, dict(entry.set))


def _points(grid: Changes) -> Iterable[list[_Value]]:
    """Yield every combination of the axes' values, the last axis varying fastest."""
    last = [axis.rpartition(".")[2] for axis in grid]
    axes = []
    for axis, values in grid.items():
        word = axis.rpartition(".")[2]
        axes.append(_axis(axis, word if last.count(word) == 1 else axis, values))
    for point in itertools.product(*axes):
        yield list(point)


def _axis(axis: str, word: str, values: Any) -> list[_Value]:
    where = f"grid.{axis}"
    if not isinstance(values, list | dict) or not values:
        wanted = "at least one value" if values in ([], {}) else "a list of values"
        raise SpecError(where, f"expected {wanted}, such as [1, 2], or {{name: value}}")
    made = []
    if isinstance(values, dict):  # name -> overrides, or name -> value of the axis' own key
        for name, changes in values.items():
            _check_name(f"{where}.{name}", name)
            own = changes if isinstance(changes, dict) else {axis: changes}
            scalars = {k: v for k, v in own.items() if isinstance(v, Scalar)}
            made.append(_Value(f"{word}={name}", {axis: name, **scalars}, own))
        return made
    for i, value in enumerate(values):
        if not isinstance(value, Scalar):
            raise SpecError(
                f"{where}.{i}",
                "expected a number, a text, true or false; give anything else a name:"
                f" {axis}: {{some-name: {shown(value)}}}",
            )
        made.append(_Value(f"{word}={str(value).lower()}", {axis: value}, {axis: value}))
    return made


def _check_name(key: str, name: object) -> None:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return
    hint = "" if isinstance(name, str) else ", not in quotes"  # 10 and true are no texts in YAML
    raise SpecError(
        key, f"expected a name of letters, digits and . + _ -; got {shown(name)}{hint}"
    )


def _vary(name: str, common: Changes, point: list[_Value], where: str) -> Variation:
    """Return a scenario with what all variations change, then what this one does."""
    path = scenario_path(name)
    load_scenario(name)  # a mistake in the file itself is told as such
    changes = dict(common)
    axes: dict[str, Scalar] = {}
    for value in point:
        changes |= value.changes
        axes |= value.columns
    text = ",".join(value.text for value in point) or BASE
    try:
        data = overridden(read_mapping(path, []), changes)
        return Variation(check(data, path.stem, path), text, axes)
    except SpecError as error:
        raise error.under("set" if error.key in common else where) from None
    except ValidationError as error:
        said = explain(error, {"": []})
    except UserError as error:
        said = str(error).removeprefix(f"{short(path)}: ")
    raise SpecError("", f"scenario {path.stem}, variation {text}: {said}")
