"""From raw records to tables: ``summary.csv``, the parquet files, `load_run`, `load`.

The same records give the same bytes: numbers have a fixed format, rows a fixed order, lines
end in LF. An empty field means "not measured". Speed-ups are computed (`speedups`), never
stored.
"""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from .atomic import write_text, write_with
from .columns import FORMATS, SUMMARY_COLUMNS, TABLES
from .errors import UserError
from .methods import is_adaptive
from .outages import job_lines, outage_lines
from .records import CellRecord, Row, read_manifest, read_run
from .stats import Estimate, percentile, speedup

__all__ = [
    "FORMATS",
    "SUMMARY_COLUMNS",
    "TABLES",
    "RunTables",
    "is_valid",
    "load",
    "load_run",
    "ours_of",
    "read_summary",
    "remake",
    "speedups",
    "summarise",
    "tables_of",
]

_OFF_LINKS = "off_links"  # attribute of a summary: see `load`
DEFAULT_WARMUP_STEPS = 3


@dataclass(frozen=True)
class RunTables:
    """Everything measured in a run, as tidy tables.

    Parameters
    ----------
    run_dir : Path
    manifest : dict
        ``manifest.json``.
    summary : DataFrame
        A row per method and seed; columns `SUMMARY_COLUMNS`, missing values are NA.
    steps : DataFrame
        A row per method, seed, rank and step; ``counted`` is false for warm-up steps.
    links, evals, events : DataFrame
        Link samples, evaluations, changes of the network; a column each for method and seed.
    notes : dict of (str, int) to list of str
        For (method, seed): why the cell did not end well, what was wrong with its files, what
        the training did when something broke, and how jobs beside it fared.
    """

    run_dir: Path
    manifest: dict[str, Any]
    summary: pd.DataFrame
    steps: pd.DataFrame
    links: pd.DataFrame
    evals: pd.DataFrame
    events: pd.DataFrame
    notes: dict[tuple[str, int], list[str]]


def _done(cell: CellRecord) -> int:
    """Return how many steps every rank completed."""
    return min((len(rows) for rows in cell.steps.values()), default=0)


def _warmup(cell: CellRecord) -> int:
    """Return how many first steps do not count; half of them where time ran out before that."""
    asked = cell.outcome.get("warmup_steps")
    warmup = DEFAULT_WARMUP_STEPS if asked is None else int(asked)
    return warmup if _done(cell) > warmup else (_done(cell) + 1) // 2


def _counted(cell: CellRecord) -> dict[int, list[Row]]:
    """Return each rank's steps after warm-up that every rank completed."""
    done = _done(cell)
    if len(cell.steps) < int(cell.meta.get("world_size", 1)):
        done = 0  # a rank without records: nothing is known of the whole
    return {rank: rows[_warmup(cell) : done] for rank, rows in cell.steps.items()}


def summarise(cell: CellRecord) -> Row:
    """Return a cell's row of the summary; None where nothing was measured.

    Percentiles are over all counted steps of all ranks. Throughput is the samples of all ranks
    divided by the time of the slowest rank, from the start of the first counted step to the end
    of the last. Wire bytes are the mean of one rank and step.
    """
    counted = _counted(cell)
    rows = [row for rank_rows in counted.values() for row in rank_rows]
    done = _done(cell)
    result: Row = dict.fromkeys(SUMMARY_COLUMNS)
    result |= {
        "method": cell.label,
        "seed": cell.seed,
        "status": cell.status,
        "world_size": cell.meta.get("world_size"),
        "steps": done,
        "link_verdict": cell.outcome.get("link_verdict"),
        "replicas_identical": cell.outcome.get("replicas_identical"),
    }
    if rows:
        slowest_s = max(r[-1]["t_end_s"] - r[0]["t_start_s"] for r in counted.values())
        step_ms = [1e3 * (row["t_end_s"] - row["t_start_s"]) for row in rows]
        samples = sum(row["samples"] for row in rows)
        result |= {
            "samples_per_second": samples / slowest_s if slowest_s > 0 else None,
            "step_ms_p50": percentile(step_ms, 50),
            "step_ms_p95": percentile(step_ms, 95),
            "compute_ms_p50": _median_ms(rows, "compute_s"),
            "exposed_comm_ms_p50": _median_ms(rows, "exposed_comm_s"),
        }
        wire = [row["wire_bytes"] for row in rows if row.get("wire_bytes") is not None]
        dense = sum(row["dense_bytes"] for row in rows if row.get("dense_bytes") is not None)
        if len(wire) == len(rows):
            result["wire_bytes_per_step"] = sum(wire) / len(wire)
            result["compression_ratio"] = dense / sum(wire) if dense and sum(wire) else None
    return result | _accuracy(cell)


