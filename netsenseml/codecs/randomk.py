"""``randomk``: k entries drawn with a seed all ranks share, so no index travels at all.

Because every rank draws the same entries, their values can be summed by a plain all-reduce. The
draw is stratified: the bucket is cut into k nearly equal strata and one entry is drawn from each,
which costs O(k) and touches every entry with probability about k/n.

Source: J. Konecny et al., "Federated Learning: Strategies for Improving Communication
Efficiency", 2016 (random mask from a seed); error feedback as in ``topk``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from netsenseml.codecs.base import Job, ReduceCodec, StepContext, peak_of
from netsenseml.codecs.half import SharedScale
from netsenseml.codecs.sparse import take
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.options import Options, bounded, choice
from netsenseml.selection import kept_count
from netsenseml.transport import Transfer
from netsenseml.wire import VALUE_TYPES

__all__ = ["METHOD", "RandomK", "RandomKOptions"]


@dataclass(frozen=True)
class RandomKOptions(Options):
    """Options of ``randomk``.

    Attributes
    ----------
    ratio : float
        Part of the entries kept, in (0, 1].
    values : str
        Type of the values on the wire.
    error_feedback : bool
        Carry what was not sent over to the next step. Without it the estimate is biased (kept
        values are not scaled up).
    """

    ratio: float = bounded(0.1, 0.0, 1.0, above=True)
    values: str = choice("fp32", "fp16", "bf16")
    error_feedback: bool = True


class RandomK(ReduceCodec):
    """Shared-seed random selection, summed on the way."""

    name = "randomk"

    def __init__(self, ratio: float, values: str) -> None:
        self._ratio = ratio
        self._dtype = VALUE_TYPES[values]
        self._scale = SharedScale(values == "fp16")

    @property
    def strength(self) -> float | None:
        return self._ratio

    def indices(self, job: Job, step: StepContext) -> torch.Tensor:
        """The entries of this step: int64, shape (k,), ascending; equal on all ranks."""
        total = job.group.numel
        kept = kept_count(total, self._ratio)
        edges = torch.arange(kept + 1, device=job.grad.device) * total // kept
        width = edges[1:] - edges[:-1]
        generator = job.generator(step, shared=True)
        draw = torch.rand(kept, generator=generator, dtype=torch.float64, device=width.device)
        return edges[:-1] + (draw * width).to(torch.int64)

    def encode(self, job: Job, step: StepContext) -> torch.Tensor:
        accumulated = job.accumulate()
        chosen = job.extra["indices"] = self.indices(job, step)
        values = take(accumulated, chosen)
        wire = job.take("values", values.numel(), self._dtype)
        factor = self._scale.factor / step.world
        wire.copy_(values * factor)
        # Division by N and back may round in the last bit: what is left over stays behind.
        accumulated[chosen] = values - wire.to(values.dtype) / factor
        return wire

    def decode(self, job: Job, total: torch.Tensor, step: StepContext) -> bool:
        peak = float(peak_of(total))
        if not math.isfinite(peak):
            return False
        self._scale.note(peak / self._scale.factor)
        job.grad.zero_()
        mean = total.to(job.work_dtype) / self._scale.factor
        job.grad[job.extra["indices"]] = mean.to(job.grad.dtype)
        return True

    def sent_densely(self, job: Job) -> None:
        self._scale.note(float(peak_of(job.grad)))

    def end_step(self, committed: bool) -> None:
        self._scale.end_step(committed)

    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        kept = kept_count(group.numel, self._ratio)
        return (Transfer("reduce", kept * self._dtype.itemsize),)

    def state_dict(self) -> dict[str, Any]:
        return {"exponent": self._scale.exponent}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._scale.exponent = int(saved["exponent"])


METHOD = Method(
    "randomk", RandomKOptions, fixed(lambda options: RandomK(options.ratio, options.values))
)
