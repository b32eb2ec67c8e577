"""Where cells run, behind one small interface, and the loop that keeps it busy.

An engine is given a cell's folder and what the cell is told, and says what became of it. The
local one boots a guest per cell. One that places cells on other machines has the same three
verbs: it copies ``cell.json`` there and the finished folder back, for nothing in a cell's folder
depends on where it ran.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from testbed.launcher import GuestCell

from .progress import Progress

__all__ = ["Engine", "Job", "LocalEngine", "Placed", "Task", "place"]

_POLL_S = 0.2


class Job(Protocol):
    """A cell that was submitted."""

    def steps(self) -> int:
        """Return how many steps the cell has done so far."""

    def poll(self) -> dict[str, Any] | None:
        """Return the outcome (``outcome.json``) once the cell has ended, None before."""

    def kill(self) -> None:
        """End the cell at once; what it wrote stays."""


class Engine(Protocol):
    """A place that runs cells.

    Attributes
    ----------
    slots : int
        Cells at the same time.
    """

    slots: int

    def submit(self, folder: Path, spec: dict[str, Any]) -> Job:
        """Start a cell.

        Parameters
        ----------
        folder
            Not there yet; in the end it holds the cell's records and ``outcome.json``.
        spec
            What the cell is told; goes to ``cell.json``.
        """


class LocalEngine:
    """Runs each cell in a guest on this machine, spread over its processors.

    Parameters
    ----------
    kernel
        The guest kernel.
    slots
        Guests at the same time; None for one per processor.
    """

    def __init__(self, kernel: Path, slots: int | None = None) -> None:
        self._kernel = kernel
        self._cpus = sorted(os.sched_getaffinity(0))
        self._jobs: list[GuestCell] = []
        self.slots = slots or len(self._cpus)

    def submit(self, folder: Path, spec: dict[str, Any]) -> GuestCell:
        """Boot a guest on the processor with the fewest."""
        self._jobs = [job for job in self._jobs if job.running()]
        taken = [job.cpu for job in self._jobs]
        cpu = min(self._cpus, key=taken.count)
        job = GuestCell(self._kernel, folder, spec, cpu=cpu)
        self._jobs.append(job)
        return job


@dataclass(frozen=True)
class Task:
    """A cell to run: its name for people, its folder, and what it is told."""

    key: str
    folder: Path
    spec: dict[str, Any]


@dataclass(frozen=True)
class Placed:
    """A cell has started (no outcome yet) or ended.

    Parameters
    ----------
    task
    outcome
        ``outcome.json``, None at the start.
    wall_s
        Wall seconds from its start to its end.
    start_s
        Of these, up to its first step, None if it made none.
    """

    task: Task
    outcome: dict[str, Any] | None = None
    wall_s: float = 0.0
    start_s: float | None = None


@dataclass
class _Running:
    task: Task
    job: Job
    began_s: float
    steps: int = 0
    start_s: float | None = None


def place(engine: Engine, tasks: Iterable[Task], progress: Progress) -> Generator[Placed]:
    """Run tasks, as many at a time as the engine has slots, and yield each start and end.

    Cells on a real clock come last, each alone: the time it takes shares no processor. When the
    iteration is left early, what runs is killed.
    """
    tasks = list(tasks)
    waiting = [t for t in tasks if t.spec["clock"] != "real"]
    alone = [t for t in tasks if t.spec["clock"] == "real"]
    running: list[_Running] = []
    try:
        while waiting or alone or running:
            while (waiting and len(running) < engine.slots) or (alone and not running):
                task = (waiting or alone).pop(0)
                job = engine.submit(task.folder, task.spec)
                running.append(_Running(task, job, time.monotonic()))
                progress.cell_started(task.key, task.spec["steps"])
                yield Placed(task)
            time.sleep(_POLL_S)
            for run in list(running):
                outcome = run.job.poll()
                _follow(run, progress)
                if outcome is not None:
                    running.remove(run)
                    wall_s = time.monotonic() - run.began_s
                    reason = outcome.get("reason") or ""
                    progress.cell_ended(run.task.key, outcome["status"], reason)
                    yield Placed(run.task, outcome, wall_s, run.start_s)
    finally:
        for run in running:
            run.job.kill()


def _follow(run: _Running, progress: Progress) -> None:
    steps = run.job.steps()
    if steps != run.steps:
        if run.start_s is None:
            run.start_s = time.monotonic() - run.began_s
        run.steps = steps
        progress.cell_step(run.task.key, steps)
