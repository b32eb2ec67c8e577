"""An interactive prompt in a network, from both sides: who asks for it, and who gives it.

Inside it is the first process, like `testbed.first`, but it trains nothing: it builds and shapes
the net and hands it to Mininet's command line.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from topologies import Topology

from .cell import write_json
from .first import POWER_OFF, settle, shaper_for
from .guest import PROJECT, Guest, GuestFiles
from .launcher import host_command
from .modules import load as load_modules

__all__ = ["main", "on_guest", "on_host"]

_MEMORY_MB = 2048
#: In the cell's folder: what was piped in, to be run one by one
COMMANDS = "commands"
_REAL_KERNEL = Path("/usr/bin/linux.uml")


def _prepare(folder: Path, cell: dict[str, Any]) -> None:
    write_json(folder / "cell.json", cell)
    if not sys.stdin.isatty():
        (folder / COMMANDS).write_text(sys.stdin.read())


def on_guest(backend: str, kernel: Path | None, folder: Path, cell: dict[str, Any]) -> int:
    """Boot a guest whose console is this program's standard input and output."""
    _prepare(folder, cell)
    before = None
    if sys.stdin.isatty():
        import termios

        before = termios.tcgetattr(0)
    guest_input = open(os.devnull)  # noqa: SIM115
    guest = Guest(
        kernel or _REAL_KERNEL,
        GuestFiles(folder),
        memory_mb=_MEMORY_MB,
        command="/opt/venv/bin/python -m testbed.prompt",
        cpu=max(os.sched_getaffinity(0)),
        real_clock=backend == "guest-real",
        console=(0 if before else guest_input.fileno(), 1),
    )
    guest_input.close()
    try:
        while (code := guest.poll()) is None:
            time.sleep(0.05)
        return 0 if code == 0 else 2
    finally:
        guest.kill()
        if before is not None:
            import termios

            termios.tcsetattr(0, termios.TCSADRAIN, before)


def on_host(folder: Path, cell: dict[str, Any]) -> int:
    """Open the prompt in namespaces of the host's own kernel."""
    _prepare(folder, cell)
    command = [*host_command(), sys.executable, "-m", "testbed.prompt", str(folder)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for what runs at the prompt
    try:
        return 0 if subprocess.run(command, cwd=PROJECT).returncode == 0 else 2
    finally:
        signal.signal(signal.SIGINT, before)


def _run(folder: Path) -> None:
    cell = json.loads((folder / "cell.json").read_text())

    from .net import built_net, interfaces, prompt

    topology = Topology.from_dict(cell["topology"])
    with built_net(topology, cell["segmentation"]) as net:
        ports = {name: (a.name, b.name) for name, (a, b) in interfaces(net, topology).items()}
        real = cell["clock"] == "real"
        shaper_for(topology, ports, real).apply()
        if real:
            settle()
        hosts = " ".join(host.name for host in topology.hosts)
        print(f"hosts: {hosts}\ntry: h0 ping -c 2 h1, links, help; exit leaves", flush=True)
        script = folder / COMMANDS
        prompt(net, script if script.exists() else None)
        sys.stdout.flush()


def main() -> None:
    """Give the prompt, then switch the guest off or end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if len(sys.argv) > 1:
        _run(Path(sys.argv[1]))
        return
    if "UML_MODULES" in os.environ:
        load_modules()
    try:
        _run(Path("/cell"))
    finally:
        sys.stdout.flush()
        os.sync()
        ctypes.CDLL(None).reboot(POWER_OFF)


if __name__ == "__main__":
    main()
