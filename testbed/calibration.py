"""Measure a path of the net with a handful of packets: round trip, and rate by dispersion.

A burst of full frames leaves a host at one instant; the slowest link on the way spreads them
out, and the spacing in which they arrive is its rate (Jacobson, "Congestion avoidance and
control", 1988; Carter and Crovella, 1996). On a virtual clock it is exact.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from topologies import Topology
from topologies.shape import FRAME_BYTES

from .namespaces import spawn
from .verdict import Deviation

__all__ = ["PathProbe", "deviations", "probe_path"]

_PORT = 5000
_PAYLOAD = 1472  # of UDP in a full frame
_PINGS = 3
_MOST_FRAMES = 40
_QUIET_S = 2.0


@dataclass(frozen=True)
class PathProbe:
    """What was asked of a path and what was got; times include what serialization takes."""

    source: str
    sink: str
    asked_rtt_ms: float
    got_rtt_ms: float | None
    asked_rate_mbps: float
    got_rate_mbps: float | None


def _answer(address: str, channel: socket.socket) -> None:
    """Send pings back, note when the frames of a burst arrive, tell after a silence."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        server.bind((address, _PORT))
        channel.sendall(b"\n")
        server.settimeout(_QUIET_S)
        arrivals = []
        try:
            while True:
                data, peer = server.recvfrom(2048)
                if len(data) == _PAYLOAD:
                    arrivals.append(time.monotonic())
                else:
                    server.sendto(data, peer)
        except TimeoutError:
            channel.sendall(json.dumps(arrivals).encode())


def _ask(address: str, frames: int, channel: socket.socket) -> None:
    """Ping, then send a burst; report the smallest round trip in seconds."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        client.settimeout(_QUIET_S / 2)
        trips = []
        for _ in range(_PINGS):
            begin = time.monotonic()
            client.sendto(b"ping", (address, _PORT))
            try:
                client.recv(64)
                trips.append(time.monotonic() - begin)
            except TimeoutError:
                continue
        for _ in range(frames):
            client.sendto(bytes(_PAYLOAD), (address, _PORT))
        channel.sendall(json.dumps(min(trips, default=None)).encode())


def _read(channel: socket.socket) -> Any:
    data = b""
    while chunk := channel.recv(1 << 16):
        data += chunk
    return json.loads(data) if data.strip() else None


def _rate_mbps(arrivals: list[float] | None) -> float | None:
    if not arrivals or len(arrivals) < 2 or arrivals[-1] == arrivals[0]:
        return None
    return (len(arrivals) - 1) * FRAME_BYTES * 8e-6 / (arrivals[-1] - arrivals[0])


def probe_path(
    spec: Topology,
    source: str,
    sink: str,
    host_pid: Callable[[str], int],
    address: Callable[[str], str],
) -> PathProbe:
    """Measure the path from `source` to `sink`, which must be quiet."""
    path = spec.path(source, sink)
    room = min(spec.queue_bytes(link, sender) for link, sender in path) // FRAME_BYTES
    frames = max(2, min(_MOST_FRAMES, room))
    small = 4 + 42  # bytes of a ping's frame
    ends = [(link, end) for link, _ in path for end in (link.a, link.b)]
    wire_ms = sum(small * 8e-3 / link.shape(end).rate_mbps for link, end in ends)
    server = spawn(host_pid(sink), lambda c: _answer(address(sink), c), f"probe-{sink}")
    server.channel.recv(1)
    client = spawn(host_pid(source), lambda c: _ask(address(sink), frames, c), f"probe-{source}")
    trip_s = _read(client.channel)
    arrivals = _read(server.channel)
    rate = _rate_mbps(arrivals)
    return PathProbe(
        source,
        sink,
        round(spec.rtt_ms(source, sink) + wire_ms, 6),
        None if trip_s is None else round(trip_s * 1e3, 6),
        spec.bottleneck_mbps(source, sink),
        None if rate is None else round(rate, 6),
    )


def deviations(
    probe: PathProbe,
    spec: Topology,
    rate_tolerance: float,
    rtt_tolerance: float,
    rtt_floor_ms: float,
) -> list[Deviation]:
    """Say where a path is not what was asked: rate by share, RTT by share or by a floor in ms.

    Where frames are lost or delayed at random a burst says nothing exact of the rate, and a
    few pings nothing of the round trip: these are then judged by the run's counters alone.
    """
    there, back = (
        spec.path(*ends) for ends in ((probe.source, probe.sink), (probe.sink, probe.source))
    )
    shapes = [link.shape(sender) for link, sender in there + back]
    if any(s.mean_loss_pct or s.jitter_ms or s.reorder_pct or s.duplicate_pct for s in shapes):
        return []
    wrong = []
    name = f"{probe.source}>{probe.sink}"
    rtt, rate = probe.got_rtt_ms, probe.got_rate_mbps
    allowed = max(rtt_tolerance * probe.asked_rtt_ms, rtt_floor_ms)
    if rtt is None or abs(rtt - probe.asked_rtt_ms) > allowed:
        text = f"{name}: RTT asked {probe.asked_rtt_ms:.3f} ms, got {_shown(rtt)}"
        off = math.inf if rtt is None else abs(rtt - probe.asked_rtt_ms) / allowed
        wrong.append(Deviation(text, off))
    if rate is None or abs(rate / probe.asked_rate_mbps - 1) > rate_tolerance:
        text = f"{name}: rate asked {probe.asked_rate_mbps:g} Mbit/s, got {_shown(rate)}"
        share = math.inf if rate is None else abs(rate / probe.asked_rate_mbps - 1)
        wrong.append(Deviation(text, share / rate_tolerance))
    return wrong


def _shown(value: float | None) -> str:
    return "no answer" if value is None else f"{value:.3f}"
