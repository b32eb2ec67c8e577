"""``netsense``: per step, on all ranks alike, the least lossy codec that the network hides.

The candidates, from least to most lossy, with the progress one of their steps is expected to
make relative to a dense step; docs/methods.md shows what they follow. With error feedback what is
late is not lost: the discounts are about half of what a short training showed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netsenseml.codecs.allreduce import AllReduce
from netsenseml.codecs.fp16 import Fp16
from netsenseml.codecs.int8 import Int8
from netsenseml.codecs.lowrank import LowRank
from netsenseml.codecs.oktopk import OkTopK
from netsenseml.codecs.powersgd import PowerSGD
from netsenseml.codecs.topk import TopK
from netsenseml.controller import Candidate, Controller
from netsenseml.methods import Method
from netsenseml.options import Options, bounded, choice

__all__ = ["METHOD", "NetSenseOptions", "build"]

#: ratio, type of the values, progress
_TOPK = (
    (0.25, "fp16", 0.985),
    (0.1, "fp16", 0.97),
    (0.03, "fp16", 0.92),
    (0.01, "fp16", 0.8),
    (0.01, "fp8", 0.78),
    (0.005, "fp8", 0.5),
    (0.001, "fp8", 0.2),
)
#: the same of top-k summed by owners
_OKTOPK = (
    (0.1, "fp16", 0.975),
    (0.04, "fp16", 0.95),
    (0.02, "fp8", 0.82),
    (0.01, "fp8", 0.68),
    (0.005, "fp8", 0.45),
)
#: rank, progress: of each rank's own factors, of shared ones
_LOWRANK = ((16, 0.975), (8, 0.94), (4, 0.85), (2, 0.7), (1, 0.4))
_POWERSGD = ((16, 0.975), (8, 0.96), (4, 0.93), (2, 0.86), (1, 0.5))
_START = 0.01  # part of the gradient sent first: small enough for any network's first step


@dataclass(frozen=True)
class NetSenseOptions(Options):
    """Options of ``netsense``.

    Attributes
    ----------
    min_ratio : float
        Strongest top-k ratio it may choose.
    low_rank : bool
        ``powersgd`` and ``lowrank`` are candidates too.
    min_rank : int
        Smallest rank they may have.
    tolerance : float
        Progress per second it gives up for a less lossy codec.
    caution : float
        Less bandwidth that a less lossy codec must be able to live with before it is chosen.
    values : str
        Type of top-k values on the wire: ``"fp16"``, ``"bf16"``, ``"fp32"`` or ``"fp8"`` (e4m3,
        scaled to the peak; what rounding leaves is sent later). ``"auto"`` takes fp16, and fp8
        where the network asks for a ratio of 0.01 or less.
    error_feedback : bool
        Carry what was not sent over to the next step, across all codecs.
    """

    min_ratio: float = bounded(0.005, 0.0, 1.0, above=True)
    low_rank: bool = True
    min_rank: int = bounded(2, 1, 16)
    tolerance: float = bounded(0.02, 0.0, 0.5)
    caution: float = bounded(0.1, 0.0, 0.9)
    values: str = choice("auto", "fp16", "bf16", "fp32", "fp8")
    error_feedback: bool = True


def build(chosen: NetSenseOptions) -> Controller:
    """The controller with its candidates in order of loss."""
    candidates = [
        Candidate("allreduce", AllReduce(), 1.0),
        Candidate("fp16", Fp16(rescale=True), 0.9999),
        Candidate("int8", Int8(), 0.998),
    ]
    sparse = [
        Candidate(f"topk:{key}", TopK(ratio, values), progress)
        for key, (ratio, values, progress) in _sparse(_TOPK, chosen).items()
    ]
    candidates += sparse
    candidates += [
        Candidate(f"oktopk:{key}", OkTopK(ratio, values), progress)
        for key, (ratio, values, progress) in _sparse(_OKTOPK, chosen).items()
    ]
    start = min(sparse, key=lambda c: abs((c.codec.strength or 0.0) - _START)).key
    if chosen.low_rank:
        candidates += [
            Candidate(f"lowrank:{rank}", LowRank(rank), progress)
            for rank, progress in _LOWRANK
            if rank >= chosen.min_rank
        ]
        candidates += [
            Candidate(f"powersgd:{rank}", PowerSGD(rank, values="bf16"), progress)
            for rank, progress in _POWERSGD
            if rank >= chosen.min_rank
        ]
    candidates.sort(key=lambda candidate: -candidate.efficiency)
    return Controller(candidates, start, chosen.tolerance, chosen.caution)


def _sparse(
    table: Sequence[tuple[float, str, float]], chosen: NetSenseOptions
) -> dict[str, tuple[float, str, float]]:
    """Strengths by key: those of the table that are allowed, and the smallest allowed."""
    found = [row for row in table if row[0] >= chosen.min_ratio]
    if not found or found[-1][0] > chosen.min_ratio:
        smaller = next((row for row in table if row[0] < chosen.min_ratio), table[-1])
        found.append((chosen.min_ratio, smaller[1], smaller[2]))
    if chosen.values == "auto":
        return {f"{r:g}" + ("" if v == "fp16" else f":{v}"): (r, v, p) for r, v, p in found}
    return {f"{r:g}": (r, chosen.values, p) for r, _, p in reversed(found)}


METHOD = Method("netsense", NetSenseOptions, build)
