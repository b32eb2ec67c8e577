"""Raw records of the reproduction's sweep, by simple laws: time = compute + bytes / rate."""

from __future__ import annotations

import json
from pathlib import Path

from fixture_runs import step, write_cell

from experiments.reproduce import reproduction

COMPUTE_S = {"resnet18": 0.06, "vgg16": 0.32}
DENSE_BYTES = {"resnet18": 46_800_000, "vgg16": 553_000_000}
#: bytes that leave a rank per dense byte
SHARE = {
    "allreduce": 1.75, "fp16": 0.875, "topk-0.1-int64": 2.1, "topk-0.1": 0.47, "topk-0.01": 0.06,
    "dgc": 0.06, "qsgd": 1.75, "powersgd-4": 0.024, "netsense-paper": 0.5, "netsense": 0.006,
}  # fmt: skip
RATE_MBPS = {"200m": 200, "500m": 500, "800m": 800, "10g": 10_000, "degrading": 700,
             "fluctuating": 600}  # fmt: skip


def comm_s(model: str, network: str, method: str) -> float:
    busy = SHARE[method] * DENSE_BYTES[model] * 8e-6 / RATE_MBPS[network]
    return max(0.0005, busy - 0.5 * COMPUTE_S[model])


def reproduction_run(
    folder: Path,
    *,
    without: str = "",
    ratio: float = 1.0,
    ended: dict[str, dict[str, object]] | None = None,
) -> Path:
    """Write the quick sweep.

    `without` leaves cells out, `ratio` slows the proofs down, and cells whose key contains a key
    of `ended` have its outcome.
    """
    sweep = reproduction(True)
    cells = []
    for variation in sweep.variations:
        axes = dict(variation.axes)
        model, network = str(axes["model"]), str(axes["network"])
        for cell in variation.scenario.cells():
            digest = f"{len(cells):020x}"
            cells.append({"scenario": variation.scenario.name, "variation": variation.name,
                          "axes": axes, "method": cell.label, "seed": cell.seed,
                          "cell": digest})  # fmt: skip
            key = f"{variation.key}/{cell.label}"
            if without and without in key:
                continue
            more = comm_s(model, network, cell.label)
            whole = COMPUTE_S[model] + more
            more = whole * (ratio if axes["part"] == "proof" else 1.0) - COMPUTE_S[model]
            rows = [
                step(i, i * whole, COMPUTE_S[model], more, codec=cell.method,
                     wire_bytes=int(1e6 * SHARE[cell.label]), dense_bytes=1_000_000)
                for i in range(6)
            ]  # fmt: skip
            for i, row in enumerate(rows):
                row["t_end_s"] = row["t_start_s"] + COMPUTE_S[model] + more
                row["step"] = i
            evals = []
            if axes["part"] == "accuracy":
                evals = [{"step": 6 * n, "t_s": 6 * n * whole, "accuracy": 0.41 * n, "loss": 1.0}
                         for n in (1, 2)]  # fmt: skip
            outcome = next((o for part, o in (ended or {}).items() if part in key), None)
            made = write_cell(folder, cell.label, cell.seed, steps=dict.fromkeys(range(2), rows),
                              evals=evals, outcome=outcome, scenario=variation.scenario.name,
                              target_accuracy=0.8 if evals else None,
                              device={"kind": "estimate", "description": f"{model} on a GPU",
                                      "formula": "3 x 2 x MAC", "source": "estimate"})  # fmt: skip
            made.rename(folder / "cells" / digest)
    manifest = {
        "sweep": {"name": sweep.name, "description": sweep.description, "axes": sweep.axes},
        "command": "make reproduce QUICK=1",
        "scenarios": {v.key: v.scenario.resolved() for v in sweep.variations},
        "cells": cells,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
