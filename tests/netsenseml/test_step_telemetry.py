"""Step records, their writers, and the rules DDP has for hooks."""

from __future__ import annotations

import inspect
import io
import json
import math

import torch

import netsenseml
from netsenseml.telemetry import JsonLines, Recorder, TensorBoard, fan_out


def record(**changes: object) -> netsenseml.StepRecord:
    fields = {
        "step": 3, "method": "netsense", "codec": "topk", "strength": 0.1, "wire_bytes": 1000,
        "control_bytes": 80, "link_bytes": 3000, "rounds": 9, "dense_bytes": 40_000,
        "encode_s": 0.001, "decode_s": 0.002, "exposed_comm_s": 0.01, "compute_s": 0.06,
        "bandwidth_mbps": None, "latency_ms": 1.0, "reason": "why", "nonfinite": False,
        "nonfinite_steps": 0,
    }  # fmt: skip
    return netsenseml.StepRecord(**{**fields, **changes})


class Writer:
    """Takes what a SummaryWriter takes."""

    def __init__(self) -> None:
        self.scalars: dict[str, tuple[float, int]] = {}
        self.texts: list[str] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars[tag] = (value, step)

    def add_text(self, tag: str, text: str, step: int) -> None:
        self.texts.append(text)


def test_writers() -> None:
    recorder, stream, writer = Recorder(limit=2), io.StringIO(), Writer()
    each = fan_out(recorder, JsonLines(stream), TensorBoard(writer))
    for step in range(3):
        each(record(step=step, compute_s=math.nan))
    assert [r.step for r in recorder] == [1, 2]
    assert len(recorder) == 2
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert lines[0]["compute_s"] is None
    assert writer.scalars["netsenseml/wire_bytes"] == (1000.0, 2)
    assert writer.scalars["netsenseml/compression_ratio"] == (40.0, 2)
    assert writer.texts == ["why"]


def test_compression_ratio_is_dense_over_sent() -> None:
    assert record(wire_bytes=120_000, dense_bytes=4_000_000).compression_ratio > 33


def test_the_hook_has_the_signature_ddp_wants() -> None:
    signature = inspect.signature(netsenseml.hook)
    assert list(signature.parameters) == ["state", "bucket"]
    assert signature.parameters["bucket"].annotation is torch.distributed.GradBucket
    assert signature.return_annotation == torch.futures.Future[torch.Tensor]
