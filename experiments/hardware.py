"""The processor or GPU that is really there: on a real clock its time is measured, not charged.

Takes the place of `experiments.accelerator.Accelerator` in the rank program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .accelerator import Span

__all__ = ["Hardware", "nccl_environment", "process_group_backend"]


def process_group_backend(device: str) -> str:
    """Return what `init_process_group` is told for tensors on `device`."""
    return "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"


def nccl_environment(interface: str, host_id: str) -> dict[str, str]:
    """Return settings that keep NCCL on the network of the testbed.

    Ranks in namespaces of one machine look like one host to NCCL, which would then go through
    shared memory, past every link that is measured. The byte counters of the links would show it.
    """
    return {
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "NCCL_HOSTID": host_id,
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
    }


class Hardware:
    """Measures a step's compute time: all of it but the wait for gradients to be exchanged.

    Compute is what lies before the last bucket of gradients is ready, without the time of
    encoding and decoding in it, and what comes after the exchange.

    Parameters
    ----------
    kind
        ``cpu`` or ``cuda``.
    rank
        Picks the GPU where there are several, unless torchrun's ``LOCAL_RANK`` does.
    extra_s
        Compute time that this rank needs more, in its forward pass.
    """

    def __init__(self, kind: str, rank: int, extra_s: float = 0.0) -> None:
        self.device = torch.device("cpu")
        if kind == "cuda":
            if not torch.cuda.is_available():
                raise RuntimeError("workload.device: cuda, but torch finds no GPU here")
            local = int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count()
            self.device = torch.device("cuda", local)
            torch.cuda.set_device(self.device)
        self._extra_s = extra_s
        self._start = self._ready = self._done = self._mark()
        self._codec_s = self._codec_before_s = 0.0
        self._compute_s = 0.0

    def clock(self) -> float:
        """Return seconds that only grow."""
        return time.monotonic()

    def _mark(self) -> Any:
        """Mark this point of the work: on a GPU it is reached when all before it is done."""
        if self.device.type != "cuda":
            return self.clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _between_s(self, begin: Any, end: Any) -> float:
        if self.device.type != "cuda":
            return end - begin
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    @contextmanager
    def span(self, kind: str, codec: str, nbytes: int) -> Iterator[Span]:
        """Measure the encoding or decoding of `nbytes` of dense gradient."""
        span, begin = Span(), self._mark()
        yield span
        span.seconds = self._between_s(begin, self._mark())
        self._codec_s += span.seconds

    def forward(self) -> None:
        """Note that a step begins."""
        self._codec_s = 0.0
        self._start = self._mark()
        if self._extra_s:
            time.sleep(self._extra_s)

    def backward(self, numel: int) -> None:
        """Note that the gradients of one more bucket are ready; the last time counts."""
        self._codec_before_s = self._codec_s
        self._ready = self._mark()

    def communicated(self) -> None:
        """Note that the gradients of all ranks are there."""
        self._done = self._mark()

    def optimizer(self) -> None:
        """Note that a step ends."""
        end = self._mark()
        before_s = self._between_s(self._start, self._ready) - self._codec_before_s
        self._compute_s = before_s + self._between_s(self._done, end)

    def take_compute_s(self) -> float:
        """Return the compute time measured since the last call."""
        seconds, self._compute_s = self._compute_s, 0.0
        return seconds
