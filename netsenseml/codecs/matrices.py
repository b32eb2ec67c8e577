"""Matrices in a flat gradient: what the low-rank codecs share."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from netsenseml.codecs.base import Codec
from netsenseml.layout import Group

__all__ = ["FactorCodec", "LowRankPlan", "MatrixPart", "make_plan", "starting_q"]


@dataclass(frozen=True)
class MatrixPart:
    """A parameter to be compressed: where it lies, its shape, and its place in P and Q."""

    name: str
    begin: int
    end: int
    rows: int
    columns: int
    rank: int
    p_begin: int
    q_begin: int

    def matrix(self, flat: torch.Tensor) -> torch.Tensor:
        """The parameter's part of ``flat``, shape (n,), as (rows, columns)."""
        return flat[self.begin : self.end].view(self.rows, self.columns)

    def p(self, wire: torch.Tensor) -> torch.Tensor:
        """P in its buffer, shape (rows, rank)."""
        end = self.p_begin + self.rows * self.rank
        return wire[self.p_begin : end].view(self.rows, self.rank)

    def q(self, wire: torch.Tensor) -> torch.Tensor:
        """Q in its buffer, shape (columns, rank)."""
        end = self.q_begin + self.columns * self.rank
        return wire[self.q_begin : end].view(self.columns, self.rank)


@dataclass(frozen=True)
class LowRankPlan:
    """How a group is sent: ``dense | P`` of ``first_numel`` elements, Q of ``second_numel``."""

    dense: tuple[tuple[int, int], ...]
    matrices: tuple[MatrixPart, ...]
    dense_numel: int
    first_numel: int
    second_numel: int

    def copy_dense(self, flat: torch.Tensor, wire: torch.Tensor) -> None:
        """Gather the uncompressed parameters at the beginning of ``wire``."""
        at = 0
        for begin, end in self.dense:
            wire[at : at + end - begin].copy_(flat[begin:end])
            at += end - begin

    def spread_dense(self, wire: torch.Tensor, flat: torch.Tensor) -> None:
        """The inverse of :meth:`copy_dense`."""
        at = 0
        for begin, end in self.dense:
            flat[begin:end].copy_(wire[at : at + end - begin])
            at += end - begin


def make_plan(group: Group, rank: int, min_rate: float) -> LowRankPlan:
    """Compress what has at least two dimensions and gets smaller by ``min_rate``."""
    dense: list[tuple[int, int]] = []
    sizes = []
    for name, begin, shape in zip(group.names, group.offsets, group.shapes, strict=True):
        rows = shape[0] if len(shape) > 1 else 1
        columns = math.prod(shape) // max(rows, 1)
        packed = (rows + columns) * rank * min_rate
        if len(shape) > 1 and packed < rows * columns:
            sizes.append((name, begin, rows, columns))
        else:
            dense.append((begin, begin + math.prod(shape)))
    dense_numel = sum(end - begin for begin, end in dense)
    matrices, first, second = [], dense_numel, 0
    for name, begin, rows, columns in sizes:
        end = begin + rows * columns
        matrices.append(MatrixPart(name, begin, end, rows, columns, rank, first, second))
        first += rows * rank
        second += columns * rank
    return LowRankPlan(tuple(dense), tuple(matrices), dense_numel, first, second)


def starting_q(
    part: MatrixPart, last: torch.Tensor | None, seed: int, like: torch.Tensor
) -> torch.Tensor:
    """An orthonormal Q, shape (columns, rank): the last one, or random from seed and name.

    Orthonormalizing also brings a Q that a zero gradient made 0 back to life.
    """
    if last is None:
        generator = torch.Generator().manual_seed(
            (seed * 1_000_003 + zlib.crc32(part.name.encode())) % 2**63
        )
        last = torch.randn(part.columns, part.rank, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(last.to(device=like.device, dtype=like.dtype)).Q


class FactorCodec(Codec):
    """What codecs with warm-started factors share: the plans, and the Q of every parameter.

    A step's Q counts only when the whole step was finite.

    Parameters
    ----------
    rank : int
        Columns of P and Q.
    min_rate : float
        A matrix is compressed only if that makes it smaller by more than this factor.
    """

    def __init__(self, rank: int, min_rate: float) -> None:
        self._rank = rank
        self._min_rate = min_rate
        self._q: dict[str, torch.Tensor] = {}
        self._pending: dict[str, torch.Tensor] = {}
        self._plans: dict[Group, LowRankPlan] = {}

    @property
    def strength(self) -> float | None:
        return float(self._rank)

    def plan(self, group: Group) -> LowRankPlan:
        """How a group's parameters are sent."""
        if group not in self._plans:
            self._plans[group] = make_plan(group, self._rank, self._min_rate)
        return self._plans[group]

    def end_step(self, committed: bool) -> None:
        if committed:
            self._q.update(self._pending)
        self._pending = {}

    def state_dict(self) -> dict[str, Any]:
        return {"q": dict(self._q)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._q = {name: q.detach().clone() for name, q in saved["q"].items()}
