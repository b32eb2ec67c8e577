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
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from . import rank as rank_program
from .atomic import point, write_json
from .hardware import process_group_backend
from .runs import RESULTS

__all__ = ["main"]

_TIMEOUT_S = 120.0
_REPORT_S = 600.0
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


class _Ranks:
    """All ranks, which meet anew for each cell: a group in which one failed is of no more use.

    What they say outside of a group goes through torchrun's store.
    """

    def __init__(self, device: str) -> None:
        self._timeout = timedelta(seconds=_TIMEOUT_S)
        self.store, self.rank, self.world_size = next(rendezvous("env://", timeout=self._timeout))
        self._backend = process_group_backend(device)
        self._meetings = 0
        self.stopped = False
        # torchrun ends all ranks once one is gone: the first still has the records to write
        ending = self._stop if self.rank == 0 else signal.SIG_DFL
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ending)

    def _stop(self, *_: Any) -> None:
        self.stopped = True

    def check_stopped(self) -> None:
        """Raise a `RuntimeError` if this rank was told to end."""
        if self.stopped:
            raise RuntimeError("the ranks were told to end")

    def wait(self, keys: list[str], timeout_s: float) -> None:
        """Wait until the store has all of some keys; a `RuntimeError` says that it has not."""
        end_s = time.monotonic() + timeout_s
        while not self.store.check(keys):
            self.check_stopped()
            if time.monotonic() > end_s:
                raise RuntimeError(f"a rank was lost: no {keys} after {timeout_s:g} s")
            time.sleep(0.05)

    def meet(self) -> None:
        """Leave the process group, if this rank is in one, and form another of all ranks."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self._meetings += 1
        name = f"meeting-{self._meetings}"
        self.store.set(f"{name}/{self.rank}", "")
        # one that waits in vain for another's part of a collective, twice at most, comes later
        everyone = [f"{name}/{rank}" for rank in range(self.world_size)]
        self.wait(everyone, 3 * _TIMEOUT_S)
        dist.init_process_group(
            self._backend,
            store=dist.PrefixStore(name, self.store),
            rank=self.rank,
            world_size=self.world_size,
            timeout=self._timeout,
        )

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value on rank 0, nothing on the others."""
        gathered: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        dist.gather_object(value, gathered)
        return gathered or []

    def share(self, key: str, value: Any, timeout_s: float = _TIMEOUT_S) -> Any:
        """Return rank 0's value, plain data, on every rank."""
        if self.rank == 0:
            self.store.set(key, json.dumps(value))
            return value
        self.wait([key], timeout_s)
        return json.loads(self.store.get(key))


class _Place:
    """What the rank program is told of its place, and how it reports; see `testbed.ranks`."""

    def __init__(self, folder: Path, interface: str, ranks: _Ranks) -> None:
        self.rank = ranks.rank
        self.world_size = ranks.world_size
        self.interface = interface
        self.folder = folder
        self.said: dict[str, Any] = {}
        self._ranks = ranks

    def ready(self) -> float:
        """Wait for all ranks; return the clock at which training begins."""
        dist.barrier()
        return time.monotonic()

    def progress(self, step: int) -> None:
        """Go on unless told to end; collectives have their timeout."""
        self._ranks.check_stopped()

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


#: What a rank has to say of a cell: how it ended, the paths (rank 0 counts), its records.
_Told = tuple[dict[str, Any], list[dict[str, Any]], dict[str, str]]


def _train(cell: dict[str, Any], data: Any, interface: str, ranks: _Ranks) -> _Told:
    """Train one cell; what goes wrong in it becomes its result."""
    paths: list[dict[str, Any]] = []
    before = _sent_bytes(interface)
    with tempfile.TemporaryDirectory(prefix="cell-") as name:
        place = _Place(Path(name), interface, ranks)
        try:
            paths = _paths()
            before = _sent_bytes(interface)
            rank_program.run(cell["spec"], data, place)
            said = place.said
        except Exception as error:
            (place.folder / f"error-rank{place.rank}.txt").write_text(traceback.format_exc())
            text = " ".join(str(error).split())
            reason = f"rank {place.rank}: {type(error).__name__}: {text}"
            said = {"status": "failed", "reason": reason}
        if said["status"] != "ok":
            # the first to fail knows why; the others miss it
            said["order"] = ranks.store.add(f"bad/{cell['key']}", 1)
        said |= {"interface": interface, "host": socket.gethostname()}
        said["tx_bytes"] = _sent_bytes(interface) - before
        files = {path.name: path.read_text() for path in Path(name).iterdir()}
    return said, paths, files


