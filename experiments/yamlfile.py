"""Read a YAML file that must be a mapping; every way this can fail is one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

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
        If it cannot be read or is no mapping.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{short(path)}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{short(path)}: expected UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise UserError(f"{short(path)}:{where} is not YAML: {problem}") from None
    if not isinstance(data, dict):
        raise UserError(f"{short(path)}: expected a mapping with keys {', '.join(keys)}")
    return data
