"""``plan``: the cells of a scenario and a folder for their records, for whoever runs them."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError
from ..runs import RESULTS

__all__ = ["plan"]


def plan(
    scenario: Annotated[str, typer.Argument(help="A scenario's name, or a path to a .yaml file.")],
    results: Annotated[Path, typer.Option(help="Where runs live.")] = RESULTS,
    world_size: Annotated[int | None, typer.Option(help="Ranks that there are.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps instead of the file's.")] = None,
) -> None:
    """Check a scenario for a cluster, make its run's folder, print both as JSON."""
    from .. import datasets
    from ..harness import check_options, choices_of, resolve_cell
    from ..manifest import new_manifest, update
    from ..runs import new_run
    from ..scenario import load

    chosen = load(scenario).narrowed(steps=steps)
    if chosen.backend != "cluster":
        raise UserError(f"backend: expected cluster under torchrun; {chosen.name} has another")
    if world_size is not None and world_size != chosen.world_size:
        raise UserError(f"world_size: expected the {world_size} ranks that torchrun started")
    datasets.check(chosen.workload.task)
    specs = {cell.key: resolve_cell(chosen, cell) for cell in chosen.cells()}
    methods = (choice for spec in specs.values() for choice in choices_of(spec))
    check_options(methods, f"scenario {chosen.name}")
    run_dir = new_run(results, chosen.name, chosen.digest())
    command = f"torchrun … -m experiments.cluster {scenario}"
    update(run_dir, **new_manifest(chosen.resolved(), chosen.digest(), command))
    update(run_dir, run_id=run_dir.name, backend="cluster", backend_why="asked for")
    cells = [{"key": key, "spec": spec} for key, spec in specs.items()]
    print(json_.dumps({"run": str(run_dir.resolve()), "cells": cells}))