def _outcome(spec: dict[str, Any], told: list[_Told], lost: str) -> dict[str, Any]:
    """Return what came of a cell; `lost` says why not all ranks have told."""
    results = [said for said, _, _ in told]
    bad = sorted((r for r in results if r["status"] != "ok"), key=lambda r: r["order"])
    digests = {r.get("digest") for r in results}
    known = not lost and None not in digests
    return {
        "status": "failed" if lost else bad[0]["status"] if bad else "ok",
        "reason": bad[0].get("reason") if bad else lost or None,
        "replicas_identical": len(digests) == 1 if known else None,
        "digest": digests.pop() if known and len(digests) == 1 else None,
        "link_verdict": None,  # nothing was asked of the links
        "link_check": {"paths": told[0][1]},
        "virtual_s": None,
        "warmup_steps": spec["warmup_steps"],
        "ranks": results,
    }


def _write(folder: Path, spec: dict[str, Any], told: list[_Told], outcome: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    write_json(folder / "cell.json", spec)
    for _, _, files in told:
        for name, text in files.items():
            (folder / name).write_text(text)
    write_json(folder / "outcome.json", outcome)


def _run(plan: dict[str, Any], interface: str, ranks: _Ranks) -> int:
    """Run every cell of the plan, or all until a rank is gone; return 0, or 2 if one ended badly.

    Rank 0 writes each cell when it has ended.
    """
    run_dir = Path(plan["run"])
    data = rank_program.prepare(plan["cells"][0]["spec"])
    ranks.meet()
    code, lost = 0, ""
    for cell in plan["cells"]:
        mine = _train(cell, data, interface, ranks)
        try:
            ranks.meet()
            told = ranks.gather(mine)
        except RuntimeError as error:
            lost, told = str(error), [mine]
        if ranks.rank == 0:
            outcome = _outcome(cell["spec"], told, lost)
            _write(run_dir / "cells" / cell["key"], cell["spec"], told, outcome)
            reason = f": {outcome['reason']}" if outcome["reason"] else ""
            print(f"{cell['key']}: {outcome['status']}{reason}", file=sys.stderr)
            code = code if outcome["status"] == "ok" else 2
        if lost:
            break
    if ranks.rank == 0:
        point(run_dir.parent / "latest", run_dir.name)
        # tables and pictures import what a rank does not
        subprocess.run([sys.executable, "-m", "experiments", "report", str(run_dir)], check=True)
    return int(ranks.share("code", code, _REPORT_S))


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, once, and exits with 1: 2 means that a cell failed."""

    def error(self, message: str) -> NoReturn:
        first = os.environ.get("RANK", "0") == "0"
        self.exit(1, f"error: {message}\n" if first else None)


def main(arguments: list[str] | None = None) -> int:
    """Be one rank of a cluster; torchrun's environment says which."""
    parser = _Parser(prog="experiments.cluster", description=__doc__)
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
    try:
        ranks = _Ranks("cuda" if torch.cuda.is_available() else "cpu")
        plan = _plan(options, ranks.world_size) if ranks.rank == 0 else None
        if plan and "error" in plan:
            # said first: torchrun ends this rank once another has ended with an error
            print(plan["error"], file=sys.stderr, flush=True)
        plan = ranks.share("plan", plan)
        if "error" in plan:
            return 1
        code = _run(plan, interface, ranks)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(2)  # the others wait for this rank: torchrun ends them once it is gone
    if dist.is_initialized():
        dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
