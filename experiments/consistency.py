"""Whether the parts of a scenario fit together: what their types alone cannot say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from testbed.backends import CLOCKS
from topologies import SpecError

from .methods import device_names, method_names, task_names
from .mistakes import no_such

if TYPE_CHECKING:
    from .scenario import Scenario

__all__ = ["check_consistency"]

_LABEL = re.compile(r"[a-z0-9][a-z0-9.+_-]*")


def check_consistency(scenario: Scenario) -> None:
    """Raise a `SpecError` for the first key that does not fit the others."""
    _check_backend(scenario)
    _check_workload(scenario)
    _check_methods(scenario)
    _check_straggler(scenario)


def _check_backend(scenario: Scenario) -> None:
    """Refuse a back end that has another clock, and a network that no cluster would get."""
    if scenario.backend != "auto" and CLOCKS[scenario.backend] != scenario.clock:
        raise SpecError(
            "clock", f"expected {CLOCKS[scenario.backend]} with backend: {scenario.backend}"
        )
    if scenario.backend != "cluster":
        if scenario.topology is None:
            raise SpecError("topology", "is missing")
        return
    for key in ("topology", "events", "traffic"):
        if getattr(scenario, key):
            raise SpecError(key, "means nothing with backend: cluster, which emulates no network")


def _check_workload(scenario: Scenario) -> None:
    work = scenario.workload
    tasks = task_names()
    if work.task not in tasks:
        raise SpecError("workload.task", no_such(work.task, tasks))
    if work.device not in (devices := device_names()):
        raise SpecError("workload.device", no_such(work.device, devices))
    for i, job in enumerate(scenario.jobs):
        if job.task is not None and job.task not in tasks:
            raise SpecError(f"traffic.{i}.task", no_such(job.task, tasks))


def _check_straggler(scenario: Scenario) -> None:
    slow = scenario.workload.straggler
    if slow is not None and slow.rank >= scenario.world_size:
        raise SpecError(
            "workload.straggler.rank",
            f"expected 0 to {scenario.world_size - 1}; got {slow.rank}",
        )


def _check_methods(scenario: Scenario) -> None:
    valid = method_names()
    labels: set[str] = set()
    for i, arm in enumerate(scenario.arms):
        if arm.name not in valid:
            raise SpecError(f"methods.{i}", no_such(arm.name, valid, "method"))
        if not _LABEL.fullmatch(arm.label):
            raise SpecError(f"methods.{i}.label", f"expected a-z 0-9 . + _ -; got '{arm.label}'")
        if arm.label in labels:
            raise SpecError(f"methods.{i}.label", f"'{arm.label}' is used twice")
        labels.add(arm.label)
    for i, job in enumerate(scenario.jobs):
        if job.method not in valid:
            raise SpecError(f"traffic.{i}.method", no_such(job.method, valid, "method"))
    for i, seed in enumerate(scenario.seeds):
        if seed in scenario.seeds[:i]:
            raise SpecError(f"seeds.{i}", f"{seed} is used twice")
    every = scenario.workload.eval_every
    if every is not None and every > scenario.workload.steps:
        raise SpecError("workload.eval_every", f"expected at most steps; got {every}")
