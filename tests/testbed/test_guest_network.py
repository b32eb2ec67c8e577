"""The network of the guest against formulas, and super-packets against single frames."""

from __future__ import annotations

import statistics

import pytest
from guest_cells import cell_spec

from testbed.kernel import build
from testbed.launcher import GuestCell

pytestmark = [pytest.mark.guest, pytest.mark.slow]

SIZES = [65_536, 262_144, 1_048_576, 10_000_000]
WARM_UP = 3


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, float]]:
    """Seconds of a 4-rank ring all-reduce, per segmentation and size, the first few left out."""
    network = {"rate_mbps": 200, "delay_ms": 0.25, "queue": {"bytes": 8_000_000}}
    folder = tmp_path_factory.mktemp("ring")
    cells = {
        mode: GuestCell(
            build.ensure(),
            folder / mode,
            cell_spec("ring", 4, segmentation=mode, sizes=SIZES, network=network),
        )
        for mode in ("auto", "off")
    }
    found = {}
    for mode, cell in cells.items():
        outcome = cell.wait()
        assert outcome["status"] == "ok", outcome["reason"]
        assert outcome["link_verdict"] == "ok"
        seconds = outcome["ranks"][0]["seconds"]
        found[mode] = {size: statistics.mean(seconds[str(size)][WARM_UP:]) for size in SIZES}
    return found


def test_ring_takes_what_the_formula_says(ring: dict[str, dict[int, float]]) -> None:
    ideal = 2 * 3 / 4 * 10_000_000 * 8 / 200e6
    assert ideal <= ring["auto"][10_000_000] <= 1.10 * ideal


@pytest.mark.parametrize("size", SIZES)
def test_super_packets_change_nothing(ring: dict[str, dict[int, float]], size: int) -> None:
    assert ring["auto"][size] == pytest.approx(ring["off"][size], rel=0.05)
