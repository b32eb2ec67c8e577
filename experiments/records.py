"""Read the raw records that a run leaves, one directory per cell.

``cells/<label>-s<seed>/`` holds ``cell.json``, ``steps-rank<r>.jsonl``, ``evals.jsonl``,
``links.jsonl``, ``events.jsonl`` and ``outcome.json``; `results/README.md` lists their fields.
The reader depends on the files only, not on who wrote them. A missing file means "not
measured"; a torn last line, which a crash leaves, is dropped and reported. Numbers that are no
numbers (NaN, infinity) become None.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import UserError

__all__ = ["STATUSES", "CellRecord", "read_cell", "read_jsonl", "read_manifest", "read_run"]

STATUSES = ("ok", "diverged", "timeout", "failed")

Row = dict[str, Any]


@dataclass
class CellRecord:
    """All raw records of one cell.

    Parameters
    ----------
    label : str
        The method's label in its scenario.
    seed : int
    meta, outcome : dict
        ``cell.json`` and ``outcome.json``.
    steps : dict of int to list of dict
        Lines of ``steps-rank<r>.jsonl`` by rank.
    evals, links, events : list of dict
        Lines of the files of these names.
    status, reason : str
        See `STATUSES`; the reason is empty for ok.
    problems : list of str
        What was wrong with the files, for the reader of the report.
    jobs : dict of str to list of dict
        By name, the steps of rank 0 of each job beside this one, from ``job-<name>/``.
    """

    label: str
    seed: int
    meta: Row
    outcome: Row
    steps: dict[int, list[Row]]
    evals: list[Row]
    links: list[Row]
    events: list[Row]
    status: str
    reason: str
    problems: list[str] = field(default_factory=list)
    jobs: dict[str, list[Row]] = field(default_factory=dict)


def _finite(value: object) -> Any:
    """Return `value` with None in place of numbers that are none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value


def _parse(text: str) -> Any:
    return _finite(json.loads(text))


def read_jsonl(path: Path, problems: list[str]) -> list[Row]:
    """Return the lines of a JSON-lines file; [] if it is missing.

    Parameters
    ----------
    path : Path
    problems : list of str
        A torn last line is dropped and noted here.

    Raises
    ------
    ValueError
        For a broken line that is not the last.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    rows: list[Row] = []
    while lines and not lines[-1].strip():
        lines.pop()
    for n, line in enumerate(lines, 1):
        try:
            row = _parse(line)
            if not isinstance(row, dict):
                raise ValueError("not an object")
            rows.append(row)
        except ValueError:
            if n < len(lines):
                raise ValueError(f"{path.name} line {n} is damaged") from None
            problems.append(f"{path.name}: the torn last line {n} was dropped")
    return rows


def _needed(rows: list[Row], name: str) -> list[Row]:
    """Return `rows`, all of which must have the numbers that every table needs."""
    for n, row in enumerate(rows, 1):
        for key in ("step", "t_start_s", "t_end_s", "samples"):
            if not isinstance(row.get(key), (int, float)):
                raise ValueError(f"{name} line {n} has no number {key}")
    return rows


def _read_json(path: Path, problems: list[str]) -> Row:
    if not path.exists():
        return {}
    try:
        data = _parse(path.read_text(encoding="utf-8"))
        if isinstance(data, dict):
            return data
    except ValueError:
        pass
    problems.append(f"{path.name}: is damaged and was ignored")
    return {}


def read_cell(folder: Path) -> CellRecord:
    """Read the directory of one cell, whatever state a crash left it in."""
    problems: list[str] = []
    name = re.fullmatch(r"(.+)-s(\d+)", folder.name)
    meta = _read_json(folder / "cell.json", problems)
    outcome = _read_json(folder / "outcome.json", problems)
    tables: dict[str, list[Row]] = {}
    steps: dict[int, list[Row]] = {}
    damage = ""
    for part in ("evals", "links", "events"):
        try:
            tables[part] = read_jsonl(folder / f"{part}.jsonl", problems)
        except ValueError as error:
            tables[part], damage = [], str(error)
    for path in sorted(folder.glob("steps-rank*.jsonl")):
        rank = path.stem.removeprefix("steps-rank")
        if not rank.isdigit():
            continue
        try:
            steps[int(rank)] = _needed(read_jsonl(path, problems), path.name)
        except ValueError as error:
            steps[int(rank)], damage = [], str(error)
    jobs: dict[str, list[Row]] = {}
    for path in sorted(folder.glob("job-*")):
        try:
            rows = read_jsonl(path / "steps-rank0.jsonl", problems)
            jobs[path.name.removeprefix("job-")] = _needed(rows, path.name)
        except ValueError as error:
            problems.append(f"{path.name}: {error}")
    cell = CellRecord(
        label=str(meta.get("label") or (name[1] if name else folder.name)),
        seed=int(meta["seed"] if "seed" in meta else name[2] if name else 0),
        meta=meta,
        outcome=outcome,
        steps=dict(sorted(steps.items())),
        status="",
        reason="",
        problems=problems,
        jobs=jobs,
        **tables,
    )
    cell.status, cell.reason = _status(cell, damage)
    return cell


def _status(cell: CellRecord, damage: str) -> tuple[str, str]:
    """Return what became of a cell and why."""
    if damage:
        cell.problems.append(damage)
        return "failed", damage
    if not cell.outcome:
        return "failed", "the cell left no outcome: it was stopped or crashed"
    status = str(cell.outcome.get("status"))
    reason = " ".join(str(cell.outcome.get("reason") or "").split())
    if status not in STATUSES:
        return "failed", f"unknown status '{status}' in outcome.json"
    last = [rows[-1].get("loss") for rows in cell.steps.values() if rows]
    if status == "ok" and any(loss is None for loss in last):
        return "diverged", reason or "the training loss is no number"
    return status, "" if status == "ok" else reason


def read_manifest(run_dir: Path) -> Row:
    """Return ``manifest.json`` of a run; {} if there is none or it is damaged."""
    return _read_json(run_dir / "manifest.json", [])


def read_run(run_dir: Path) -> list[CellRecord]:
    """Read all cells of a run, in the order of its scenario, then by seed.

    Raises
    ------
    UserError
        If the directory is no run.
    """
    folder = run_dir / "cells"
    if not folder.is_dir():
        raise UserError(f"{run_dir}: is no run: expected a directory cells in it")
    cells = [read_cell(path) for path in folder.iterdir() if path.is_dir()]
    scenario = read_manifest(run_dir).get("scenario") or {}
    order = [str(arm.get("label")) for arm in scenario.get("methods", [])]
    order += sorted({c.label for c in cells} - set(order))
    return sorted(cells, key=lambda cell: (order.index(cell.label), cell.seed))
