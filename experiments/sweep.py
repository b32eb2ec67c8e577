"""Run a sweep: every cell that is not there yet, and no other.

From Python::

    from experiments import sweep
    result = sweep.run_sweep(sweep.load("rates"), Path("results/sweeps/rates"))

or with a `Sweep` made in code. The tables are made by `experiments.sweep_tables`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.doctor import diagnose

from . import datasets
from .engine import Engine, LocalEngine, Task, place
from .errors import UserError
from .estimate import TimeLeft, measured_on
from .harness import cell_spec, check_options, choices_of, choose_backend, ensure_kernel
from .identity import Identities, code_files, tasks_of
from .manifest import environment, machine, now_utc, update
from .progress import Progress
from .runs import RESULTS
from .store import CellStore
from .sweepfile import Sweep, Variation, load

__all__ = [
    "PlannedCell",
    "Sweep",
    "SweepResult",
    "Variation",
    "folder_of",
    "load",
    "plan",
    "run_planned",
    "run_sweep",
]


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a sweep.

    Parameters
    ----------
    variation : Variation
    label : str
        Of its method.
    seed : int
    spec : dict
        What the cell is told.
    digest : str
        Its identity, and the name of its folder in the store.
    """

    variation: Variation
    label: str
    seed: int
    spec: dict[str, Any]
    digest: str

    @property
    def key(self) -> str:
        """``scenario/variation/label-s<seed>``, unique in the sweep."""
        return f"{self.variation.key}/{self.label}-s{self.seed}"


