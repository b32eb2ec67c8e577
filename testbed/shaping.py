"""Make each direction of a link do to frames what was asked, and prove that it does.

A direction is shaped by one netem (`aqm` has the exceptions) at the far side of the sender's
cable, never in the sending host: there it would hide the sender's own queueing from its TCP.
Toward a switch that is an ifb device fed from the switch port's ingress; from a switch it is the
port's egress. Every setting is read back and compared; a difference stops the run.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from topologies import Shape, Topology
from topologies.phases import changed
from topologies.shape import FRAME_BYTES

from .aqm import UNLIMITED, bucket_differences, bucket_lines, is_split

__all__ = ["Direction", "Shaper", "ShapingError", "differences", "netem_arguments"]

Run = Callable[[list[str], str], str]

#: tc sets delays in ticks of 64 ns and shows whole microseconds, rounded down
_SHOWN_MS = 0.0011


class ShapingError(Exception):
    """The network is not what was asked for; the text says which link and how."""


@dataclass(frozen=True)
class Direction:
    """One direction of a link, the device that shapes it and what is asked of it now."""

    link: str
    sender: str
    receiver: str
    device: str
    shape: Shape
    queue_bytes: int
    up: bool = True

    @property
    def name(self) -> str:
        """``sender>receiver``, as records call it."""
        return f"{self.sender}>{self.receiver}"


def queue_limit(shape: Shape, queue_bytes: int) -> int:
    """Return netem's limit in full frames: the queue asked for, and what the delay holds.

    A netem that is not the queue itself never ends it.
    """
    if is_split(shape):
        return UNLIMITED
    in_flight = shape.rate_mbps * 1e6 / 8 * shape.delay_ms / 1e3
    return max(2, math.ceil((queue_bytes + in_flight) / FRAME_BYTES))


def netem_arguments(direction: Direction) -> list[str]:
    """Return what follows ``tc qdisc add dev DEVICE root`` for this direction."""
    shape = direction.shape
    args = ["netem", "limit", str(queue_limit(shape, direction.queue_bytes))]
    if not is_split(shape):
        args += ["rate", f"{round(shape.rate_mbps * 1e6)}bit"]
    if shape.delay_ms:
        args += ["delay", f"{shape.delay_ms * 1e3:.3f}us"]
        if shape.jitter_ms:
            args += [f"{shape.jitter_ms * 1e3:.3f}us"]
    if not direction.up:
        args += ["loss", "100%"]
    elif shape.loss_model is not None:
        model = shape.loss_model
        values = (model.p_pct, model.r_pct, model.loss_bad_pct, model.loss_good_pct)
        args += ["loss", "gemodel", *(f"{value}%" for value in values)]
    elif shape.loss_pct:
        args += ["loss", "random", f"{shape.loss_pct}%"]
    for word, value in (
        ("duplicate", shape.duplicate_pct),
        ("corrupt", shape.corrupt_pct),
        ("reorder", shape.reorder_pct),
    ):
        if value:
            args += [word, f"{value}%"]
    return args


def differences(direction: Direction, got: Mapping[str, Any]) -> list[str]:
    """Compare what is asked with one entry of ``tc -j qdisc show``; empty when they agree."""
    options = got.get("options", {})
    shape = direction.shape
    split = is_split(shape)
    loss = 100.0 if not direction.up else shape.loss_pct
    model = shape.loss_model if direction.up else None
    asked: list[tuple[str, float, float, float]] = [  # what, asked, got, tolerance
        (
            "queue limit (frames)",
            queue_limit(shape, direction.queue_bytes),
            options.get("limit", 0),
            0,
        ),
        (
            "rate_mbps",
            0 if split else shape.rate_mbps,
            _get(options, "rate", "rate") * 8 / 1e6,
            1e-5,
        ),
        ("delay_ms", shape.delay_ms, _get(options, "delay", "delay") * 1e3, _SHOWN_MS),
        ("jitter_ms", shape.jitter_ms, _get(options, "delay", "jitter") * 1e3, _SHOWN_MS),
        ("loss_pct", loss, _get(options, "loss-random", "loss") * 100, 1e-5),
        (
            "loss p_pct",
            model.p_pct if model else 0,
            _get(options, "loss-gemodel", "p") * 100,
            1e-5,
        ),
        (
            "duplicate_pct",
            shape.duplicate_pct,
            _get(options, "duplicate", "duplicate") * 100,
            1e-5,
        ),
        (
            "loss r_pct",
            model.r_pct if model else 0.0,
            _get(options, "loss-gemodel", "r") * 100,
            1e-5,
        ),
        ("reorder_pct", shape.reorder_pct, _get(options, "reorder", "reorder") * 100, 1e-5),
        ("corrupt_pct", shape.corrupt_pct, _get(options, "corrupt", "corrupt") * 100, 1e-5),
    ]
    if got.get("kind") != "netem":
        return [f"{direction.name}: asked for netem on {direction.device}, got {got.get('kind')}"]
    wrong = [
        f"{direction.name}: {what} asked {want:g}, got {have:g}"
        for what, want, have, tolerance in asked
        if abs(want - have) > tolerance + 1e-6 * abs(want) or _is_off(what, want, have)
    ]
    if split:
        below = got.get("below", [])
        wrong += bucket_differences(direction.name, shape, direction.queue_bytes, below)
    return wrong


def _is_off(what: str, want: float, have: float) -> bool:
    """Return whether a rate or share that was asked for is none at all: tc rounded it to 0.

    A delay of 0 may be one below the microsecond that tc shows.
    """
    return bool(want) and not have and not what.endswith("_ms")


def _get(options: Mapping[str, Any], group: str, key: str) -> float:
    value = options.get(group, 0)
    return value.get(key, 0) if isinstance(value, Mapping) else value


def _run(command: list[str], text: str = "") -> str:
    result = subprocess.run(command, input=text, text=True, capture_output=True)
    if result.returncode or result.stderr.strip():
        raise ShapingError(f"`{' '.join(command)}`: {result.stderr.strip() or 'failed'}")
    return result.stdout


class Shaper:
    """Shapes the directions of a net, changes them in place and reads them back.

    Parameters
    ----------
    spec
        The network asked for.
    ports
        Per link name, the interface names at its `a` and its `b`; those of switches are in
        the namespace that the shaper runs in.
    run
        Runs a command with a text as its input and returns what it prints.
    """

    def __init__(
        self, spec: Topology, ports: Mapping[str, tuple[str, str]], run: Run = _run
    ) -> None:
        self._run = run
        self.directions: dict[str, Direction] = {}
        self._ingress: dict[str, str] = {}  # device -> switch port that feeds it
        switches = {switch.name for switch in spec.switches}
        for number, link in enumerate(spec.links):
            port = dict(zip((link.a, link.b), ports[link.name], strict=True))
            for sender, receiver, shape in link.directions():
                if sender in switches:
                    device = port[sender]
                elif receiver in switches:
                    device = (
                        f"in{number}"  # its own name: the kernel makes an ifb0 and ifb1 at boot
                    )
                    self._ingress[device] = port[receiver]
                else:
                    raise ShapingError(
                        f"link {link.name}: put a switch between {sender} and {receiver}"
                    )
                direction = Direction(
                    link.name, sender, receiver, device, shape, spec.queue_bytes(link, sender)
                )
                self.directions[direction.name] = direction

    def _redirect(self, port: str, device: str) -> list[str]:
        """Return the batch lines that send what arrives at `port` through `device`."""
        return [
            f"qdisc add dev {port} handle ffff: ingress",
            f"filter add dev {port} parent ffff: matchall"
            f" action mirred egress redirect dev {device}",
        ]

    def _lines(self, verb: str, direction: Direction) -> list[str]:
        """Return the batch lines that add or change what shapes a direction."""
        arguments = " ".join(netem_arguments(direction))
        lines = [f"qdisc {verb} dev {direction.device} root handle 1: {arguments}"]
        if is_split(direction.shape):
            lines += bucket_lines(verb, direction.device, direction.shape, direction.queue_bytes)
        return lines

    def apply(self) -> None:
        """Shape every direction, read all back and raise `ShapingError` on any difference."""
        lines = []
        for device in self._ingress:
            lines += [f"link add {device} type ifb", f"link set {device} up"]
        self._run(["ip", "-batch", "-"], "\n".join(lines))
        lines = []
        for device, port in self._ingress.items():
            lines += self._redirect(port, device)
        for direction in self.directions.values():
            lines += self._lines("add", direction)
        self._run(["tc", "-batch", "-"], "\n".join(lines))
        self.verify()

    def remove(self) -> None:
        """Take away the devices that `apply` made; the rest goes with the net."""
        lines = [f"link del {device}" for device in self._ingress]
        self._run(["ip", "-batch", "-"], "\n".join(lines))

    def read(self) -> dict[str, dict[str, Any]]:
        """Return each direction's qdisc as ``tc -s -j`` shows it: settings and counters.

        What is below it is listed under ``below``.
        """
        shown = json.loads(self._run(["tc", "-s", "-j", "qdisc", "show"], ""))
        by_device = {entry["dev"]: {**entry, "below": []} for entry in shown if entry.get("root")}
        for entry in shown:
            if entry.get("parent") in ("1:1", "2:1") and entry["dev"] in by_device:
                by_device[entry["dev"]]["below"].append(entry)
        return {
            name: by_device.get(direction.device, {})
            for name, direction in self.directions.items()
        }

    def off(self) -> list[str]:
        """Return where a direction's settings are not what is asked of it now."""
        got = self.read()
        return [
            text
            for name, direction in self.directions.items()
            for text in differences(direction, got[name])
        ]

    def verify(self) -> None:
        """Compare every direction with what is asked of it now."""
        wrong = self.off()
        if wrong:
            raise ShapingError("; ".join(wrong))

    def change(self, names: list[str], changes: dict[str, float | bool]) -> None:
        """Change directions in place, keeping what is queued, and read them back."""
        new = {}
        for name in names:
            old = self.directions[name]
            shape = changed(old.shape, changes)
            new[name] = replace(old, shape=shape, up=bool(changes.get("up", old.up)))
        self.set(new)

    def set(self, directions: Mapping[str, Direction]) -> None:
        """Ask these directions for something else, in place, and read them back.

        The device and the kind of qdiscs of a direction stay as they are.
        """
        lines = []
        for name, direction in directions.items():
            self.directions[name] = direction
            lines += self._lines("change", direction)
        self._run(["tc", "-batch", "-"], "\n".join(lines))
        self.verify()
