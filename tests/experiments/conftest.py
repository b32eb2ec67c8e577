"""Plans of sweeps whose cells are small real processes (`process_engine`)."""

from __future__ import annotations

import pytest
from fixture_sweeps import STEPS
from process_engine import Plan

from experiments.identity import Identities
from experiments.sweep import plan
from experiments.sweepfile import load


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Two rates, two methods, twenty seeds: eighty cells."""
    path = tmp_path_factory.mktemp("plan") / "small.yaml"
    path.write_text(
        f"""
description: Small cells
scenarios: [smoke]
set: {{workload.steps: {STEPS}, seeds: {list(range(20))}, methods: [fp16, netsense]}}
grid: {{topology.rate_mbps: [100, 1000]}}
"""
    )
    sweep, identities = load(path), Identities()
    return sweep, plan(sweep, identities=identities), identities


@pytest.fixture
def small(large: Plan) -> Plan:
    """The first three seeds: twelve cells."""
    sweep, cells, identities = large
    return sweep, [cell for cell in cells if cell.seed < 3], identities