def _median_ms(rows: Sequence[Row], key: str) -> float | None:
    value = percentile([row[key] for row in rows if row.get(key) is not None], 50)
    return None if value is None else 1e3 * value


def _accuracy(cell: CellRecord) -> Row:
    """Return the last accuracy, and the time of the first one that reaches the target.

    A cell that stopped early has no final accuracy.
    """
    known = [row for row in cell.evals if row.get("accuracy") is not None]
    target = cell.meta.get("target_accuracy")
    reached = [r["t_s"] for r in known if target is not None and r["accuracy"] >= target]
    ended = cell.status in ("ok", "diverged")
    return {
        "final_accuracy": known[-1]["accuracy"] if known and ended else None,
        "time_to_accuracy_s": reached[0] if reached else None,
    }


def summary_text(cells: Sequence[CellRecord]) -> str:
    """Return ``summary.csv`` as text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(SUMMARY_COLUMNS)
    for cell in cells:
        row = summarise(cell)
        writer.writerow("" if v is None else FORMATS[k](v) for k, v in row.items())
    return out.getvalue()


def _table(rows: list[Row], types: dict[str, pa.DataType]) -> pa.Table:
    """Return `rows` as a table with the given columns, then any further ones by name."""
    further = sorted({key for row in rows for key in row} - set(types))
    columns: dict[str, Any] = {}
    for name, kind in types.items():
        values = [row.get(name) for row in rows]
        if pa.types.is_string(kind):
            values = [v if v is None or isinstance(v, str) else str(v) for v in values]
        columns[name] = pa.array(values, type=kind)
    for name in further:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns[name] = pa.array([None if v is None else str(v) for v in values])
    return pa.table(columns)


def tables_of(
    cells: Sequence[CellRecord], own: Mapping[str, str] | None = None
) -> dict[str, pa.Table]:
    """Return the raw records of cells as the tables `TABLES`.

    Parameters
    ----------
    cells
    own
        Texts that are the same in every row, in columns of these names before the others.
    """
    own = own or {}
    rows: dict[str, list[Row]] = {name: [] for name in TABLES}
    for cell in cells:
        which = {"method": cell.label, "seed": cell.seed, **own}
        for rank, steps in cell.steps.items():
            for i, row in enumerate(steps):
                counted = i >= _warmup(cell)
                rows["steps"].append({**row, **which, "rank": rank, "counted": counted})
        rows["links"] += [{**row, **which} for row in cell.links]
        rows["evals"] += [{**row, **which} for row in cell.evals]
        rows["events"] += [{**row, **which} for row in cell.events]
    more = dict.fromkeys(own, pa.string())
    return {name: _table(rows[name], {**more, **types}) for name, types in TABLES.items()}


def remake(run_dir: Path, off_links: bool = False) -> RunTables:
    """Write a run's derived tables from its raw records, and return them.

    Writes ``summary.csv``, ``steps.parquet``, ``links.parquet``, ``evals.parquet`` and
    ``events.parquet``, each at once.

    Raises
    ------
    UserError
        If the directory is no run.
    """
    cells = read_run(run_dir)
    for name, table in tables_of(cells).items():
        write_with(run_dir / f"{name}.parquet", functools.partial(pq.write_table, table))
    write_text(run_dir / "summary.csv", summary_text(cells))
    return load_run(run_dir, off_links)


def read_summary(path: Path, texts: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return a ``summary.csv``; `texts` names further columns with the type of their texts."""
    return pd.read_csv(
        path,
        dtype={"method": "string", "status": "string", "link_verdict": "string", **(texts or {})},
        true_values=["true"],
        false_values=["false"],
        keep_default_na=False,
        na_values=[""],
    )


