"""What a program that is a guest's only one needs: a shaped net, and an end."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.linkprobe import Prober
from testbed.namespaces import exact_sleeps
from testbed.net import address, built_net, interfaces
from testbed.shaping import Shaper
from topologies import Topology, build

CELL = Path("/cell")


class Bench:
    """A net that is built and shaped, with a prober on all of its links."""

    def __init__(self, net: Any, spec: Topology) -> None:
        self.net, self.spec = net, spec
        self.ports = {name: (a.name, b.name) for name, (a, b) in interfaces(net, spec).items()}
        self.shaper = Shaper(spec, self.ports)
        self.shaper.apply()
        ends = {link.name: (link.a, link.b) for link in spec.links}
        self.prober = Prober(self.shaper.directions, self.ports, ends, self.pid)

    def pid(self, node: str) -> int | None:
        """Return the process that a node's interfaces belong to, None for a switch."""
        return None if node.startswith("s") else self.net.get(node).pid

    def enter(self, host: str) -> list[str]:
        """Return what runs a command on a host."""
        return ["nsenter", "--target", str(self.pid(host)), "--net", "--uts"]

    def address(self, host: str) -> str:
        """Return a host's address."""
        return address(self.spec, host)


@contextmanager
def bench(ranks: int, segmentation: str = "auto", **topology: Any) -> Iterator[Bench]:
    """Build and shape a net."""
    spec = build(topology, ranks)
    with built_net(spec, segmentation) as net:
        made = Bench(net, spec)
        yield made
        made.prober.close()
        made.shaper.remove()
        # a guest runs one cell, so nobody else takes a net down to build the next
        ends = [made.ports[link.name][link.b.startswith("s")] for link in spec.links]
        for device in (*ends, *(switch.name for switch in spec.switches)):
            subprocess.run(["ip", "link", "del", device], check=True)


def tc(line: str) -> None:
    """Do something to the net that nobody asked for."""
    subprocess.run(["tc", *line.split()], check=True)


def main(run: Callable[[dict[str, Any]], Any]) -> None:
    """Run a program with its plan, write its result and switch the guest off."""
    exact_sleeps()
    try:
        result = run(json.loads((CELL / "plan.json").read_text()))
        (CELL / "result.json").write_text(json.dumps(result, indent=1))
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os.sync()
    ctypes.CDLL(None).reboot(0x4321FEDC)
