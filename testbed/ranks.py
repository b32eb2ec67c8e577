"""The ranks of a cell, as seen from the process that started them and from within.

A rank talks to its parent by a socket in lines of JSON: ``ready`` when its process group
stands, ``step`` after each step, ``result`` at the end. The parent answers ``ready`` with the
time at which training begins, the same for all.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .instants import wait_until
from .namespaces import Child, spawn

__all__ = ["RankContext", "RankProcess", "start_rank"]


@dataclass(frozen=True)
class RankContext:
    """What a rank knows of its place, and how it speaks to the testbed."""

    rank: int
    world_size: int
    interface: str
    master_address: str
    master_port: int
    folder: Path
    channel: socket.socket

    def _say(self, **message: Any) -> None:
        self.channel.sendall(json.dumps(message).encode() + b"\n")

    def ready(self) -> float:
        """Report that training could begin; return the clock (s) at which it does, and wait."""
        self._say(kind="ready")
        start_s = float(self.channel.makefile("r").readline())
        wait_until(start_s)
        return start_s

    def progress(self, step: int) -> None:
        """Report a finished step: a rank that does not for long is taken to be stuck."""
        self._say(kind="step", step=step)

    def result(self, **values: Any) -> None:
        """Report how the rank ended; `status` is ok or diverged."""
        self._say(kind="result", **values)


@dataclass
class RankProcess:
    """A rank's process, with what it has said so far."""

    rank: int
    child: Child
    ready: bool = False
    step: int = -1
    result: dict[str, Any] | None = None
    ended: bool = False
    _buffer: bytes = field(default=b"", repr=False)

    def begin(self, start_s: float) -> None:
        """Tell the rank when training begins."""
        self.child.channel.sendall(f"{start_s!r}\n".encode())

    def messages(self) -> Iterator[dict[str, Any]]:
        """Take in what the rank has said; its end shows as `ended`."""
        try:
            data = self.child.channel.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self.ended = True
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["kind"] == "ready":
                self.ready = True
            elif message["kind"] == "step":
                self.step = message["step"]
            else:
                self.result = message
            yield message

    def signal(self, number: int) -> None:
        """Send the rank a signal, if it still lives."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child.pid, number)


def start_rank(
    host_pid: int, run: Callable[[RankContext], None], context: dict[str, Any]
) -> RankProcess:
    """Fork a rank into a host's namespaces.

    Parameters
    ----------
    host_pid
        The host's shell.
    run
        The rank program; what it raises becomes the rank's result.
    context
        The fields of `RankContext` but the channel.
    """
    rank = context["rank"]

    def body(channel: socket.socket) -> None:
        where = RankContext(**context, channel=channel)
        os.environ["GLOO_SOCKET_IFNAME"] = where.interface
        # SIGUSR1 writes where every thread of the rank stands
        stacks = open(where.folder / f"stacks-rank{rank}.txt", "w")  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        try:
            run(where)
        except BaseException as error:
            where.result(status="failed", reason=f"rank {rank}: {type(error).__name__}: {error}")
            (where.folder / f"rank{rank}.err").write_text(traceback.format_exc())

    return RankProcess(rank, spawn(host_pid, body, f"rank{rank}"))
