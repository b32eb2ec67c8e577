"""Run a function in the namespaces of a Mininet host, in a process forked from this one.

Forking from a parent that has imported torch already saves the import, 8 s of wall time, in
every rank.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CELL_VARIABLE", "Child", "entered", "exact_sleeps", "spawn"]

#: Environment variable with the cell's folder, where that is not ``/cell``
CELL_VARIABLE = "NETSENSEML_CELL"

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_SIGKILL = 9
# pid last: it takes effect for the children only, while the files of the others must be open
_NAMESPACES = ("net", "uts", "ipc", "mnt", "pid_for_children")


@dataclass(frozen=True)
class Child:
    """A process in a host's namespaces, and the socket to it."""

    pid: int
    channel: socket.socket


def exact_sleeps() -> None:
    """Let sleeps of this process and its children end on time instead of up to 50 µs late."""
    _LIBC.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _enter(pid: int, names: tuple[str, ...] = _NAMESPACES) -> None:
    files = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names]
    for file, name in zip(files, names, strict=True):
        if _LIBC.setns(file, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the {name} namespace of {pid}")
        os.close(file)


@contextmanager
def entered(pid: int, *names: str) -> Iterator[None]:
    """Be in some namespaces of the process `pid` for a while, in this thread.

    Sockets made and programs started meanwhile stay there.
    """
    own = [os.open(f"/proc/thread-self/ns/{name}", os.O_RDONLY) for name in names]
    try:
        _enter(pid, names)
        yield
    finally:
        for file in own:
            if _LIBC.setns(file, 0):
                raise OSError(ctypes.get_errno(), "cannot leave a host's namespaces")
            os.close(file)


def spawn(host_pid: int, function: Callable[[socket.socket], None], name: str) -> Child:
    """Run `function` in the namespaces of the process `host_pid`, as a new process.

    Parameters
    ----------
    host_pid
        The Mininet host's shell.
    function
        Called with its end of a socket to the parent; an exception ends the process with
        status 1 after the traceback went to ``<name>.err`` in the cell's folder.
    name
        For messages and the error file.

    Returns
    -------
    Child
        Its `pid` is the one seen from here.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _run_nested(host_pid, function, theirs, name)
    theirs.close()
    child = int.from_bytes(ours.recv(4, socket.MSG_WAITALL), "little")
    return Child(child, ours)


def _run_nested(
    host_pid: int, function: Callable[[socket.socket], None], channel: socket.socket, name: str
) -> None:
    """Enter the namespaces, fork once more to be in the PID namespace, and never return."""
    status = 1
    try:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # not ahead of its peers
        _enter(host_pid)
        told, tell = os.pipe()
        pid = os.fork()
        if pid:
            channel.sendall(pid.to_bytes(4, "little"))
            channel.close()
            os.close(tell)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        else:
            _LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
            os.close(tell)
            os.read(told, 1)  # the end of the pipe: its number has been said before its words
            function(channel)
            status = 0
    except BaseException:
        with open(Path(os.environ.get(CELL_VARIABLE, "/cell"), f"{name}.err"), "w") as file:
            traceback.print_exc(file=file)
    finally:
        sys.stdout.flush()
        # no clean-up at exit: torch's costs seconds of wall time in a guest
        os._exit(status if 0 <= status < 256 else 1)
