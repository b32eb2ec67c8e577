"""``netsense``: per step, on all ranks alike, the least lossy codec that the network hides.

The candidates, from least to most lossy, with the progress one of their steps is expected to
make relative to a dense step; docs/methods.md shows what they follow. The discounts are small on
purpose: with error feedback the loss per step is small, and they decide only between codecs of
nearly equal speed.
"""

from __future__ import annotations

from dataclasses import dataclass

from netsenseml.codecs.allreduce import AllReduce
from netsenseml.codecs.fp16 import Fp16
from netsenseml.codecs.int8 import Int8
from netsenseml.codecs.lowrank import LowRank
from netsenseml.codecs.powersgd import PowerSGD
from netsenseml.codecs.topk import TopK
from netsenseml.controller import Candidate, Controller
from netsenseml.methods import Method
from netsenseml.options import Options, bounded, choice

__all__ = ["METHOD", "NetSenseOptions", "build"]

_TOPK = ((0.25, 0.99), (0.1, 0.985), (0.03, 0.97), (0.01, 0.955), (0.003, 0.8), (0.001, 0.6))
_LOW_RANK = ((16, 0.983), (8, 0.974), (4, 0.945), (2, 0.9), (1, 0.7))
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
        Type of top-k values on the wire.
    error_feedback : bool
        Carry what was not sent over to the next step, across all codecs.
    """

    min_ratio: float = bounded(0.003, 0.0, 1.0, above=True)
    low_rank: bool = True
    min_rank: int = bounded(4, 1, 16)
    tolerance: float = bounded(0.02, 0.0, 0.5)
    caution: float = bounded(0.1, 0.0, 0.9)
    values: str = choice("fp16", "bf16", "fp32")
    error_feedback: bool = True


def build(chosen: NetSenseOptions) -> Controller:
    """The controller with its candidates in order of loss."""
    candidates = [
        Candidate("allreduce", AllReduce(), 1.0),
        Candidate("fp16", Fp16(rescale=True), 0.9999),
        Candidate("int8", Int8(), 0.998),
    ]
    ratios = [pair for pair in _TOPK if pair[0] >= chosen.min_ratio]
    if not ratios or ratios[-1][0] > chosen.min_ratio:
        ratios.append((chosen.min_ratio, ratios[-1][1] - 0.01 if ratios else 0.9))
    candidates += [
        Candidate(f"topk:{ratio:g}", TopK(ratio, chosen.values), value) for ratio, value in ratios
    ]
    sparse = [candidate for candidate in candidates if candidate.key.startswith("topk")]
    start = min(sparse, key=lambda c: abs((c.codec.strength or 0.0) - _START)).key
    if chosen.low_rank:
        for rank, value in (pair for pair in _LOW_RANK if pair[0] >= chosen.min_rank):
            candidates.append(Candidate(f"lowrank:{rank}", LowRank(rank), value))
            candidates.append(Candidate(f"powersgd:{rank}", PowerSGD(rank), value - 0.001))
    candidates.sort(key=lambda candidate: -candidate.efficiency)
    return Controller(candidates, start, chosen.tolerance, chosen.caution)


METHOD = Method("netsense", NetSenseOptions, build)
