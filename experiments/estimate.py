"""How long a sweep will still take, from what cells took on this machine.

A cell's wall time is that of its start, booting and importing, and that of its steps. Both are
taken from the most similar cells measured: the same but for the seed; else the same method,
ranks and task; else the same ranks and task; else any, whose steps count as much as their models
are large. Without any there is no estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

__all__ = ["Measured", "TimeLeft", "measured_on", "predict"]

_ENOUGH_STEPS = 5  # of a running cell, to tell its pace


@dataclass(frozen=True)
class Measured:
    """A cell that ended well: what it was told, and its wall seconds in all and to its start."""

    spec: dict[str, Any]
    wall_s: float
    start_s: float

    @property
    def step_s(self) -> float:
        """Wall seconds per step."""
        return (self.wall_s - self.start_s) / planned_steps(self.spec)


def measured_on(
    machine: Mapping[str, Any], provenances: Iterable[Mapping[str, Any]]
) -> list[Measured]:
    """Return the measured cells among provenances (``provenance.json``) of a machine."""
    return [
        Measured(p["identity"]["cell"], p["wall_s"], p["start_s"])
        for p in provenances
        if p.get("machine") == machine and p.get("status") == "ok" and p.get("start_s") is not None
    ]


def planned_steps(spec: Mapping[str, Any]) -> float:
    """Return how many steps a cell will do, at most where it ends at a time.

    Then no step is shorter than the computing it is charged.
    """
    stop_s, device = spec["workload"].get("stop_s"), spec.get("device")
    steps = max(1.0, spec["steps"])
    if not stop_s or not device:
        return steps
    return max(1.0, min(steps, stop_s / (device["forward_s"] + device["backward_s"])))


def _likeness(a: Mapping[str, Any], b: Mapping[str, Any]) -> int:
    """Return how much two cells have in common, from 0 to 3."""
    if any(a["workload"][k] != b["workload"][k] for k in ("task", "batch_size")):
        return 0
    if a["world_size"] != b["world_size"]:
        return 0
    if (a["method"], a["options"]) != (b["method"], b["options"]):
        return 1
    return 3 if {**a, "seed": 0} == {**b, "seed": 0} else 2


def predict(spec: Mapping[str, Any], measured: Iterable[Measured]) -> float | None:
    """Return the wall seconds that a cell will take, None if nothing is known."""
    measured = list(measured)
    if not measured:
        return None
    alike = [_likeness(spec, m.spec) for m in measured]
    best = [m for m, like in zip(measured, alike, strict=True) if like == max(alike)]
    # with other ranks: time per rank and step, the start being mostly theirs too
    ranks = [spec["world_size"] / m.spec["world_size"] for m in best]
    return median(
        r * (m.start_s + m.step_s * _size(spec, m.spec) * planned_steps(spec))
        for r, m in zip(ranks, best, strict=True)
    )


def _size(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Return how many times as large the model of `a` is: buckets are scaled with it."""
    if a["workload"]["task"] == b["workload"]["task"]:
        return 1.0
    return float(a["bucket_cap_mb"] / b["bucket_cap_mb"])


@dataclass
class _Running:
    began_s: float
    steps: int = 0
    first_s: float | None = None  # when the first steps were seen, and how many
    first_steps: int = 0


@dataclass
class TimeLeft:
    """Follows the cells of a sweep and says how long it will still take.

    Parameters
    ----------
    specs : dict of str to dict
        What the cells to run are told, by key, in the order in which they will start.
    slots : int
        Cells at the same time.
    measured : list of Measured
        What is known before; what ends is added.
    clock
        Seconds.
    """

    specs: dict[str, dict[str, Any]]
    slots: int
    measured: list[Measured] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    _running: dict[str, _Running] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)

    def started(self, key: str) -> None:
        """Take note that a cell has started."""
        self._running[key] = _Running(self.clock())

    def stepped(self, key: str, steps: int) -> None:
        """Take note of a running cell's steps."""
        run = self._running.get(key)
        if run is None or steps == 0:
            return
        if run.first_s is None:
            run.first_s, run.first_steps = self.clock(), steps
        run.steps = steps

    def ended(self, key: str, status: str) -> None:
        """Take note that a cell has ended."""
        run = self._running.pop(key, None)
        self._ended.add(key)
        if run is not None and status == "ok" and run.first_s is not None:
            wall_s, start_s = self.clock() - run.began_s, run.first_s - run.began_s
            self.measured.append(Measured(self.specs[key], wall_s, start_s))

    def _pace(self, key: str) -> float | None:
        """Return the wall seconds a running cell takes in all, told by its own pace."""
        run = self._running[key]
        if run.first_s is None or run.steps - run.first_steps < _ENOUGH_STEPS:
            return None
        pace_s = (self.clock() - run.first_s) / (run.steps - run.first_steps)
        return run.first_s - run.began_s + pace_s * planned_steps(self.specs[key])

    def seconds(self) -> float | None:
        """Return the wall seconds left, None as long as nothing is known."""
        known = list(self.measured)
        for key, run in self._running.items():
            whole_s = self._pace(key)
            if whole_s is not None and run.first_s is not None:
                known.append(Measured(self.specs[key], whole_s, run.first_s - run.began_s))
        left, alone_s = [], 0.0
        for key, spec in self.specs.items():
            if key in self._ended:
                continue
            whole = self._pace(key) if key in self._running else None
            whole = predict(spec, known) if whole is None else whole
            if whole is None:
                return None
            gone_s = self.clock() - self._running[key].began_s if key in self._running else 0.0
            rest_s = max(whole - gone_s, 0.05 * whole)
            if spec["clock"] == "real":
                alone_s += rest_s
            else:
                left.append(rest_s)
        return alone_s + _schedule(left, self.slots)


def _schedule(left: list[float], slots: int) -> float:
    """Return when the last of cells that start in this order ends."""
    free = [0.0] * max(1, slots)
    for rest_s in left:
        at = free.index(min(free))
        free[at] += rest_s
    return max(free)
