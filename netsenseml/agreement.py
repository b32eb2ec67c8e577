"""One tiny all-gather per step, by which all ranks decide alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        self._rows: list[list[float]] | None = None  # arrived, not collected yet
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
        self._receive()
        rows, self._rows = self._rows, None
        return None if rows is None else [Measurement(*row) for row in rows]

    def _receive(self) -> None:
        """Wait for what is under way."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        self._rows = self._transport.wait(handle).view(self._transport.world, -1).tolist()
        self.ping_s = handle.end_s[0] - handle.start_s

    def state_dict(self) -> dict[str, Any]:
        """What the next step will collect: waits for it, as all ranks have sent their part."""
        self._receive()
        return {"rows": self._rows, "ping_s": self.ping_s}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`; what is under way here is of another run."""
        self._receive()
        self._rows = saved["rows"]
        self.ping_s = float(saved["ping_s"])
