"""Clock and cost spans: the one place where the library looks at time."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

import torch

__all__ = ["CudaSpans", "Span", "Spans", "WallSpans", "default_spans"]


class Span(Protocol):
    """The handle of a running span; ``seconds`` is set when the block ends."""

    seconds: float


class Spans(Protocol):
    """What the library asks of a source of time.

    ``span`` wraps one piece of encode or decode work (``kind`` is ``"encode"`` or ``"decode"``)
    on ``nbytes`` bytes of dense fp32 gradient. An emulator may charge modelled time there.
    """

    def clock(self) -> float:
        """Seconds on a monotonic clock."""
        ...

    def span(self, kind: str, codec: str, nbytes: int) -> AbstractContextManager[Span]:
        """A block of ``kind`` work by ``codec``."""
        ...


class _WallSpan:
    __slots__ = ("_start", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def __enter__(self) -> _WallSpan:
        self._start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._start


class WallSpans:
    """Real time on the host; right where the work itself runs on the host."""

    def clock(self) -> float:
        """Seconds of ``time.perf_counter``."""
        return time.perf_counter()

    def span(self, kind: str, codec: str, nbytes: int) -> AbstractContextManager[Span]:
        """Time the block with ``time.perf_counter``."""
        return _WallSpan()


class _CudaSpan:
    """Times a block by two events on the current stream, read only when asked for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def __enter__(self) -> _CudaSpan:
        self._start.record(torch.cuda.current_stream(self._device))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.record(torch.cuda.current_stream(self._device))

    @property
    def seconds(self) -> float:
        """Device seconds of the block; waits for the block to end on the device."""
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1e3

    @seconds.setter
    def seconds(self, value: float) -> None:
        raise AttributeError("the seconds of a device span are measured, not set")


class CudaSpans:
    """Device time: spans by events, and a clock that first waits for the current stream.

    A kernel launch returns long before the kernel ends, so the host clock alone would time
    launches. The clock is read a few times per step, at bucket and step boundaries.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def clock(self) -> float:
        """Host seconds once everything queued on the current stream is done."""
        torch.cuda.current_stream(self._device).synchronize()
        return time.perf_counter()

    def span(self, kind: str, codec: str, nbytes: int) -> AbstractContextManager[Span]:
        """Time the block with a pair of CUDA events."""
        return _CudaSpan(self._device)


def default_spans(device: torch.device) -> Spans:
    """Host time for a model on the CPU, device time for one on a CUDA device."""
    return CudaSpans(device) if device.type == "cuda" else WallSpans()
