"""Exact top-k by magnitude, several times faster than ``torch.topk`` on the host.

A strided sample gives a threshold that a little more than k entries pass with near certainty; only
those few are partitioned. When too few pass, the threshold is lowered; the result is exact in
any case and does not depend on the sample: of equal magnitudes the lowest indices win.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch

__all__ = ["kept_count", "top_k"]

_SAMPLE = 1 << 15


def kept_count(numel: int, ratio: float) -> int:
    """``max(1, ceil(ratio * n))`` with the ratio taken as the decimal number that was written."""
    if numel == 0:
        return 0
    return min(numel, max(1, math.ceil(Fraction(repr(float(ratio))) * numel)))


def top_k(magnitudes: torch.Tensor, kept: int) -> torch.Tensor:
    """Indices of the ``kept`` largest of ``magnitudes``, ascending.

    Parameters
    ----------
    magnitudes : float tensor, shape (n,), not negative
    kept : int
        ``1 <= kept <= n``.

    Returns
    -------
    int64 tensor, shape (kept,)
        NaN counts as larger than everything.
    """
    if kept == magnitudes.numel():
        return torch.arange(kept, device=magnitudes.device)
    if magnitudes.device.type != "cpu" or magnitudes.dtype not in (torch.float32, torch.float64):
        return torch.topk(magnitudes, kept, sorted=False).indices.sort().values
    # The bits of non-negative floats are ordered like the floats, with NaN on top.
    kind = np.int32 if magnitudes.dtype == torch.float32 else np.int64
    return torch.from_numpy(_select(magnitudes.numpy().view(kind), kept))


def _select(keys: np.ndarray, kept: int) -> np.ndarray:
    total = keys.size
    candidates = None
    if total > 4 * _SAMPLE:
        candidates = _candidates(keys, kept)
    if candidates is None:
        return _exact(keys, kept)
    return candidates[_exact(keys[candidates], kept)]


def _candidates(keys: np.ndarray, kept: int) -> np.ndarray | None:
    """Ascending indices of at least ``kept`` entries that hold all of the largest, or None."""
    total = keys.size
    # An odd stride visits every position of power-of-two shaped layers.
    sample = keys[:: (total // _SAMPLE) | 1]
    expect = kept / total * sample.size
    for slack in (4.0, 12.0):
        place = int(expect + slack * math.sqrt(expect + 1.0)) + 1
        if place >= sample.size // 2:
            return None
        threshold = np.partition(sample, sample.size - place)[sample.size - place]
        passed = np.flatnonzero(keys >= threshold)
        if passed.size >= kept:
            return passed
    return None


def _exact(keys: np.ndarray, kept: int) -> np.ndarray:
    smallest = np.partition(keys, keys.size - kept)[keys.size - kept]
    above = keys > smallest
    missing = kept - int(np.count_nonzero(above))
    ties = np.flatnonzero(keys == smallest)[:missing]
    above[ties] = True
    return np.flatnonzero(above)
