"""The tables of a sweep: one row per cell of every variation, with columns that tell which.

``summary.csv`` of a sweep has the columns ``scenario, variation``, then one per axis (dotted
keys such as ``topology.rate_mbps``), then those of a run's summary, then ``cell``. The parquet
files have ``scenario, variation`` before the columns of a run's.
"""

from __future__ import annotations

import csv
import functools
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from .analysis import (
    FORMATS,
    SUMMARY_COLUMNS,
    TABLES,
    RunTables,
    read_summary,
    summarise,
    tables_of,
)
from .atomic import write_text, write_with
from .errors import UserError
from .records import CellRecord, read_cell, read_manifest

__all__ = ["SweepTables", "is_sweep", "load_sweep", "remake_sweep"]

_KEY = ["scenario", "variation"]


@dataclass(frozen=True)
class SweepTables:
    """Everything measured in a sweep.

    Parameters
    ----------
    folder : Path
    manifest : dict
        ``manifest.json``.
    summary : DataFrame
        A row per cell that has ended; see `axes` for the columns.
    notes : dict of (str, str, str, int) to list of str
        For (scenario, variation, method, seed): why the cell did not end well, and what was wrong
        with its files.
    missing : list of str
        Cells of the sweep that have not run, ``scenario/variation/method-s<seed>``.
    """

    folder: Path
    manifest: dict[str, Any]
    summary: pd.DataFrame
    notes: dict[tuple[str, str, str, int], list[str]]
    missing: list[str] = field(default_factory=list)

    @property
    def axes(self) -> list[str]:
        """Columns of the summary that tell variations apart."""
        return list(self.manifest["sweep"]["axes"])

    @property
    def variations(self) -> list[tuple[str, str]]:
        """(scenario, variation) of all, in the order of the sweep."""
        return list(dict.fromkeys((c["scenario"], c["variation"]) for c in self.manifest["cells"]))

    @functools.cached_property
    def steps(self) -> pd.DataFrame:
        """A row per cell, rank and step, read when asked for."""
        return self._frame("steps")

    @functools.cached_property
    def links(self) -> pd.DataFrame:
        """Samples of the links, read when asked for."""
        return self._frame("links")

    @functools.cached_property
    def evals(self) -> pd.DataFrame:
        """Evaluations, read when asked for."""
        return self._frame("evals")

    @functools.cached_property
    def events(self) -> pd.DataFrame:
        """Changes of the network, read when asked for."""
        return self._frame("events")

    def _frame(self, name: str) -> pd.DataFrame:
        return pq.read_table(self.folder / f"{name}.parquet").to_pandas()

    def of(self, scenario: str, variation: str) -> RunTables:
        """Return one variation as the tables of a run, for what works on runs."""
        frames = {}
        for name in ("summary", *TABLES):
            frame = getattr(self, name)
            rows = (frame["scenario"] == scenario) & (frame["variation"] == variation)
            frames[name] = frame[rows].drop(columns=_KEY).reset_index(drop=True)
        frames["summary"] = frames["summary"][list(SUMMARY_COLUMNS)]
        notes = {key[2:]: n for key, n in self.notes.items() if key[:2] == (scenario, variation)}
        manifest = {k: v for k, v in self.manifest.items() if k not in ("cells", "scenarios")}
        manifest["scenario"] = self.manifest["scenarios"][f"{scenario}/{variation}"]
        return RunTables(self.folder, manifest, notes=notes, **frames)


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds a sweep."""
    return "sweep" in read_manifest(folder)


def _manifest(folder: Path) -> dict[str, Any]:
    manifest = read_manifest(folder)
    if "sweep" not in manifest:
        raise UserError(f"{folder}: is no sweep: its manifest.json names none")
    return manifest


def _key(entry: dict[str, Any]) -> str:
    return f"{entry['scenario']}/{entry['variation']}/{entry['method']}-s{entry['seed']}"


def _notes(cell: CellRecord) -> list[str]:
    return [note for note in (cell.reason, *cell.problems) if note]


def remake_sweep(folder: Path | str) -> SweepTables:
    """Write the tables of a sweep from the raw records of its cells, and return them.

    Writes ``summary.csv`` and the parquet files, each at once. Cells that have not run yet are
    left out of them, and listed in `SweepTables.missing`.

    Raises
    ------
    UserError
        If the folder holds no sweep.
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    axes = manifest["sweep"]["axes"]
    parts: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_KEY, *axes, *SUMMARY_COLUMNS, "cell"])
    notes, missing = {}, []
    for entry in manifest["cells"]:
        path = folder / "cells" / entry["cell"]
        if not path.is_dir():
            missing.append(_key(entry))
            continue
        cell = read_cell(path)
        own = {name: entry[name] for name in _KEY}
        for name, table in tables_of([cell], own).items():
            parts[name].append(table)
        row = summarise(cell)
        texts = ["" if v is None else FORMATS[k](v) for k, v in row.items()]
        varied = [_text(entry["axes"].get(axis)) for axis in axes]
        writer.writerow([*own.values(), *varied, *texts, entry["cell"]])
        notes[(*own.values(), entry["method"], entry["seed"])] = _notes(cell)
    empty = tables_of([], dict.fromkeys(_KEY, ""))
    for name, tables in parts.items():
        whole = pa.concat_tables([empty[name], *tables], promote_options="permissive")
        write_with(folder / f"{name}.parquet", functools.partial(pq.write_table, whole))
    write_text(folder / "summary.csv", out.getvalue())
    return SweepTables(folder, manifest, _summary(folder, axes), notes, missing)


def _text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _summary(folder: Path, axes: list[str]) -> pd.DataFrame:
    texts = dict.fromkeys([*_KEY, "cell"], "string")
    summary = read_summary(folder / "summary.csv", texts)
    for axis in axes:
        if summary[axis].isna().all():
            summary[axis] = summary[axis].astype("string")
    return summary


def load_sweep(folder: Path | str) -> SweepTables:
    """Return the tables of a sweep.

    Raises
    ------
    UserError
        If the folder holds no sweep, or no tables; ``experiments report`` makes them.
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    if not (folder / "summary.csv").exists():
        raise UserError(f"{folder}: has no summary.csv; make it with: experiments report {folder}")
    notes, missing = {}, []
    for entry in manifest["cells"]:
        path = folder / "cells" / entry["cell"]
        if path.is_dir():
            key = (entry["scenario"], entry["variation"], entry["method"], entry["seed"])
            notes[key] = _notes(read_cell(path))
        else:
            missing.append(_key(entry))
    return SweepTables(
        folder, manifest, _summary(folder, manifest["sweep"]["axes"]), notes, missing
    )
