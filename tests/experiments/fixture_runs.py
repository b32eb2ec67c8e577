"""Write raw records of runs that never happened, with numbers known in advance.

`write_cell` writes exactly the rows it is given; `small_run` is a run small enough to check by
hand; `congested_run` obeys simple laws (time = compute + bytes / rate) so that pictures and
pages look as they do for a real run.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def write_jsonl(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_cell(
    run_dir: Path,
    label: str,
    seed: int = 0,
    *,
    steps: dict[int, list[Row]],
    evals: list[Row] = (),  # type: ignore[assignment]
    links: list[Row] = (),  # type: ignore[assignment]
    events: list[Row] = (),  # type: ignore[assignment]
    outcome: Row | None = None,
    **meta: Any,
) -> Path:
    folder = run_dir / "cells" / f"{label}-s{seed}"
    folder.mkdir(parents=True)
    cell = {
        "scenario": "fixture",
        "method": label.split("-")[0],
        "label": label,
        "options": {},
        "seed": seed,
        "world_size": len(steps),
        "steps": max((len(r) for r in steps.values()), default=0),
        "batch_size": 32,
        "target_accuracy": 0.75,
        **meta,
    }
    (folder / "cell.json").write_text(json.dumps(cell))
    for rank, rows in steps.items():
        write_jsonl(folder / f"steps-rank{rank}.jsonl", rows)
    for name, rows in (("evals", evals), ("links", links), ("events", events)):
        if rows:
            write_jsonl(folder / f"{name}.jsonl", rows)
    ended = {"status": "ok", "reason": "", "replicas_identical": True, "link_verdict": "ok"}
    ended |= {"virtual_s": 1.0, "warmup_steps": 3, "link_check": {}}
    (folder / "outcome.json").write_text(json.dumps(ended | (outcome or {})))
    return folder


def step(number: int, start_s: float, compute_s: float, comm_s: float, **more: Any) -> Row:
    row = {
        "step": number,
        "t_start_s": start_s,
        "t_end_s": start_s + compute_s + comm_s,
        "compute_s": compute_s,
        "exposed_comm_s": comm_s,
        "loss": 1.0,
        "samples": 32,
        "codec": "dense",
        "strength": 1.0,
        "wire_bytes": 4000,
        "control_bytes": 0,
        "link_bytes": 6000,
        "dense_bytes": 4000,
        "encode_s": 0.0,
        "decode_s": 0.0,
        "bandwidth_mbps": None,
        "latency_ms": None,
        "reason": "",
        "nonfinite": False,
    }
    return row | more


def small_run(run_dir: Path) -> Path:
    """Two ranks, five steps: three of warm-up (slow), then 0.1 s and 0.3 s (rank 1: 0.4 s)."""
    slow = [step(i, i * 1.0, 0.5, 0.5) for i in range(3)]
    first = [*slow, step(3, 3.0, 0.06, 0.04), step(4, 3.1, 0.06, 0.24, wire_bytes=2000)]
    second = [*slow, step(3, 3.0, 0.06, 0.04), step(4, 3.1, 0.06, 0.34, wire_bytes=2000)]
    evals = [
        {"step": 2, "t_s": 2.0, "accuracy": 0.5, "loss": 1.5},
        {"step": 4, "t_s": 3.4, "accuracy": 0.8, "loss": 0.5},
    ]
    write_cell(run_dir, "netsense", steps={0: first, 1: second}, evals=evals)
    return run_dir


def _rate_mbps(t_s: float) -> float:
    return 25.0 if 4 <= t_s < 9 else 100.0


_METHODS: dict[str, tuple[str, float]] = {  # codec and wire bytes per dense byte
    "allreduce": ("dense", 1.0),
    "fp16": ("fp16", 0.5),
    "topk-0.1": ("topk", 0.2),
    "topk-0.01": ("topk", 0.02),
    "powersgd": ("powersgd", 0.012),
    "netsense": ("", 0.0),
}


def _decide(label: str, t_s: float) -> tuple[str, float]:
    """Return the codec and the share of dense bytes of a step at `t_s`."""
    if label != "netsense":
        return _METHODS[label]
    return (
        ("topk", 0.01) if _rate_mbps(t_s) < 50 else ("topk", 0.04) if t_s > 1 else ("dense", 1.0)
    )


def _congested_cell(run_dir: Path, label: str, seed: int, count: int, **outcome: Any) -> None:
    dense, compute_s, t_s = 2_000_000, 0.06, 0.0
    steps: dict[int, list[Row]] = {r: [] for r in range(4)}
    evals, speed = [], 0.05 if label == "topk-0.01" else 0.06
    for i in range(count):
        rate = _rate_mbps(t_s) * (0.95 + 0.04 * math.sin(i * 1.7 + seed))
        codec, share = _decide(label, t_s)
        code_s = 0.0 if codec == "dense" else 0.003
        comm_s = code_s + max(0.004, 1.5 * dense * share * 8 / rate / 1e6 - 0.03)
        for rank in steps:
            row = step(i, t_s, compute_s, comm_s, codec=codec, strength=share, encode_s=code_s)
            row |= {"wire_bytes": int(dense * share), "dense_bytes": dense}
            row |= {"loss": 2.3 * math.exp(-i / 40)}
            if label == "netsense":
                row |= {"bandwidth_mbps": rate, "latency_ms": 4.0, "reason": "congested"}
            steps[rank].append(row)
        t_s += compute_s + comm_s
        if (i + 1) % 25 == 0:
            accuracy = 0.86 - 0.76 * math.exp(-i * speed / 2) + 0.004 * seed
            evals.append({"step": i, "t_s": t_s, "accuracy": accuracy, "loss": 0.5})
    links = []
    for k in range(int(t_s * 5)):
        sample = {"t_s": k / 5, "tx_bytes": k * 100_000, "tx_packets": k * 70, "drops": 0}
        sample |= {"backlog_bytes": 0, "backlog_packets": 0, "asked_rate_mbps": _rate_mbps(k / 5)}
        sample |= {"asked_delay_ms": 1.0, "asked_loss_pct": 0.0}
        for h in range(4):
            links.append({**sample, "link": f"h{h}-s0", "direction": f"h{h}>s0"})
            links.append({**sample, "link": f"h{h}-s0", "direction": f"s0>h{h}"})
    events: list[Row] = []
    for at_s, rate in ((4.0, 25), (9.0, 100)):
        for h in range(4):
            event = {"requested_s": at_s, "actual_s": at_s, "kind": "link", "link": f"h{h}-s0"}
            events.append({**event, "detail": f"rate_mbps={rate}"})
    for k in range(int(t_s / 3.5)):
        start = {"requested_s": 1 + 3.5 * k, "actual_s": 1 + 3.5 * k, "kind": "flow-start"}
        stop = {"requested_s": 2.5 + 3.5 * k, "actual_s": 2.5 + 3.5 * k, "kind": "flow-stop"}
        events += [{**e, "flow": f"x0>h1#{k}", "detail": "iperf3-tcp"} for e in (start, stop)]
    write_cell(
        run_dir, label, seed, steps=steps, evals=evals, links=links, events=events, outcome=outcome
    )


def congested_run(run_dir: Path, seeds: tuple[int, ...] = (0,), count: int = 150) -> Path:
    """Six methods on a link that drops from 100 to 25 Mbit/s for five seconds."""
    for seed in seeds:
        for label in _METHODS:
            _congested_cell(run_dir, label, seed, count)
    write_manifest(run_dir, list(_METHODS), list(seeds))
    return run_dir


def write_manifest(run_dir: Path, labels: list[str], seeds: list[int]) -> None:
    scenario = {
        "name": "fixture",
        "description": "Four ranks behind a link that drops in the middle",
        "clock": "virtual",
        "world_size": 4,
        "target_accuracy": 0.75,
        "seeds": seeds,
        "methods": [{"name": x.split("-")[0], "label": x, "options": {}} for x in labels],
        "workload": {"task": "fashion-cnn", "device": "none", "batch_size": 32, "steps": 150},
    }
    manifest = {"scenario": scenario, "digest": "0" * 64, "run_id": run_dir.name}
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
