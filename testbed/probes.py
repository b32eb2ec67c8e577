"""Try, without leaving a trace, what this machine's kernel and file systems let us do.

A thing is tried rather than read from a configuration wherever that takes milliseconds.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
import subprocess
import tempfile
from pathlib import Path

from .needs import find_command

__all__ = [
    "can_trace",
    "executable_memory",
    "free_memory_gib",
    "is_x86_64",
    "own_pids",
    "qdiscs",
]

_GIB = 2**30
_TIMEOUT_S = 1.0
_PTRACE_TRACEME = 0
#: what the back end on the host's kernel shapes with, each in a form that any kernel accepts
_QDISCS = {
    "htb": "htb default 1",
    "tbf": "tbf rate 1mbit burst 16kb latency 10ms",
    "netem": "netem delay 1ms",
    "red": "red limit 60000 min 5000 max 15000 avpkt 1000 burst 10 bandwidth 1mbit",
    "fq_codel": "fq_codel",
}


def is_x86_64() -> bool:
    """Whether the machine is of the only kind that User-Mode Linux runs on here."""
    return platform.machine() == "x86_64"


def can_trace() -> bool:
    """Whether a process may let its parent trace it, as a guest's processes do."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            libc = ctypes.CDLL(None)
            status = 0 if libc.ptrace(_PTRACE_TRACEME, 0, None, None) == 0 else 1
            if status == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            os._exit(status)
    _, state = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(state):
        return False
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def guest_memory_folder() -> Path:
    """Return where a guest's memory lies: /dev/shm if that is a tmpfs, else /tmp."""
    shared = Path("/dev/shm")
    return shared if os.path.ismount(shared) else Path("/tmp")


def executable_memory() -> bool:
    """Whether a file in `guest_memory_folder` may be mapped to be executed."""
    try:
        with tempfile.TemporaryFile(dir=guest_memory_folder()) as file:
            file.truncate(mmap.PAGESIZE)
            rights = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
            mmap.mmap(file.fileno(), mmap.PAGESIZE, mmap.MAP_SHARED, rights).close()
    except OSError:
        return False
    return True


def free_memory_gib() -> float:
    """Return how much memory guests may take: free memory, or the room for its file if less."""
    free = os.statvfs(guest_memory_folder())
    room = free.f_bavail * free.f_frsize
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            room = min(room, int(line.split()[1]) * 1024)
    return room / _GIB


def own_pids() -> bool:
    """Whether a PID namespace can be made, whose processes all die with its first."""
    unshare = find_command("unshare")
    if unshare is None:
        return False
    rights = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    command = [unshare, *rights, "--pid", "--fork", "--kill-child", "true"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def qdiscs() -> dict[str, bool] | None:
    """Return which shapers the host's kernel has, None where it cannot be tried.

    They are put on the loopback interface of a network namespace that ends with the probe.
    """
    unshare, tc = find_command("unshare"), find_command("tc")
    if unshare is None or tc is None:
        return None
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = "; ".join(
        f"'{tc}' qdisc add dev lo root handle 1: {how} && echo {name};"
        f" '{tc}' qdisc del dev lo root"
        for name, how in _QDISCS.items()
    )
    try:
        done = subprocess.run(
            [unshare, *rights, "--net", "sh", "-c", f"echo started; {script}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return None
    words = done.stdout.split()
    return {name: name in words for name in _QDISCS} if "started" in words else None
