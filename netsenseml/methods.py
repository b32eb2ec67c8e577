"""The methods by name. One file in ``netsenseml/codecs/`` with a ``METHOD`` adds one."""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from netsenseml.options import Options

if TYPE_CHECKING:
    from netsenseml.codecs.base import Codec
    from netsenseml.policy import Policy

__all__ = ["Method", "find", "fixed", "methods", "options"]


@dataclass(frozen=True)
class Method:
    """A compression method that can be asked for by name.

    Attributes
    ----------
    name : str
    options : type of Options
    build : callable
        Makes the policy (and with it the codecs) of one training from the options.
    """

    name: str
    options: type[Options]
    build: Callable[[Any], Policy]


def fixed(make: Callable[[Any], Codec]) -> Callable[[Any], Policy]:
    """The build function of a method that uses one codec throughout."""

    def build(chosen: Any) -> Policy:
        from netsenseml.policy import FixedPolicy

        return FixedPolicy(make(chosen))

    return build


@functools.cache
def _registry() -> dict[str, Method]:
    package = importlib.import_module("netsenseml.codecs")
    found = {}
    for item in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"netsenseml.codecs.{item.name}")
        method = getattr(module, "METHOD", None)
        if method is not None:
            found[method.name] = method
    return dict(sorted(found.items()))


def methods() -> tuple[str, ...]:
    """All method names, sorted."""
    return tuple(_registry())


def find(name: str) -> Method:
    """The method of that name.

    Raises
    ------
    ValueError
        There is none; the message says the nearest name.
    """
    registry = _registry()
    if name not in registry:
        near = difflib.get_close_matches(str(name), registry, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no method {name!r}{hint} (methods: {', '.join(registry)})")
    return registry[name]


def options(method: str) -> type[Options]:
    """The frozen dataclass of a method's options; its fields say defaults and ranges."""
    return find(method).options
