"""A small world of its own to kill harnesses in: prints, as JSON, what each of them left behind.

Run as the first process of new PID, mount, network and IPC namespaces: whatever a killed harness
leaves is then in plain sight, and nothing that others do on this machine is mistaken for it.

A second run is kept going beside; its cells are compared with undisturbed ones by the caller.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SETTLE_S = 2.0
HERE = Path(__file__).parent
HARNESS = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from guest_cells import cell_spec
from experiments.harness import run_cells
from experiments.progress import Progress
from testbed.backends import CLOCKS
backend, folder, cells = sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
delay_ms = 0 if backend == "host" else 1
network = {"rate_mbps": 50, "delay_ms": delay_ms}
spec = cell_spec("idle", steps=5, clock=CLOCKS[backend], network=network)
specs = [(folder / f"cell-s{n}", spec) for n in range(cells)]
results = run_cells(specs, backend=backend, jobs=1, progress=Progress())
sys.exit(0 if all(r.status == "ok" for r in results) else 2)
"""


def harness(backend: str, folder: Path, cells: int) -> subprocess.Popen:
    """Start a harness: the project's own, on cells that need no torch."""
    command = [sys.executable, "-c", HARNESS, str(HERE), backend, str(folder), str(cells)]
    return subprocess.Popen(command, cwd=HERE.parent.parent)


def processes() -> dict[int, int]:
    """Return parent by process, of all but this one."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if stat[0] != "Z":  # the dead hold nothing; they wait for this process to look at them
            found[int(path.name)] = int(stat[1])
    found.pop(os.getpid())
    return found


def below(root: int, parents: dict[int, int]) -> set[int]:
    """Return `root` and all processes that descend from it."""
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def namespaces(pids: set[int]) -> Iterator[str]:
    for pid in pids:
        try:
            for link in Path(f"/proc/{pid}/ns").iterdir():
                yield os.readlink(link)
        except OSError:  # it has just ended
            continue


def snapshot(folders: list[Path], beside: int | None) -> dict[str, Any]:
    """Return all that a run could leave, but what belongs to the run beside."""
    parents = processes()
    mine = set(parents) - (below(beside, parents) if beside else set())
    files = [str(p) for folder in folders for p in folder.rglob("*")]
    groups = [str(p) for p in Path("/sys/fs/cgroup").rglob("*") if p.is_dir()]
    return {
        "processes": sorted(_words(pid) for pid in mine),
        "namespaces": sorted(set(namespaces(mine | {os.getpid()}))),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "cgroups": sorted(groups),
        "shared memory": sorted(os.listdir("/dev/shm")),
        "temporary files": sorted(files),
    }


def _words(pid: int) -> str:
    try:
        return f"{pid} " + Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
    except OSError:
        return f"{pid} gone"


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return what differs, by kind."""
    found = {}
    for kind in before:
        more = sorted(set(after[kind]) - set(before[kind]))
        less = sorted(set(before[kind]) - set(after[kind]))
        if more or less:
            found[kind] = {"more": more, "less": less}
    return found


def reap() -> None:
    """Look at the dead that were left to this process, as an init does."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--moments", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    assert os.getpid() == 1
    watched = [options.folder / "tmp", options.folder / "home"]
    for folder in watched:
        folder.mkdir()
    os.environ |= {"TMPDIR": str(watched[0]), "HOME": str(watched[1])}

    begin_s = time.monotonic()
    whole = harness(options.backend, options.folder / "whole", 1)
    code = whole.wait()
    run_s = time.monotonic() - begin_s
    report: dict[str, Any] = {"code": code, "run_s": run_s, "moments": []}
    before = snapshot(watched, None)
    assert before["processes"] == []

    beside = harness(options.backend, options.folder / "beside", max(2, options.moments))
    draw = random.Random(options.seed)
    for number in range(options.moments):
        at_s = draw.uniform(0, run_s)
        run = harness(options.backend, options.folder / f"run{number}", 2)
        time.sleep(at_s)
        run.send_signal(signal.SIGKILL)
        run.wait()
        deadline = time.monotonic() + SETTLE_S
        while True:
            alive = beside.poll() is None
            left = difference(before, snapshot(watched, beside.pid if alive else None))
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        settled_s = round(time.monotonic() - deadline + SETTLE_S, 2)
        moment = {"at_s": round(at_s, 3), "left": left, "settled_s": settled_s}
        report["moments"].append(moment | {"beside_ran": alive})
    report["beside"] = beside.wait()
    reap()
    report["end"] = difference(before, snapshot(watched, None))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
