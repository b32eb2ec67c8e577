"""Predicted step time of a codec on a network: the model behind ``netsense``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netsenseml.codecs.base import Codec
from netsenseml.layout import Group
from netsenseml.transport import link_bytes, round_count

__all__ = ["CodecCosts", "Network", "overhead_s"]

# Seconds per byte of dense fp32 gradient, (encode, decode): measured on one core of a 2021 server
# CPU with 11.7 M elements. Only a start: what a codec really costs is measured as soon as it
# was used, and unmeasured codecs are scaled by how the measured ones compare with this table.
PRIORS: dict[str, tuple[float, float]] = {
    "allreduce": (1.0e-10, 1.0e-10),
    "fp16": (1.5e-10, 2.5e-10),
    "int8": (3.0e-10, 4.0e-10),
    "topk": (7.0e-10, 2.0e-10),
    "oktopk": (8.0e-10, 2.0e-10),
    "powersgd": (5.0e-10, 3.0e-10),
    "lowrank": (8.0e-10, 3.0e-10),
}


@dataclass(frozen=True)
class Network:
    """What the prediction knows of the outside.

    Attributes
    ----------
    bandwidth : float
        Bytes per second.
    latency_s : float
        One message round.
    first_ready_s, compute_s : float
        When the first and the last bucket are ready, from the end of the previous step.
    world : int
    """

    bandwidth: float
    latency_s: float
    first_ready_s: float
    compute_s: float
    world: int


class CodecCosts:
    """Encode and decode seconds per dense byte of every codec and strength."""

    def __init__(self, window: int = 5) -> None:
        self._window = window
        self._seen: dict[str, list[list[float]]] = {}
        self._warm: list[str] = []

    def add(self, key: str, encode_s: float, decode_s: float, dense_bytes: float) -> None:
        """Learn from a step. The first use of a codec allocates its buffers and is left out."""
        if dense_bytes <= 0:
            return
        if key not in self._warm:
            self._warm.append(key)
            return
        history = self._seen.setdefault(key, [])
        history.append([encode_s / dense_bytes, decode_s / dense_bytes])
        del history[: -self._window]

    def rates(self, key: str) -> tuple[float, float]:
        """(encode, decode) seconds per dense byte: measured, else scaled from the table."""
        if key in self._seen:
            history = self._seen[key]
            return min(pair[0] for pair in history), min(pair[1] for pair in history)
        family = key.split(":")[0]
        for other in self._seen:
            if other.split(":")[0] == family:
                return self.rates(other)
        encode, decode = PRIORS[family]
        factor = self._device_factor()
        return encode * factor, decode * factor

    def _device_factor(self) -> float:
        """How much slower than the table this device is, by the codecs measured so far."""
        factors = []
        for key in self._seen:
            prior = PRIORS[key.split(":")[0]]
            measured = self.rates(key)
            factors.append((measured[0] + measured[1]) / (prior[0] + prior[1]))
        return statistics.median(factors) if factors else 1.0

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        seen = {key: [list(pair) for pair in history] for key, history in self._seen.items()}
        return {"seen": seen, "warm": list(self._warm)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self._seen = {key: [list(p) for p in pairs] for key, pairs in saved["seen"].items()}
        self._warm = list(saved["warm"])


def overhead_s(
    codec: Codec, rates: tuple[float, float], groups: Sequence[Group], net: Network
) -> float:
    """Seconds by which a step is longer than its compute time.

    Buckets become ready between ``first_ready_s`` and ``compute_s`` in proportion to their
    size. Encoding delays everything after it. The link carries one collective after the other;
    the latency of one overlaps the transfer of the one before. Rounds after the first start when
    the last bucket is there; decoding follows arrival.
    """
    total = sum(group.dense_bytes for group in groups)
    if not total:
        return 0.0
    plans = [codec.transfers(group, net.world) for group in groups]
    arrivals: list[float] = []
    ready, encoding, link_free = net.first_ready_s, 0.0, 0.0
    rest = total - groups[0].dense_bytes
    window = net.compute_s - net.first_ready_s
    for group, plan in zip(groups, plans, strict=True):
        if arrivals:
            ready += window * group.dense_bytes / rest if rest else 0.0
        encoding += rates[0] * group.dense_bytes
        link_free = _arrival(plan[0].kind, plan[0].nbytes, ready + encoding, link_free, net)
        arrivals.append(link_free)
    begin = net.compute_s + encoding
    for turn in range(1, max(len(plan) for plan in plans)):
        begin = max(begin, arrivals[0])
        link_free = 0.0
        for at, plan in enumerate(plans):
            if len(plan) > turn:
                start = max(begin, arrivals[at])
                link_free = _arrival(plan[turn].kind, plan[turn].nbytes, start, link_free, net)
                arrivals[at] = link_free
    end = begin
    for group, arrival in zip(groups, arrivals, strict=True):
        end = max(end, arrival) + rates[1] * group.dense_bytes
    return end - net.compute_s


def _arrival(kind: str, nbytes: int, start: float, link_free: float, net: Network) -> float:
    latency = round_count(kind, net.world) * net.latency_s
    moved = link_bytes(kind, nbytes, net.world)
    return max(start + latency, link_free) + moved / net.bandwidth
