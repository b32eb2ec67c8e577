"""One tiny all-gather per step, by which all ranks decide alike."""

from __future__ import annotations

import torch

from netsenseml.policy import Measurement
from netsenseml.transport import Handle, Transport

__all__ = ["Agreement"]


class Agreement:
    """Exchanges the measurements of a step while the next forward pass runs.

    It is started after the last gradient collective of a step and collected before the first of
    the next step, so it adds no wait of its own. Its own duration is the latency probe: a message
    of fixed size, free of bandwidth.
    """

    def __init__(self, transport: Transport, device: torch.device) -> None:
        self._transport = transport
        width = Measurement.width()
        self._mine = torch.zeros(width, dtype=torch.float64, device=device)
        self._all = torch.zeros(width * transport.world, dtype=torch.float64, device=device)
        self._handle: Handle | None = None
        self.ping_s = float("nan")

    @property
    def nbytes(self) -> int:
        """Bytes this rank hands to the collective."""
        return self._mine.numel() * self._mine.element_size()

    def start(self, measured: Measurement) -> None:
        """Send this rank's measurement."""
        self._mine.copy_(torch.tensor(measured.as_list(), dtype=torch.float64))
        self._handle = self._transport.all_gather(self._mine, self._all, "agreement")

    def collect(self) -> list[Measurement] | None:
        """Everybody's measurement in rank order; None before the first step."""
        if self._handle is None:
            return None
        handle, self._handle = self._handle, None
        rows = self._transport.wait(handle).view(self._transport.world, -1).tolist()
        self.ping_s = handle.end_s[0] - handle.start_s
        return [Measurement(*row) for row in rows]
