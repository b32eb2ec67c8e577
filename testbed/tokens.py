"""Shape links on a real clock: a token bucket for the rate, netem only for delay and loss.

The patched guest kernel's netem tells the frames of a super-packet apart; other kernels' netem
takes it for one. A token bucket (`tbf`) splits it, sends its frames one by one and counts its
queue in bytes, on any kernel. Delay and loss come from a netem in front of it, where the kernel
has one; where it has none, a scenario that asks for them has been refused before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from topologies import Topology
from topologies.shape import FRAME_BYTES

from .aqm import is_split, queue_differences, queue_lines
from .shaping import Direction, Run, Shaper, netem_arguments
from .shaping import differences as netem_differences

__all__ = ["TokenShaper", "burst_bytes"]

_BURST_S = 0.001
_BELOW = ("queue limit", "below its netem")  # held against what is there, elsewhere
_NO_QUEUE = 1_000_000  # frames: netem holds what is on the way, the bucket's queue is the queue


def burst_bytes(rate_mbps: float) -> int:
    """Return how much may leave at once: a millisecond of the rate, at least two frames.

    Less than the timer's grain loses rate; more lets short transfers run at full speed.
    """
    return max(2 * FRAME_BYTES, round(rate_mbps * 1e6 / 8 * _BURST_S))


def bucket_arguments(direction: Direction) -> list[str]:
    """Return what follows ``tc qdisc add dev DEVICE …`` for the rate and the queue."""
    rate = direction.shape.rate_mbps
    limit = burst_bytes(rate) + direction.queue_bytes
    return [
        *("tbf", "rate", f"{round(rate * 1e6)}bit"),
        *("burst", str(burst_bytes(rate)), "limit", str(limit)),
    ]


def delay_arguments(direction: Direction) -> list[str]:
    """Return netem's arguments without its rate, which the bucket keeps."""
    words = netem_arguments(direction)
    if "rate" in words:  # unless it is below this netem on any clock
        at = words.index("rate")
        words = words[:at] + words[at + 2 :]
    words[words.index("limit") + 1] = str(_NO_QUEUE)
    return words


def bucket_differences(direction: Direction, got: Mapping[str, Any]) -> list[str]:
    """Compare the bucket asked for with one entry of ``tc -j qdisc show``."""
    if got.get("kind") != "tbf":
        return [f"{direction.name}: asked for tbf on {direction.device}, got {got.get('kind')}"]
    options = got["options"]
    rate = direction.shape.rate_mbps
    burst = burst_bytes(rate)
    # shown is how long the queue takes to drain, in whole microseconds
    queue = options.get("lat", 0) * 1e-6 * options["rate"]
    per_us = rate / 8 + 1
    asked = [
        ("rate_mbps", rate, options["rate"] * 8e-6, 1e-5),
        # the kernel keeps it as a time in ticks of 64 ns
        ("burst (bytes)", burst, options.get("burst", 0), 2 * per_us),
        ("queue (bytes)", direction.queue_bytes, queue, 4 * per_us),
    ]
    return [
        f"{direction.name}: {what} asked {want:g}, got {have:g}"
        for what, want, have, tolerance in asked
        if abs(want - have) > tolerance
    ]


class TokenShaper(Shaper):
    """As `Shaper`, with a token bucket per direction behind a netem, if the kernel has netem.

    Parameters
    ----------
    netem
        Whether this kernel has netem.
    """

    def __init__(
        self,
        spec: Topology,
        ports: Mapping[str, tuple[str, str]],
        run: Run | None = None,
        *,
        netem: bool,
    ) -> None:
        super().__init__(spec, ports, **({} if run is None else {"run": run}))
        self._netem = netem

    def _lines(self, verb: str, direction: Direction) -> list[str]:
        """Return the batch lines that add or change what shapes a direction."""
        start = f"qdisc {verb} dev {direction.device}"
        bucket = " ".join(bucket_arguments(direction))
        above = "2:1" if self._netem else "1:1"
        queue = queue_lines(f"{start} parent {above}", direction.shape, direction.queue_bytes)
        if not self._netem:
            return [f"{start} root handle 1: {bucket}", *queue]
        delay = " ".join(delay_arguments(direction))
        return [
            f"{start} root handle 1: {delay}",
            f"{start} parent 1:1 handle 2: {bucket}",
            *queue,
        ]

    def _redirect(self, port: str, device: str) -> list[str]:
        # u32 is in every kernel that has classifiers at all
        return [
            f"qdisc add dev {port} handle ffff: ingress",
            f"filter add dev {port} parent ffff: protocol all u32 match u32 0 0"
            f" action mirred egress redirect dev {device}",
        ]

    def off(self) -> list[str]:
        """Return where a direction's settings are not what is asked of it now."""
        shown = json.loads(self._run(["tc", "-s", "-j", "qdisc", "show"], ""))
        roots = {entry["dev"]: entry for entry in shown if entry.get("root")}
        inner = {entry["dev"]: entry for entry in shown if entry.get("handle") == "2:"}
        wrong: list[str] = []
        for direction in self.directions.values():
            own = [entry for entry in shown if entry["dev"] == direction.device]
            wrong += queue_differences(direction.name, direction.shape, direction.queue_bytes, own)
            bucket = (inner if self._netem else roots).get(direction.device, {})
            wrong += bucket_differences(direction, bucket)
            if self._netem:
                wrong += _delay_differences(direction, roots.get(direction.device, {}))
        return wrong


def _delay_differences(direction: Direction, got: Mapping[str, Any]) -> list[str]:
    if got.get("kind") != "netem":
        return netem_differences(direction, got)
    options = got["options"]
    if options.get("limit") != _NO_QUEUE:
        return [f"{direction.name}: netem's limit asked {_NO_QUEUE}, got {options.get('limit')}"]
    # what the bucket does is held against the bucket: here it stands as asked
    rate = {"rate": {"rate": direction.shape.rate_mbps * 1e6 / 8}}
    rate = {} if is_split(direction.shape) else rate
    found = netem_differences(direction, {**got, "options": {**options, **rate}})
    return [line for line in found if not any(word in line for word in _BELOW)]
