"""Managed queues: what `tc` is asked for where one netem cannot be delay, rate and queue at once.

A netem with a rate is a first-in-first-out queue by itself. For any other queue, and for frames
that overtake each other, the direction is three qdiscs in a row on one device: a netem without
a rate delays (and loses, reorders …), below it a token bucket of a single frame sets the rate,
and below that the queue: the bucket's own, or another. The delay comes before the queue then;
the sum is the same. Frames get their time when they leave, not when they come, so that a change
of the rate acts on those that wait. A frame that finds the bucket full leaves at once, where a
netem would hold it for its own length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topologies import Shape
from topologies.shape import FRAME_BYTES

__all__ = [
    "BURST_BYTES",
    "UNLIMITED",
    "bucket_differences",
    "bucket_lines",
    "is_split",
    "queue_differences",
    "queue_lines",
]

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
    bucket = (
        f"qdisc {verb} dev {device} parent 1:1 handle 2:"
        f" tbf rate {_bits(shape)} burst {BURST_BYTES} limit {queue_bytes}"
    )
    return [bucket, *queue_lines(f"qdisc {verb} dev {device} parent 2:1", shape, queue_bytes)]


def _bits(shape: Shape) -> str:
    return f"{round(shape.rate_mbps * 1e6)}bit"


def queue_lines(start: str, shape: Shape, queue_bytes: int) -> list[str]:
    """Return the line that puts a managed queue, ``3:``, below a token bucket, if one is asked."""
    mark = "ecn" if shape.ecn else ""
    if shape.aqm == "red":
        red = _red(shape, queue_bytes)
        # the man page's formula: bursts of this many frames do not move the average much
        burst = -(-(2 * red["min"] + red["max"]) // (3 * FRAME_BYTES))
        return [
            f"{start} handle 3: red limit {red['limit']} min {red['min']} max {red['max']}"
            f" avpkt {FRAME_BYTES} burst {burst} probability 0.1 bandwidth {_bits(shape)} {mark}"
        ]
    if shape.aqm == "fq_codel":
        codel = _codel(shape, queue_bytes)
        return [
            f"{start} handle 3: fq_codel limit {codel['limit']} target {codel['target']}us"
            f" interval {codel['interval']}us quantum {FRAME_BYTES} {mark or 'noecn'}"
        ]
    return []


def bucket_differences(
    name: str, shape: Shape, queue_bytes: int, below: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Compare what is asked below the netem with the entries of ``tc -j qdisc show``."""
    asked = {"rate": shape.rate_mbps * 1e6 / 8, "burst": BURST_BYTES}
    wrong = _differences(name, "2:", "tbf", asked, below)
    return wrong + queue_differences(name, shape, queue_bytes, below)


def queue_differences(
    name: str, shape: Shape, queue_bytes: int, below: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Compare the managed queue ``3:`` asked for, if one is, with what there is."""
    asked: dict[str, float]
    if shape.aqm == "red":
        asked = {**_red(shape, queue_bytes), "ecn": shape.ecn}
    elif shape.aqm == "fq_codel":
        asked = {**_codel(shape, queue_bytes), "ecn": shape.ecn}
    else:
        return []
    return _differences(name, "3:", shape.aqm, asked, below)


def _differences(
    name: str,
    handle: str,
    kind: str,
    asked: Mapping[str, float],
    below: Sequence[Mapping[str, Any]],
) -> list[str]:
    entry = next((entry for entry in below if entry.get("handle") == handle), {})
    if entry.get("kind") != kind:
        return [f"{name}: asked for {kind} below its netem, got {entry.get('kind')}"]
    options = entry.get("options", {})
    wrong = []
    for key, want in asked.items():
        have = float(options.get(key, 0))
        # rates are whole bytes, times whole microseconds; a burst is rounded to time
        slack = {"rate": 1.0, "burst": 8.0, "target": 1.0, "interval": 1.0}.get(key, 0.0)
        if abs(have - want) > slack + 1e-6 * abs(want) or (want and not have):
            wrong.append(f"{name}: {kind} {key} asked {float(want):g}, got {have:g}")
    return wrong
