"""Read a YAML file that must be a mapping; every way this can fail is one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.yamltext import YamlError, read_yaml
from topologies.checks import nearest

from .errors import UserError
from .runs import short

__all__ = ["named_file", "read_mapping"]


def named_file(kind: str, folder: Path, name_or_path: str | Path) -> Path:
    """Return a file that comes with the project by its name, or any by its path.

    Raises
    ------
    UserError
        No such name; the nearest one, and all there are.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        return path
    name, known = str(name_or_path), sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        hint = nearest(name, known)
        raise UserError(f"no {kind} '{name}'{hint} (there are: {', '.join(known)})")
    return folder / f"{name}.yaml"


def read_mapping(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """Return what a YAML file holds, a mapping with some of `keys`, without checking them.

    Raises
    ------
    UserError
        If it cannot be read, has a key twice, or is no mapping.
    """
    try:
        data = read_yaml(path)
    except YamlError as error:
        raise UserError(f"{short(path)}: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{short(path)}: expected a mapping with keys {', '.join(keys)}")
    return data
