"""First process of a guest, or of namespaces of their own on the host: it runs one cell.

It is told what to do by ``cell.json`` in the cell's folder and writes what came of it beside
that; see ``results/README.md`` for the files.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from topologies import Topology

from . import namespaces, probes
from .cell import Cell, write_json
from .instants import wait_for_round_time
from .modules import load as load_modules
from .realwatch import CeilingError
from .shaping import Shaper
from .tokens import TokenShaper

__all__ = ["POWER_OFF", "main", "run", "shaper_for"]

#: for reboot(2)
POWER_OFF = 0x4321FEDC
_SETTLED_S = 5.0


def shaper_for(topology: Topology, ports: dict[str, tuple[str, str]], real: bool) -> Shaper:
    """Return what shapes links on this kernel and clock."""
    if not real:
        return Shaper(topology, ports)
    there = probes.qdiscs()
    return TokenShaper(topology, ports, netem=bool(there and there["netem"]))


def settle() -> None:
    """Wait until every bridge forwards: a kernel takes up to a second to see that cables are in.

    On a virtual clock that is at once.
    """
    deadline = time.monotonic() + _SETTLED_S
    while time.monotonic() < deadline:
        shown = subprocess.run(["ip", "-d", "-j", "link"], capture_output=True, check=True).stdout
        ports = [link.get("linkinfo", {}) for link in json.loads(shown)]
        states = [p["info_slave_data"]["state"] for p in ports if "info_slave_data" in p]
        if all(state == "forwarding" for state in states):
            return
        time.sleep(0.05)


def run(folder: Path) -> dict[str, Any]:
    """Run the cell described in `folder` and return its outcome."""
    spec = json.loads((folder / "cell.json").read_text())

    from .net import built_net, interfaces

    topology = Topology.from_dict(spec["topology"])
    real = spec["clock"] == "real"
    if not real:
        wait_for_round_time()
    with built_net(topology, spec["segmentation"]) as net:
        ports = {name: (a.name, b.name) for name, (a, b) in interfaces(net, topology).items()}
        shaper = shaper_for(topology, ports, real)
        cell = Cell(spec, folder, net, shaper)
        if real:
            settle()
        cell.measure_machine()
        shaper.apply()
        cell.record_system()
        cell.probe(ports)
        cell.record_qdiscs("before")
        if spec["program"] is None:  # a calibration
            return cell.outcome("ok")
        cell.prepare(importlib.import_module(spec["program"]))
        if not real:
            wait_for_round_time()
        cell.start_ranks()
        cell.progress_s = time.monotonic()  # on a real clock, importing took its time
        return cell.outcome(cell.watch())


def failed(reason: str) -> dict[str, Any]:
    """Return the outcome of a cell that never came to measure anything."""
    outcome = {"status": "failed", "reason": reason, "replicas_identical": None}
    return outcome | {"link_verdict": None, "virtual_s": None, "warmup_steps": 0, "ranks": []}


def _conclude(folder: Path) -> None:
    """Run the cell, whatever happens, and write down what came of it."""
    namespaces.exact_sleeps()
    # until a rank can say where it stands, being asked must not end it
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        outcome = run(folder)
    except BaseException as error:
        traceback.print_exc()
        named = "" if isinstance(error, CeilingError) else f"{type(error).__name__}: "
        outcome = failed(f"{named}{error}")
    write_json(folder / "outcome.json", outcome)
    sys.stdout.flush()


def main() -> None:
    """Run the cell in ``/cell`` and switch the guest off; or, if one is named, a host's cell."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        os.environ[namespaces.CELL_VARIABLE] = str(folder)
        _conclude(folder)
        os._exit(0)  # this is the first process of its namespaces: they end with it
    # Ahead of ranks and traffic, with the commands run from here: a rank that spins cannot keep
    # the watchdog from running, nor a program that polls the clock make a change of a link late.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if "UML_MODULES" in os.environ:
        load_modules()
    _conclude(Path("/cell"))
    os.sync()
    ctypes.CDLL(None).reboot(POWER_OFF)


if __name__ == "__main__":
    main()
