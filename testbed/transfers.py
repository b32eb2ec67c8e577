"""Measure paths on a real clock: bulk transfers for the rate, many pings for the round trip.

On a real clock the spacing of a few frames says more about the scheduler than about the link, so
the rate comes from a TCP transfer, past its slow start and what the bucket and the queue took in
at once. A machine that is held up for a moment makes a link slower, and nothing makes it faster by
more than the burst of its bucket: of a quiet path the fastest third of the transfer counts, of at
most three transfers.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from topologies import Topology
from topologies.shape import FRAME_BYTES

from .calibration import PathProbe
from .namespaces import Child, spawn
from .tokens import burst_bytes

__all__ = [
    "ceiling_mbps",
    "fastest_third_mbps",
    "probe_paths",
    "second_half_mbps",
    "transfer_s",
    "transfers",
    "trip_ms",
]

_PORT = 5002
_PINGS = 40
_PING_EVERY_S = 0.005
_LONGEST_S = 30.0
_CEILING_S = 0.6
#: what TCP delivers of a full frame: MTU 1500 less IP, TCP and time stamps
_SEGMENT_BYTES = 1448

_POINT_EVERY_S = 1e-3
_MOST_TRANSFERS = 3
#: of the rate that is asked: what got this far needs no other transfer
_ENOUGH = 0.99

Points = list[tuple[float, int]]
Pid = Callable[[str], int]
Address = Callable[[str], str]


def _receive(address: str, seconds: float, channel: socket.socket) -> None:
    """Take one connection and report (time, bytes so far), a millisecond apart or more."""
    with socket.create_server((address, _PORT)) as server:
        server.settimeout(_LONGEST_S)
        channel.sendall(b"\n")
        peer, _ = server.accept()
    points = []
    with peer:
        peer.settimeout(_LONGEST_S)
        begin = time.monotonic()
        total, last_s = 0, 0.0
        while (now := time.monotonic() - begin) < seconds:
            data = peer.recv(1 << 18)
            if not data:
                break
            total += len(data)
            now = time.monotonic() - begin
            if now - last_s >= _POINT_EVERY_S:
                points.append((now, total))
                last_s = now
    channel.sendall(json.dumps(points).encode())


def _send(address: str, buffer_bytes: int, channel: socket.socket) -> None:
    """Wait for the word, then send until the receiver has had enough."""
    data = bytes(1 << 16)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        client.settimeout(_LONGEST_S)
        client.connect((address, _PORT))
        channel.recv(1)
        try:
            while True:
                client.sendall(data)
        except OSError:
            channel.sendall(b"done")


def _ping(address: str, channel: socket.socket) -> None:
    trips = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1.0)
        for _ in range(_PINGS):
            begin = time.monotonic()
            client.sendto(b"ping", (address, _PORT))
            try:
                client.recv(64)
                trips.append(time.monotonic() - begin)
            except TimeoutError:
                break
            time.sleep(_PING_EVERY_S)
    channel.sendall(json.dumps(min(trips, default=None)).encode())


def _echo(address: str, channel: socket.socket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, _PORT))
        channel.sendall(b"\n")
        server.settimeout(2.0)
        try:
            while True:
                data, peer = server.recvfrom(64)
                server.sendto(data, peer)
        except TimeoutError:
            return


def _answer(child: Child) -> Any:
    data = b""
    while chunk := child.channel.recv(1 << 16):
        data += chunk
    child.channel.close()
    return json.loads(data) if data.strip() else None


def second_half_mbps(points: Points, seconds: float) -> float | None:
    """Return the rate of a transfer's second half, None if too little came."""
    late = [point for point in points if point[0] >= seconds / 2]
    return _between(late[0], late[-1]) if len(late) > 1 else None


def fastest_third_mbps(points: Points, seconds: float) -> float | None:
    """Return the rate of a transfer's fastest third after its first sixth.

    Parameters
    ----------
    points
        (seconds since the begin, bytes so far), in order of time.
    seconds
        How long the transfer was.

    Returns
    -------
    float or None
        Layer-2 rate in Mbit/s, full frames counted whole; None if there is no third to look at.
    """
    begins = iter(point for point in points if point[0] >= seconds / 6)
    begin = next(begins, None)
    rates = []
    for end in points:
        # the latest begin that is a third away: the next one would be too near
        while begin is not None and end[0] - begin[0] >= seconds / 3:
            rates.append(_between(begin, end))
            begin = next(begins, None)
    return max(rates, default=None)


def _between(begin: tuple[float, int], end: tuple[float, int]) -> float:
    frames = (end[1] - begin[1]) / _SEGMENT_BYTES
    return frames * FRAME_BYTES * 8e-6 / (end[0] - begin[0])


