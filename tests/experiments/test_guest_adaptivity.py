"""`netsense` on the virtual clock: it senses what the links are, follows them, and never loses.

Runs are short; what they show is the controller, not the accuracy.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

from experiments.harness import resolve_cell, run_cells
from experiments.progress import Progress
from experiments.scenario import load

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.alone]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the steps of rank 0, per scenario and method; two guests at a time."""
    folder = tmp_path_factory.mktemp("adaptivity")
    wanted = {
        "static-10g": (["allreduce", "netsense"], 40),
        "static-1g": (["topk-0.1", "netsense"], 40),
        "static-300m": (["topk-0.1", "netsense"], 40),
        "static-100m": (["topk-0.1", "powersgd", "netsense"], 40),
        "static-30m": (["powersgd", "netsense"], 40),
        "straggler": (["netsense"], 40),
        "tenfold": (["netsense"], 90),
    }
    specs = []
    for name, (methods, steps) in wanted.items():
        scenario = load(name).narrowed(methods=methods, steps=steps)
        specs += [
            (folder / name / cell.key, resolve_cell(scenario, cell)) for cell in scenario.cells()
        ]
    for result in run_cells(specs, jobs=2, progress=Progress()):
        assert result.status == "ok", result
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for place, spec in specs:
        lines = (place / "steps-rank0.jsonl").read_text().splitlines()
        found.setdefault(place.parent.name, {})[spec["label"]] = [json.loads(x) for x in lines]
    return found


def seconds(steps: list[dict[str, Any]]) -> list[float]:
    return [step["t_end_s"] - step["t_start_s"] for step in steps]


def rate(steps: list[dict[str, Any]]) -> float:
    """Return samples per second of this rank, start-up left out."""
    counted = steps[10:]
    return sum(s["samples"] for s in counted) / sum(seconds(counted))


def test_never_worse_than_dense_on_a_fast_network(runs: Any) -> None:
    fast = runs["static-10g"]
    assert rate(fast["netsense"]) >= 0.98 * rate(fast["allreduce"])


@pytest.mark.parametrize("name", ["static-30m", "static-100m", "static-300m", "static-1g"])
def test_near_the_best_fixed_method_on_a_steady_network(runs: Any, name: str) -> None:
    """The fixed ones are the fastest there that end within half a point of all-reduce.

    `make sweep SWEEP=static` tells which those are, `SWEEP=steady-accuracy` where netsense ends.
    """
    rates = {method: rate(steps) for method, steps in runs[name].items()}
    ours = rates.pop("netsense")
    assert ours >= 0.95 * max(rates.values()), rates


@pytest.mark.parametrize(
    ("name", "mbps"),
    [("static-30m", 30), ("static-100m", 100), ("static-300m", 300), ("static-1g", 1000)],
)
def test_estimate_is_near_the_asked_rate(runs: Any, name: str, mbps: float) -> None:
    sensed = [step["bandwidth_mbps"] for step in runs[name]["netsense"][10:]]
    assert statistics.median(sensed) == pytest.approx(mbps, rel=0.15)


def test_straggler_does_not_look_like_a_slow_network(runs: Any) -> None:
    with_it, without = (
        statistics.median(step["bandwidth_mbps"] for step in runs[name]["netsense"][10:])
        for name in ("straggler", "static-100m")
    )
    assert with_it == pytest.approx(without, rel=0.10)


def test_choice_depends_on_the_network(runs: Any) -> None:
    chosen = {
        name: statistics.mean(s["wire_bytes"] for s in runs[name]["netsense"][10:])
        for name in ("static-100m", "static-1g")
    }
    assert chosen["static-1g"] > 1.5 * chosen["static-100m"]


@pytest.mark.parametrize(("at_s", "until_s"), [(2.0, 5.0), (5.0, 1e9)])
def test_tenfold_change_is_followed_in_five_steps(runs: Any, at_s: float, until_s: float) -> None:
    steps = runs["tenfold"]["netsense"]
    after = [s for s in steps if at_s <= s["t_start_s"] and s["t_end_s"] < until_s]
    took = seconds(after)
    settled = statistics.median(took[5:])
    late = [second for second in took[5:] if second > 1.2 * settled]
    assert len(after) >= 15
    assert took[5] <= 1.2 * settled
    assert len(late) <= len(took) // 10  # a probe step now and then
