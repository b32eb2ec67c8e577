"""``threshold``: every entry whose magnitude reaches a fixed threshold.

The number of such entries differs between ranks, and an all-gather needs equal sizes: the ranks
first exchange their counts (8 bytes), then all send as many entries as the largest count. The
others fill up with zeros, so that nothing below the threshold is ever sent.

Source: N. Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
Interspeech 2015 (there with one-bit values; here with real ones).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.codecs.base import Codec, GatherCodec, Job, StepContext, peak_of
from netsenseml.codecs.sparse import add_rows, send_selected, take
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.options import Options, bounded, choice
from netsenseml.selection import top_k
from netsenseml.transport import Transfer
from netsenseml.wire import SparseFormat

__all__ = ["METHOD", "Threshold", "ThresholdOptions"]


@dataclass(frozen=True)
class ThresholdOptions(Options):
    """Options of ``threshold``.

    Attributes
    ----------
    threshold : float
        Smallest magnitude sent, of gradient plus residual.
    values : str
        Type of the values on the wire.
    error_feedback : bool
        Carry what was not sent over to the next step.
    """

    threshold: float = bounded(0.01, 0.0, 1e30)
    values: str = choice("fp16", "bf16", "fp32", "fp8")
    error_feedback: bool = True


class Threshold(GatherCodec):
    """Agreed count first, then one all-gather."""

    name = "threshold"

    def __init__(self, threshold: float, values: str) -> None:
        self._threshold = threshold
        self._values = values

    @property
    def strength(self) -> float | None:
        return self._threshold

    def start(self, job: Job, step: StepContext) -> None:
        with step.encode(self.name, job, share=0.5):
            accumulated = job.accumulate()
            magnitudes = job.take("magnitudes", accumulated.numel(), accumulated.dtype)
            torch.abs(accumulated, out=magnitudes)
            mine = job.take("count", 1, torch.int64)
            mine.copy_((magnitudes >= self._threshold).sum())
        counts = job.take("counts", step.world, torch.int64)
        step.gather(job, mine, counts, f"threshold counts of bucket {job.index}")
        kept = max(1, int(step.wait(job).max()))
        form = job.extra["form"] = SparseFormat(job.group.numel, kept, self._values)
        payload = job.take("payload", form.nbytes, torch.uint8)
        with step.encode(self.name, job, share=0.5):
            indices = top_k(magnitudes, kept)
            below = take(magnitudes, indices) < self._threshold
            held = take(accumulated, indices)[below]
            accumulated[indices[below]] = 0
            peak = peak_of(magnitudes)
            send_selected(accumulated, indices, peak, form, payload)
            accumulated[indices[below]] = held
        self.send(job, step, payload)

    def payload_bytes(self, group: Group) -> int:
        return SparseFormat(group.numel, 1, self._values).nbytes

    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        """The counts and the smallest payload: the real size depends on the data."""
        return (Transfer("gather", 8), *super().transfers(group, world))

    def encode(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        raise NotImplementedError("threshold encodes in two parts, see start()")

    def decode(self, job: Job, rows: torch.Tensor, step: StepContext) -> bool:
        return add_rows(job, rows, job.extra["form"])


def _make(options: ThresholdOptions) -> Codec:
    return Threshold(options.threshold, options.values)


METHOD = Method("threshold", ThresholdOptions, fixed(_make))
