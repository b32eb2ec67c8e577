"""A rank program that looks around: what it can see of its place, and what it can reach."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any


def prepare(spec: dict[str, Any]) -> None:
    return None


def _writes(path: str) -> bool:
    try:
        with open(path, "w") as file:
            file.write("x")
    except OSError:
        return False
    return True


def _connects(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((address, port)) == 0


def run(spec: dict[str, Any], prepared: None, where: Any) -> None:
    where.ready()
    seen = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "processes": sorted(int(p.name) for p in Path("/proc").glob("[0-9]*")),
        "hides": [p for p in spec["host_paths"] if not Path(p).exists()],
        "writes": [p for p in spec["write_paths"] if _writes(p)],
        "reaches": [a for a in spec["addresses"] if _connects(a, spec.get("port", 22))],
        "random": os.urandom(8).hex(),
    }
    where.result(status="ok", digest="same", **seen)
