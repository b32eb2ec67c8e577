"""``dgc``: Deep Gradient Compression.

Source: Y. Lin et al., "Deep Gradient Compression", ICLR 2018, sections 3.1-3.3: momentum
correction (``u <- m u + g; v <- v + u``; top-k of v is sent), local gradient clipping with the
threshold scaled by ``N^(-1/2)``, momentum factor masking (u and v are zero where v was sent) and a
ratio that falls exponentially during warm-up.

The optimizer's own momentum must be off: the momentum lives here. Clipping acts on the norm of
each parameter's gradient; the paper clips by the norm over all layers, which a hook cannot know
before the last bucket. The warm-up is counted in steps, since a hook sees no epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from netsenseml.codecs.base import GatherCodec, Job, StepContext, peak_of
from netsenseml.codecs.sparse import add_rows, send_selected
from netsenseml.layout import Group
from netsenseml.memory import ParameterState
from netsenseml.methods import Method, fixed
from netsenseml.options import Options, bounded, choice
from netsenseml.selection import kept_count, top_k
from netsenseml.wire import SparseFormat

__all__ = ["METHOD", "Dgc", "DgcOptions"]

_WARMUP_STAGES = 4


@dataclass(frozen=True)
class DgcOptions(Options):
    """Options of ``dgc``.

    Attributes
    ----------
    ratio : float
        Part of the entries kept after the warm-up.
    momentum : float
        m, in [0, 1).
    masking : bool
        Zero the momentum where an entry was sent.
    clip_norm : float
        C of the local clipping at ``C N^(-1/2)`` per parameter; 0 is off.
    warmup_steps : int
        Steps in which the ratio falls: 25 %, 6.25 %, 1.56 %, 0.39 % for a quarter each.
    values : str
        Type of the values on the wire.
    """

    ratio: float = bounded(0.01, 0.0, 1.0, above=True)
    momentum: float = bounded(0.9, 0.0, 0.999)
    masking: bool = True
    clip_norm: float = bounded(0.0, 0.0, 1e9)
    warmup_steps: int = bounded(0, 0, 10**9)
    values: str = choice("fp16", "bf16", "fp32", "fp8", "sign")

    @property
    def error_feedback(self) -> bool:
        """v is the residual: without it there is no method."""
        return True


class Dgc(GatherCodec):
    """Top-k of momentum-corrected, accumulated gradients."""

    name = "dgc"

    def __init__(self, options: DgcOptions) -> None:
        self._options = options
        self._momentum = ParameterState()
        self._step = 0

    @property
    def strength(self) -> float | None:
        return self.ratio(self._step)

    def ratio(self, step: int) -> float:
        """Part of the entries kept in a step."""
        chosen = self._options
        if step >= chosen.warmup_steps:
            return chosen.ratio
        stage = step * _WARMUP_STAGES // chosen.warmup_steps
        return max(chosen.ratio, 0.25 ** (stage + 1))

    def _form(self, numel: int) -> SparseFormat:
        kept = kept_count(numel, self.ratio(self._step))
        return SparseFormat(numel, kept, self._options.values)

    def payload_bytes(self, group: Group) -> int:
        return self._form(group.numel).nbytes

    def encode(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        assert job.feedback is not None
        form = self._form(job.group.numel)
        gradient = self._clipped(job, step.world)
        u_old, u = job.state(self._momentum)
        v_old, v = job.state(job.feedback)
        torch.add(gradient, u_old, alpha=self._options.momentum, out=u)
        torch.add(v_old, u, out=v)
        magnitudes = job.take("magnitudes", v.numel(), v.dtype)
        indices = top_k(torch.abs(v, out=magnitudes), form.kept)
        send_selected(v, indices, peak_of(magnitudes[indices]), form, payload)
        if self._options.masking:
            u[indices] = 0

    def _clipped(self, job: Job, world: int) -> torch.Tensor:
        limit = self._options.clip_norm / math.sqrt(world)
        if limit == 0:
            return job.grad
        gradient = job.take("clipped", job.grad.numel(), job.work_dtype).copy_(job.grad)
        for begin, numel in zip(job.group.offsets, job.group.numels, strict=True):
            part = gradient[begin : begin + numel]
            part.mul_(torch.clamp(limit / torch.linalg.vector_norm(part), max=1.0))
        return gradient

    def decode(self, job: Job, rows: torch.Tensor, step: StepContext) -> bool:
        return add_rows(job, rows, self._form(job.group.numel))

    def sent_densely(self, job: Job) -> None:
        self._momentum.drop(job.group)

    def end_step(self, committed: bool) -> None:
        if committed:
            self._momentum.commit()
        else:
            self._momentum.abandon()
        self._step += 1

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step, "momentum": self._momentum.by_name()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._step = int(saved["step"])
        self._momentum.load(saved["momentum"])


METHOD = Method("dgc", DgcOptions, fixed(Dgc))
