"""A small simulator of ranks on a ring network, to replay bandwidth schedules to a controller.

It is written apart from the library's own cost model and is less kind than it: transfers have a
start-up loss like TCP's, all-gathers and all-reduces reach different shares of the link rate,
encode and decode cost differ from the library's table, and every step has jitter from a fixed
sequence. All-gathers are played hop by hop, so what a late rank costs follows from the ring and
not from a rule that the library shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from netsenseml.layout import Group, make_group
from netsenseml.policy import Measurement, Policy

NAN = float("nan")


def cnn_groups() -> list[Group]:
    """Two buckets of a convolutional network of 0.47 million parameters."""
    late = make_group(
        ["fc2.bias", "fc2.weight", "fc1.bias", "fc1.weight"],
        [(10,), (10, 128), (128,), (128, 2048)],
    )
    early = make_group(
        ["c3.bias", "c3.weight", "c2.bias", "c2.weight", "c1.bias", "c1.weight"],
        [(128,), (128, 128, 3, 3), (128,), (128, 48, 3, 3), (48,), (48, 1, 3, 3)],
    )
    return [late, early]


@dataclass
class SimulatedRing:
    """One synchronised training on a simulated network.

    ``rate_mbps(step)`` is the link rate, ``late_s(step, rank)`` an extra sleep of a rank.
    """

    policy: Policy
    rate_mbps: Callable[[int], float]
    world: int = 4
    message_s: float = 1.0e-3
    compute_s: float = 0.060
    groups: list[Group] = field(default_factory=cnn_groups)
    late_s: Callable[[int, int], float] = lambda step, rank: 0.0
    jitter: float = 0.02
    share: dict[str, float] = field(default_factory=lambda: {"gather": 0.92, "reduce": 0.97})
    ramp: float = 1.0
    encode_s_per_byte: float = 4e-10
    decode_s_per_byte: float = 3e-10
    step_s: list[float] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    bandwidth_mbps: list[float | None] = field(default_factory=list)
    _state: int = 12345

    def _noise(self) -> float:
        self._state = (1103515245 * self._state + 12345) % 2**31
        return 1.0 + self.jitter * (2 * self._state / 2**31 - 1)

    def _ends(
        self, kind: str, nbytes: int, step: int, starts: list[float], free: float
    ) -> list[float]:
        """When a collective that ranks join at ``starts`` ends on each, on links ``free`` then."""
        if kind == "gather" and self.world > 1:
            return self._gather_ends(nbytes, step, starts, free)
        begin = max(*starts, free)
        return [begin + self._collective_s(kind, nbytes, step)] * self.world

    def _gather_ends(
        self, nbytes: int, step: int, starts: list[float], free: float
    ) -> list[float]:
        """Play a ring all-gather hop by hop.

        In turn t rank p hands what it got in turn t - 1 to its neighbour, once that one's request
        has come, which each rank sends for all turns when it joins.
        """
        n = self.world
        message_s = self.message_s * self._noise()
        seconds = nbytes / (self.rate_mbps(step) / 8e-6 * self.share.get("gather", 0.95))
        seconds *= self._noise()
        have, idle = list(starts), [free] * n
        for _ in range(n - 1):
            got = [0.0] * n
            for p in range(n):
                q = (p + 1) % n
                idle[p] = max(have[p], starts[q] + message_s, idle[p]) + seconds
                got[q] = idle[p] + message_s
            have = got
        ramp_s = self._ramp_s((n - 1) * nbytes)
        if max(starts) - min(starts) >= 0.2:
            ramp_s += self._restart_s(step, nbytes)
        return [max(have[p], idle[p]) + ramp_s for p in range(n)]

    def _restart_s(self, step: int, nbytes: int) -> float:
        """What slow start from ten segments loses against a pipe that is full at once."""
        trip_s = 2 * self.message_s
        pipe = min(self.rate_mbps(step) / 8e-6 * trip_s, nbytes) / 14_480
        return trip_s * (math.log2(pipe) - 1 + 1 / pipe) if pipe > 1 else 0.0

    def _ramp_s(self, moved: float) -> float:
        return self.ramp * self.message_s * math.log2(1 + moved / self.world / 60_000)

    def _collective_s(self, kind: str, nbytes: int, step: int) -> float:
        if self.world == 1:
            return 0.0
        n = self.world
        moved, rounds = {
            "gather": ((n - 1) * nbytes, n - 1),
            "exchange": ((n - 1) * nbytes // n, 1),
            "reduce": (2 * (n - 1) * nbytes // n, 2 * n - 2),
        }[kind]
        rate = self.rate_mbps(step) / 8e-6 * self.share.get(kind, 0.95)
        rounds += 1  # the request that comes before the first message
        return (rounds * self.message_s + moved / rate + self._ramp_s(moved)) * self._noise()

    def run(self, steps: int) -> None:
        """Play steps; appends to the lists, ``moved`` being the bytes out of each rank."""
        first = len(self.step_s)
        for step in range(first, first + steps):
            decision = self.policy.decide(step, self.world)
            codec = decision.codec
            label = codec.name if codec.strength is None else f"{codec.name}:{codec.strength:g}"
            self.chosen.append(label)
            self.reasons.append(decision.reason)
            self.bandwidth_mbps.append(decision.bandwidth_mbps)
            rows, seconds = self._play(codec, step)
            self.step_s.append(seconds)
            self.moved.append(rows[0].link_bytes)
            self.policy.observe(self.groups, rows)

    def _play(self, codec, step: int) -> tuple[list[Measurement], float]:
        dense = sum(group.dense_bytes for group in self.groups)
        late = [self.late_s(step, rank) for rank in range(self.world)]
        ready, encoding, net_free = self.compute_s * 0.5, 0.0, 0.0
        slowest = max(late)
        starts, ends, moved, rounds = [], [], 0, 0
        plans = [codec.transfers(group, self.world) for group in self.groups]
        for at, (group, plan) in enumerate(zip(self.groups, plans, strict=True)):
            if at:
                ready = self.compute_s
            encoding += self.encode_s_per_byte * group.dense_bytes
            starts.append(ready + encoding)
            joined = [starts[-1] + own for own in late]
            ends.append(self._ends(plan[0].kind, plan[0].nbytes, step, joined, net_free))
            net_free = max(ends[-1])
        end = max(net_free, starts[-1] + slowest)
        later = 0.0
        for plan in plans:
            for transfer in plan[1:]:
                later += self._collective_s(transfer.kind, transfer.nbytes, step)
        for transfer in (transfer for plan in plans for transfer in plan):
            n = self.world
            moved += {
                "gather": (n - 1) * transfer.nbytes,
                "exchange": (n - 1) * transfer.nbytes // n,
            }.get(transfer.kind, 2 * (n - 1) * transfer.nbytes // n)
        rounds_of = {"gather": self.world - 1, "exchange": 2, "reduce": 2 * self.world - 2}
        per = rounds_of[plans[0][0].kind]
        first = plans[0][0]
        first_moved = {
            "gather": (self.world - 1) * first.nbytes,
            "exchange": (self.world - 1) * first.nbytes // self.world,
        }.get(first.kind, 2 * (self.world - 1) * first.nbytes // self.world)
        separate = starts[1] + slowest > max(ends[0])
        rounds = per * (2 if separate else 1)
        for transfer in (transfer for plan in plans for transfer in plan[1:]):
            rounds += rounds_of[transfer.kind]
        decoding = self.decode_s_per_byte * dense
        total = end + later + decoding
        ping_s = max(self._ends("gather", 104, step, [0.0] * self.world, 0.0))
        rows = []
        for rank in range(self.world):
            own = late[rank]
            stops = [stop[rank] for stop in ends]
            spans = [(start + own, stop) for start, stop in zip(starts, stops, strict=True)]
            busy = _union(spans) + later
            exposed = max(0.0, max(stops) - (starts[-1] + own)) + later
            rows.append(
                Measurement(
                    busy_s=busy,
                    link_bytes=moved,
                    rounds=rounds,
                    ping_s=ping_s if step else NAN,
                    first_ready_s=0.5 * self.compute_s + own if step else NAN,
                    compute_s=self.compute_s + own if step else NAN,
                    encode_s=encoding,
                    decode_s=decoding,
                    exposed_s=exposed,
                    dense_bytes=dense,
                    main_s=NAN if first.kind == "exchange" else stops[0] - spans[0][0],
                    main_link_bytes=0.0 if first.kind == "exchange" else first_moved,
                    main_rounds=per,
                )
            )
        return rows, total


def _union(spans: list[tuple[float, float]]) -> float:
    total, reach = 0.0, -math.inf
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, reach))
        reach = max(reach, stop)
    return total
