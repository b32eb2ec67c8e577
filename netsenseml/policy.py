"""Policies: which codec a step uses. Asked once per step, identically on all ranks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from netsenseml.codecs.base import Codec
from netsenseml.layout import Group

__all__ = ["Decision", "FixedPolicy", "Measurement", "Policy"]


@dataclass(frozen=True)
class Measurement:
    """What one rank measured in one step; NaN where it could not.

    Attributes
    ----------
    busy_s : float
        Time in which a gradient collective was under way on this rank.
    link_bytes, rounds : float
        Bytes it moved out of this rank in that time, and successive message latencies.
    ping_s : float
        Duration of the previous step's agreement collective.
    first_ready_s, compute_s : float
        From the end of the previous step to the first and to the last bucket ready, encoding
        taken out.
    encode_s, decode_s : float
        Seconds spent in the codec.
    exposed_s : float
        Seconds the step stood still waiting for collectives.
    dense_bytes : float
        The gradient in fp32.
    main_s, main_link_bytes, main_rounds : float
        Duration, bytes and latencies of the step's largest collective alone.
    """

    busy_s: float
    link_bytes: float
    rounds: float
    ping_s: float
    first_ready_s: float
    compute_s: float
    encode_s: float
    decode_s: float
    exposed_s: float
    dense_bytes: float
    main_s: float = math.nan
    main_link_bytes: float = 0.0
    main_rounds: float = 0.0

    @property
    def overhead_s(self) -> float:
        """Seconds this rank's step was longer than its compute time.

        The smallest over ranks is the slowest rank's, which waits for nobody.
        """
        return self.encode_s + self.decode_s + self.exposed_s

    def as_list(self) -> list[float]:
        """The fields in order, for the wire."""
        return [float(getattr(self, name)) for name in self.__dataclass_fields__]

    @classmethod
    def width(cls) -> int:
        """Number of fields."""
        return len(cls.__dataclass_fields__)


@dataclass(frozen=True)
class Decision:
    """The codec of one step and why.

    Attributes
    ----------
    codec : Codec
    reason : str
    bandwidth_mbps, latency_ms : float or None
        What the network is taken to be.
    release : float
        Part of the residual sent along in this step, in (0, 1]; the rest waits.
    """

    codec: Codec
    reason: str
    bandwidth_mbps: float | None = None
    latency_ms: float | None = None
    release: float = 1.0


class Policy(ABC):
    """Decides the codec of every step.

    ``needs_agreement`` asks for one tiny all-gather of :class:`Measurement` per step, the
    result of which reaches :meth:`observe` on every rank before the next :meth:`decide`.
    Policies are deterministic in what they observe: no clock, no random numbers.
    """

    needs_agreement: ClassVar[bool] = False

    @abstractmethod
    def decide(self, step: int, world: int) -> Decision:
        """The codec for this step."""

    def observe(  # noqa: B027 (optional)
        self, groups: Sequence[Group], rows: Sequence[Measurement]
    ) -> None:
        """What all ranks measured in the last step (in rank order)."""

    @abstractmethod
    def codecs(self) -> tuple[Codec, ...]:
        """Every codec this policy may choose, in a fixed order."""

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers that resume needs."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:  # noqa: B027 (optional)
        """The inverse of :meth:`state_dict`."""


class FixedPolicy(Policy):
    """Always the same codec."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def decide(self, step: int, world: int) -> Decision:
        return Decision(self._codec, "fixed method")

    def codecs(self) -> tuple[Codec, ...]:
        return (self._codec,)
