"""Change a scenario's data by dotted paths such as ``methods.topk.options.ratio``.

A number in a path is an entry of a list; below ``methods`` a label names an entry. Whether the
key exists and the value is possible is for the scenario's own check to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from topologies.checks import SpecError, shown

from .mistakes import hint
from .scenario import Method, Scenario, default_label

__all__ = ["overridden"]


def overridden(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a scenario's data with values changed.

    Parameters
    ----------
    data : dict
        As in a scenario's file.
    changes : dict
        Values by dotted path, applied in their order.

    Raises
    ------
    SpecError
        If a path leads nowhere.
    """
    result = deepcopy(dict(data))
    for path, value in changes.items():
        _put(result, path, deepcopy(value))
    return result


def _put(data: dict[str, Any], path: object, value: Any) -> None:
    if not isinstance(path, str):
        raise SpecError(str(path), "expected a path such as topology.rate_mbps")
    words = path.split(".")
    keys = list(Scenario.model_fields)
    if words[0] not in keys:
        raise SpecError(path, f"a scenario has no key '{words[0]}'{hint(words[0], keys)}")
    inner: Any = data
    while len(words) > 1:
        # labels may have dots in them
        if inner is data and words[0] == "methods":
            inner, words = _method(data, path, words[1:])
            continue
        inner, words = _below(inner, words[0], path), words[1:]
    if isinstance(inner, list):
        inner[_index(inner, words[0], path)] = value
    elif isinstance(inner, dict):
        inner[words[0]] = value
    else:
        raise SpecError(path, f"there is nothing below {shown(inner)}")


def _below(inner: Any, word: str, path: str) -> Any:
    if isinstance(inner, list):
        return inner[_index(inner, word, path)]
    if not isinstance(inner, dict):
        raise SpecError(path, f"there is no '{word}' below {shown(inner)}")
    if inner.get(word) is None:
        inner[word] = {}
    return inner[word]


def _index(entries: list[Any], word: str, path: str) -> int:
    if word not in map(str, range(len(entries))):
        raise SpecError(path, f"expected a number from 0 to {len(entries) - 1} for '{word}'")
    return int(word)


def _method(data: dict[str, Any], path: str, words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the entry of a method, as a mapping in its place, and the words left of the path."""
    entries = data.get("methods")
    if not isinstance(entries, list):
        raise SpecError(path, "the scenario has no list of methods")
    labels = []
    for number, entry in enumerate(entries):
        try:
            method = Method(name=entry) if isinstance(entry, str) else Method.model_validate(entry)
        except ValidationError:
            raise SpecError(path, f"no method is described by {shown(entry)}") from None
        label = method.label or default_label(method)
        labels.append(label)
        taken = label.split(".")
        if words[: len(taken)] == taken and len(words) > len(taken):
            if isinstance(entry, str):
                entries[number] = {"name": entry}
            return entries[number], words[len(taken) :]
    said = f"the scenario has no method labelled '{words[0]}'{hint(words[0], labels)}"
    raise SpecError(path, said)
