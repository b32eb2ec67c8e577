"""The wire format of sparse gradients.

A payload is ``header | indices | values``: the header is 4 bytes (the peak magnitude as fp32,
non-finite when the gradient was or is close to that), indices are padded to 4 bytes, values
follow, and the whole is padded to 4 bytes. Value type ``sign`` sends the mean magnitude and one
bit per value (error feedback keeps the difference). The size depends on (n, k, value type) only,
never on the data, because an all-gather needs the same size on every rank.

Indices (k of n, ascending) go in the smallest of three forms:

- ``bitmap``: n bits;
- ``gap``: Elias-Fano coding of the gaps: ``width`` low bits of each index as they are, the high
  parts as a unary bit string; about ``log2(n/k) + 2`` bits per index, within half a bit of the
  entropy bound, and of a size known beforehand (unlike Golomb or variable-length bytes);
- ``int32``: when n is tiny.

``int64``, 8 bytes each, is there on request only: it is what others send.

References: P. Elias, "Efficient storage and retrieval by content and address of static files",
J. ACM 21(2), 1974; R. Fano, MIT Project MAC memo 61, 1971.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from netsenseml.bits import pack_bits, pack_fields, unpack_bits, unpack_fields

__all__ = [
    "VALUE_TYPES",
    "SparseFormat",
    "WireError",
    "decode_indices",
    "encode_indices",
    "flagged",
    "power_of_two",
]

VALUE_TYPES = {
    "fp8": torch.float8_e4m3fn,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
}
#: values are scaled so that the peak lies below 2 to this, for no overflow and few subnormals
_TOP = {"fp8": 8, "fp16": 15, "bf16": 15}
HEADER_BYTES = 4
LEVEL_BYTES = 4  # the mean magnitude, where values go as signs
_HUGE = 2.0**120  # what roundings and sums of such values make might not fit into fp32


class WireError(ValueError):
    """A payload that no encoder of this format can have written."""


def _padded(nbytes: int) -> int:
    return (nbytes + 3) // 4 * 4


def _gap_width(numel: int, kept: int) -> int:
    return max(0, (numel // kept).bit_length() - 1)


def _gap_sizes(numel: int, kept: int) -> tuple[int, int, int]:
    """(width, bytes of low parts, bytes of the unary high parts)."""
    width = _gap_width(numel, kept)
    high_bits = kept + ((numel - 1) >> width) + 1
    return width, (kept * width + 7) // 8, (high_bits + 7) // 8


def index_bytes(numel: int, kept: int) -> dict[str, int]:
    """Size of each index form in bytes."""
    _, low, high = _gap_sizes(numel, kept)
    return {"bitmap": (numel + 7) // 8, "gap": low + high, "int32": 4 * kept}


def encode_indices(indices: torch.Tensor, numel: int, form: str, out: torch.Tensor) -> None:
    """Write ascending int64 ``indices``, shape (k,), into uint8 ``out`` in the given form."""
    if form == "int32":
        out.view(torch.int32).copy_(indices)
        return
    if form == "int64":  # by halves: the header leaves it aligned to 4 bytes only
        out.view(torch.int32).copy_(indices.contiguous().view(torch.int32))
        return
    if form == "bitmap":
        pack_bits(_flags(indices, numel), out)
        return
    kept = indices.numel()
    width, low, _ = _gap_sizes(numel, kept)
    pack_fields(indices & ((1 << width) - 1), width, out[:low])
    rank = torch.arange(kept, device=indices.device)
    ones = (indices >> width) + rank
    pack_bits(_flags(ones, kept + ((numel - 1) >> width) + 1), out[low:])


def _flags(positions: torch.Tensor, length: int) -> torch.Tensor:
    flags = torch.zeros(length, dtype=torch.bool, device=positions.device)
    if positions.device.type == "cpu":
        flags.numpy()[positions.numpy()] = True
    else:
        flags[positions] = True
    return flags


def _positions(packed: torch.Tensor, length: int, kept: int, form: str) -> torch.Tensor:
    bits = unpack_bits(packed, length)
    if packed.device.type == "cpu":
        found = torch.from_numpy(np.flatnonzero(bits.numpy().view(np.bool_)))
    else:
        found = bits.nonzero().view(-1)
    if found.numel() != kept:
        raise WireError(f"{form} index holds {found.numel()} ones where {kept} were sent")
    return found


def decode_indices(packed: torch.Tensor, numel: int, kept: int, form: str) -> torch.Tensor:
    """The inverse of :func:`encode_indices`: int64, shape (k,).

    Raises
    ------
    WireError
        The bytes are not the code of k indices below n.
    """
    if form == "bitmap":
        return _positions(packed, numel, kept, form)
    if form == "int32":
        indices = packed.view(torch.int32).to(torch.int64)
    elif form == "int64":
        indices = packed.clone().view(torch.int64)
    else:
        width, low, _ = _gap_sizes(numel, kept)
        length = kept + ((numel - 1) >> width) + 1
        ones = _positions(packed[low:], length, kept, form)
        high = ones - torch.arange(kept, device=packed.device)
        indices = (high << width) | unpack_fields(packed[:low], width, kept)
    if kept and (int(indices.max()) >= numel or int(indices.min()) < 0):
        raise WireError(f"{form} index points outside of {numel} elements")
    return indices


@dataclass(frozen=True)
class SparseFormat:
    """Sizes and layout of the payload for k of n values.

    Parameters
    ----------
    numel, kept : int
        n and k, ``1 <= k <= n``.
    values : str
        ``"fp8"`` (e4m3), ``"fp16"``, ``"bf16"``, ``"fp32"`` or ``"sign"``.
    indices : str
        ``"packed"`` for the smallest form, or ``"int64"``.
    """

    numel: int
    kept: int
    values: str
    indices: str = "packed"

    @property
    def form(self) -> str:
        """The smallest index form; ties go to the one that is cheaper to code."""
        if self.indices != "packed":
            return self.indices
        if self.kept == self.numel:
            return "all"
        sizes = index_bytes(self.numel, self.kept)
        return min(("bitmap", "int32", "gap"), key=lambda form: sizes[form])

    @property
    def index_bytes(self) -> int:
        """Bytes of the index part without padding; 0 when everything is kept."""
        form = self.form
        if form == "int64":
            return 8 * self.kept
        return 0 if form == "all" else index_bytes(self.numel, self.kept)[form]

    @property
    def nbytes(self) -> int:
        """Bytes of the payload."""
        if self.values == "sign":
            signs = _padded((self.kept + 7) // 8)
            return HEADER_BYTES + _padded(self.index_bytes) + LEVEL_BYTES + signs
        size = VALUE_TYPES[self.values].itemsize
        return HEADER_BYTES + _padded(self.index_bytes) + _padded(self.kept * size)

    def _split(self, payload: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if payload.dtype != torch.uint8 or payload.numel() != self.nbytes:
            raise WireError(f"payload of {payload.numel()} bytes, expected {self.nbytes}")
        begin = HEADER_BYTES + _padded(self.index_bytes)
        header = payload[:HEADER_BYTES].view(torch.float32)
        packed = payload[HEADER_BYTES : HEADER_BYTES + self.index_bytes]
        if self.values == "sign":
            return header, packed, payload[begin:]
        dtype = VALUE_TYPES[self.values]
        values = payload[begin : begin + self.kept * dtype.itemsize].view(dtype)
        return header, packed, values

    def encode(
        self,
        payload: torch.Tensor,
        values: torch.Tensor,
        indices: torch.Tensor,
        peak: torch.Tensor,
    ) -> torch.Tensor:
        """Fill ``payload`` and return what the receivers will read, in the dtype of ``values``.

        Parameters
        ----------
        payload : uint8 tensor, shape (nbytes,)
        values : float tensor, shape (k,)
        indices : int64 tensor, shape (k,), ascending
        peak : float tensor, shape ()
            Largest magnitude among ``values``. One that is not finite, or of 2^120 and more,
            flags the payload.

        Returns
        -------
        float tensor, shape (k,)
            Rounded as on the wire: subtract it to get the residual.
        """
        header, packed, slots = self._split(payload)
        header.copy_(flagged(peak))
        if self.form != "all":
            encode_indices(indices, self.numel, self.form, packed)
        if self.values == "sign":
            mean = values.abs().mean(dtype=torch.float64)  # their sum might not fit into fp32
            slots[:LEVEL_BYTES].view(torch.float32).copy_(mean)
            signs = slots[LEVEL_BYTES : LEVEL_BYTES + (self.kept + 7) // 8]
            pack_bits(values < 0, signs)
            return self._signed(slots).to(values.dtype)
        if self.values == "fp32":
            slots.copy_(values)
            return slots.to(values.dtype)
        scale = power_of_two(header, _TOP[self.values])
        slots.copy_(values * scale)
        return slots.to(values.dtype) / scale

    def _signed(self, slots: torch.Tensor) -> torch.Tensor:
        """Mean magnitude with each value's sign, float32, shape (k,)."""
        level = slots[:LEVEL_BYTES].view(torch.float32)
        signs = slots[LEVEL_BYTES : LEVEL_BYTES + (self.kept + 7) // 8]
        return level * (1.0 - 2.0 * unpack_bits(signs, self.kept).to(torch.float32))

    def peak(self, payload: torch.Tensor) -> float:
        """The header: peak magnitude, non-finite when the payload is flagged."""
        return float(payload[:HEADER_BYTES].view(torch.float32)[0])

    def decode(self, payload: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """(indices or None when all are kept, float32 values), each of shape (k,).

        Raises
        ------
        WireError
            The bytes are no payload of this format.
        """
        header, packed, slots = self._split(payload)
        indices = None
        if self.form != "all":
            indices = decode_indices(packed, self.numel, self.kept, self.form)
        if self.values == "sign":
            return indices, self._signed(slots)
        if self.values == "fp32":
            return indices, slots.to(torch.float32)
        return indices, slots.to(torch.float32) / power_of_two(header, _TOP[self.values])


def flagged(peak: torch.Tensor) -> torch.Tensor:
    """``peak``, or inf where it is so large that the bucket had better be sent densely."""
    return torch.where(peak < _HUGE, peak, math.inf)


def power_of_two(peak: torch.Tensor, top: int = 15) -> torch.Tensor:
    """The power of two that brings ``peak`` to [2^(top-1), 2^top).

    With 15 fp16 does not overflow and has few subnormals.
    """
    exponent = torch.frexp(peak)[1].clamp(-100, 128)
    return torch.ldexp(torch.ones_like(peak), top - exponent)
