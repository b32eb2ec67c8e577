"""Ways to look at the step records: in memory, as JSON lines, in TensorBoard.

Each is a callable for ``register(..., on_step=...)``; :func:`fan_out` joins several.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO, Any

from netsenseml.record import StepRecord

__all__ = ["JsonLines", "Recorder", "TensorBoard", "fan_out"]


class Recorder:
    """Keeps records in memory; iterate over it to get them, oldest first.

    Parameters
    ----------
    limit : int or None
        Keep only the newest ones.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._records: deque[StepRecord] = deque(maxlen=limit)

    def __call__(self, record: StepRecord) -> None:
        self._records.append(record)

    def __iter__(self) -> Iterator[StepRecord]:
        return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)


class JsonLines:
    """Writes one JSON object per step; what is not finite becomes null."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __call__(self, record: StepRecord) -> None:
        fields = {name: _finite(value) for name, value in record.as_dict().items()}
        self._stream.write(json.dumps(fields, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class TensorBoard:
    """Writes the numbers of every step with ``add_scalar``, the reason when it changes.

    Parameters
    ----------
    writer : torch.utils.tensorboard.SummaryWriter
        Yours: this module does not import TensorBoard.
    prefix : str
    """

    def __init__(self, writer: Any, prefix: str = "netsenseml") -> None:
        self._writer = writer
        self._prefix = prefix
        self._reason = ""

    def __call__(self, record: StepRecord) -> None:
        values = {**record.as_dict(), "compression_ratio": record.compression_ratio}
        step = values.pop("step")
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self._writer.add_scalar(f"{self._prefix}/{name}", float(value), step)
        if record.reason != self._reason:
            self._reason = record.reason
            self._writer.add_text(f"{self._prefix}/reason", record.reason, step)


def fan_out(*callbacks: Callable[[StepRecord], None]) -> Callable[[StepRecord], None]:
    """One callback that calls all of these in order."""

    def call(record: StepRecord) -> None:
        for callback in callbacks:
            callback(record)

    return call
