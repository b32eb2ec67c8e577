"""The state of a compression hook, and one step of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from netsenseml import checkpoint
from netsenseml.agreement import Agreement
from netsenseml.codecs.base import Job, StepContext
from netsenseml.failures import PeerFailure
from netsenseml.layout import Group, Layouts
from netsenseml.memory import ParameterState, Scratch
from netsenseml.methods import Method
from netsenseml.options import Options
from netsenseml.policy import Decision, Measurement
from netsenseml.record import StepRecord
from netsenseml.spans import Spans, default_spans
from netsenseml.transport import Transport, busy_period

__all__ = ["HookState"]

NAN = float("nan")


class HookState:
    """Everything a hook remembers. Made by :func:`netsenseml.make_state` or ``register``.

    Attributes
    ----------
    method : str
    options : Options
    last_step : StepRecord or None
        The newest finished step; None before the first.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        group: Any,
        method: Method,
        chosen: Options,
        *,
        seed: int,
        spans: Spans | None,
        on_step: Callable[[StepRecord], None] | None,
    ) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise ValueError("the DDP module has no parameter that requires a gradient")
        device = named[0][1].device
        # configuration
        self.method = method.name
        self.options = chosen
        self.seed = int(seed)
        self._spans: Spans = spans if spans is not None else default_spans(device)
        self._on_step = on_step
        # machinery
        self._transport = Transport(group, self._spans, device)
        self._layouts = Layouts(named)
        self._scratch = Scratch()
        self._policy = method.build(chosen)
        self._codecs = {
            f"{at}:{codec.name}": codec for at, codec in enumerate(self._policy.codecs())
        }
        uses_feedback = getattr(chosen, "error_feedback", False)
        self._feedback = ParameterState() if uses_feedback else None
        self._agreement = (
            Agreement(self._transport, device) if self._policy.needs_agreement else None
        )
        # the running step
        self._context: StepContext | None = None
        self._decision: Decision | None = None
        self._jobs: list[Job] = []
        self._waiting: list[tuple[torch.futures.Future[torch.Tensor], torch.Tensor]] = []
        self._copies: list[tuple[Job, torch.Tensor, tuple[int, ...]]] = []
        self._ready_s: list[float] = []
        self._begin_s = 0.0
        self._paced = False  # whether the end of the step before was seen, from which it counts
        # between steps
        self._step = 0
        self._end_s: float | None = None
        self._groups: list[Group] = []
        self._nonfinite_steps = 0
        self.last_step: StepRecord | None = None

    # one bucket ---------------------------------------------------------------------------

    def on_bucket(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The hook body: encode and send a bucket; at the last one, receive them all."""
        with self.reporting():
            return self._on_bucket(bucket)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Tell the other ranks when the block raises: they stop, and name the cause.

        What raises inside backward is told anyway; put the training loop into such a block to
        have the rest (data, evaluation, checkpoints) told too.
        """
        try:
            yield
        except PeerFailure:
            raise
        except BaseException as error:
            self._transport.board.report(error, self._transport.step)
            raise

    def _on_bucket(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        now = self._spans.clock()
        if self._context is None:
            now = self._begin(now)
        step, decision = self._context, self._decision
        assert step is not None
        assert decision is not None
        encoding = sum(span.seconds for span in step.encode_s) + step.wait_s
        self._ready_s.append(now - self._begin_s - encoding)
        flat = bucket.buffer()
        for job in self._open_jobs(bucket, flat):
            self._jobs.append(job)
            decision.codec.start(job, step)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(
            devices=[] if flat.device.type == "cpu" else [flat.device]
        )
        self._waiting.append((future, flat))
        if bucket.is_last():
            self._finish(step, decision)
        return future

    def _begin(self, now: float) -> float:
        """Start a step at its first bucket: learn from the last one, choose the codec."""
        self._paced = self._end_s is not None
        self._begin_s = now if self._end_s is None else self._end_s
        self._transport.step = self._step
        waited = 0.0
        if self._agreement is not None:
            rows = self._agreement.collect()
            waited = self._spans.clock() - now
            if rows is not None:
                self._policy.observe(self._groups, rows)
        self._decision = self._policy.decide(self._step, self._transport.world)
        if self._feedback is not None:
            self._feedback.release = self._decision.release
        self._context = StepContext(self._step, self.seed, self._transport, self._spans)
        self._context.wait_s += waited
        return now + waited

    def _open_jobs(self, bucket: dist.GradBucket, flat: torch.Tensor) -> list[Job]:
        parts = self._layouts.split(bucket.parameters())
        jobs: list[Job] = []
        for group, offsets in parts:
            index = len(self._jobs) + len(jobs)
            grad = flat
            carved = len(parts) > 1 or offsets != group.offsets
            if carved:
                grad = self._scratch.take(index, "carved", group.numel, flat.dtype, flat.device)
            job = Job(
                index,
                group,
                grad,
                self._scratch,
                self._feedback,
                self._layouts.parameters(group),
            )
            if carved:
                _copy(grad, group, flat, offsets, back=False)
                self._copies.append((job, flat, offsets))
            jobs.append(job)
        return jobs

    def _finish(self, step: StepContext, decision: Decision) -> None:
        """The last bucket is here: receive, decode, account."""
        decision.codec.finish(self._jobs, step)
        strength = decision.codec.strength  # ends with the step where it follows a schedule
        for job, flat, offsets in self._copies:
            _copy(job.grad, job.group, flat, offsets, back=True)
        if self._feedback is not None:
            if step.nonfinite:
                self._feedback.abandon()
            else:
                self._feedback.commit()
        decision.codec.end_step(committed=not step.nonfinite)
        self._nonfinite_steps += step.nonfinite
        self._end_s = self._spans.clock()
        self._groups = [job.group for job in self._jobs]
        record = self._record(step, decision, strength)
        if self._agreement is not None:
            self._agreement.start(self._measure(step, record))
            record = dataclasses.replace(record, control_bytes=self._agreement.nbytes)
        for future, flat in self._waiting:
            future.set_result(flat)
        if not self._copies:
            self._layouts.settle()
        self._context = self._decision = None
        self._jobs, self._waiting, self._copies, self._ready_s = [], [], [], []
        self._step += 1
        self.last_step = record
        if self._on_step is not None:
            self._on_step(record)

    # accounting ---------------------------------------------------------------------------

    def _record(self, step: StepContext, decision: Decision, strength: float | None) -> StepRecord:
        return StepRecord(
            step=self._step,
            method=self.method,
            codec=decision.codec.name,
            strength=strength,
            wire_bytes=sum(handle.nbytes for handle in step.handles),
            control_bytes=0,
            link_bytes=sum(handle.link for handle in step.handles),
            rounds=sum(handle.rounds for handle in step.handles),
            dense_bytes=sum(group.dense_bytes for group in self._groups),
            encode_s=sum(span.seconds for span in step.encode_s),
            decode_s=sum(span.seconds for span in step.decode_s),
            exposed_comm_s=step.wait_s,
            compute_s=self._ready_s[-1],
            bandwidth_mbps=decision.bandwidth_mbps,
            latency_ms=decision.latency_ms,
            reason=decision.reason,
            nonfinite=step.nonfinite,
            nonfinite_steps=self._nonfinite_steps,
        )

    def _measure(self, step: StepContext, record: StepRecord) -> Measurement:
        busy_s, link, rounds = busy_period(step.handles)
        # An exchange is many messages at once, whose latency is not that of a round.
        chained = (handle for handle in step.handles if handle.kind != "exchange")
        main = max(chained, key=lambda handle: handle.link, default=None)
        ping_s = self._agreement.ping_s if self._agreement is not None else NAN
        return Measurement(
            busy_s=busy_s,
            link_bytes=link,
            rounds=rounds,
            ping_s=ping_s,
            first_ready_s=self._ready_s[0] if self._paced else NAN,
            compute_s=record.compute_s if self._paced else NAN,
            encode_s=record.encode_s,
            decode_s=record.decode_s,
            exposed_s=record.exposed_comm_s,
            dense_bytes=record.dense_bytes,
            main_s=main.end_s[0] - main.start_s if main else NAN,
            main_link_bytes=main.link if main else 0.0,
            main_rounds=main.rounds if main else 0.0,
        )

    # for the user -------------------------------------------------------------------------

    def finish_step(self) -> StepRecord | None:
        """The newest finished step, same as :attr:`last_step`: a step ends in backward."""
        return self.last_step

    def residuals(self) -> dict[str, torch.Tensor]:
        """Error feedback by parameter name, each in the parameter's shape (views)."""
        return {} if self._feedback is None else self._feedback.by_name()

    def state_dict(self) -> dict[str, Any]:
        """This rank's state as plain tensors and numbers; loads with ``weights_only=True``.

        Every rank must save its own: residuals differ between ranks.
        """
        return checkpoint.save(self)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume from :meth:`state_dict` of the same rank.

        Raises
        ------
        ValueError
            It was saved by another method, world size, rank or module, or in the middle of a
            step; the message says which.
        """
        checkpoint.load(self, saved)


def _copy(
    part: torch.Tensor, group: Group, flat: torch.Tensor, offsets: tuple[int, ...], *, back: bool
) -> None:
    for inner, outer, numel in zip(group.offsets, offsets, group.numels, strict=True):
        mine, theirs = part[inner : inner + numel], flat[outer : outer + numel]
        if back:
            theirs.copy_(mine)
        else:
            mine.copy_(theirs)
