"""Frozen option dataclasses whose fields know their legal range."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = ["Options", "bounded", "build_options", "choice"]

T = TypeVar("T", bound="Options")


def bounded(default: float, low: float, high: float, *, above: bool = False) -> Any:
    """A numeric field with a legal range.

    Parameters
    ----------
    default : int or float
        The default; its type is the type the value must have (an int is taken for a float).
    low, high : float
        The range, both ends legal.
    above : bool
        ``low`` itself is not legal.
    """
    return field(default=default, metadata={"low": low, "high": high, "above": above})


def choice(default: str, *names: str) -> Any:
    """A text field that must be one of ``default`` and ``names``."""
    return field(default=default, metadata={"names": (default, *names)})


@dataclass(frozen=True)
class Options:
    """Base of every method's options. Values are checked once, on construction.

    Raises
    ------
    ValueError
        A value lies outside its range; the message names the range.
    TypeError
        A value has the wrong type.
    """

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            _check(type(self).__name__, item, getattr(self, item.name))


def _check(owner: str, item: dataclasses.Field[Any], value: Any) -> None:
    where = f"{owner}.{item.name} = {value!r}"
    if "names" in item.metadata:
        names = item.metadata["names"]
        if value not in names:
            raise ValueError(f"{where}: must be one of {', '.join(names)}")
        return
    if isinstance(item.default, bool):
        if not isinstance(value, bool):
            raise TypeError(f"{where}: must be True or False")
        return
    if "low" not in item.metadata:
        return
    wants_int = isinstance(item.default, int)
    if isinstance(value, bool) or not isinstance(value, int if wants_int else (int, float)):
        raise TypeError(f"{where}: must be {'an integer' if wants_int else 'a number'}")
    low, high, above = (item.metadata[key] for key in ("low", "high", "above"))
    inside = (low < value if above else low <= value) and value <= high
    if not inside or math.isnan(value):
        raise ValueError(f"{where}: must be in {'(' if above else '['}{low:g}, {high:g}]")


def build_options(kind: type[T], given: Mapping[str, Any], method: str) -> T:
    """Make ``kind(**given)``; an unknown name is an error that says the nearest legal one."""
    names = [item.name for item in dataclasses.fields(kind)]
    for key in given:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            legal = ", ".join(names) or "none"
            raise TypeError(f"method {method!r} has no option {key!r}{hint} (options: {legal})")
    return kind(**given)
