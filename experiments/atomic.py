"""Write files whole: a reader, or a crash, sees the old file or the new one, never a part."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["point", "write_bytes", "write_json", "write_text", "write_with"]


def write_with(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        write(part)
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` at once."""
    write_with(path, lambda part: part.write_bytes(data))


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 with the line ends it has."""
    write_bytes(path, text.encode())


def write_json(path: Path, data: object) -> None:
    """Write sorted, indented JSON; a NaN is refused."""
    write_text(path, json.dumps(data, indent=2, sort_keys=True, allow_nan=False) + "\n")


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to `target`, replacing an older link at once."""
    part = link.with_name(f".{link.name}.{secrets.token_hex(4)}.part")
    part.symlink_to(target)
    part.replace(link)