@dataclass
class SweepResult:
    """What a call of `run_sweep` did.

    Parameters
    ----------
    folder : Path
    cells : list of PlannedCell
        All that were asked for.
    ran : dict of str to str
        Status by key of the cells that ran now; the others were there.
    skipped : list of str
        Keys of cells not run after `fail_fast` stopped the sweep.
    """

    folder: Path
    cells: list[PlannedCell]
    ran: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every cell ended well, now or before."""
        return not self.bad and not self.skipped


def folder_of(sweep: Sweep, results: Path = RESULTS) -> Path:
    """Return where the command line keeps a sweep: ``results/sweeps/<name>``."""
    return results / "sweeps" / sweep.name


def plan(
    sweep: Sweep, *, only: str | None = None, identities: Identities | None = None
) -> list[PlannedCell]:
    """Return the cells of a sweep, checked as far as possible without running one.

    Parameters
    ----------
    sweep
    only
        A pattern (``*`` and ``?``), or a part, of the keys of the cells wanted.
    identities
        Made here if not given.

    Raises
    ------
    UserError
        For options that the library refuses, missing data, or a pattern that matches nothing.
    """
    known = identities or Identities()
    back_ends = diagnose()
    cells = []
    for variation in sweep.variations:
        resolved = variation.scenario.resolved()
        backend = ""
        for cell in variation.scenario.cells():
            spec = cell_spec(resolved, cell)
            backend = backend or choose_backend(resolved, spec, back_ends).name
            spec["backend"] = backend
            cells.append(PlannedCell(variation, cell.label, cell.seed, spec, known.digest(spec)))
    for task in dict.fromkeys(task for cell in cells for task in tasks_of(cell.spec)):
        datasets.check(task)
    methods = (choice for cell in cells for choice in choices_of(cell.spec))
    check_options(methods, f"sweep {sweep.name}")
    return _only(cells, only)


def _only(cells: list[PlannedCell], pattern: str | None) -> list[PlannedCell]:
    if pattern is None:
        return cells
    whole = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    found = [cell for cell in cells if fnmatch.fnmatchcase(cell.key, whole)]
    if not found:
        raise UserError(
            f"--only: no cell matches '{pattern}'; keys look like {cells[0].key}, see --dry-run"
        )
    return found


def run_sweep(
    sweep: Sweep,
    folder: Path,
    *,
    jobs: int | None = None,
    only: str | None = None,
    fail_fast: bool = False,
    engine: Engine | None = None,
    progress: Progress | None = None,
    command: str = "",
) -> SweepResult:
    """Run the cells of a sweep that have no result yet.

    Cells of an earlier call, of this or another sweep in the same folder, are not run again as
    long as nothing that their results depend on has changed; failed ones are. Stopped at any
    moment, the next call goes on where this one was.

    Parameters
    ----------
    sweep
    folder
        The store: cells, and ``manifest.json`` with what `sweep_tables` needs.
    jobs
        Cells at the same time; None for one per processor.
    only
        See `plan`.
    fail_fast
        Stop at the first cell that does not end well, and kill what runs.
    engine
        Where cells run; None for guests on this machine.
    progress
        Told of everything.
    command
        The command line that repeats this, for the manifest.

    Raises
    ------
    UserError
        Before anything is started, if something is wrong or the folder is in use.
    """
    identities = Identities()
    cells = plan(sweep, identities=identities)
    return run_planned(
        sweep, cells, identities, folder, jobs=jobs, only=only, fail_fast=fail_fast,
        engine=engine, progress=progress or Progress(), command=command,
    )  # fmt: skip


def run_planned(
    sweep: Sweep,
    cells: list[PlannedCell],
    identities: Identities,
    folder: Path,
    *,
    jobs: int | None = None,
    only: str | None = None,
    fail_fast: bool = False,
    engine: Engine | None = None,
    progress: Progress,
    command: str = "",
) -> SweepResult:
    """Do what `run_sweep` does with cells that `plan` has returned."""
    wanted = _only(cells, only)
    store = CellStore(folder)
    result = SweepResult(folder, wanted)
    with store.locked() as found:
        for line in found:
            progress.note(line)
        update(folder, **_manifest(sweep, cells, identities, command))
        missing = {c.digest: c for c in reversed(wanted) if not store.done(c.digest)}
        missing = dict(reversed(missing.items()))  # the first of equal cells, in their order
        if missing:
            if engine is None:
                guests = any(c.spec["backend"] == "guest" for c in missing.values())
                engine = LocalEngine(ensure_kernel(progress) if guests else None, jobs)
            specs = {cell.key: cell.spec for cell in missing.values()}
            before = measured_on(_here(engine), store.provenances())
            progress.planned(TimeLeft(specs, engine.slots, before), len(wanted) - len(missing))
            _run(store, list(missing.values()), identities, engine, progress, fail_fast, result)
        _judge(store, wanted, result)
    return result


def _here(engine: Engine) -> dict[str, Any]:
    return {**machine(), "slots": engine.slots}


def _manifest(
    sweep: Sweep, cells: Sequence[PlannedCell], identities: Identities, command: str
) -> dict[str, Any]:
    """Return what repeats a sweep, and which cell stands for what in its tables."""
    return {
        **environment(command),
        "sweep": {"name": sweep.name, "description": sweep.description, "axes": sweep.axes},
        "guest_kernel": identities.kernel,
        "code": {k: v for cell in cells for k, v in identities.code(cell.spec).items()},
        "scenarios": {v.key: v.scenario.resolved() for v in sweep.variations},
        "cells": [
            {
                "scenario": cell.variation.scenario.name,
                "variation": cell.variation.name,
                "axes": dict(cell.variation.axes),
                "method": cell.label,
                "seed": cell.seed,
                "cell": cell.digest,
            }
            for cell in cells
        ],
    }


def _run(
    store: CellStore,
    cells: Sequence[PlannedCell],
    identities: Identities,
    engine: Engine,
    progress: Progress,
    fail_fast: bool,
    result: SweepResult,
) -> None:
    by_key = {cell.key: cell for cell in cells}
    tasks = [Task(cell.key, store.attempt(cell.digest), cell.spec) for cell in cells]
    here = _here(engine)
    started: dict[str, str] = {}
    with closing(place(engine, tasks, progress)) as placing:
        for placed in placing:
            cell = by_key[placed.task.key]
            if placed.outcome is None:
                started[cell.key] = now_utc()
                store.note(event="started", cell=cell.digest, key=cell.key)
                continue
            _check_code(identities, cell)
            status = placed.outcome["status"]
            provenance = {
                "identity": identities.of(cell.spec),
                "started_utc": started[cell.key],
                "status": status,
                "wall_s": round(placed.wall_s, 3),
                "start_s": None if placed.start_s is None else round(placed.start_s, 3),
                "machine": here,
            }
            for line in store.commit(placed.task.folder, cell.digest, provenance):
                progress.note(f"{cell.key}: {line}")
            store.note(event="ended", cell=cell.digest, key=cell.key, status=status)
            result.ran[cell.key] = status
            if fail_fast and status != "ok":
                result.skipped = [c.key for c in cells if c.key not in result.ran]
                return


def _check_code(identities: Identities, cell: PlannedCell) -> None:
    """Refuse a cell during which the code was edited: it ran neither the old nor the new."""
    planned = identities.code(cell.spec)
    now = code_files(cell.spec["program"], tasks_of(cell.spec))
    changed = [name for name in {**planned, **now} if planned.get(name) != now.get(name)]
    if changed:
        raise UserError(
            f"{changed[0]}: was changed while the sweep ran; what ran meanwhile is thrown away,"
            " start the sweep again"
        )


def _judge(store: CellStore, cells: Iterable[PlannedCell], result: SweepResult) -> None:
    """Note every cell that did not end well, now or before."""
    for cell in cells:
        outcome = store.outcome(cell.digest)
        if outcome is not None and outcome.get("status") != "ok":
            result.bad[cell.key] = str(outcome.get("status"))
