"""Where cells run, behind one small interface, and the loop that keeps it busy.

An engine is given a cell's folder and what the cell is told, and says what became of it. The
local one starts a guest per cell, or whatever back end the cell names. One that places cells on
other machines has the same three verbs: it copies ``cell.json`` there and the finished folder
back, for nothing in a cell's folder depends on where it ran.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from testbed.backends import start
from testbed.launcher import CellRun

from .progress import Progress

__all__ = ["Engine", "Job", "LocalEngine", "Placed", "Task", "place"]

_POLL_S = 0.2
_SMALL_MB = 2048
#: what only a guest's boot needs: paths of this machine have no place among records
_OF_THIS_MACHINE = ("guest.env", "init.sh")


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
    memory_mb : int, optional
        Memory for all of them; None if it is for the engine to see to.
    """

    slots: int
    memory_mb: int | None

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
    """Runs each cell on this machine, on the back end that it names, spread over processors.

    Parameters
    ----------
    kernel
        The kernel of guests on a virtual clock; None if no cell needs it.
    slots
        Cells at the same time; None for one per processor.
    """

    def __init__(self, kernel: Path | None, slots: int | None = None) -> None:
        self._kernel = kernel
        self._cpus = sorted(os.sched_getaffinity(0))
        self._jobs: list[_LocalJob] = []
        self.slots = slots or len(self._cpus)
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.memory_mb: int | None = pages >> 20

    def submit(self, folder: Path, spec: dict[str, Any]) -> Job:
        """Start the cell on the processor with the fewest."""
        self._jobs = [job for job in self._jobs if not job.ended]
        taken = [job.run.cpu for job in self._jobs]
        cpu = min(self._cpus, key=taken.count)
        back_end = spec.get("backend", "guest")
        job = _LocalJob(start(back_end, folder, spec, kernel=self._kernel, cpu=cpu))
        self._jobs.append(job)
        return job


@dataclass
class _LocalJob:
    run: CellRun
    ended: bool = False

    def steps(self) -> int:
        return self.run.steps()

    def poll(self) -> dict[str, Any] | None:
        outcome = self.run.poll()
        if outcome is not None:
            self.ended = True
            for name in _OF_THIS_MACHINE:
                (self.run.folder / name).unlink(missing_ok=True)
        return outcome

    def kill(self) -> None:
        self.ended = True
        self.run.kill()


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
    """Run tasks, as many at a time as slots and memory allow, and yield each start and end.

    The largest go first, and one that has no room beside those that run lets the next that has
    go before it: small ones fill the gaps. Cells on a real clock come last, each alone: the time
    it takes shares no processor. When the iteration is left early, what runs is killed.
    """
    tasks = sorted(tasks, key=lambda task: -_needs_mb(task.spec))
    waiting = [t for t in tasks if t.spec["clock"] != "real"]
    alone = [t for t in tasks if t.spec["clock"] == "real"]
    running: list[_Running] = []
    try:
        while waiting or alone or running:
            while (task := _next(engine, running, waiting, alone)) is not None:
                (waiting or alone).remove(task)
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


def _next(
    engine: Engine, running: list[_Running], waiting: list[Task], alone: list[Task]
) -> Task | None:
    if waiting:
        return next((task for task in waiting if _room(engine, running, task)), None)
    return alone[0] if alone and not running else None


def _room(engine: Engine, running: list[_Running], task: Task) -> bool:
    """Whether a cell may start beside those that run: there is a slot, and memory for all."""
    if not running:
        return True
    asked_mb = sum(_needs_mb(run.task.spec) for run in running) + _needs_mb(task.spec)
    fits = engine.memory_mb is None or asked_mb <= engine.memory_mb
    return len(running) < engine.slots and fits


def _needs_mb(spec: dict[str, Any]) -> int:
    """Return the memory of a cell; one of a small model is far from what its guest may take."""
    return spec.get("memory_mb") or _SMALL_MB


def _follow(run: _Running, progress: Progress) -> None:
    steps = run.job.steps()
    if steps != run.steps:
        if run.start_s is None:
            run.start_s = time.monotonic() - run.began_s
        run.steps = steps
        progress.cell_step(run.task.key, steps)
