"""Measure a path of the net with a handful of packets: round trip, and rate by dispersion.

A burst of full frames leaves a host at one instant; the slowest link on the way spreads them
out, and the spacing in which they arrive is its rate (Jacobson, "Congestion avoidance and
control", 1988; Carter and Crovella, 1996). On a virtual clock it is exact.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from topologies import Topology
from topologies.shape import FRAME_BYTES

from .namespaces import entered
from .verdict import Deviation

__all__ = ["GRAIN_S", "PathProbe", "deviations", "probe_path"]

#: what lets a frame go and what stamps it each read the clock up to twice, 256 ns apart
GRAIN_S = 4 * 256e-9

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
    frames: int = 0  # whose spacing told the rate; 0: something longer did


def _socket(host_pid: int, address: str = "") -> socket.socket:
    """Make a socket in a host's network, bound if there is an address."""
    with entered(host_pid, "net"):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        made.setsockopt(socket.SOL_SOCKET, option, 1 << 22)
    made.settimeout(_QUIET_S)
    if address:
        made.bind((address, _PORT))
    return made


def _trip_s(client: socket.socket, server: socket.socket, to: str) -> float | None:
    """Send a ping and answer it; return how long that took, None if it was lost."""
    begin = time.monotonic()
    client.sendto(b"ping", (to, _PORT))
    try:
        data, peer = server.recvfrom(64)
        server.sendto(data, peer)
        client.recv(64)
    except TimeoutError:
        return None
    return time.monotonic() - begin


def _burst(client: socket.socket, server: socket.socket, to: str, frames: int) -> list[float]:
    """Send full frames at one instant; return when each that came arrived."""
    for _ in range(frames):
        client.sendto(bytes(_PAYLOAD), (to, _PORT))
    arrivals: list[float] = []
    with contextlib.suppress(TimeoutError):
        while len(arrivals) < frames:
            if len(server.recv(2048)) == _PAYLOAD:  # and no late ping
                arrivals.append(time.monotonic())
    return arrivals


def _rate_mbps(arrivals: list[float]) -> float | None:
    if len(arrivals) < 2 or arrivals[-1] == arrivals[0]:
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
    to = address(sink)
    # both ends in this process: the clock stands still while it works, so nothing is late
    with _socket(host_pid(source)) as client, _socket(host_pid(sink), to) as server:
        trips = [trip for _ in range(_PINGS) if (trip := _trip_s(client, server, to)) is not None]
        trip_s = min(trips, default=None)
        arrivals = _burst(client, server, to, frames)
    rate = _rate_mbps(arrivals)
    return PathProbe(
        source,
        sink,
        round(spec.rtt_ms(source, sink) + wire_ms, 6),
        None if trip_s is None else round(trip_s * 1e3, 6),
        spec.bottleneck_mbps(source, sink),
        None if rate is None else round(rate, 6),
        len(arrivals),
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
    grain = GRAIN_S * probe.asked_rate_mbps * 1e6 / (max(1, probe.frames - 1) * FRAME_BYTES * 8)
    allowed = rate_tolerance + (grain if probe.frames else 0.0)
    if rate is None or abs(rate / probe.asked_rate_mbps - 1) > allowed:
        text = f"{name}: rate asked {probe.asked_rate_mbps:g} Mbit/s, got {_shown(rate)}"
        share = math.inf if rate is None else abs(rate / probe.asked_rate_mbps - 1)
        wrong.append(Deviation(text, share / allowed))
    return wrong


def _shown(value: float | None) -> str:
    return "no answer" if value is None else f"{value:.3f}"
