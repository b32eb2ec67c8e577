"""Which parameters a piece of flat gradient belongs to.

DDP lays its buckets out anew after the first iterations, so nothing may be keyed by bucket
index. A :class:`Group` is a run of parameters whose gradients are compressed together; it is
known by the names of its parameters. Normally one DDP bucket is one group. After a checkpoint
was loaded, DDP starts again with its first layout (often a single bucket); the groups of the
saved run are then carved out of that bucket, so that the resumed run repeats the saved one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["MAX_GROUP_BYTES", "Group", "Layouts"]

MAX_GROUP_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Group:
    """Parameters compressed together, in the order of the flat gradient.

    Attributes
    ----------
    names : tuple of str
        Parameter names; also the key of all state.
    shapes : tuple of tuple of int
    offsets : tuple of int
        First element of each parameter in the flat gradient.
    numel : int
        Elements in all.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    numel: int

    @property
    def dense_bytes(self) -> int:
        """Bytes of the gradient in fp32."""
        return 4 * self.numel

    @property
    def numels(self) -> tuple[int, ...]:
        """Elements of each parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)


def make_group(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> Group:
    """A group of the named parameters laid out one after the other."""
    offsets, total = [], 0
    for shape in shapes:
        offsets.append(total)
        total += math.prod(shape)
    return Group(tuple(names), tuple(tuple(s) for s in shapes), tuple(offsets), total)


class Layouts:
    """Maps DDP buckets to groups.

    Parameters
    ----------
    named : sequence of (str, tensor)
        The module's parameters.
    """

    def __init__(self, named: Sequence[tuple[str, torch.Tensor]]) -> None:
        self._name_of = {id(parameter): name for name, parameter in named}
        self._parameters = dict(named)
        self._known: dict[tuple[str, ...], Group] = {}
        self._wanted: list[tuple[str, ...]] = []

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter by name."""
        return {name: tuple(p.shape) for name, p in self._parameters.items()}

    def parameters(self, group: Group) -> tuple[torch.Tensor, ...]:
        """The parameters of a group."""
        return tuple(self._parameters[name] for name in group.names)

    def prefer(self, groups: Sequence[Sequence[str]]) -> list[Group]:
        """Carve these groups out of the buckets until those are laid out alike; returns them."""
        self._wanted = [tuple(names) for names in groups]
        return [
            self._group(names, [self._parameters[name] for name in names])
            for names in self._wanted
        ]

    def settle(self) -> None:
        """Forget the preference: DDP lays its buckets out as the saved run did."""
        self._wanted = []

    def split(self, parameters: Sequence[torch.Tensor]) -> list[tuple[Group, tuple[int, ...]]]:
        """The groups of a bucket, each with the offsets of its parameters in the bucket.

        Raises
        ------
        ValueError
            The bucket holds a parameter the module did not have when the state was made, or
            is bigger than a collective can carry.
        """
        names = []
        for parameter in parameters:
            name = self._name_of.get(id(parameter))
            if name is None:
                raise ValueError(
                    "the bucket holds a parameter that the DDP module did not have when the "
                    f"state was made (shape {tuple(parameter.shape)})"
                )
            names.append(name)
        whole = self._group(names, parameters)
        if whole.dense_bytes > MAX_GROUP_BYTES:
            raise ValueError(
                f"a gradient bucket of {whole.dense_bytes} bytes (first parameter {names[0]!r}) "
                f"is above the limit of {MAX_GROUP_BYTES}: lower bucket_cap_mb or split the layer"
            )
        place = dict(zip(names, whole.offsets, strict=True))
        wanted = [group for group in self._wanted if all(name in place for name in group)]
        if wanted == [tuple(names)] or sum(map(len, wanted)) != len(names):
            return [(whole, whole.offsets)]
        shape = dict(zip(names, parameters, strict=True))
        return [
            (self._group(group, [shape[name] for name in group]), tuple(place[n] for n in group))
            for group in wanted
        ]

    def _group(self, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> Group:
        key = tuple(names)
        if key not in self._known:
            self._known[key] = make_group(key, [tuple(p.shape) for p in parameters])
        return self._known[key]
