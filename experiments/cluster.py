"""Run a scenario on machines that are there: ``torchrun … -m experiments.cluster SCENARIO``.

Nothing is emulated. Every rank is started by torchrun; rank 0 has the scenario checked, tells
all ranks what to run, and writes the records that each of them sends it: machines need no
common file system. The paths between neighbours are measured before each cell.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from . import rank as rank_program
from .atomic import point, write_json
from .hardware import process_group_backend
from .runs import RESULTS

__all__ = ["main"]

_TIMEOUT_S = 120.0
_PINGS = 20
_TRANSFER_BYTES = 4_000_000
_TRANSFERS = 3
_SIOCGIFADDR = 0x8915


def interface_to(address: str) -> str:
    """Return the name of the interface through which this machine reaches `address`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == own:
                return name
    raise RuntimeError(f"no interface of this machine has the address {own}")


class _Place:
    """What the rank program is told of its place, and how it reports; see `testbed.ranks`."""

    def __init__(self, folder: Path, interface: str) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.interface = interface
        self.folder = folder
        self.said: dict[str, Any] = {}

    def ready(self) -> float:
        """Wait for all ranks; return the clock at which training begins."""
        dist.barrier()
        return time.monotonic()

    def progress(self, step: int) -> None:
        """Do nothing: collectives have their timeout."""

    def result(self, **values: Any) -> None:
        """Keep how the rank ended."""
        self.said = values


def _plan(options: argparse.Namespace, world: int) -> dict[str, Any]:
    """Have the harness, which knows of scenarios but not of torch, check and plan the run."""
    command = [sys.executable, "-m", "experiments", "plan", options.scenario]
    command += ["--results", options.results, "--world-size", str(world)]
    if options.steps is not None:
        command += ["--steps", str(options.steps)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip() or f"plan ended with {done.returncode}"}
    return json.loads(done.stdout)


def _everywhere(value: Any) -> Any:
    """Return rank 0's value on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def _path(source: int, sink: int) -> dict[str, Any] | None:
    """Measure the path between two ranks; the source returns what it saw."""
    me = dist.get_rank()
    if me not in (source, sink):
        return None
    small, large = torch.zeros(1), torch.zeros(_TRANSFER_BYTES // 4)
    trips: list[float] = []
    rates: list[float] = []
    for data, count in ((small, _PINGS), (large, _TRANSFERS)):
        for _ in range(count):
            begin_s = time.monotonic()
            if me == source:
                dist.send(data, sink)
                dist.recv(small, sink)
                took_s = time.monotonic() - begin_s
                (trips if data is small else rates).append(took_s)
            else:
                dist.recv(data, source)
                dist.send(small, source)
    if me != source:
        return None
    rtt_s = min(trips)
    rate = _TRANSFER_BYTES * 8e-6 / max(min(rates) - rtt_s / 2, 1e-9)
    return {
        "source": f"rank{source}",
        "sink": f"rank{sink}",
        "asked_rtt_ms": None,
        "got_rtt_ms": round(rtt_s * 1e3, 6),
        "asked_rate_mbps": None,
        "got_rate_mbps": round(rate, 3),
    }


def _paths() -> list[dict[str, Any]]:
    """Measure each rank's path to the next, one after another; all ranks return all."""
    world = dist.get_world_size()
    mine = []
    for source in range(world):
        found = _path(source, (source + 1) % world)
        mine += [found] if found else []
        dist.barrier()
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, mine)
    return [path for paths in gathered for path in paths]


def _sent_bytes(interface: str) -> int:
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def _run_cell(cell: dict[str, Any], data: Any, interface: str) -> dict[str, Any] | None:
    """Train one cell; rank 0 returns its outcome and the records of all ranks."""
    spec = cell["spec"]
    paths = _paths()
    with tempfile.TemporaryDirectory(prefix="cell-") as name:
        place = _Place(Path(name), interface)
        before = _sent_bytes(interface)
        rank_program.run(spec, data, place)
        said = {**place.said, "interface": interface, "host": socket.gethostname()}
        said["tx_bytes"] = _sent_bytes(interface) - before
        files = {path.name: path.read_text() for path in Path(name).iterdir()}
    gathered: list[Any] | None = [None] * place.world_size if place.rank == 0 else None
    dist.gather_object((said, files), gathered)
    if gathered is None:
        return None
    results = [said for said, _ in gathered]
    bad = [r for r in results if r["status"] != "ok"]
    digests = {r["digest"] for r in results}
    outcome = {
        "status": bad[0]["status"] if bad else "ok",
        "reason": bad[0].get("reason") if bad else None,
        "replicas_identical": len(digests) == 1,
        "digest": digests.pop() if len(digests) == 1 else None,
        "link_verdict": None,  # nothing was asked of the links
        "link_check": {"paths": paths},
        "virtual_s": None,
        "warmup_steps": spec["warmup_steps"],
        "ranks": results,
    }
    return {"outcome": outcome, "files": [files for _, files in gathered]}


def _write(folder: Path, spec: dict[str, Any], found: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    write_json(folder / "cell.json", spec)
    for files in found["files"]:
        for name, text in files.items():
            (folder / name).write_text(text)
    write_json(folder / "outcome.json", found["outcome"])


def _run(plan: dict[str, Any], interface: str) -> int:
    """Run every cell of the plan; return 0, or 2 if one did not end well."""
    run_dir = Path(plan["run"])
    data = rank_program.prepare(plan["cells"][0]["spec"])
    code = 0
    for cell in plan["cells"]:
        found = _run_cell(cell, data, interface)
        if found is None:
            continue
        _write(run_dir / "cells" / cell["key"], cell["spec"], found)
        status = found["outcome"]["status"]
        print(f"{cell['key']}: {status}", file=sys.stderr)
        code = code if status == "ok" else 2
    if dist.get_rank() == 0:
        # tables and pictures import what a rank does not
        subprocess.run([sys.executable, "-m", "experiments", "report", str(run_dir)], check=True)
        point(run_dir.parent / "latest", run_dir.name)
    return int(_everywhere(code))


def main(arguments: list[str] | None = None) -> int:
    """Be one rank of a cluster; torchrun's environment says which."""
    parser = argparse.ArgumentParser(prog="experiments.cluster", description=__doc__)
    parser.add_argument("scenario", help="a scenario with backend: cluster")
    parser.add_argument("--results", default=str(RESULTS), help="where runs live, on rank 0")
    parser.add_argument("--steps", type=int, help="steps instead of the file's")
    options = parser.parse_args(arguments)
    if "RANK" not in os.environ:
        print("error: start this with torchrun, once per machine", file=sys.stderr)
        return 1
    interface = os.environ.get("GLOO_SOCKET_IFNAME") or interface_to(os.environ["MASTER_ADDR"])
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group(process_group_backend(device), timeout=timedelta(seconds=_TIMEOUT_S))
    try:
        plan = _plan(options, dist.get_world_size()) if dist.get_rank() == 0 else None
        plan = _everywhere(plan)
        if "error" in plan:
            if dist.get_rank() == 0:
                print(plan["error"], file=sys.stderr)
            return 1
        code = _run(plan, interface)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(2)  # the others wait for this rank: torchrun ends them once it is gone
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
