"""``python -m testbed calibrate|shell``: a network for a person, without any training."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .asked import AskedNet, AskError, read
from .backends import CLOCKS, choose, start
from .kernel import build as kernel_build
from .launcher import CellRun
from .prompt import on_guest, on_host

__all__ = ["calibrate", "shell"]

_POLL_S = 0.05


def _asked(options: argparse.Namespace) -> AskedNet:
    """Return the network asked for; a back end on the command line brings its clock."""
    net = read(options.net)
    if options.backend is None:
        return net
    clock = net.clock if options.backend == "auto" else CLOCKS[options.backend]
    return replace(net, backend=options.backend, clock=clock)


def _kernel(backend: str) -> Path | None:
    if backend != "guest":
        return None
    try:
        return kernel_build.ensure()
    except kernel_build.KernelError as error:
        raise AskError(str(error)) from None


def _wait(run: CellRun) -> dict[str, Any]:
    try:
        while (outcome := run.poll()) is None:
            time.sleep(_POLL_S)
        return outcome
    finally:
        run.kill()


def calibrate(options: argparse.Namespace) -> int:
    """Boot, measure every host's path to the next, print asked and got."""
    net = _asked(options)
    cell = net.cell()
    choice = choose(net.backend, net.clock, cell)
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="calibrate-") as folder:
        cpu = max(os.sched_getaffinity(0))
        cell_run = start(
            choice.name, Path(folder) / "cell", cell, kernel=_kernel(choice.name), cpu=cpu
        )
        outcome = _wait(cell_run)
    found = {
        "net": net.name,
        "backend": choice.name,
        "why": choice.why,
        "status": outcome["status"],
        "reason": outcome.get("reason"),
        "link_verdict": outcome.get("link_verdict"),
        **(outcome.get("link_check") or {}),
        "cpu": outcome.get("cpu"),
        "wall_s": round(time.monotonic() - begin_s, 1),
    }
    if options.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        _print(found)
    if found["status"] != "ok":
        print(f"error: {found['reason']}", file=sys.stderr)
    return 0 if found["link_verdict"] == "ok" else 2


def _print(found: dict[str, Any]) -> None:
    print(
        f"{found['net']} on {found['backend']} ({found['why']}), {found['wall_s']} s of wall time"
    )
    if found.get("ceiling_mbps"):
        print(f"this machine carries {found['ceiling_mbps']:.0f} Mbit/s per host, unshaped")
    rows = found.get("paths", [])
    if rows:
        print(f"{'path':<12}{'rate asked':>12}{'got':>12}{'RTT asked':>12}{'got':>12}")
        print(f"{'':<12}{'Mbit/s':>12}{'Mbit/s':>12}{'ms':>12}{'ms':>12}")
    for row in rows:
        values = [row[f"{how}_{what}"] for what in ("rate_mbps", "rtt_ms") for how in _BOTH]
        shown = "".join(f"{'none' if v is None else f'{v:.3f}':>12}" for v in values)
        print(f"{row['source'] + '>' + row['sink']:<12}{shown}")
    print(f"verdict: {found['link_verdict']}")


_BOTH = ("asked", "got")


def shell(options: argparse.Namespace) -> int:
    """Open a prompt in the network: Mininet's, on the console of the guest or of this program."""
    net = _asked(options)
    cell = net.cell()
    choice = choose(net.backend, net.clock, cell)
    kernel = _kernel(choice.name)
    with tempfile.TemporaryDirectory(prefix="shell-") as folder:
        if choice.name == "host":
            return on_host(Path(folder), cell)
        return on_guest(choice.name, kernel, Path(folder), cell)