def transfers(
    pairs: Sequence[tuple[str, str]],
    seconds: float,
    host_pid: Pid,
    address: Address,
    buffer_bytes: int = 1 << 22,
) -> list[Points]:
    """Send over TCP from each source to its sink, all at once.

    Parameters
    ----------
    pairs
        Sources and sinks; a host may be one of each.
    seconds
        How long.
    host_pid, address
        Of a host, by its name.
    buffer_bytes
        What a sender holds ahead, at most.

    Returns
    -------
    list
        Per pair what came: (seconds since the begin, bytes so far), in order of time.
    """
    servers = []
    for number, (_, sink) in enumerate(pairs):
        receive = partial(_receive, address(sink), seconds)
        servers.append(spawn(host_pid(sink), receive, f"receive-{number}"))
        servers[-1].channel.recv(1)
    clients = []
    for number, (source, sink) in enumerate(pairs):
        send = partial(_send, address(sink), buffer_bytes)
        clients.append(spawn(host_pid(source), send, f"send-{number}"))
    for client in clients:
        client.channel.sendall(b"\n")
    came = [[(at_s, got) for at_s, got in _answer(server) or []] for server in servers]
    for client in clients:
        client.channel.close()
    return came


def transfer_s(mbps: float, rtt_s: float) -> float:
    """Return how long to send over a path: many round trips, and bursts that weigh little.

    A third of it lasts fifty times what a bucket may send at once, so that this makes a rate at
    most 2 % too high.
    """
    burst_s = burst_bytes(mbps) * 8e-6 / mbps
    return min(10.0, max(1.5, 40 * rtt_s, 3 * 50 * burst_s))


def _round(hosts: Sequence[str]) -> list[tuple[str, str]]:
    """Return each host with the next, the last with the first; nothing for one host alone."""
    pairs = list(zip(hosts, [*hosts[1:], *hosts[:1]], strict=True))
    return [pair for pair in pairs if pair[0] != pair[1]]


def ceiling_mbps(spec: Topology, host_pid: Pid, address: Address) -> float:
    """Return what a host sends on average while each sends to the next, over unshaped links.

    That is how a ring all-reduce uses a net; a link that asks for more would measure this
    machine's processors instead of the link.
    """
    pairs = _round([host.name for host in spec.hosts])
    came = transfers(pairs, _CEILING_S, host_pid, address)
    rates = [second_half_mbps(points, _CEILING_S) for points in came]
    return sum(rate or 0.0 for rate in rates) / max(1, len(rates))


def trip_ms(source: str, sink: str, host_pid: Pid, address: Address) -> float | None:
    """Return the smallest of many round trips, None if a ping stayed away."""
    server = spawn(host_pid(sink), partial(_echo, address(sink)), "echo")
    server.channel.recv(1)
    client = spawn(host_pid(source), partial(_ping, address(sink)), "ping")
    trip_s = _answer(client)
    server.channel.close()
    return None if trip_s is None else trip_s * 1e3


def probe_paths(
    spec: Topology, host_pid: Pid, address: Address, own_ms: float = 0.0
) -> list[PathProbe]:
    """Measure the quiet net, both directions of each host's link, one path after another.

    `own_ms` is what a round trip takes this machine over unshaped links: like the time of
    serialization it is part of what is asked.
    """
    probes = []
    for source, sink in _round([host.name for host in spec.hosts]):
        got_ms = trip_ms(source, sink, host_pid, address)
        rtt_s = spec.rtt_ms(source, sink) / 1e3
        asked_mbps = spec.bottleneck_mbps(source, sink)
        seconds = transfer_s(asked_mbps, rtt_s)
        hops = spec.path(source, sink)
        queued = max(spec.queue_bytes(link, sender) for link, sender in hops)
        bdp = asked_mbps * 1e6 / 8 * rtt_s
        buffer_bytes = int(max(1 << 18, 3 * (bdp + queued)))
        rate: float | None = None
        for _ in range(_MOST_TRANSFERS):
            (came,) = transfers([(source, sink)], seconds, host_pid, address, buffer_bytes)
            got = fastest_third_mbps(came, seconds)
            rate = max((x for x in (rate, got) if x is not None), default=None)
            if rate is not None and rate > _ENOUGH * asked_mbps:
                break
        probes.append(
            PathProbe(
                source,
                sink,
                round(spec.rtt_ms(source, sink) + _wire_ms(spec, source, sink) + own_ms, 6),
                None if got_ms is None else round(got_ms, 6),
                asked_mbps,
                None if rate is None else round(rate, 6),
            )
        )
    return probes


def _wire_ms(spec: Topology, source: str, sink: str) -> float:
    ends = [(link, end) for link, _ in spec.path(source, sink) for end in (link.a, link.b)]
    return sum((4 + 42) * 8e-3 / link.shape(end).rate_mbps for link, end in ends)
