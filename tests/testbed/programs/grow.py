"""A rank program that takes more and more memory."""

from __future__ import annotations

from typing import Any


def prepare(spec: dict[str, Any]) -> None:
    return None


def run(spec: dict[str, Any], prepared: None, where: Any) -> None:
    where.ready()
    held = []
    for step in range(spec["mb"]):
        held.append(bytes([1]) * (1 << 20))
        where.progress(step)
    where.result(status="ok", digest="same", mb=len(held))
