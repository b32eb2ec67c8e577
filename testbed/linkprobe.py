"""Measure single directions of links with raw frames: delay, rate, queue, and what is lost.

A frame is put on the sender's end of a link and caught at the receiver's, past everything that
shapes it and before any bridge: both ends share one clock, so a one-way delay is a subtraction.
All directions of the net are measured at the same time; each has its link to itself.

A burst of more full frames than the queue holds, sent at one instant, tells three things: when
the first arrives (delay), how far apart they arrive (rate; of the first few, which a bucket with
a deep burst lets through at once, and of all), and how many do (queue).
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from topologies import Shape
from topologies.shape import FRAME_BYTES

from .aqm import is_split
from .namespaces import entered
from .shaping import Direction, queue_limit

__all__ = ["SHORT_FRAMES", "Frames", "LinkProbe", "Prober"]

_ETHERTYPE = 0x88B5  # IEEE 802: for local experiments
#: a bridge hands frames to this address up and never on (IEEE 802.1D, table 7-10)
_ADDRESS = bytes.fromhex("0180c200000e")
_HEAD_BYTES = 14
_PATTERN = bytes(FRAME_BYTES - _HEAD_BYTES - 8)
_SO_TIMESTAMPNS = 35
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER_BYTES = 64 << 20
SHORT_FRAMES = 10  # frames of a short transfer
_MOST_FRAMES = 8192  # of all bursts of a round together
_PROBE_FRAMES = 40  # of a burst into a managed queue, which may drop from a longer one
_JITTER_FRAMES = 40
_SETTLE_S = 0.01
#: This process is ahead of the kernel thread that takes in frames when many come at once: what
#: it sends on one direction after the other at one instant may all wait for it to pause, while
#: the clock creeps on (a late first frame looks like delay), or find the backlog full.
_AT_ONCE = 64  # frames
_TURN_S = 1e-6


@dataclass
class Frames:
    """The frames of one direction in one round.

    Parameters
    ----------
    sent_ns : list of int
        When each was sent.
    got : list of (int, int)
        Number and arrival time (ns) of each that came whole, in order of arrival.
    broken : int
        How many came with wrong bits.
    """

    sent_ns: list[int] = field(default_factory=list)
    got: list[tuple[int, int]] = field(default_factory=list)
    broken: int = 0

    def delays_ms(self) -> list[float]:
        """Return how long each frame was under way, in order of arrival."""
        return [(at_ns - self.sent_ns[number]) * 1e-6 for number, at_ns in self.got]

    def rate_mbps(self, frames: int | None = None, skip: int = 0) -> float | None:
        """Return the rate at which the first `frames` came after `skip`, None if none can be told.

        Frames that came at one instant have no rate: infinite.
        """
        times = [at_ns for _, at_ns in self.got[skip:][:frames]]
        if len(times) < 2:
            return None
        took_s = (times[-1] - times[0]) * 1e-9
        return (len(times) - 1) * FRAME_BYTES * 8e-6 / took_s if took_s > 0 else float("inf")


@dataclass(frozen=True)
class LinkProbe:
    """What one direction did to probing frames; None is "not measured".

    Parameters
    ----------
    delay_ms : float
        Of a frame, its own length taken off.
    short_mbps, long_mbps : float
        Rate of ten of the first frames and of all that came of a burst.
    arrived : int
        How many of the burst came.
    queue_frames : int
        Frames that the queue and the delay before it hold.
    frames, lost, doubled, broken, overtaking : int
        Of the frames sent for statistics.
    least_ms, most_ms : float
        Range of the delay under jitter.
    lost_digest : str
        Which frames were lost: equal where the same ones were.
    """

    delay_ms: float | None = None
    short_mbps: float | None = None
    long_mbps: float | None = None
    arrived: int = 0
    queue_frames: int | None = None
    frames: int = 0
    lost: int = 0
    doubled: int = 0
    broken: int = 0
    overtaking: int = 0
    least_ms: float | None = None
    most_ms: float | None = None
    lost_digest: str = ""


def _frame_s(shape: Shape) -> float:
    return FRAME_BYTES * 8e-6 / shape.rate_mbps


def _shares(shape: Shape) -> list[float]:
    """Return the shares (0 to 1) of frames that are treated at random."""
    percents = (
        shape.mean_loss_pct, shape.duplicate_pct, shape.corrupt_pct, shape.reorder_pct,
    )  # fmt: skip
    return [pct / 100 for pct in percents if pct]


def statistics_frames(shape: Shape) -> int:
    """Return how many frames tell the shares of a direction: 20 of the rarest kind, if it can."""
    shares = _shares(shape)
    return min(4000, max(500, round(20 / min(shares)))) if shares else 0


class Prober:
    """Sockets at both ends of every direction of a net.

    Parameters
    ----------
    directions
        By name.
    ports
        Per link name, the interface names at its `a` and its `b`.
    ends
        Per link name, its `a` and its `b`.
    pid
        Returns the process whose network namespace a node's interfaces are in, None for
        switches, which are in this one.
    """

    def __init__(
        self,
        directions: Mapping[str, Direction],
        ports: Mapping[str, tuple[str, str]],
        ends: Mapping[str, tuple[str, str]],
        pid: Callable[[str], int | None],
    ) -> None:
        self._out: dict[str, socket.socket] = {}
        self._in: dict[str, socket.socket] = {}
        # each direction sends from an address of its own
        self._head = {name: _head(number) for number, name in enumerate(directions)}
        for name, direction in directions.items():
            port = dict(zip(ends[direction.link], ports[direction.link], strict=True))
            with _at(pid(direction.sender)):
                self._out[name] = _socket(port[direction.sender], 0)
            with _at(pid(direction.receiver)):
                self._in[name] = _socket(port[direction.receiver], _ETHERTYPE)

    def close(self) -> None:
        """Close every socket."""
        for end in (*self._out.values(), *self._in.values()):
            end.close()

    def measure(self, directions: Iterable[Direction]) -> dict[str, LinkProbe]:
        """Measure directions of a quiet net, which are shaped as they say, all at once."""
        asked = {direction.name: direction for direction in directions}
        bursts = {name: self._burst_frames(d, len(asked)) for name, d in asked.items()}
        burst = self._round(
            asked,
            {name: [(0.0, count)] for name, count in bursts.items()},
        )
        trains = {name: _trains(direction) for name, direction in asked.items()}
        many = self._round(asked, trains)
        alone = {
            name: [(i * (_frame_s(d.shape) + 2.1e-3 * d.shape.jitter_ms), 1)
                   for i in range(_JITTER_FRAMES if d.shape.jitter_ms and d.up else 0)]
            for name, d in asked.items()
        }  # fmt: skip
        single = self._round(asked, alone)
        return {
            name: _result(direction, burst[name], many[name], single[name])
            for name, direction in asked.items()
        }

    @staticmethod
    def _burst_frames(direction: Direction, directions: int) -> int:
        most = max(_PROBE_FRAMES, _MOST_FRAMES // directions)
        if is_split(direction.shape):
            room = direction.queue_bytes // FRAME_BYTES
            if direction.shape.aqm not in ("pfifo", "bfifo"):
                return max(2, min(_PROBE_FRAMES, room // 6))
            return min(most, room + 8)
        return min(most, queue_limit(direction.shape, direction.queue_bytes) + 8)

    def _round(
        self, asked: Mapping[str, Direction], plan: Mapping[str, list[tuple[float, int]]]
    ) -> dict[str, Frames]:
        """Send trains of frames at their times on each direction; return what came."""
        frames = {name: Frames() for name in asked}
        sends = sorted((at_s, name, count) for name, own in plan.items() for at_s, count in own)
        if not sends:
            return frames
        begin_s = time.monotonic()
        at_once = 0
        for at_s, name, count in sends:
            wait_s = begin_s + at_s - time.monotonic()
            if wait_s <= 0 and at_once + count > _AT_ONCE:
                # all that follows is put off as well, so that trains keep their distance
                begin_s += _TURN_S - wait_s
                wait_s = _TURN_S
            if wait_s > 0:
                time.sleep(wait_s)
                at_once = 0
            at_once += count
            own = frames[name]
            # one look at the clock per train: many at one instant make a guest's clock move on
            now_ns = time.time_ns()
            for number in range(len(own.sent_ns), len(own.sent_ns) + count):
                own.sent_ns.append(now_ns)
                with contextlib.suppress(OSError):  # the queue of this very port is full
                    self._out[name].send(self._head[name] + _number(number) + _PATTERN)
        time.sleep(max(_drain_s(d, sum(n for _, n in plan[name])) for name, d in asked.items()))
        for name, own in frames.items():
            self._receive(name, own)
        return frames

    def _receive(self, name: str, frames: Frames) -> None:
        """Take in what has come on a direction."""
        head = self._head[name]
        while True:
            try:
                data, notes, _, _ = self._in[name].recvmsg(2048, 256)
            except BlockingIOError:
                return
            stamp = next(note for _, kind, note in notes if kind == _SO_TIMESTAMPNS)
            seconds, nanoseconds = struct.unpack("qq", stamp[:16])
            number = int.from_bytes(data[_HEAD_BYTES : _HEAD_BYTES + 4], "big")
            if not data.startswith(_ADDRESS) and not data.startswith(head[6:], 6):
                continue  # broken in its address on another link: a bridge hands that on to all
            if data == head + _number(number) + _PATTERN and number < len(frames.sent_ns):
                frames.got.append((number, seconds * 10**9 + nanoseconds))
            else:
                frames.broken += 1


def _head(number: int) -> bytes:
    """Return the Ethernet header of a direction's frames."""
    return _ADDRESS + bytes.fromhex("02000000") + struct.pack("!HH", number, _ETHERTYPE)


