"""What the reproduction measured, put the way the paper's claims need it.

A *place* is a model on a network. Throughput is in samples per second of the full-size model's
batch, whatever stood for the model, so that places and methods compare directly.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .analysis import RunTables, is_valid
from .sweep_tables import SweepTables

__all__ = ["BASELINES", "CONSTRAINED", "WORDS", "Reproduction", "named"]

#: Networks on which dense all-reduce does not hide.
CONSTRAINED = ("200m", "500m", "800m", "degrading", "fluctuating")
#: What the paper calls compression-enabled systems: all that compress, but the adaptive ones.
BASELINES = (
    "fp16", "topk-0.1-int64", "topk-0.1", "topk-0.01", "dgc", "qsgd", "powersgd-4",
)  # fmt: skip
#: How networks are called in texts.
WORDS = {
    "200m": "200 Mbit/s",
    "500m": "500 Mbit/s",
    "800m": "800 Mbit/s",
    "10g": "10 Gbit/s",
    "degrading": "2 Gbit/s falling to 200 Mbit/s",
    "fluctuating": "1 Gbit/s under 1 to 50 iperf3 flows",
}
OURS, DENSE = "netsense", "allreduce"
Place = tuple[str, str]


def named(place: Place) -> str:
    """Return a place in words."""
    return f"{place[0]}, {WORDS.get(place[1], place[1])}"


def _fault(row: Mapping[Any, Any] | None, column: str) -> str:
    """Return why a cell has no valid value of a column, "" if it has one."""
    if row is None:
        return "not run"
    if row["status"] != "ok":
        return str(row["status"])
    if not row["valid"]:
        return "link not as asked"
    return f"no {column}" if pd.isna(row[column]) else ""


@dataclass(frozen=True)
class Reproduction:
    """The tables of the reproduction's sweep, and what follows from them.

    Parameters
    ----------
    tables : SweepTables
    """

    tables: SweepTables

    @functools.cached_property
    def cells(self) -> pd.DataFrame:
        """The summary's throughput cells with ``step_ms`` (mean), ``efficiency`` and ``valid``."""
        return self._part("throughput")

    @functools.cached_property
    def proofs(self) -> pd.DataFrame:
        """The cells of another size of the models."""
        return self._part("proof")

    @functools.cached_property
    def learning(self) -> pd.DataFrame:
        """The cells that train to an accuracy."""
        return self._part("accuracy")

    def _part(self, part: str) -> pd.DataFrame:
        rows = self.tables.summary
        rows = rows[rows["part"] == part].copy()
        rows["valid"] = is_valid(rows)
        batch = [
            self._batch(s, v) for s, v in zip(rows["scenario"], rows["variation"], strict=True)
        ]
        rows["step_ms"] = 1e3 * rows["world_size"] * batch / rows["samples_per_second"]
        rows["efficiency"] = rows["compute_ms_p50"] / rows["step_ms"]
        return rows.reset_index(drop=True)

    def _batch(self, scenario: str, variation: str) -> float:
        found = self.tables.manifest["scenarios"][f"{scenario}/{variation}"]
        return float(found["workload"]["batch_size"])

    @functools.cached_property
    def places(self) -> list[Place]:
        """Every (model, network) of the comparison, in its order."""
        return self._places("throughput")

    def _places(self, part: str) -> list[Place]:
        cells = [c["axes"] for c in self.tables.manifest["cells"] if c["axes"]["part"] == part]
        return list(dict.fromkeys((axes["model"], axes["network"]) for axes in cells))

    @functools.cached_property
    def learning_places(self) -> list[Place]:
        """Every (model, network) of the accuracy part."""
        return self._places("accuracy")

    @functools.cached_property
    def methods(self) -> list[str]:
        """All methods, in the order of the sweep."""
        planned = [c["method"] for c in self.tables.manifest["cells"]]
        order = [DENSE, *BASELINES, "netsense-paper", OURS]
        return [m for m in order if m in planned] + sorted(set(planned) - set(order))

    def value(self, place: Place, method: str, column: str) -> float | None:
        """Return a column's value of a method in a place, None where there is no valid cell."""
        known = [row[column] for row in self._by_place.get((*place, method), []) if row["valid"]]
        known = [value for value in known if pd.notna(value)]
        return float(statistics.median(known)) if known else None

    def state(self, place: Place, method: str) -> str:
        """Return why a method has no value in a place: not part of it, not run, or its status."""
        if (*place, method) not in self._planned:
            return ""
        rows = self._by_place.get((*place, method), [])
        if not rows:
            return "not run"
        bad = [str(row["status"]) for row in rows if row["status"] != "ok"]
        if bad:
            return bad[0]
        return "" if any(row["valid"] for row in rows) else "link not as asked"

    def gaps(
        self,
        part: str | None = None,
        *,
        places: Iterable[Place] | None = None,
        methods: Iterable[str] | None = None,
        column: str = "status",
    ) -> list[str]:
        """Return the planned cells without a valid value, by their keys and with the reason.

        Parameters
        ----------
        part : str, optional
            Only cells of this part; likewise `places` and `methods`.
        column : str
            What a cell must have a value of.
        """
        wanted_places = None if places is None else set(places)
        wanted_methods = None if methods is None else set(methods)
        found = []
        for cell in self.tables.manifest["cells"]:
            axes, method = cell["axes"], cell["method"]
            if part not in (None, axes["part"]):
                continue
            if wanted_places is not None and (axes["model"], axes["network"]) not in wanted_places:
                continue
            if wanted_methods is not None and method not in wanted_methods:
                continue
            key = (cell["scenario"], cell["variation"], method, cell["seed"])
            why = _fault(self._by_cell.get(key), column)
            if why:
                found.append(f"{'/'.join(key[:3])}-s{cell['seed']} ({why})")
        return found

    @functools.cached_property
    def _by_cell(self) -> dict[tuple[str, str, str, int], dict[Any, Any]]:
        """Rows of the summary, with ``valid``, by scenario, variation, method and seed."""
        rows = self.tables.summary.assign(valid=is_valid(self.tables.summary))
        return {
            (row["scenario"], row["variation"], row["method"], row["seed"]): row
            for row in rows.to_dict("records")
        }

    @functools.cached_property
    def _by_place(self) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
        """Rows of `cells` by model, network and method."""
        found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        for row in self.cells.to_dict("records"):
            found.setdefault((row["model"], row["network"], row["method"]), []).append(
                {str(key): value for key, value in row.items()}
            )
        return found

    @functools.cached_property
    def _planned(self) -> set[tuple[str, str, str]]:
        """Every model, network and method of the comparison."""
        return {
            (c["axes"]["model"], c["axes"]["network"], c["method"])
            for c in self.tables.manifest["cells"]
            if c["axes"]["part"] == "throughput"
        }

    def gain(self, place: Place, over: str) -> float | None:
        """Return how many times the throughput of `over` ours has in a place."""
        mine = self.value(place, OURS, "samples_per_second")
        theirs = self.value(place, over, "samples_per_second")
        return mine / theirs if mine and theirs else None

    def gains(self, over: tuple[str, ...], networks: tuple[str, ...]) -> dict[str, float]:
        """Return every gain on some networks over some methods, by a text that names it."""
        found = {}
        for place in self.places:
            for method in over:
                gain = self.gain(place, method) if place[1] in networks else None
                if gain is not None:
                    found[f"{named(place)}, over {method}"] = gain
        return found

    def agreements(self) -> dict[str, tuple[float, float]]:
        """Return, per model and network, the dense step time (ms) in both sizes.

        The mean over ranks and all steps but the first: a full-size run has few, and of a dense
        step's time TCP's losses make several percent.
        """
        found = {}
        for row in self.proofs[self.proofs["valid"]].to_dict("records"):
            place = (str(row["model"]), str(row["network"]))
            others = self._by_place.get((*place, str(row["method"])), [])
            sizes = [self._mean_step_ms(cell) for cell in (row, *others[:1]) if cell["valid"]]
            if len(sizes) == 2:
                found[named(place)] = (sizes[0], sizes[1])
        return found

    def _mean_step_ms(self, cell: Mapping[Any, Any]) -> float:
        steps = self.tables.steps
        same = [steps[key] == cell[key] for key in ("scenario", "variation", "method", "seed")]
        own = steps[np.logical_and.reduce(same) & (steps["step"] > 0)]
        return float(1e3 * (own["t_end_s"] - own["t_start_s"]).mean())

    def accuracy_lost(self) -> dict[str, float]:
        """Return, per method, how many accuracy points it ends below dense (median over cells)."""
        good = self.learning[self.learning["valid"]]
        wide = good.pivot_table(
            index=["network", "seed"], columns="method", values="final_accuracy", aggfunc="first"
        )
        if DENSE not in wide:
            return {}
        lost = 100 * (wide[[DENSE]].to_numpy() - wide)
        return {str(m): float(lost[m].median()) for m in wide if lost[m].notna().any()}

    def times_to_accuracy(self, place: Place) -> dict[str, float | None]:
        """Return, per method, the median time to the target in a place; None if one missed it."""
        rows = self.learning
        rows = rows[(rows["model"] == place[0]) & (rows["network"] == place[1])]
        found: dict[str, float | None] = {}
        for method, own in rows.groupby("method", sort=False):
            times = own["time_to_accuracy_s"]
            missed = times.isna().any() or not own["valid"].all()
            found[str(method)] = None if missed else float(times.median())
        return found

    def best_at_equal_time(self, place: Place) -> tuple[float | None, dict[str, float | None]]:
        """Return the time at which the first method has ended, and the best accuracy by then.

        None for a method that was not evaluated by then.
        """
        evals = self.tables.evals
        cells = self.learning[self.learning["valid"]]
        cells = cells[(cells["model"] == place[0]) & (cells["network"] == place[1])]
        names = set(zip(cells["scenario"], cells["variation"], strict=True))
        keep = [k in names for k in zip(evals["scenario"], evals["variation"], strict=True)]
        rows = evals[pd.Series(keep, index=evals.index, dtype=bool)]
        if rows.empty:
            return None, {}
        at_s = float(rows.groupby(["method", "seed"])["t_s"].max().min())
        early = rows[rows["t_s"] <= at_s].groupby(["method", "seed"])["accuracy"].max()
        medians = early.groupby("method").median().to_dict() if len(early) else {}
        return at_s, {str(m): medians.get(m) for m in rows["method"].unique()}

    def run_of(self, part: str, place: Place) -> RunTables | None:
        """Return a place as the tables of one run, whatever stood for its model.

        The methods are in the order of `methods`; None if nothing of it was planned.
        """
        names = list(dict.fromkeys(
            (c["scenario"], c["variation"])
            for c in self.tables.manifest["cells"]
            if c["axes"]["part"] == part and (c["axes"]["model"], c["axes"]["network"]) == place
        ))  # fmt: skip
        if not names:
            return None
        runs = [self.tables.of(*name) for name in names]
        joined = {
            name: pd.concat([getattr(run, name) for run in runs], ignore_index=True)
            for name in ("summary", "steps", "links", "evals", "events")
        }
        arms = {arm["label"]: arm for r in runs for arm in r.manifest["scenario"]["methods"]}
        scenario = dict(runs[0].manifest["scenario"])
        scenario["methods"] = [arms[m] for m in self.methods if m in arms]
        notes = {key: note for run in runs for key, note in run.notes.items()}
        manifest = {**runs[0].manifest, "scenario": scenario}
        return RunTables(self.tables.folder, manifest, notes=notes, **joined)

    def last_strength(self, method: str) -> dict[Place, float]:
        """Return the strength a method ended with in each place."""
        steps = self.tables.steps
        found: dict[Place, float] = {}
        for row in self.cells[self.cells["method"] == method].to_dict("records"):
            own = (steps["scenario"] == row["scenario"]) & (steps["variation"] == row["variation"])
            own &= (steps["method"] == method) & (steps["rank"] == 0)
            known = steps[own].sort_values("step")
            if len(known) and pd.notna(known["strength"].iloc[-1]):
                place = (str(row["model"]), str(row["network"]))
                found[place] = float(known["strength"].iloc[-1])
        return found

    @functools.cached_property
    def devices(self) -> dict[str, dict[str, Any]]:
        """Return the device profile of each task that ran, from the cells themselves."""
        from .records import read_cell

        found: dict[str, dict[str, Any]] = {}
        for entry in self.tables.manifest["cells"]:
            task = entry["axes"]["task"]
            path = self.tables.folder / "cells" / entry["cell"]
            if task not in found and path.is_dir():
                found[task] = read_cell(path).meta.get("device") or {}
        return found
