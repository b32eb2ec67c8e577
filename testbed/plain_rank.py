"""A rank program without torch, to find out what a guest itself costs: it waits, then sends."""

from __future__ import annotations

import socket
import time
from typing import Any

__all__ = ["prepare", "run"]

_PORT = 6000
_CHUNK = 1 << 16


def prepare(spec: dict[str, Any]) -> None:
    """Load nothing."""


def run(spec: dict[str, Any], prepared: None, where: Any) -> None:
    """Wait ``idle_s``, a second at a time; then rank 1 sends rank 0 ``megabytes``."""
    server = socket.create_server((where.master_address, _PORT)) if where.rank == 0 else None
    where.ready()
    for step in range(round(spec["idle_s"])):
        time.sleep(1.0)
        where.progress(step)
    left = spec["megabytes"] * 1_000_000
    if server is not None and left:
        peer, _ = server.accept()
        with peer:
            while left > 0:
                left -= len(peer.recv(_CHUNK)) or left
    elif where.rank == 1 and left:
        with socket.create_connection((where.master_address, _PORT)) as peer:
            peer.sendall(bytes(left))
    where.result(status="ok", digest="same")
