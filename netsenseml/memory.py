"""Buffers that live from step to step: scratch space and per-parameter state."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from netsenseml.layout import Group

__all__ = ["ParameterState", "Scratch"]


class Scratch:
    """Grow-only buffers by (group index, tag), so that no step allocates anew."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, str, torch.dtype, torch.device], torch.Tensor] = {}

    def take(
        self, index: int, tag: str, numel: int, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """A tensor of shape (numel,), contents undefined; valid until taken again."""
        key = (index, tag, dtype, device)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < numel:
            buffer = torch.empty(numel, dtype=dtype, device=device)
            self._buffers[key] = buffer
        return buffer[:numel]

    def nbytes(self) -> int:
        """Bytes held."""
        return sum(b.numel() * b.element_size() for b in self._buffers.values())


class ParameterState:
    """One state tensor per parameter (a residual, a momentum), stored flat per group.

    Every step reads the committed copy and writes the pending one. :meth:`commit` swaps them at
    the end of a good step, :meth:`abandon` keeps the old one when a step was not finite. When a
    parameter turns up in another group its state moves there with it.

    Attributes
    ----------
    release : float
        Part of the committed state, in (0, 1], that the users of a residual take along in this
        step; the rest is added back by :meth:`commit`.
    """

    def __init__(self) -> None:
        self.release = 1.0
        self._flat: dict[tuple[str, ...], list[torch.Tensor]] = {}
        self._home: dict[str, tuple[tuple[str, ...], int, tuple[int, ...]]] = {}
        self._loaded: dict[str, torch.Tensor] = {}
        self._touched: list[tuple[str, ...]] = []

    def open(
        self, group: Group, dtype: torch.dtype, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(committed, pending) of a group, each of shape (n,). Write pending in full."""
        pair = self._flat.get(group.names)
        if pair is None:
            pair = self._gather(group, dtype, device)
        if group.names not in self._touched:
            self._touched.append(group.names)
        return pair[0], pair[1]

    def _gather(
        self, group: Group, dtype: torch.dtype, device: torch.device
    ) -> list[torch.Tensor]:
        committed = torch.zeros(group.numel, dtype=dtype, device=device)
        for name, offset, numel in zip(group.names, group.offsets, group.numels, strict=True):
            old = self._view(name)
            if old is not None:
                committed[offset : offset + numel].copy_(old.reshape(-1))
        for name, offset, shape in zip(group.names, group.offsets, group.shapes, strict=True):
            self._home[name] = (group.names, offset, shape)
            self._loaded.pop(name, None)
        lived_in = {key for key, _, _ in self._home.values()}
        self._flat = {key: pair for key, pair in self._flat.items() if key in lived_in}
        pair = [committed, torch.empty_like(committed)]
        self._flat[group.names] = pair
        return pair

    def _view(self, name: str) -> torch.Tensor | None:
        if name in self._loaded:
            return self._loaded[name]
        if name not in self._home:
            return None
        key, offset, shape = self._home[name]
        return self._flat[key][0][offset : offset + math.prod(shape)].view(shape)

    def drop(self, group: Group) -> None:
        """Leave the committed copy of this group as it is at the next commit."""
        if group.names in self._touched:
            self._touched.remove(group.names)

    def commit(self) -> None:
        """Make the pending copies of this step the committed ones."""
        for key in self._touched:
            if key in self._flat:
                pair = self._flat[key]
                if self.release < 1.0:
                    pair[1].add_(pair[0], alpha=1.0 - self.release)
                pair.reverse()
        self._touched.clear()

    def abandon(self) -> None:
        """Forget what this step wrote."""
        self._touched.clear()

    def by_name(self) -> dict[str, torch.Tensor]:
        """Committed state by parameter name, as views in the parameter's shape."""
        views = {name: self._view(name) for name in (*self._home, *self._loaded)}
        return {name: view for name, view in views.items() if view is not None}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Replace everything by these tensors."""
        self._flat.clear()
        self._home.clear()
        self._touched.clear()
        self._loaded = {name: tensor.detach().clone() for name, tensor in tensors.items()}
