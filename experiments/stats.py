"""Small statistics over seeds: percentiles, speed-ups and bootstrap intervals.

Seeds are repetitions. Methods are compared seed by seed, because cells of one seed share
initial weights and data order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Estimate", "bootstrap", "percentile", "speedup"]

_RESAMPLES = 2000
_SEED = 20250616


@dataclass(frozen=True)
class Estimate:
    """A median over repetitions.

    Parameters
    ----------
    median : float
    low, high : float or None
        95 % bootstrap interval of the median; None with fewer than three repetitions, which
        say nothing about spread.
    n : int
        Repetitions.
    """

    median: float
    low: float | None
    high: float | None
    n: int


def percentile(values: Sequence[float], q: float) -> float | None:
    """Return the `q`-th percentile with linear interpolation; None without values."""
    if not len(values):
        return None
    return float(np.percentile(np.asarray(values, dtype=np.float64), q))


def bootstrap(values: Sequence[float]) -> Estimate | None:
    """Return the median of `values` and its interval; None without values.

    The resampling has a fixed seed, so equal input gives equal output. Percentile bootstrap:
    Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13.
    """
    sample = np.asarray(values, dtype=np.float64)
    if not sample.size:
        return None
    if not np.isfinite(sample).all():
        raise ValueError("expected finite values")
    median = float(np.median(sample))
    if sample.size < 3:
        return Estimate(median, None, None, int(sample.size))
    draw = np.random.default_rng(_SEED).integers(0, sample.size, (_RESAMPLES, sample.size))
    low, high = np.percentile(np.median(sample[draw], axis=1), [2.5, 97.5])
    return Estimate(median, float(low), float(high), int(sample.size))


def speedup(
    ours: Mapping[int, float | None], theirs: Mapping[int, float | None]
) -> Estimate | None:
    """Return how many times faster `ours` is, from throughputs by seed.

    Only seeds that both have count; None if there is none.
    """
    ratios = []
    for seed, rate in sorted(ours.items()):
        other = theirs.get(seed)
        if rate and other and math.isfinite(rate) and math.isfinite(other):
            ratios.append(rate / other)
    return bootstrap(ratios)
