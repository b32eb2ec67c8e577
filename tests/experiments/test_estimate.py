from typing import Any

import pytest

from experiments.estimate import Measured, TimeLeft, measured_on, predict
from experiments.progress import duration_text


def cell(**more: Any) -> dict[str, Any]:
    spec = {"method": "fp16", "options": {}, "seed": 0, "world_size": 4, "steps": 10}
    spec |= {"clock": "virtual", "bucket_cap_mb": 25.0}
    spec["workload"] = {"task": "t", "batch_size": 32}
    return spec | more


SEEN = [
    Measured(cell(), wall_s=30, start_s=20),
    Measured(cell(method="topk"), wall_s=60, start_s=20),
    Measured(cell(method="topk", seed=1), wall_s=64, start_s=24),
]


def test_the_most_similar_cells_count() -> None:
    assert predict(cell(seed=5), SEEN) == 30
    assert predict(cell(method="topk", seed=2), SEEN) == 62
    # a method never seen: the median over all with these ranks
    assert predict(cell(method="dgc"), SEEN) == 60


def test_steps_scale_what_is_not_the_start() -> None:
    assert predict(cell(steps=20), SEEN) == 20 + 2 * 10
    assert predict(cell(steps=20, world_size=8), SEEN[:1]) == 2 * (20 + 2 * 10)


def test_another_model_counts_by_its_size() -> None:
    small = cell(workload={"task": "u", "batch_size": 32}, bucket_cap_mb=2.5)
    assert predict(small, SEEN[:1]) == 20 + 10 / 10


def test_a_cell_that_ends_at_a_time_does_no_more_steps_than_it_can_compute() -> None:
    ends = {"task": "t", "batch_size": 32, "stop_s": 4.0}
    device = {"forward_s": 0.02, "backward_s": 0.08}
    spec = cell(steps=100_000, workload=ends, device=device)
    assert predict(spec, SEEN[:1]) == 20 + 40 * 1


def test_nothing_known_is_said_to_be_unknown() -> None:
    assert predict(cell(), []) is None
    assert TimeLeft({"a": cell()}, 2).seconds() is None


def test_only_cells_of_this_machine_that_ended_well_count() -> None:
    here = {"cpu": "x", "cores": 2, "slots": 2}
    good = {"identity": {"cell": cell()}, "status": "ok", "wall_s": 9.0, "start_s": 5.0}
    found = [
        {**good, "machine": here},
        {**good, "machine": {**here, "cores": 8}},
        {**good, "machine": here, "status": "failed"},
        {**good, "machine": here, "start_s": None},
    ]
    assert len(measured_on(here, found)) == 1


def test_time_left_follows_what_happens() -> None:
    now = [0.0]
    specs = {name: cell(seed=i) for i, name in enumerate("abcd")}
    left = TimeLeft(specs, 2, [], clock=lambda: now[0])
    left.started("a")
    left.started("b")
    assert left.seconds() is None
    now[0] = 20  # the start took 20 s
    for name in "ab":
        left.stepped(name, 1)
    now[0] = 29  # and then a step takes 1.5 s
    for name in "ab":
        left.stepped(name, 7)
    # a and b take 20 + 10 x 1.5 s in all, of which 29 are gone; then c and d
    assert left.seconds() == pytest.approx(6 + 35)
    now[0] = 40
    for name in "ab":
        left.ended(name, "ok")
    assert left.seconds() == pytest.approx(40)
    left.started("c")
    left.ended("c", "failed")  # tells nothing of how long a cell takes
    assert left.seconds() == pytest.approx(40)


def test_real_time_is_added_up() -> None:
    specs = {"a": cell(clock="real"), "b": cell(clock="real"), "c": cell()}
    assert TimeLeft(specs, 2, SEEN[:1]).seconds() == 90


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "1 s"), (40, "40 s"), (700, "12 min"), (12_060, "3 h 21 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
