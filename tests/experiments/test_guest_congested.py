"""The main comparison: on a congested network `netsense` is faster, and learns as much."""

from __future__ import annotations

import pandas as pd
import pytest

from experiments.analysis import remake
from experiments.harness import run_scenario
from experiments.progress import Progress
from experiments.scenario import load

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.alone]


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Return the summary of the methods that the claims are about, by method."""
    folder = tmp_path_factory.mktemp("congested")
    scenario = load("congested").narrowed(methods=["allreduce", "topk-0.1", "netsense"])
    run_scenario(scenario, folder, jobs=2, progress=Progress())
    return remake(folder).summary.set_index("method")


def test_every_cell_is_sound(summary: pd.DataFrame) -> None:
    assert list(summary["status"]) == ["ok"] * 3
    assert list(summary["link_verdict"]) == ["ok"] * 3
    assert all(summary["replicas_identical"])


@pytest.mark.parametrize("method", ["allreduce", "topk-0.1"])
def test_netsense_is_faster(summary: pd.DataFrame, method: str) -> None:
    rate = summary["samples_per_second"]
    assert rate["netsense"] > rate[method]


def test_netsense_learns_as_much(summary: pd.DataFrame) -> None:
    accuracy = summary["final_accuracy"]
    assert accuracy["netsense"] >= accuracy["allreduce"] - 0.01
