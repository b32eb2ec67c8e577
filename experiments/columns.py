"""The columns of ``summary.csv`` and of the parquet files, in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

__all__ = ["FORMATS", "SUMMARY_COLUMNS", "TABLES"]


def _fixed(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{digits}f}"


def _yes(value: object) -> str:
    return "true" if value else "false"


# column -> how its value is written
FORMATS: dict[str, Callable[[Any], str]] = {
    "method": str,
    "seed": str,
    "status": str,
    "world_size": str,
    "steps": str,
    "samples_per_second": _fixed(3),
    "step_ms_p50": _fixed(4),
    "step_ms_p95": _fixed(4),
    "compute_ms_p50": _fixed(4),
    "exposed_comm_ms_p50": _fixed(4),
    "wire_bytes_per_step": _fixed(1),
    "compression_ratio": _fixed(4),
    "final_accuracy": _fixed(4),
    "time_to_accuracy_s": _fixed(6),
    "link_verdict": str,
    "replicas_identical": _yes,
}
SUMMARY_COLUMNS = tuple(FORMATS)

_STEP_TYPES = {
    "method": pa.string(),
    "seed": pa.int64(),
    "rank": pa.int64(),
    "step": pa.int64(),
    "counted": pa.bool_(),
    "t_start_s": pa.float64(),
    "t_end_s": pa.float64(),
    "compute_s": pa.float64(),
    "exposed_comm_s": pa.float64(),
    "loss": pa.float64(),
    "samples": pa.int64(),
    "codec": pa.string(),
    "strength": pa.float64(),
    "wire_bytes": pa.int64(),
    "control_bytes": pa.int64(),
    "link_bytes": pa.int64(),
    "dense_bytes": pa.int64(),
    "encode_s": pa.float64(),
    "decode_s": pa.float64(),
    "bandwidth_mbps": pa.float64(),
    "latency_ms": pa.float64(),
    "reason": pa.string(),
    "nonfinite": pa.bool_(),
}
_LINK_TYPES = {
    "method": pa.string(),
    "seed": pa.int64(),
    "t_s": pa.float64(),
    "link": pa.string(),
    "direction": pa.string(),
    "tx_bytes": pa.int64(),
    "tx_packets": pa.int64(),
    "drops": pa.int64(),
    "backlog_bytes": pa.int64(),
    "backlog_packets": pa.int64(),
    "asked_rate_mbps": pa.float64(),
    "asked_delay_ms": pa.float64(),
    "asked_loss_pct": pa.float64(),
    "asked_queue_bytes": pa.int64(),
    "phase": pa.int64(),
    "got_rate_mbps": pa.float64(),
    "got_short_mbps": pa.float64(),
    "got_delay_ms": pa.float64(),
    "got_loss_pct": pa.float64(),
    "got_queue_frames": pa.int64(),
}
_EVAL_TYPES = {
    "method": pa.string(),
    "seed": pa.int64(),
    "step": pa.int64(),
    "t_s": pa.float64(),
    "accuracy": pa.float64(),
    "loss": pa.float64(),
}
_EVENT_TYPES = {
    "method": pa.string(),
    "seed": pa.int64(),
    "requested_s": pa.float64(),
    "actual_s": pa.float64(),
    "kind": pa.string(),
    "link": pa.string(),
    "flow": pa.string(),
    "detail": pa.string(),
}
#: the parquet files of a run, without their ending
TABLES = {"steps": _STEP_TYPES, "links": _LINK_TYPES, "evals": _EVAL_TYPES, "events": _EVENT_TYPES}
