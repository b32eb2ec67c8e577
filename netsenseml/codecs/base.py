"""The contract every codec keeps.

A codec turns the gradient of one :class:`Job` (one bucket of one step) into collectives and back:

1. ``start(job, step)`` runs in the hook of the bucket: encode, issue the first collective.
2. ``finish(jobs, step)`` runs in the hook of the last bucket: wait for each job in bucket order,
   issue later rounds in that order, decode into ``job.grad`` the MEAN over all ranks.

Nothing runs in callbacks, so every rank issues its collectives in the same order. With error
feedback, ``job.accumulate()`` gives gradient plus old residual in a tensor that the codec turns
into the new residual in place: ``residual = accumulated - sent``, where *sent* is what the
receivers apply after rounding. It counts only when the whole step was finite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from netsenseml.layout import Group
from netsenseml.memory import ParameterState, Scratch
from netsenseml.spans import Span, Spans
from netsenseml.transport import Handle, Transfer, Transport

__all__ = ["Codec", "GatherCodec", "Job", "ReduceCodec", "StepContext", "peak_of"]


def peak_of(tensor: torch.Tensor) -> torch.Tensor:
    """Largest magnitude, shape (); NaN or inf when an entry is (one pass, no temporary)."""
    if tensor.numel() == 0:
        return torch.zeros((), dtype=torch.float32, device=tensor.device)
    low, high = torch.aminmax(tensor)
    return torch.maximum(-low, high).to(torch.float32)


@dataclass
class Job:
    """One group's gradient in one step.

    Attributes
    ----------
    index : int
        Place of the group in the step; the same on every rank.
    group : Group
    grad : float tensor, shape (n,)
        The local gradient, undivided; the mean over ranks after ``finish``.
    feedback : ParameterState or None
        Where residuals live when the method uses error feedback.
    parameters : tuple of tensor
        The parameters themselves, in the group's order.
    """

    index: int
    group: Group
    grad: torch.Tensor
    scratch: Scratch
    feedback: ParameterState | None
    parameters: tuple[torch.Tensor, ...] = ()
    handles: list[Handle] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def work_dtype(self) -> torch.dtype:
        """Arithmetic is in fp32, in fp64 for fp64 gradients."""
        return torch.float64 if self.grad.dtype == torch.float64 else torch.float32

    def generator(self, step: StepContext, shared: bool = False) -> torch.Generator:
        """Random numbers that depend on seed, step, place and (unless shared) rank only."""
        seed = step.seed
        for part in (step.step, self.index, 0 if shared else step.rank + 1):
            seed = (seed * 6364136223846793005 + part + 1442695040888963407) % 2**63
        return torch.Generator(device=self.grad.device).manual_seed(seed)

    def take(self, tag: str, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """A scratch tensor of this job, reused every step."""
        return self.scratch.take(self.index, tag, numel, dtype, self.grad.device)

    def accumulate(self) -> torch.Tensor:
        """Gradient plus residual, shape (n,), in a tensor the codec may change.

        With feedback, what the codec leaves in it becomes the new residual.
        """
        if self.feedback is not None:
            old, new = self.feedback.open(self.group, self.work_dtype, self.grad.device)
            return torch.add(self.grad, old, alpha=self.feedback.release, out=new)
        work = self.take("accumulated", self.grad.numel(), self.work_dtype)
        return work.copy_(self.grad)

    def source(self) -> torch.Tensor:
        """Like :meth:`accumulate`, but read only when there is no feedback (saves a copy)."""
        if self.feedback is None and self.grad.dtype == self.work_dtype:
            return self.grad
        return self.accumulate()

    def state(self, kind: ParameterState) -> tuple[torch.Tensor, torch.Tensor]:
        """(committed, pending) of some other per-parameter state."""
        return kind.open(self.group, self.work_dtype, self.grad.device)


class StepContext:
    """What codecs may use during one step."""

    def __init__(self, step: int, seed: int, transport: Transport, spans: Spans) -> None:
        self.step = step
        self.seed = seed
        self.transport = transport
        self.rank = transport.rank
        self.world = transport.world
        self.encode_s: list[Span] = []
        self.decode_s: list[Span] = []
        self.wait_s = 0.0
        self.nonfinite = False
        self.handles: list[Handle] = []
        self._spans = spans

    def encode(self, codec: str, job: Job, share: float = 1.0) -> AbstractContextManager[Span]:
        """The span around one piece of encode work: one per job and round.

        ``share`` is the part of the encoding, as one rank alone would do it, that the round
        takes: a device profile knows the whole of it only.
        """
        return self._span("encode", codec, job, share, self.encode_s)

    def decode(self, codec: str, job: Job) -> AbstractContextManager[Span]:
        """The span around the decode work of a job."""
        return self._span("decode", codec, job, 1.0, self.decode_s)

    def _span(self, kind: str, codec: str, job: Job, share: float, into: list[Span]) -> Any:
        context = self._spans.span(kind, codec, round(share * job.group.dense_bytes))
        return _Remembering(context, into)

    def reduce(self, job: Job, tensor: torch.Tensor, what: str) -> None:
        """Start an all-reduce (sum) for a job."""
        self._add(job, self.transport.all_reduce(tensor, what))

    def gather(self, job: Job, tensor: torch.Tensor, out: torch.Tensor, what: str) -> None:
        """Start an all-gather for a job."""
        self._add(job, self.transport.all_gather(tensor, out, what))

    def exchange(self, job: Job, tensor: torch.Tensor, out: torch.Tensor, what: str) -> None:
        """Start an all-to-all for a job."""
        self._add(job, self.transport.all_to_all(tensor, out, what))

    def _add(self, job: Job, handle: Handle) -> None:
        job.handles.append(handle)
        self.handles.append(handle)

    def wait(self, job: Job) -> torch.Tensor:
        """Wait for the newest collective of a job (only in a hook body)."""
        before = self._spans.clock()
        result = self.transport.wait(job.handles[-1])
        self.wait_s += self._spans.clock() - before
        return result

    def send_dense(self, job: Job) -> None:
        """All ranks agreed that a payload of this job was not finite: average it densely.

        The residual stays as it was. Only a result that is not finite makes the step so; an
        overflow of the wire type alone is repaired here.
        """
        if job.feedback is not None:
            job.feedback.drop(job.group)
        with self.encode("allreduce", job):
            dense = job.take("dense", job.grad.numel(), job.work_dtype)
            torch.mul(job.grad, 1.0 / self.world, out=dense)
        self.reduce(job, dense, f"dense all-reduce of bucket {job.index}")
        mean = self.wait(job)
        with self.decode("allreduce", job):
            job.grad.copy_(mean)
            if not bool(torch.isfinite(peak_of(job.grad))):
                self.nonfinite = True


class _Remembering:
    """Enters a span and keeps its handle, to be summed when the step ends."""

    def __init__(self, context: Any, into: list[Span]) -> None:
        self._context = context
        self._into = into

    def __enter__(self) -> Span:
        handle = self._context.__enter__()
        self._into.append(handle if handle is not None else self._context)
        return self._into[-1]

    def __exit__(self, *error: Any) -> Any:
        return self._context.__exit__(*error)


class Codec(ABC):
    """Encodes, sends and decodes; keeps no policy."""

    name: ClassVar[str]
    cost_name: ClassVar[str] = ""
    """Name in spans, when the work is of the same kind as that of another codec."""

    @property
    def label(self) -> str:
        """The name under which encode and decode work is charged."""
        return self.cost_name or self.name

    @property
    def strength(self) -> float | None:
        """Ratio kept, or rank; None where there is none."""
        return None

    @abstractmethod
    def start(self, job: Job, step: StepContext) -> None:
        """Encode a job and issue its first collective."""

    @abstractmethod
    def finish(self, jobs: Sequence[Job], step: StepContext) -> None:
        """Wait, run later rounds, write the mean over ranks to every ``job.grad``."""

    @abstractmethod
    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        """The collectives this codec will issue for a group: for prediction and tests."""

    def sent_densely(self, job: Job) -> None:  # noqa: B027 (optional)
        """``job.grad`` holds the mean of a dense resend: learn from it, drop what was pending."""

    def end_step(self, committed: bool) -> None:  # noqa: B027 (optional)
        """The step is over; ``committed`` is False when it was not finite."""

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and tensors that resume needs, beside residuals."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:  # noqa: B027 (optional)
        """The inverse of :meth:`state_dict`."""


class ReduceCodec(Codec):
    """One all-reduce per job."""

    def start(self, job: Job, step: StepContext) -> None:
        with step.encode(self.label, job):
            wire = self.encode(job, step)
        step.reduce(job, wire, f"{self.name} all-reduce of bucket {job.index}")

    def finish(self, jobs: Sequence[Job], step: StepContext) -> None:
        for job in jobs:
            total = step.wait(job)
            with step.decode(self.label, job):
                good = self.decode(job, total, step)
            if not good:
                step.send_dense(job)
                self.sent_densely(job)

    @abstractmethod
    def encode(self, job: Job, step: StepContext) -> torch.Tensor:
        """The tensor to be summed over ranks, already divided by N."""

    @abstractmethod
    def decode(self, job: Job, total: torch.Tensor, step: StepContext) -> bool:
        """Write the mean to ``job.grad`` unless it is not finite; say whether it was."""


class GatherCodec(Codec):
    """One all-gather of equal byte payloads per job."""

    def start(self, job: Job, step: StepContext) -> None:
        size = self.payload_bytes(job.group)
        payload = job.take("payload", size, torch.uint8)
        with step.encode(self.label, job):
            self.encode(job, step, payload)
        self.send(job, step, payload)

    def send(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        """Start the all-gather of a filled payload."""
        rows = job.take("rows", step.world * payload.numel(), torch.uint8)
        step.gather(job, payload, rows, f"{self.name} all-gather of bucket {job.index}")

    def finish(self, jobs: Sequence[Job], step: StepContext) -> None:
        for job in jobs:
            rows = step.wait(job).view(step.world, -1)
            with step.decode(self.label, job):
                good = self.decode(job, rows, step)
            if not good:
                step.send_dense(job)
                self.sent_densely(job)

    def transfers(self, group: Group, world: int) -> tuple[Transfer, ...]:
        return (Transfer("gather", self.payload_bytes(group)),)

    @abstractmethod
    def payload_bytes(self, group: Group) -> int:
        """Bytes each rank sends for a group; a multiple of 4, the same on every rank."""

    @abstractmethod
    def encode(self, job: Job, step: StepContext, payload: torch.Tensor) -> None:
        """Fill the payload, and turn the accumulated gradient into the new residual."""

    @abstractmethod
    def decode(self, job: Job, rows: torch.Tensor, step: StepContext) -> bool:
        """Sum ``rows``, shape (N, payload_bytes), in rank order into ``job.grad`` as a mean.

        Returns False, with ``job.grad`` untouched, when some rank flagged its payload.
        """
