"""The network of the guest against formulas, and super-packets against single frames."""

from __future__ import annotations

import os
import statistics

import pytest
from guest_cells import cell_spec

from testbed.kernel import build
from testbed.launcher import GuestCell

pytestmark = [pytest.mark.guest, pytest.mark.slow]

SIZES = [65_536, 262_144, 1_048_576, 10_000_000]
WARM_UP = 3
CELLS = {  # name: segmentation, link delay, sizes
    "auto": ("auto", 1.0, SIZES),
    "off": ("off", 1.0, SIZES),
    "near": ("auto", 0.25, SIZES[-1:]),
}


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, float]]:
    """Seconds of a 4-rank ring all-reduce at 200 Mbit/s, per cell and size, warmed up."""
    folder = tmp_path_factory.mktemp("ring")
    cells = {}
    for cpu, (name, (segmentation, delay_ms, sizes)) in enumerate(CELLS.items()):
        network = {"rate_mbps": 200, "delay_ms": delay_ms, "queue": {"bytes": 8_000_000}}
        spec = cell_spec("ring", 4, segmentation=segmentation, sizes=sizes, network=network)
        cpus = sorted(os.sched_getaffinity(0))
        cells[name] = GuestCell(build.ensure(), folder / name, spec, cpu=cpus[cpu % len(cpus)])
    found = {}
    for name, cell in cells.items():
        outcome = cell.wait()
        assert outcome["status"] == "ok", outcome["reason"]
        assert outcome["link_verdict"] == "ok"
        seconds = outcome["ranks"][0]["seconds"]
        found[name] = {int(size): statistics.mean(t[WARM_UP:]) for size, t in seconds.items()}
    return found


def test_ring_takes_what_the_formula_says(ring: dict[str, dict[int, float]]) -> None:
    ideal = 2 * 3 / 4 * 10_000_000 * 8 / 200e6
    assert ideal <= ring["near"][10_000_000] <= 1.10 * ideal


@pytest.mark.parametrize("size", SIZES)
def test_super_packets_change_nothing(ring: dict[str, dict[int, float]], size: int) -> None:
    assert ring["auto"][size] == pytest.approx(ring["off"][size], rel=0.05)
