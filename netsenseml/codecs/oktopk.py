"""``oktopk``: top-k summed by owners, so that what travels does not grow with the ranks.

An all-gather of sparse payloads moves (N-1) k entries through every link. Here each rank owns one
N-th of the bucket: it gets the k/N largest entries of its part from every other rank (all-to-all),
sums them, keeps the k/N largest of the sums, and sends those to all: 2 (N-1)/N k entries, at 8
ranks a quarter. A part is every N-th entry, so that all parts hold large entries alike and one
size fits each of them.

Source: S. Li, T. Hoefler, "Near-Optimal Sparse Allreduce for Distributed Deep Learning", PPoPP
2022 (its parts are contiguous and rebalanced, its thresholds estimated; here both selections are
exact). Choosing again among the sums: S. Shi et al., "A Distributed Synchronous SGD Algorithm
with Global Top-k Sparsification", ICDCS 2019. With error feedback an owner also keeps the sums
that it did not send.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from netsenseml.codecs.base import Codec, Job, StepContext, peak_of
from netsenseml.codecs.sparse import add_at, send_selected
from netsenseml.layout import Group
from netsenseml.methods import Method, fixed
from netsenseml.options import Options, bounded, choice
from netsenseml.selection import kept_count, top_k
from netsenseml.transport import Transfer
from netsenseml.wire import SparseFormat

__all__ = ["METHOD", "OkTopK", "OkTopKOptions"]


@dataclass(frozen=True)
class OkTopKOptions(Options):
    """Options of ``oktopk``.

    Attributes
    ----------
    ratio : float
        Part of the entries that change in a step, in (0, 1]: k = max(1, ceil(ratio n)) of every
        rank's part of a bucket, on the way to its owner and back.
    values : str
        Type of the values on the wire: ``"fp16"``, ``"bf16"``, ``"fp32"`` or ``"fp8"`` (e4m3,
        scaled to the peak).
    error_feedback : bool
        Carry what was not sent over to the next step.
    """

    ratio: float = bounded(0.01, 0.0, 1.0, above=True)
    values: str = choice("fp16", "bf16", "fp32", "fp8")
    error_feedback: bool = True


class OkTopK(Codec):
    """Two all-to-all rounds: the largest entries to their owners, the largest sums to all."""

    name = "oktopk"
    cost_name = "topk"  # the same selection and the same coding

    def __init__(self, ratio: float, values: str = "fp16") -> None:
        self._ratio = ratio
        self._values = values

    @property
    def strength(self) -> float | None:
        return self._ratio

    def _forms(self, numel: int, world: int) -> list[SparseFormat | None]:
        """The payload's form for every owner's part; None where a part is empty."""
        parts = [(numel - rank + world - 1) // world for rank in range(world)]
        return [
            SparseFormat(part, kept_count(part, self._ratio), self._values) if part else None
            for part in parts
        ]

    def _slot(self, forms: Sequence[SparseFormat | None]) -> int:
        """Bytes of a payload in an exchange, which wants one size."""
        return max(form.nbytes for form in forms if form is not None)

    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        size = world * self._slot(self._forms(group.numel, world))
        return (Transfer("exchange", size), Transfer("exchange", size))

    def start(self, job: Job, step: StepContext) -> None:
        forms = self._forms(job.group.numel, step.world)
        wire = job.take("wire", step.world * self._slot(forms), torch.uint8)
        with step.encode(self.label, job):
            accumulated = job.extra["accumulated"] = job.accumulate()
            for rank, form in enumerate(forms):
                payload = wire.view(step.world, -1)[rank]
                if form is not None:
                    part = accumulated[rank :: step.world]
                    self._send(job, part, form, payload[: form.nbytes])
        received = job.take("received", wire.numel(), torch.uint8)
        step.exchange(job, wire, received, f"{self.name} exchange of bucket {job.index}")

    def _send(
        self, job: Job, part: torch.Tensor, form: SparseFormat, payload: torch.Tensor
    ) -> None:
        """Write the largest entries of a part to a payload and take them off the part."""
        room = job.take("magnitudes", form.numel, part.dtype)
        magnitudes = torch.abs(part, out=room)
        indices = top_k(magnitudes, form.kept)
        # The largest entry is among the selected, and NaN is selected first.
        send_selected(part, indices, peak_of(magnitudes[indices]), form, payload)

    def finish(self, jobs: Sequence[Job], step: StepContext) -> None:
        for job in jobs:
            received = step.wait(job).view(step.world, -1)
            copies = job.take("copies", received.numel(), torch.uint8)
            with step.encode(self.label, job, share=1 / step.world):
                mine = self._reduce(job, received, step)
                copies.view(step.world, -1).copy_(mine)  # as one round: a ring has N - 1
            sums = job.take("sums", received.numel(), torch.uint8)
            step.exchange(job, copies, sums, f"{self.name} sums of bucket {job.index}")
        for job in jobs:
            rows = step.wait(job).view(step.world, -1)
            with step.decode(self.label, job):
                good = self._decode(job, rows, step.world)
            if not good:
                step.send_dense(job)

    def _reduce(self, job: Job, rows: torch.Tensor, step: StepContext) -> torch.Tensor:
        """Sum what came for this rank's part; return the payload of the largest sums."""
        mine = job.take("mine", rows.shape[1], torch.uint8)
        form = self._forms(job.group.numel, step.world)[step.rank]
        if form is None:
            return mine.zero_()
        rows = rows[:, : form.nbytes]
        flagged = next((row for row in rows if not math.isfinite(form.peak(row))), None)
        if flagged is not None:
            mine[: form.nbytes].copy_(flagged)
            return mine
        total = job.take("total", form.numel, job.work_dtype).zero_()
        for row in rows:
            indices, values = form.decode(row)
            add_at(total, indices, values.to(total.dtype))
        self._send(job, total, form, mine[: form.nbytes])
        if job.feedback is not None:
            job.extra["accumulated"][step.rank :: step.world].add_(total)
        return mine

    def _decode(self, job: Job, rows: torch.Tensor, world: int) -> bool:
        """Write the means to ``job.grad``; False, nothing written, if a payload is flagged."""
        forms = self._forms(job.group.numel, world)
        parts = [
            (rank, form, row[: form.nbytes])
            for rank, (form, row) in enumerate(zip(forms, rows, strict=True))
            if form is not None
        ]
        if not all(math.isfinite(form.peak(row)) for _, form, row in parts):
            return False
        job.grad.zero_()
        for rank, form, row in parts:
            indices, values = form.decode(row)
            add_at(job.grad[rank::world], indices, (values / world).to(job.grad.dtype))
        return True


METHOD = Method(
    "oktopk", OkTopKOptions, fixed(lambda options: OkTopK(options.ratio, options.values))
)
