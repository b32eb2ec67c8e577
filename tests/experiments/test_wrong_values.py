"""Any value in any place of a file is taken, or refused in one line that names the file."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments import scenario, sweepfile
from experiments.errors import UserError
from experiments.methods import method_names
from experiments.scenario import SCENARIOS

WRONG = {
    "null": None, "list": [], "mapping": {}, "inf": float("inf"), "nan": float("nan"),
    "huge": 10**400, "text": "x", "no name": "\0\n", "negative": -1, "true": True,
    "number as a key": {1: 2}, "date": datetime.date.max,
}  # fmt: skip

# What no shipped scenario has.
MORE = {
    "description": "Everything that a scenario may have",
    "world_size": 2,
    "backend": "auto",
    "segmentation": "auto",
    "topology": {
        "builder": "dumbbell", "rate_mbps": 10, "delay_ms": 1, "bottleneck_rate_mbps": 5,
        "bottleneck_delay_ms": 2, "bottleneck_queue": {"packets": 9}, "queue": {"bdp": 1.5},
        "extra_hosts": 4, "jitter_ms": 0.5, "jitter_keeps_order": False, "reorder_pct": 1,
        "duplicate_pct": 1, "corrupt_pct": 1, "aqm": "red", "ecn": True,
        "loss_model": {"kind": "gilbert-elliott", "p_pct": 1, "r_pct": 50, "loss_bad_pct": 90,
                       "loss_good_pct": 1},
        "hosts": {"h0": {"cpu": 1.0, "memory_mb": 500}},
        "links": {"s0-s1": {"rate_mbps": 4, "reverse": {"rate_mbps": 3}}},
    },
    "events": [
        {"kind": "set", "at_s": 1, "links": ["h*-s0"], "sender": "s0", "delay_ms": 2, "up": True},
        {"kind": "ramp", "links": "s0-s1", "field": "rate_mbps", "start_s": 1, "stop_s": 3,
         "every_s": 1, "from_value": 5, "to_value": 2},
        {"kind": "square", "links": "s0-s1", "field": "delay_ms", "start_s": 4, "stop_s": 8,
         "low": 1, "low_s": 1, "high": 2, "high_s": 1},
        {"kind": "walk", "links": "s0-s1", "field": "rate_mbps", "start_s": 10, "stop_s": 12,
         "every_s": 1, "from_value": 5, "low": 1, "high": 9, "step_pct": 10, "seed": 1},
        {"kind": "trace", "links": "h1-s1", "file": "mine.csv",
         "format": "csv", "every_s": 5, "scale": 2, "least_mbps": 0.1, "start_s": 1,
         "stop_s": 9},
        {"kind": "partition", "nodes": ["h0"], "at_s": 20, "until_s": 21},
        {"kind": "host-paused", "host": "h1", "at_s": 22, "duration_s": 1},
        {"kind": "rank-killed", "host": "h1", "at_s": 24},
    ],
    "traffic": [
        {"kind": "iperf3-udp", "source": "x0", "sink": "x1", "rate_mbps": 1, "flows": 2},
        {"kind": "iperf3-tcp", "source": "x0", "sink": "h0", "congestion_control": "cubic",
         "start_s": 1, "stop_s": 9, "on_s": 1, "off_s": 1, "seed": 1},
        {"kind": "training", "hosts": ["x2", "x3"], "method": "topk", "options": {"ratio": 0.1},
         "name": "rival", "task": "fashion-mlp", "batch_size": 4, "steps": 5, "start_s": 1,
         "seed": 1},
    ],
    "workload": {
        "task": "fashion-mlp", "batch_size": 8, "steps": 4, "eval_every": 2, "device": "resnet18",
        "optimizer": "adam", "lr": 0.1, "momentum": 0.5, "weight_decay": 0.1,
        "schedule": "constant", "lr_warmup_steps": 1, "straggler": {"rank": 1, "extra_ms": 5},
        "stop_s": 100,
    },
    "methods": ["fp16", {"name": "topk", "label": "few", "options": {"ratio": 0.1}}],
    "seeds": [0],
    "target_accuracy": 0.5,
    "timeout_s": 600,
}  # fmt: skip
GRAPH = {
    **MORE,
    "topology": {
        "name": "mine", "stp": False, "switches": ["s0"],
        "hosts": ["h0", {"name": "h1", "cpu": 1}],
        "links": [{"a": "h0", "b": "s0", "rate_mbps": 5, "delay_ms": 1, "queue": {"bytes": 9000}},
                  {"name": "far", "a": "h1", "b": "s0", "rate_mbps": 5, "delay_ms": 1}],
    },
    "events": [], "traffic": [],
}  # fmt: skip
SWEEP = {
    "description": "Everything that a sweep may have",
    "scenarios": ["smoke"],
    "set": {"workload.steps": 4, "methods": ["fp16", {"name": "topk", "options": {"ratio": 0.1}}]},
    "grid": {
        "topology.rate_mbps": [30, 100],
        "net": {"near": {"topology.delay_ms": 1}, "far": {"topology.delay_ms": 9}},
        "methods.topk-0.1.options.ratio": {"some": 0.1},
    },
    "variations": [{"name": "far", "scenarios": ["smoke"], "set": {"topology.delay_ms": 50}}],
}

Place = tuple[str | int, ...]


def places(data: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the path of every value in a file, containers too."""
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield (*path, key)
            yield from places(data[key], (*path, key))


def replaced(data: Any, path: Place, value: Any) -> Any:
    """Return a copy of the data with one value replaced."""
    data = deepcopy(data)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file's path, with a trace beside it; the methods are looked up only once."""
    (tmp_path / "mine.csv").write_text("time_s,rate_mbps\n0,10\n1,0\n")
    found = method_names()
    monkeypatch.setattr("experiments.consistency.method_names", lambda: found)
    return tmp_path / "mine.yaml"


def every_place(mine: Path) -> Iterator[tuple[Path, Any, Place]]:
    """Yield every place of the files above, and of the shipped ones what those have not."""
    seen = set()
    for file, data in (
        (mine, MORE),
        (mine, GRAPH),
        *((file, yaml.safe_load(file.read_text())) for file in sorted(SCENARIOS.glob("*.yaml"))),
    ):
        for path in places(data):
            kind = tuple(key for key in path if isinstance(key, str))
            if file == mine or kind not in seen:
                yield file, data, path
            seen.add(kind)


def told(load: Callable[[], object], file: Path) -> None:
    """Load; an error must be the project's own, one line of it, and name the file."""
    try:
        load()
    except UserError as error:
        text = str(error)
        assert text.startswith(f"{file.name}: ") or f"/{file.name}: " in text
        assert "\n" not in text
        assert len(text) < 500


def test_what_is_made_wrong_below_is_right(mine: Path) -> None:
    for data in (MORE, GRAPH):
        scenario.check(deepcopy(data), "mine", mine)
    mine.write_text(yaml.safe_dump(SWEEP))
    sweepfile.load(mine)


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_scenarios(value: object, mine: Path) -> None:
    for file, data, path in every_place(mine):
        wrong = replaced(data, path, value)
        told(lambda wrong=wrong, file=file: scenario.check(wrong, "mine", file), file)


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_sweeps(value: object, mine: Path) -> None:
    for path in places(SWEEP):
        mine.write_text(yaml.safe_dump(replaced(SWEEP, path, value)))
        told(lambda: sweepfile.load(mine), mine)
