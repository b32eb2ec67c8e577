"""When a rank fails: tell the others why, and find out who failed first."""

from __future__ import annotations

import datetime
from typing import Any

import torch.distributed as dist

__all__ = ["FailureBoard", "PeerFailure"]

_ALIVE_WAIT_S = 2.0
_CAUSE = "netsenseml/first_cause"


class PeerFailure(RuntimeError):
    """A collective broke because another rank failed; the message names the first cause."""


class FailureBoard:
    """First causes of failure, kept in the store of the process group.

    Parameters
    ----------
    group : ProcessGroup
        The group whose collectives are watched.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._rank = dist.get_rank(group)
        self._world = dist.get_world_size(group)
        self._store = _store_of(group)

    def report(self, error: BaseException, step: int) -> None:
        """Publish this rank's own error, for the peers to name.

        They see it as soon as they wait in vain, whether or not this process ends.
        """
        if self._store is not None:
            text = f"rank {self._rank} at step {step}: {type(error).__name__}: {error}"
            self._store.compare_set(_CAUSE, "", text)

    def raise_cause(self, step: int, what: str) -> None:
        """Raise :class:`PeerFailure` if a rank has reported a failure."""
        try:
            cause = None if self._store is None else self._first_cause()
        except RuntimeError:
            return  # the store is gone: the collective itself will break soon
        if cause is not None:
            raise PeerFailure(f"step {step}: {what} on rank {self._rank}; first cause: {cause}")

    def explain(self, error: BaseException, step: int, what: str) -> PeerFailure:
        """Turn a broken collective into an error that names who failed first.

        The survivors sign a list; who has not signed after two seconds is named as gone.
        """
        head = f"step {step}: {what} broke on rank {self._rank}"
        tail = f" [{str(error).splitlines()[0]}]"
        if self._store is None:
            return PeerFailure(head + tail)
        try:
            cause = self._first_cause()
            if cause is None:
                missing = self._missing(step)
                cause = self._first_cause()
        except RuntimeError:
            return PeerFailure(f"{head}: the rank that serves the store is gone{tail}")
        if cause is not None:
            return PeerFailure(f"{head}; first cause: {cause}")
        if missing:
            gone = ", ".join(str(rank) for rank in missing)
            return PeerFailure(f"{head}; first cause: no sign of life from rank {gone}{tail}")
        return PeerFailure(head + tail)

    def _first_cause(self) -> str | None:
        if not self._store.check([_CAUSE]):
            return None
        return self._store.get(_CAUSE).decode()

    def _missing(self, step: int) -> list[int]:
        self._store.set(f"netsenseml/alive/{step}/{self._rank}", "1")
        missing = []
        wait = datetime.timedelta(seconds=_ALIVE_WAIT_S)
        for rank in range(self._world):
            try:
                self._store.wait([f"netsenseml/alive/{step}/{rank}"], wait)
            except RuntimeError:  # a timeout; its class depends on the kind of store
                if self._first_cause() is not None:
                    break
                missing.append(rank)
                wait = datetime.timedelta(seconds=0.2)
        return missing


def _store_of(group: Any) -> Any:
    get = getattr(group, "get_group_store", None)
    try:
        return get() if get is not None else dist.distributed_c10d._get_default_store()
    except (RuntimeError, ValueError):
        return None
