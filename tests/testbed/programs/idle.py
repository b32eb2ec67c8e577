"""A rank program without torch: ranks that only wait, or go wrong in a way the cell names."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


def prepare(spec: dict[str, Any]) -> None:
    return None


def run(spec: dict[str, Any], prepared: None, where: Any) -> None:
    where.ready()
    for step in range(spec.get("steps", 5)):
        time.sleep(0.1)
        if where.rank == 1 and step == 2:
            go_wrong(spec.get("fault"))
        where.progress(step)
    where.result(status="ok", digest="same")


def go_wrong(fault: str | None) -> None:
    if fault == "raise":
        raise ValueError("planted")
    if fault == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "sleep":
        time.sleep(1e6)
    if fault == "spin":
        while True:
            pass
