"""Real iperf3 flows that use the network beside the training."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from topologies import Flow

__all__ = ["SERVER_LEAD_S", "CrossTraffic"]

#: servers start this long before their client, so that the client finds them listening
SERVER_LEAD_S = 0.05
_FIRST_PORT = 5201
_LONGEST_S = 86_400


@dataclass
class _Running:
    flow: Flow
    server: subprocess.Popen
    client: subprocess.Popen | None = None
    stopped: bool = False


class CrossTraffic:
    """Starts and stops flows; who calls decides when.

    Parameters
    ----------
    flows
        What to run; a flow is named by its place in this list.
    enter
        Returns, for a host name, the command prefix that runs a program there.
    address
        Returns a host's address.
    """

    def __init__(
        self,
        flows: list[Flow],
        enter: Callable[[str], list[str]],
        address: Callable[[str], str],
    ) -> None:
        self.flows = flows
        self._enter = enter
        self._address = address
        self._running: dict[int, _Running] = {}

    def _start(self, host: str, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            [*self._enter(host), "chrt", "--other", "0", "iperf3", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def listen(self, number: int) -> None:
        """Start the flow's server: it serves one client and ends."""
        flow = self.flows[number]
        port = str(_FIRST_PORT + number)
        server = self._start(flow.sink, "-s", "-1", "-B", self._address(flow.sink), "-p", port)
        self._running[number] = _Running(flow, server)

    def start(self, number: int) -> None:
        """Start the flow's client: data flows from source to sink from now on."""
        flow = self.flows[number]
        arguments = ["-c", self._address(flow.sink), "-p", str(_FIRST_PORT + number)]
        arguments += ["-P", str(flow.flows), "-t", str(_LONGEST_S), "-i", "0"]
        if flow.kind == "iperf3-udp":
            arguments.append("-u")
        if flow.congestion_control:
            arguments += ["-C", flow.congestion_control]
        if flow.rate_mbps:
            arguments += ["-b", f"{round(flow.rate_mbps * 1e6 / flow.flows)}"]
        self._running[number].client = self._start(flow.source, *arguments)

    def stop(self, number: int) -> None:
        """End the flow."""
        running = self._running[number]
        running.stopped = True
        for process in (running.client, running.server):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGKILL)

    def signal(self, host: str, number: int) -> None:
        """Send a signal to every program that runs on a host."""
        for running in self._running.values():
            ends = ((running.flow.source, running.client), (running.flow.sink, running.server))
            for name, process in ends:
                if name == host and process is not None and process.poll() is None:
                    process.send_signal(number)

    def died(self) -> list[str]:
        """Return a line for each flow that ended although nobody stopped it."""
        return [
            f"iperf3 flow {number} {run.flow.source}>{run.flow.sink} ended by itself"
            for number, run in self._running.items()
            if not run.stopped and run.client is not None and run.client.poll() is not None
        ]
