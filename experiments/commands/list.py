"""``list``: the scenarios there are."""

from __future__ import annotations

import json as json_
from typing import Annotated

import typer

from ..errors import UserError

__all__ = ["list_scenarios"]


def list_scenarios(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the scenarios, each with a line saying whom it stands for."""
    from ..scenario import load, names

    found: dict[str, str] = {}
    broken = []
    for name in names():
        try:
            found[name] = load(name).description
        except UserError as error:
            broken.append(str(error))
    if json:
        print(json_.dumps(found, indent=2, sort_keys=True))
    else:
        width = max(map(len, found), default=0)
        for name, description in found.items():
            print(f"{name:<{width}}  {description}")
    if broken:
        raise UserError("; ".join(broken))
