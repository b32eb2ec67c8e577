"""``netsense-paper``: the published adaptive scheme, without its public code's defects.

From the paper (arXiv 2506.16235, abstract): quantization, pruning and compression are adjusted
from real-time network conditions; compression happens only when congestion would hurt. From the
authors' public code: the control rule and its constants. Reconstructed here, because neither
says it: which stage acts at which ratio, the startup phase, error feedback on this path. The
documentation lists it line by line.

The rule: of the last seconds keep the shortest transfer time T and the highest D / T (D bytes on
the wire); their product is the bandwidth-delay product BDP. If D > 0.9 BDP the ratio falls to 0.95
of itself, else it rises by 0.001. It is applied once per step to figures all ranks share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from netsenseml.codecs.allreduce import AllReduce
from netsenseml.codecs.base import Codec, GatherCodec, Job, StepContext, peak_of
from netsenseml.codecs.fp16 import Fp16
from netsenseml.codecs.sparse import add_rows, send_selected
from netsenseml.layout import Group
from netsenseml.methods import Method
from netsenseml.options import Options, bounded
from netsenseml.policy import Decision, Measurement, Policy
from netsenseml.selection import kept_count, top_k
from netsenseml.wire import SparseFormat

__all__ = ["METHOD", "NetSensePaperOptions", "PaperPolicy", "PrunedTopK"]


@dataclass(frozen=True)
class NetSensePaperOptions(Options):
    """Options of ``netsense-paper``; the defaults are the constants of the public code.

    Attributes
    ----------
    start_ratio, min_ratio, max_ratio : float
        First, smallest and largest ratio of the gradient sent.
    congestion : float
        D above this part of the BDP is congestion.
    decrease : float
        Factor on the ratio under congestion.
    increase : float
        Added to the ratio otherwise.
    startup_increase : float
        Added instead until the first congestion.
    window_s : float
        Seconds for which the extremes of T and D / T are kept.
    quantize_below, sparsify_below : float
        Ratio from which on values go as fp16, and from which on only the largest go.
    prune : float
        Part of the weights taken as unimportant, by magnitude; 0 is off.
    prune_penalty : float
        How many times larger a gradient of such a weight must be to be sent.
    """

    start_ratio: float = bounded(0.7, 0.0, 1.0, above=True)
    min_ratio: float = bounded(0.005, 0.0, 1.0, above=True)
    max_ratio: float = bounded(1.0, 0.0, 1.0, above=True)
    congestion: float = bounded(0.9, 0.0, 10.0, above=True)
    decrease: float = bounded(0.95, 0.0, 1.0, above=True)
    increase: float = bounded(0.001, 0.0, 1.0)
    startup_increase: float = bounded(0.05, 0.0, 1.0)
    window_s: float = bounded(5.0, 0.0, 3600.0, above=True)
    quantize_below: float = bounded(1.0, 0.0, 1.0)
    sparsify_below: float = bounded(0.5, 0.0, 1.0)
    prune: float = bounded(0.5, 0.0, 1.0)
    prune_penalty: float = bounded(2.0, 1.0, 1e6)
    error_feedback: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.min_ratio <= self.start_ratio <= self.max_ratio:
            raise ValueError(
                f"NetSensePaperOptions.start_ratio = {self.start_ratio!r}: must be in "
                f"[min_ratio, max_ratio] = [{self.min_ratio:g}, {self.max_ratio:g}]"
            )


class PrunedTopK(GatherCodec):
    """Top-k of fp16 values in which gradients of small weights count for less.

    The weights themselves are never touched, and a handicapped entry is only delayed: it stays in
    the residual until it is large enough.
    """

    name = "pruned-topk"
    cost_name = "topk"

    def __init__(self, ratio: float, prune: float, penalty: float) -> None:
        self.ratio = ratio
        self._prune = prune
        self._penalty = penalty

    @property
    def strength(self) -> float | None:
        return self.ratio

    def _form(self, numel: int) -> SparseFormat:
        return SparseFormat(numel, kept_count(numel, self.ratio), "fp16")

    def payload_bytes(self, group: Group) -> int:
        return self._form(group.numel).nbytes

    def encode(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        form = self._form(job.group.numel)
        accumulated = job.accumulate()
        score = job.take("magnitudes", accumulated.numel(), accumulated.dtype)
        torch.abs(accumulated, out=score)
        peak = peak_of(score)
        if self._prune > 0:
            for begin, weights in zip(job.group.offsets, job.parameters, strict=True):
                size = weights.detach().abs().reshape(-1)
                rank = max(1, int(self._prune * size.numel()))
                small = size <= size.kthvalue(rank).values
                part = score[begin : begin + size.numel()]
                part.mul_(1.0 - small.to(part.dtype) * (1.0 - 1.0 / self._penalty))
        send_selected(accumulated, top_k(score, form.kept), peak, form, payload)

    def decode(self, job: Job, rows: torch.Tensor, step: StepContext) -> bool:
        return add_rows(job, rows, self._form(job.group.numel))


class PaperPolicy(Policy):
    """The BDP rule, once per step, identical on all ranks."""

    needs_agreement = True

    def __init__(self, options: NetSensePaperOptions) -> None:
        self._options = options
        self._ratio = options.start_ratio
        self._startup = True
        self._now_s = 0.0
        self._window: list[list[float]] = []  # [time, T, D / T]
        self._reason = "startup"
        self._dense = AllReduce()
        self._half = Fp16(rescale=True)
        self._sparse = PrunedTopK(options.start_ratio, options.prune, options.prune_penalty)

    @property
    def ratio(self) -> float:
        """The ratio of the next step."""
        return self._ratio

    def codecs(self) -> tuple[Codec, ...]:
        return (self._dense, self._half, self._sparse)

    def decide(self, step: int, world: int) -> Decision:
        if world == 1:
            return Decision(self._dense, "one rank: nothing to send")
        codec: Codec
        if self._ratio >= self._options.quantize_below:
            codec = self._dense
        elif self._ratio >= self._options.sparsify_below:
            codec = self._half
        else:
            self._sparse.ratio = self._ratio
            codec = self._sparse
        rate = max((rate for _, _, rate in self._window), default=0.0)
        shortest = min((seconds for _, seconds, _ in self._window), default=0.0)
        return Decision(
            codec=codec,
            reason=f"{self._reason}: ratio {self._ratio:.4g}",
            bandwidth_mbps=rate * 8e-6 or None,
            latency_ms=shortest * 1e3 or None,
        )

    def observe(self, groups: Sequence[Group], rows: Sequence[Measurement]) -> None:
        seconds = min(row.busy_s for row in rows)
        moved = rows[0].link_bytes
        lasted = max(row.compute_s if row.compute_s > 0 else 0.0 for row in rows)
        self._now_s += lasted + min(row.overhead_s for row in rows)
        if seconds <= 0 or moved <= 0:
            return
        self._window.append([self._now_s, seconds, moved / seconds])
        oldest = self._now_s - self._options.window_s
        self._window = [entry for entry in self._window if entry[0] >= oldest]
        product = max(e[2] for e in self._window) * min(e[1] for e in self._window)
        chosen = self._options
        if moved > chosen.congestion * product:
            self._startup = False
            self._ratio = max(chosen.min_ratio, self._ratio * chosen.decrease)
            self._reason = "congestion"
        else:
            step = chosen.startup_increase if self._startup else chosen.increase
            self._ratio = min(chosen.max_ratio, self._ratio + step)
            self._reason = "startup" if self._startup else "no congestion"

    def state_dict(self) -> dict[str, Any]:
        return {
            "ratio": self._ratio,
            "startup": self._startup,
            "now_s": self._now_s,
            "window": [list(entry) for entry in self._window],
            "reason": self._reason,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._ratio = float(saved["ratio"])
        self._startup = bool(saved["startup"])
        self._now_s = float(saved["now_s"])
        self._window = [list(entry) for entry in saved["window"]]
        self._reason = str(saved["reason"])


METHOD = Method("netsense-paper", NetSensePaperOptions, PaperPolicy)
