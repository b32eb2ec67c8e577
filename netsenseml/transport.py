"""Collectives in one fixed order, with every byte and every second counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from netsenseml.failures import FailureBoard
from netsenseml.spans import Spans

__all__ = ["Handle", "Transfer", "Transport", "busy_period", "link_bytes", "round_count"]


_PATIENCE_S = 2.0  # a collective that takes longer makes a rank ask whether a peer has failed

# The older name, which torch 2.4 knows, warns of its end from torch 2.13 on.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


@dataclass(frozen=True)
class Transfer:
    """One collective as planned: its kind and the bytes each rank hands to it."""

    kind: str  # "reduce", "gather" or "exchange"
    nbytes: int


def link_bytes(kind: str, nbytes: int, world: int) -> int:
    """Bytes that leave this rank for a collective on ``nbytes`` bytes (ring algorithms)."""
    if kind == "gather":
        return (world - 1) * nbytes
    if kind == "exchange":
        return (world - 1) * nbytes // world
    return 2 * (world - 1) * nbytes // world


def round_count(kind: str, world: int) -> int:
    """Successive messages of a collective: each costs one latency.

    In an exchange a rank first hears that its peers are ready, and then sends.
    """
    return {"gather": world - 1, "exchange": 2}.get(kind, 2 * (world - 1)) if world > 1 else 0


@dataclass
class Handle:
    """A collective under way. ``start_s`` and ``end_s`` are on the clock of the spans."""

    kind: str
    result: torch.Tensor
    nbytes: int
    rounds: int
    link: int
    start_s: float
    what: str
    done: Any = None
    end_s: list[float] = field(default_factory=list)
    stamped: threading.Event = field(default_factory=threading.Event)


class Transport:
    """Issues collectives on one process group and measures them.

    Parameters
    ----------
    group : ProcessGroup
    spans : Spans
        Source of the clock.
    device : torch.device
        Where the payloads live.
    """

    def __init__(self, group: Any, spans: Spans, device: torch.device) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.world = dist.get_world_size(group)
        self.board = FailureBoard(group)
        self.step = 0
        self._spans = spans
        # Completion of a host collective is stamped by the thread that completes it. A device
        # collective completes on a stream: there the clock is read after waiting for it.
        self._stamped = device.type == "cpu"

    def all_reduce(self, tensor: torch.Tensor, what: str = "all-reduce") -> Handle:
        """Start summing ``tensor`` over ranks in place."""
        nbytes = tensor.numel() * tensor.element_size()
        handle = self._handle("reduce", tensor, nbytes, what)
        work = dist.all_reduce(tensor, group=self.group, async_op=True)
        return self._watch(handle, work)

    def all_gather(
        self, tensor: torch.Tensor, out: torch.Tensor, what: str = "all-gather"
    ) -> Handle:
        """Start gathering ``tensor``, shape (b,), into ``out``, shape (N * b,)."""
        nbytes = tensor.numel() * tensor.element_size()
        handle = self._handle("gather", out, nbytes, what)
        work = _all_gather(out, tensor, group=self.group, async_op=True)
        return self._watch(handle, work)

    def all_to_all(
        self, tensor: torch.Tensor, out: torch.Tensor, what: str = "all-to-all"
    ) -> Handle:
        """Start sending chunk r of ``tensor``, shape (N * b,), to rank r."""
        nbytes = tensor.numel() * tensor.element_size()
        handle = self._handle("exchange", out, nbytes, what)
        work = dist.all_to_all_single(out, tensor, group=self.group, async_op=True)
        return self._watch(handle, work)

    def _handle(self, kind: str, result: torch.Tensor, nbytes: int, what: str) -> Handle:
        return Handle(
            kind=kind,
            result=result,
            nbytes=nbytes,
            rounds=round_count(kind, self.world),
            link=link_bytes(kind, nbytes, self.world),
            start_s=self._spans.clock(),
            what=what,
        )

    def _watch(self, handle: Handle, work: Any) -> Handle:
        if not self._stamped:
            handle.done = work
            return handle
        clock, stamps, stamped = self._spans.clock, handle.end_s, handle.stamped

        def stamp(future: Any) -> None:
            stamps.append(clock())
            stamped.set()
            future.value()  # raises here what the collective raised

        handle.done = work.get_future().then(stamp)
        return handle

    def wait(self, handle: Handle) -> torch.Tensor:
        """Block until the collective is done; call it from a hook body, never a callback.

        Raises
        ------
        PeerFailure
            The collective broke, or another rank reported a failure while this one waited; the
            message names the rank that failed first.
        """
        try:
            self._watch_peers(handle)
            handle.done.wait()
        except RuntimeError as error:
            raise self.board.explain(error, self.step, handle.what) from error
        if not self._stamped:
            handle.end_s.append(self._spans.clock())
        return handle.result

    def _watch_peers(self, handle: Handle) -> None:
        """Return when a collective is over; look for a failed peer while it takes long.

        A rank that failed but keeps its process, and with it its connections, alive would
        otherwise hold the others until the timeout of the process group.
        """
        patience_s = _PATIENCE_S
        while not self._over(handle, patience_s):
            self.board.raise_cause(self.step, handle.what)
            patience_s = _PATIENCE_S / 2

    def _over(self, handle: Handle, patience_s: float) -> bool:
        if self._stamped:
            return handle.stamped.wait(patience_s)
        pause_s, until_s = 20e-6, time.monotonic() + patience_s
        while not handle.done.is_completed():
            if time.monotonic() > until_s:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1e-3)
        return True


def busy_period(handles: Sequence[Handle]) -> tuple[float, int, int]:
    """Seconds in which at least one collective was under way, its link bytes and latencies.

    Collectives that overlap share their latency: of each busy interval only the longest chain of
    messages counts.

    Returns
    -------
    seconds, link bytes, rounds
    """
    seconds, total, rounds = 0.0, 0, 0
    begin = end = None
    longest = 0
    for handle in sorted(handles, key=lambda h: h.start_s):
        total += handle.link
        stop = handle.end_s[0]
        if end is None or handle.start_s > end:
            if begin is not None and end is not None:
                seconds += end - begin
                rounds += longest
            begin, end, longest = handle.start_s, stop, handle.rounds
        else:
            end, longest = max(end, stop), max(longest, handle.rounds)
    if begin is not None and end is not None:
        seconds += end - begin
        rounds += longest
    return seconds, total, rounds
