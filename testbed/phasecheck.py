"""Judge what a direction did to probing frames against what is asked of it in a phase."""

from __future__ import annotations

import math
from statistics import NormalDist

from topologies import Shape
from topologies.shape import FRAME_BYTES

from .aqm import BURST_BYTES, is_split
from .calibration import GRAIN_S
from .linkprobe import SHORT_FRAMES, LinkProbe
from .shaping import Direction, queue_limit
from .verdict import Deviation

__all__ = ["binomial_range", "loss_burst", "probe_deviations"]


def binomial_range(
    count: int, share: float, burst: float = 1.0, checks: int = 1
) -> tuple[float, float]:
    """Return the range that holds 99 % of the outcomes of `count` draws with chance `share`.

    Parameters
    ----------
    burst
        Factor on the variance, for draws that come in runs.
    checks
        How many such ranges are looked at together: 99 % is the chance that all hold.

    Notes
    -----
    Wilson's score interval turned round, plus half a draw: Brown, Cai and DasGupta, Statistical
    Science 16 (2001).
    """
    z = NormalDist().inv_cdf(1 - 0.005 / checks)
    spread = z * math.sqrt(count * share * (1 - share) * burst) + 0.5
    # few expected events are skewed: a Poisson tail is longer than a normal one
    skew = (z**2 - 1) / 6 * burst
    return max(0.0, count * share - spread), min(float(count), count * share + spread + skew)


def loss_burst(shape: Shape) -> float:
    """Return by how much losses in runs spread more than independent ones.

    The state of the chain is correlated by ``1 - p - r`` from one frame to the next.
    """
    model = shape.loss_model
    if model is None:
        return 1.0
    carry = 1 - (model.p_pct + model.r_pct) / 100
    return max(1.0, (1 + carry) / (1 - carry))


def probe_deviations(
    direction: Direction,
    probe: LinkProbe,
    tolerances: tuple[float, float, float],
    where: str,
    checks: int = 1,
) -> list[Deviation]:
    """Say where a direction is not what was asked.

    Parameters
    ----------
    tolerances
        Of the rate by share; of the delay by share of the round trip, and at least in ms. A
        direction may use up half of the latter.
    where
        Put in front of each line: which direction, and from when.
    checks
        As in `binomial_range`.
    """
    shape = direction.shape
    if not direction.up:
        came = probe.frames - probe.lost
        return [Deviation(f"{where}: asked to be down, {came} frames came through")] * (came > 0)
    wrong = _rates(shape, probe, tolerances[0], where)
    wrong += _delay(shape, probe, tolerances[1:], where)
    wrong += _queue(direction, probe, where)
    for what, count, pct, burst in (
        ("loss_pct", probe.lost, shape.mean_loss_pct, loss_burst(shape)),
        ("duplicate_pct", probe.doubled, shape.duplicate_pct, 1.0),
        ("corrupt_pct", probe.broken, shape.corrupt_pct, 1.0),
        ("reorder_pct", probe.overtaking, shape.reorder_pct, 1.0),
    ):
        # what is lost can be neither doubled nor broken
        sent = probe.frames if what == "loss_pct" else probe.frames - probe.lost
        low, high = binomial_range(sent, pct / 100, burst, checks)
        if sent and not low <= count <= high:
            off = abs(count - sent * pct / 100) / max(high - low, 1) * 2
            got = 100 * count / sent
            wrong.append(Deviation(f"{where}: {what} asked {pct:g}, got {got:.3f}", off))
    return wrong


def _rates(shape: Shape, probe: LinkProbe, tolerance: float, where: str) -> list[Deviation]:
    if shape.jitter_ms or shape.reorder_pct or shape.duplicate_pct or shape.corrupt_pct:
        return []  # the spacing of frames says nothing exact of the rate: their number will
    wrong = []
    for how, got in (("short", probe.short_mbps), ("long", probe.long_mbps)):
        if got is None:
            if shape.mean_loss_pct < 50:
                wrong.append(Deviation(f"{where}: a {how} transfer did not arrive"))
            continue
        share = got / shape.rate_mbps - 1
        frames = max(
            1, (min(SHORT_FRAMES, probe.arrived) if how == "short" else probe.arrived) - 1
        )
        grain = GRAIN_S * shape.rate_mbps * 1e6 / (frames * FRAME_BYTES * 8)
        if is_split(shape):
            grain += (BURST_BYTES - FRAME_BYTES) / (frames * FRAME_BYTES)
        if abs(share) > tolerance + grain:
            text = f"rate_mbps asked {shape.rate_mbps:g}, got {got:.3f} in a {how} transfer"
            wrong.append(Deviation(f"{where}: {text}", abs(share) / tolerance))
    return wrong


def _delay(
    shape: Shape, probe: LinkProbe, tolerances: tuple[float, ...], where: str
) -> list[Deviation]:
    share, floor_ms = tolerances
    allowed = max(share * shape.delay_ms, floor_ms / 2)
    if shape.jitter_ms:
        if probe.least_ms is None or probe.most_ms is None:
            return [Deviation(f"{where}: no frame arrived")]
        low, high = shape.delay_ms - shape.jitter_ms, shape.delay_ms + shape.jitter_ms
        wide = probe.most_ms - probe.least_ms >= shape.jitter_ms
        if probe.least_ms < low - allowed or probe.most_ms > high + allowed or not wide:
            got = f"{probe.least_ms:.3f} to {probe.most_ms:.3f}"
            asked = f"delay_ms asked {low:g} to {high:g}"
            return [Deviation(f"{where}: {asked}, got {got}")]
        return []
    if probe.delay_ms is None:
        return [] if shape.mean_loss_pct >= 50 else [Deviation(f"{where}: no frame arrived")]
    if shape.reorder_pct:
        return []  # the first frame may have been the one that overtakes
    lossy = shape.mean_loss_pct or shape.corrupt_pct  # the first frame may not be the first sent
    off_ms = abs(probe.delay_ms - shape.delay_ms)
    if off_ms > allowed and not (lossy and probe.delay_ms > shape.delay_ms):
        text = f"delay_ms asked {shape.delay_ms:g}, got {probe.delay_ms:.3f}"
        return [Deviation(f"{where}: {text}", off_ms / allowed)]
    return []


def _queue(direction: Direction, probe: LinkProbe, where: str) -> list[Deviation]:
    """Hold the frames that a burst leaves against the limit, where nothing else takes frames."""
    shape = direction.shape
    exact = not (
        shape.mean_loss_pct or shape.duplicate_pct or shape.corrupt_pct or shape.jitter_ms
    )
    if probe.queue_frames is None or not exact or (is_split(shape) and shape.aqm != "bfifo"):
        return []
    asked = queue_limit(shape, direction.queue_bytes)
    if is_split(shape):
        asked = direction.queue_bytes // FRAME_BYTES
    off = abs(probe.queue_frames - asked)
    if off > max(1, 0.01 * asked):
        text = f"queue (frames, with those under way) asked {asked}, got {probe.queue_frames}"
        return [Deviation(f"{where}: {text}", off / max(1, 0.01 * asked))]
    return []
