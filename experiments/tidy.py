"""One table of everything measured: a row per cell, whichever run or sweep it is from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from .analysis import RunTables, is_valid, load_run
from .errors import UserError
from .runs import RESULTS, find_run
from .sweep_tables import is_sweep, load_sweep

__all__ = ["COLUMNS", "DENSE", "latest_runs", "tidy"]

DENSE = "allreduce"
#: Of the tidy table, in their order; those of ``summary.csv`` follow ``rate_mbps``.
COLUMNS = ("run", "scenario", "variation", "task", "device", "clock", "rate_mbps")


def latest_runs(results: Path = RESULTS) -> list[Path]:
    """Return the latest run of every scenario, and every sweep, that has tables."""
    runs = [path.resolve() for path in results.glob("*/latest")]
    runs += [path.parent for path in results.glob("sweeps/*/summary.csv")]
    return sorted({run for run in runs if (run / "summary.csv").exists()})


def tidy(runs: Iterable[Path | str] = (), results: Path = RESULTS) -> pd.DataFrame:
    """Return the table that `experiments.analysis.load` describes."""
    folders = [Path(r) if (Path(r) / "summary.csv").exists() else find_run(str(r), results)
               for r in runs]  # fmt: skip
    folders = folders or latest_runs(results)
    if not folders:
        raise UserError(f"{results}: holds no run yet; make experiment SCENARIO=smoke makes one")
    return pd.concat([_rows(folder) for folder in folders], ignore_index=True)


def _rows(folder: Path) -> pd.DataFrame:
    if not is_sweep(folder):
        run = load_run(folder)
        name = str((run.manifest.get("scenario") or {}).get("name") or folder.parent.name)
        return _of(run, name, name, "")
    tables = load_sweep(folder)
    name = str(tables.manifest["sweep"]["name"])
    parts = []
    for scenario, variation in tables.variations:
        rows = _of(tables.of(scenario, variation), name, scenario, variation)
        keys = (tables.summary["scenario"] == scenario) & (
            tables.summary["variation"] == variation
        )
        varied = tables.summary.loc[keys, tables.axes].reset_index(drop=True)
        parts.append(pd.concat([rows, varied.drop(columns=list(rows), errors="ignore")], axis=1))
    return pd.concat(parts, ignore_index=True)


def _of(run: RunTables, name: str, scenario: str, variation: str) -> pd.DataFrame:
    resolved = run.manifest.get("scenario") or {}
    work = resolved.get("workload") or {}
    rows = run.summary.copy()
    start: dict[str, Any] = {
        "run": name,
        "scenario": scenario,
        "variation": variation,
        "task": work.get("task"),
        "device": work.get("device"),
        "clock": resolved.get("clock"),
        "rate_mbps": _slowest(resolved),
    }
    for at, column in enumerate(COLUMNS):
        rows.insert(at, column, start[column])
    rows["valid"] = is_valid(run.summary)
    batch = work.get("batch_size")
    step_ms = 1e3 * rows["world_size"] * batch / rows["samples_per_second"] if batch else None
    rows["efficiency"] = rows["compute_ms_p50"] / step_ms if batch else float("nan")
    dense = rows[(rows["method"] == DENSE) & rows["valid"]]
    by_seed = dict(zip(dense["seed"], dense["samples_per_second"], strict=True))
    rows["over_dense"] = rows["samples_per_second"] / rows["seed"].map(by_seed)
    rows.loc[~rows["valid"], ["efficiency", "over_dense"]] = float("nan")
    return rows.reset_index(drop=True)


def _slowest(resolved: dict[str, Any]) -> float | None:
    links = (resolved.get("topology") or {}).get("links") or []
    rates = [link.get("rate_mbps") for link in links if isinstance(link, dict)]
    known = [float(rate) for rate in rates if rate]
    return min(known) if known else None