def _number(number: int) -> bytes:
    """Return a frame's number and its complement: a wrong bit in it shows."""
    return struct.pack("!II", number, number ^ 0xFFFFFFFF)


def _at(pid: int | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if pid is None else entered(pid, "net")


def _socket(interface: str, protocol: int) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
        made.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    made.bind((interface, protocol))
    made.setblocking(False)
    return made


def _trains(direction: Direction) -> list[tuple[float, int]]:
    """Return when to send how many frames for statistics, so that no queue ever overflows."""
    shape = direction.shape
    if not direction.up:
        return [(0.0, 20)]
    frames = statistics_frames(shape)
    room = direction.queue_bytes // FRAME_BYTES
    size = max(1, min(64, room // (12 if is_split(shape) else 2)))
    gap_s = size * _frame_s(shape) * (1.5 if is_split(shape) else 1.05)
    return [(i * gap_s, min(size, frames - i * size)) for i in range(-(-frames // size))]


def _drain_s(direction: Direction, frames: int) -> float:
    shape = direction.shape
    return (shape.delay_ms + shape.jitter_ms) / 1e3 + frames * _frame_s(shape) + _SETTLE_S


def _result(direction: Direction, burst: Frames, many: Frames, single: Frames) -> LinkProbe:
    shape = direction.shape
    own_ms = 0.0 if is_split(shape) else _frame_s(shape) * 1e3
    numbers = [number for number, _ in many.got]
    lost = sorted(set(range(len(many.sent_ns))) - set(numbers))
    first = [delay_ms - own_ms for delay_ms in burst.delays_ms()[:1]]
    spread = [delay_ms - own_ms for delay_ms in single.delays_ms()]
    # where many directions start at once, a guest takes in some first frames microseconds late,
    # which makes the rest look fast; what a deep bucket lets through at once is fast without it
    short = [burst.rate_mbps(SHORT_FRAMES, skip) for skip in (0, 1)]
    overtaking = sum(delay_ms < shape.delay_ms / 2 for delay_ms in many.delays_ms())
    return LinkProbe(
        delay_ms=round(first[0], 6) if first else None,
        short_mbps=min((rate for rate in short if rate is not None), default=None),
        long_mbps=burst.rate_mbps(),
        arrived=len(burst.got),
        queue_frames=len(burst.got) if len(burst.got) < len(burst.sent_ns) else None,
        frames=len(many.sent_ns),
        lost=len(lost) - many.broken,
        doubled=len(numbers) - len(set(numbers)),
        broken=many.broken,
        overtaking=overtaking,
        least_ms=round(min(spread), 6) if spread else None,
        most_ms=round(max(spread), 6) if spread else None,
        lost_digest=hashlib.sha256(repr(lost).encode()).hexdigest()[:16],
    )
