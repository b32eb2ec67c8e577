"""Many ranks in one guest: they train, and take no more memory than a laptop has."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from guest_cells import start_on

from experiments.harness import resolve_cell
from experiments.scenario import load
from testbed.probes import free_memory_gib
from testbed.starvation import resident_mb

pytestmark = [pytest.mark.guest, pytest.mark.slow]


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("name", "world", "needs_gib", "most_gib"),
    [("congested", 16, 4, 16), ("many-ranks", 64, 9, 12)],
)
def test_many_ranks_fit(
    tmp_path: Path, name: str, world: int, needs_gib: float, most_gib: float
) -> None:
    if free_memory_gib() < needs_gib:
        pytest.skip(f"needs {needs_gib:g} GiB of free memory")
    text = (Path("experiments/scenarios") / f"{name}.yaml").read_text()
    file = tmp_path / f"{name}.yaml"
    file.write_text(text.replace("world_size: 4\n", f"world_size: {world}\n"))
    scenario = load(file).narrowed(methods=["allreduce"], steps=1)
    spec = resolve_cell(scenario, scenario.cells()[0])
    assert spec["world_size"] == world
    run = start_on("guest", tmp_path / "cell", spec)
    most_mb = 0.0
    try:
        while (outcome := run.poll()) is None:
            most_mb = max(most_mb, resident_mb(run.pid))  # type: ignore[attr-defined]
            time.sleep(1.0)
    finally:
        run.kill()
    assert outcome["status"] == "ok", outcome["reason"]
    assert outcome["replicas_identical"] is True
    assert 0 < most_mb < most_gib * 1024
