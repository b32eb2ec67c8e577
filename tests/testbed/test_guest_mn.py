"""Mininet's own command builds our topologies; needs root, which a guest has."""

from __future__ import annotations

from pathlib import Path

import pytest
from guest_cells import run_program

pytestmark = [pytest.mark.guest, pytest.mark.slow]

TOPOS = ["two_sites,ranks=2,wan_rate_mbps=20,wan_delay_ms=5", "star,2"]


def test_mn_runs_our_topologies(tmp_path: Path) -> None:
    found = run_program(tmp_path / "mn", "mn", topos=TOPOS)
    for topo in TOPOS:
        assert found[topo]["status"] == 0, found[topo]["said"]
        assert "Results: 0% dropped (2/2 received)" in found[topo]["said"]
    assert "(20.00Mbit 5ms delay)" in found[TOPOS[0]]["said"]
