"""Real TCP flows on one link: how two share it, and how soon a third takes its part."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from tests.testbed.programs.alone import Bench, bench, main


def flow(made: Bench, source: str, port: int, seconds: float) -> subprocess.Popen:
    """Start a flow from a host to h2 and let its receiver report every half second."""
    command = [*made.enter("h2"), "iperf3", "-s", "-1", "-J", "-i", "0.5", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(0.1)
    client = [*made.enter(source), "iperf3", "-c", made.address("h2"), "-p", str(port)]
    subprocess.Popen(
        [*client, "-t", str(seconds), "-C", "cubic", "-i", "0"], stdout=subprocess.DEVNULL
    )
    return server


def rates(server: subprocess.Popen) -> list[float]:
    """Return Mbit/s of each half second."""
    said = json.loads(server.communicate()[0])
    return [round(i["sum"]["bits_per_second"] / 1e6, 4) for i in said["intervals"]]


def run(plan: dict[str, Any]) -> dict[str, Any]:
    """On each kind of queue: a flow alone for about 2 s, another one beside it from then on.

    How two meet is chaotic: each queue sees several meetings, the newcomer a little later in each.
    """
    found = {}
    for name, shape in plan["queues"].items():
        found[name] = [_meeting(shape, plan["seconds"], 0.0137 * n) for n in range(plan["times"])]
    return found


def _meeting(shape: dict[str, Any], seconds: float, later_s: float) -> dict[str, Any]:
    with bench(3, builder="star", **shape) as made:
        before = made.shaper.read()["s0>h2"]
        first = flow(made, "h0", 5301, 2.0 + seconds)
        time.sleep(2.0 - 0.1 + later_s)
        second = flow(made, "h1", 5302, seconds - 1.0)
        found: dict[str, Any] = {"first": rates(first), "second": rates(second)}
        after = made.shaper.read()["s0>h2"]
        found["drops"] = after["drops"] - before["drops"]
        found["marked"] = sum(entry.get("marked", 0) for entry in after["below"])
        found["wrong"] = made.shaper.off()
    return found


if __name__ == "__main__":
    main(run)
