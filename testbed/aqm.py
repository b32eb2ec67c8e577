"""Managed queues: what `tc` is asked for where one netem cannot be delay, rate and queue at once.

A netem with a rate is a first-in-first-out queue by itself. For any other queue, and for frames
that overtake each other, the direction is three qdiscs in a row on one device: a netem without
a rate delays (and loses, reorders …), below it a token bucket of a single frame sets the rate,
and below that the queue. The delay comes before the queue then; the sum is the same. A frame
that finds the bucket full leaves at once, where a netem would hold it for its own length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topologies import Shape
from topologies.shape import FRAME_BYTES

__all__ = ["BURST_BYTES", "UNLIMITED", "bucket_differences", "bucket_lines", "is_split"]

#: limit of a netem that is not the queue; far from what its 32 bits hold
UNLIMITED = 1_000_000_000
#: bytes that may leave back to back: one frame, and what the kernel's rounding takes
BURST_BYTES = 1600
_MOST_RED_FRAMES = 500
_TARGET_MS, _INTERVAL_MS = 5.0, 100.0


def is_split(shape: Shape) -> bool:
    """Whether a direction needs a token bucket and a queue of its own below the netem."""
    return shape.aqm != "pfifo" or bool(shape.reorder_pct) or not shape.jitter_keeps_order


def _red(shape: Shape, queue_bytes: int) -> dict[str, int]:
    """Return limit, min and max of RED: it drops early between a sixth and a half of the queue.

    Its average follows too slowly, and tc refuses, where `min` is more than some 700 frames.
    """
    low = min(max(2 * FRAME_BYTES, queue_bytes // 6), _MOST_RED_FRAMES * FRAME_BYTES)
    high = max(2 * low, min(3 * low, queue_bytes // 2))
    return {"limit": max(queue_bytes, high), "min": low, "max": high}


def _codel(shape: Shape, queue_bytes: int) -> dict[str, int]:
    """Return limit (frames), target and interval (us) of fq_codel, as its RFC 8290 asks."""
    frame_ms = FRAME_BYTES * 8e-3 / shape.rate_mbps
    target_ms = max(_TARGET_MS, 1.5 * frame_ms)  # one frame must not count as a standing queue
    interval_ms = max(_INTERVAL_MS, 20 * target_ms)
    limit = max(2, -(-queue_bytes // FRAME_BYTES))
    return {
        "limit": limit,
        "target": round(target_ms * 1e3),
        "interval": round(interval_ms * 1e3),
    }


def bucket_lines(verb: str, device: str, shape: Shape, queue_bytes: int) -> list[str]:
    """Return the lines for ``tc -batch`` that add or change what is below the netem ``1:``."""
    rate = f"{round(shape.rate_mbps * 1e6)}bit"
    lines = [
        f"qdisc {verb} dev {device} parent 1:1 handle 2:"
        f" tbf rate {rate} burst {BURST_BYTES} limit {queue_bytes}"
    ]
    own = f"qdisc {verb} dev {device} parent 2:1 handle 3:"
    mark = "ecn" if shape.ecn else ""
    if shape.aqm == "red":
        red = _red(shape, queue_bytes)
        # the man page's formula: bursts of this many frames do not move the average much
        burst = -(-(2 * red["min"] + red["max"]) // (3 * FRAME_BYTES))
        lines.append(
            f"{own} red limit {red['limit']} min {red['min']} max {red['max']}"
            f" avpkt {FRAME_BYTES} burst {burst} probability 0.1 bandwidth {rate} {mark}"
        )
    elif shape.aqm == "fq_codel":
        codel = _codel(shape, queue_bytes)
        lines.append(
            f"{own} fq_codel limit {codel['limit']} target {codel['target']}us"
            f" interval {codel['interval']}us quantum {FRAME_BYTES} {mark or 'noecn'}"
        )
    return lines


def bucket_differences(
    name: str, shape: Shape, queue_bytes: int, below: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Compare what is asked below the netem with the entries of ``tc -j qdisc show``."""
    by_handle = {entry.get("handle"): entry for entry in below}
    asked: dict[str, tuple[str, dict[str, float]]] = {
        "2:": ("tbf", {"rate": shape.rate_mbps * 1e6 / 8, "burst": BURST_BYTES})
    }
    if shape.aqm == "red":
        asked["3:"] = ("red", {**_red(shape, queue_bytes), "ecn": shape.ecn})
    elif shape.aqm == "fq_codel":
        asked["3:"] = ("fq_codel", {**_codel(shape, queue_bytes), "ecn": shape.ecn})
    wrong = []
    for handle, (kind, values) in asked.items():
        entry = by_handle.get(handle, {})
        if entry.get("kind") != kind:
            wrong.append(f"{name}: asked for {kind} below its netem, got {entry.get('kind')}")
            continue
        options = entry.get("options", {})
        for key, want in values.items():
            have = float(options.get(key, 0))
            # times are shown in whole microseconds, a burst after its rounding to time
            slack = {"burst": 8.0, "target": 1.0, "interval": 1.0}.get(key, 0.0)
            if abs(have - want) > slack + 1e-6 * abs(want):
                wrong.append(f"{name}: {kind} {key} asked {float(want):g}, got {have:g}")
    return wrong
