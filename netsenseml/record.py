"""What one finished step sensed, decided and sent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["StepRecord"]


@dataclass(frozen=True)
class StepRecord:
    """One synchronised step of one rank.

    Attributes
    ----------
    step : int
        Counts synchronised steps from 0 (``no_sync`` micro-batches do not count).
    method, codec : str
        The method asked for, and the codec it really used in this step.
    strength : float or None
        Ratio kept (sparsifiers) or rank (PowerSGD); None where there is none.
    wire_bytes : int
        Every byte this rank handed to collectives for gradients: values, indices, scales and
        counts. An all-reduce counts its buffer once.
    control_bytes : int
        Bytes handed to the agreement collective.
    link_bytes : int
        What the collectives move out of this rank: ring all-reduce ``2(N-1)/N * V``,
        all-gather ``(N-1) * b``, all-to-all ``(N-1)/N * V``.
    rounds : int
        Successive messages of the collectives of this step; each costs the transport some bytes
        of its own.
    dense_bytes : int
        The gradient in fp32, ``4 n``.
    encode_s, decode_s : float
        Seconds spent encoding and decoding.
    exposed_comm_s : float
        Seconds the step stood still waiting for collectives.
    compute_s : float
        Seconds from the end of the previous step to the last bucket ready, encoding taken out;
        in the first step from the first bucket.
    bandwidth_mbps, latency_ms : float or None
        The estimates the decision of this step was made with: bottleneck rate in Mbit/s, and
        the time of one round of a collective in ms.
    reason : str
        Why the controller decided so.
    nonfinite : bool
        Some rank's gradient was not finite in this step (agreed by all ranks).
    nonfinite_steps : int
        Such steps so far.
    """

    step: int
    method: str
    codec: str
    strength: float | None
    wire_bytes: int
    control_bytes: int
    link_bytes: int
    rounds: int
    dense_bytes: int
    encode_s: float
    decode_s: float
    exposed_comm_s: float
    compute_s: float
    bandwidth_mbps: float | None
    latency_ms: float | None
    reason: str
    nonfinite: bool
    nonfinite_steps: int

    @property
    def compression_ratio(self) -> float:
        """Dense fp32 bytes per wire byte; above 1 is smaller than dense."""
        return self.dense_bytes / max(1, self.wire_bytes)

    def as_dict(self) -> dict[str, Any]:
        """The record as plain numbers and texts."""
        return asdict(self)
