"""``topk``: the k entries of largest magnitude of each bucket, with error feedback.

Source: A. F. Aji, K. Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP
2017; with error feedback as in S. U. Stich et al., "Sparsified SGD with Memory", NeurIPS 2018,
Algorithm 1 (the memory there holds the step, here the gradient: the learning rate is applied by
the optimizer).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.codecs.base import GatherCodec, Job, StepContext, peak_of
from netsenseml.codecs.sparse import add_rows, send_selected
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.options import Options, bounded, choice
from netsenseml.selection import kept_count, top_k
from netsenseml.wire import SparseFormat

__all__ = ["METHOD", "TopK", "TopKOptions"]


@dataclass(frozen=True)
class TopKOptions(Options):
    """Options of ``topk``.

    Attributes
    ----------
    ratio : float
        Part of the entries kept, in (0, 1]; k = max(1, ceil(ratio n)) of every bucket.
    values : str
        Type of the values on the wire: ``"fp16"``, ``"bf16"``, ``"fp32"``, ``"fp8"`` (e4m3,
        scaled to the peak), or ``"sign"``: one bit, for the mean magnitude of the entries kept
        (after F. Sattler et al., "Sparse Binary Compression", IJCNN 2019, and their ternary
        compression of 2020). It asks for a lower learning rate: small entries are sent larger
        than they are.
    indices : str
        ``"packed"``, the smallest form there is, or ``"int64"``: with fp32 values the 12 bytes
        per entry that NetSenseML's public code sends.
    error_feedback : bool
        Carry what was not sent over to the next step.
    """

    ratio: float = bounded(0.1, 0.0, 1.0, above=True)
    values: str = choice("fp16", "bf16", "fp32", "fp8", "sign")
    indices: str = choice("packed", "int64")
    error_feedback: bool = True


class TopK(GatherCodec):
    """Exact selection by magnitude, signed values, ascending indices."""

    name = "topk"

    def __init__(self, ratio: float, values: str = "fp16", indices: str = "packed") -> None:
        self._ratio = ratio
        self._values = values
        self._indices = indices

    @property
    def strength(self) -> float | None:
        return self._ratio

    def _form(self, numel: int) -> SparseFormat:
        return SparseFormat(numel, kept_count(numel, self._ratio), self._values, self._indices)

    def payload_bytes(self, group: Group) -> int:
        return self._form(group.numel).nbytes

    def encode(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        form = self._form(job.group.numel)
        accumulated = job.accumulate()
        magnitudes = job.take("magnitudes", accumulated.numel(), accumulated.dtype)
        indices = top_k(torch.abs(accumulated, out=magnitudes), form.kept)
        # The largest entry is among the selected, and NaN is selected first.
        peak = peak_of(magnitudes[indices])
        send_selected(accumulated, indices, peak, form, payload)

    def decode(self, job: Job, rows: torch.Tensor, step: StepContext) -> bool:
        return add_rows(job, rows, self._form(job.group.numel))


METHOD = Method("topk", TopKOptions, fixed(lambda o: TopK(o.ratio, o.values, o.indices)))
