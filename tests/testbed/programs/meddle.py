"""A rank program that moves bytes while somebody in the guest meddles with the net."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

PORT = 6000


def prepare(spec: dict[str, Any]) -> None:
    """Start the meddler, who waits for the training to be under way."""
    if spec.get("fault") and os.fork() == 0:
        while not Path("/cell/started").exists():
            time.sleep(0.05)
        time.sleep(spec.get("after_s", 0.5))
        meddle(spec["fault"])
        os._exit(0)


def meddle(fault: str) -> None:
    """Do it, from where the switch is."""
    if fault == "iperf3":
        for comm in Path("/proc").glob("[0-9]*/comm"):
            words = (comm.parent / "cmdline").read_bytes().split(b"\0")
            if comm.read_text().strip() == "iperf3" and b"-c" in words:
                os.kill(int(comm.parent.name), signal.SIGKILL)
    else:
        subprocess.run(["tc", *fault.split()], check=True)


def run(spec: dict[str, Any], prepared: None, where: Any) -> None:
    """Rank 0 sends to rank 1, over the link or by a file that both see."""
    nbytes, total = spec.get("step_bytes", 0), 0
    peer = _connect(where)
    where.ready()
    for step in range(spec.get("steps", 20)):
        if step == 1 and where.rank == 0:
            Path("/cell/started").touch()
        if where.rank == 0 and nbytes:
            total += nbytes
            if spec.get("bypass"):
                Path("/cell/bypass").write_bytes(bytes(nbytes))
            else:
                peer.sendall(bytes(nbytes))
                peer.recv(1)
        elif where.rank == 1 and nbytes and not spec.get("bypass"):
            left = nbytes
            while left:
                left -= len(peer.recv(min(left, 1 << 16)))
            peer.sendall(b".")
        time.sleep(0.1)
        where.progress(step)
    more = {"link_bytes": total, "rounds": 0} if where.rank == 0 else {}
    where.result(status="ok", digest="same", **more)


def _connect(where: Any) -> socket.socket:
    if where.rank == 0:
        server = socket.create_server((where.master_address, PORT))
        return server.accept()[0]
    for _ in range(50):
        try:
            return socket.create_connection((where.master_address, PORT))
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise ConnectionRefusedError(where.master_address)