def load(*runs: Path | str) -> pd.DataFrame:
    """Return what was measured, a row per cell.

    Parameters
    ----------
    *runs : Path or str
        Folders of runs or sweeps, or names of scenarios for their latest run; without any, the
        latest run of every scenario and every sweep.

    Returns
    -------
    DataFrame
        ``run, scenario, variation``; ``task, device, clock``; ``rate_mbps`` of the slowest link at
        the start; the columns of ``summary.csv``; ``valid`` (`is_valid`); ``efficiency``, compute
        time over mean step time; ``over_dense``, throughput over that of ``allreduce`` with the
        same seed; then, of sweeps, a column per axis. Not measured is NaN.

    Raises
    ------
    UserError
        If there is no such run, or none at all.
    """
    from .tidy import tidy

    return tidy(runs)


def load_run(run_dir: Path | str, off_links: bool = False) -> RunTables:
    """Return the tables of a run.

    Parameters
    ----------
    run_dir : Path or str
    off_links : bool
        Let cells whose links were not as asked count like the others.

    Raises
    ------
    UserError
        If the run has no tables; ``python -m experiments report RUN`` makes them.
    """
    run_dir = Path(run_dir)
    if not (run_dir / "summary.csv").exists():
        raise UserError(
            f"{run_dir}: has no summary.csv; make it with: experiments report {run_dir}"
        )
    summary = read_summary(run_dir / "summary.csv")
    summary.attrs[_OFF_LINKS] = off_links
    frames = {}
    for name in TABLES:
        path = run_dir / f"{name}.parquet"
        frames[name] = pq.read_table(path).to_pandas() if path.exists() else pd.DataFrame()
    notes = {}
    if (run_dir / "cells").is_dir():
        for cell in read_run(run_dir):
            said = (cell.reason, *cell.problems, *outage_lines(cell), *job_lines(cell))
            notes[cell.label, cell.seed] = [note for note in said if note]
    return RunTables(run_dir, read_manifest(run_dir), summary, notes=notes, **frames)


def is_valid(summary: pd.DataFrame) -> pd.Series:
    """Return which cells may be compared: ended well, on links that were as asked.

    Those on other links count too where `load` was asked for them.
    """
    verdict = summary["link_verdict"]
    as_asked = verdict.isna() | (verdict == "ok") | summary.attrs.get(_OFF_LINKS, False)
    return (summary["status"] == "ok") & as_asked


def ours_of(summary: pd.DataFrame) -> str | None:
    """Return the label that stands for the adaptive method: ``netsense``, or the first like it."""
    labels = list(dict.fromkeys(summary["method"]))
    like = [label for label in labels if is_adaptive(label)]
    return "netsense" if "netsense" in labels else (like[0] if like else None)


def speedups(summary: pd.DataFrame, ours: str | None = None) -> dict[str, Estimate]:
    """Return how many times the throughput of each other method `ours` has.

    Cells that are not valid (`is_valid`) are left out.
    """
    ours = ours or ours_of(summary)
    good = summary[is_valid(summary) & summary["samples_per_second"].notna()]
    rates = {
        label: dict(zip(rows["seed"], rows["samples_per_second"], strict=True))
        for label, rows in good.groupby("method", sort=False)
    }
    if ours not in rates:
        return {}
    found = {label: speedup(rates[ours], r) for label, r in rates.items() if label != ours}
    return {label: estimate for label, estimate in found.items() if estimate is not None}
