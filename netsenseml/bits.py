"""Packing of bits and ternary digits into bytes.

Two paths with equal results: numpy on the host (its C loops are several times faster than the
same torch operators), torch operators on a device. Tensors are contiguous and one-dimensional;
bit i of byte j is element 8 j + i.
"""

from __future__ import annotations

import numpy as np
import torch

__all__ = [
    "pack_bits",
    "pack_fields",
    "pack_trits",
    "unpack_bits",
    "unpack_fields",
    "unpack_trits",
]


def pack_bits(flags: torch.Tensor, out: torch.Tensor) -> None:
    """Pack bool ``flags``, shape (n,), into uint8 ``out``, shape (ceil(n/8),)."""
    if flags.device.type == "cpu":
        out.numpy()[:] = np.packbits(flags.numpy(), bitorder="little")
        return
    padded = torch.zeros(8 * out.numel(), dtype=torch.uint8, device=flags.device)
    padded[: flags.numel()] = flags
    weights = 2 ** torch.arange(8, dtype=torch.uint8, device=flags.device)
    out.copy_((padded.view(-1, 8) * weights).sum(1, dtype=torch.uint8))


def unpack_bits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """The first ``count`` bits of uint8 ``packed`` as a uint8 tensor of 0 and 1."""
    if packed.device.type == "cpu":
        bits = np.unpackbits(packed.numpy(), count=count, bitorder="little")
        return torch.from_numpy(bits)
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed.unsqueeze(1) >> shifts) & 1).view(-1)[:count]


def pack_fields(values: torch.Tensor, width: int, out: torch.Tensor) -> None:
    """Pack the ``width`` low bits of each integer of ``values``, shape (n,), into ``out``.

    ``out`` is uint8 of shape (ceil(n * width / 8),). Width 0 writes nothing; 8 copies.
    """
    if width == 0:
        return
    if width == 8:
        out.copy_(values)
        return
    if width in (2, 4):
        _pack_divisors(values.to(torch.uint8), width, out)
        return
    if values.device.type == "cpu" and width <= 16:
        kind = np.dtype(np.uint8 if width < 8 else np.uint16)
        low = values.numpy().astype(kind)
        masks = np.left_shift(1, np.arange(width)).astype(kind)
        bits = np.bitwise_and(low[:, None], masks[None, :]) != 0
        out.numpy()[:] = np.packbits(bits, bitorder="little")
        return
    shifts = torch.arange(width, device=values.device)
    fields = ((values.to(torch.int64).unsqueeze(1) >> shifts) & 1).to(torch.bool)
    pack_bits(fields.view(-1), out)


def unpack_fields(packed: torch.Tensor, width: int, count: int) -> torch.Tensor:
    """The inverse of :func:`pack_fields`: int64 of shape (count,)."""
    if width == 0:
        return torch.zeros(count, dtype=torch.int64, device=packed.device)
    if width == 8:
        return packed[:count].to(torch.int64)
    if width in (2, 4):
        return _unpack_divisors(packed, width)[:count].to(torch.int64)
    bits = unpack_bits(packed, width * count).view(count, width)
    if packed.device.type == "cpu" and width <= 8:
        return torch.from_numpy(np.packbits(bits.numpy(), axis=1, bitorder="little")[:, 0]).to(
            torch.int64
        )
    weights = 2 ** torch.arange(width, device=packed.device)
    return (bits.to(torch.int64) * weights).sum(1)


def _pack_divisors(values: torch.Tensor, width: int, out: torch.Tensor) -> None:
    """Fields of 2 or 4 bits: a few byte-wide shifts; ``values`` below ``2 ** width``."""
    per_byte = 8 // width
    full = values.numel() // per_byte
    head = values[: full * per_byte].view(full, per_byte)
    packed = head[:, 0].clone()
    for column in range(1, per_byte):
        packed |= head[:, column] << (width * column)
    out[:full] = packed
    if full < out.numel():
        tail = values[full * per_byte :]
        shifts = width * torch.arange(tail.numel(), dtype=torch.uint8, device=values.device)
        out[full] = (tail << shifts).sum(dtype=torch.uint8)


def _unpack_divisors(packed: torch.Tensor, width: int) -> torch.Tensor:
    per_byte = 8 // width
    fields = torch.empty((packed.numel(), per_byte), dtype=torch.uint8, device=packed.device)
    for column in range(per_byte):
        fields[:, column] = (packed >> (width * column)) & ((1 << width) - 1)
    return fields.view(-1)


_TRIT_WEIGHTS = (1, 3, 9, 27, 81)


def pack_trits(digits: torch.Tensor, out: torch.Tensor) -> None:
    """Pack int8 ``digits`` in {-1, 0, 1}, shape (n,), five to a byte: 1.6 bits each.

    ``out`` is uint8 of shape (ceil(n/5),).
    """
    full = digits.numel() // 5
    unsigned = (digits + 1).to(torch.uint8)
    head = unsigned[: 5 * full].view(full, 5)
    packed = head[:, 0].clone()
    for column, weight in enumerate(_TRIT_WEIGHTS[1:], start=1):
        packed += head[:, column] * weight
    out[:full] = packed
    if full < out.numel():
        tail = unsigned[5 * full :]
        weights = torch.tensor(_TRIT_WEIGHTS, dtype=torch.uint8, device=digits.device)
        out[full] = (tail * weights[: tail.numel()]).sum(dtype=torch.uint8)


def unpack_trits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """The inverse of :func:`pack_trits`: int8 of shape (count,).

    Raises
    ------
    ValueError
        A byte above 242 is no group of five ternary digits.
    """
    if packed.numel() and int(packed.max()) > 242:
        raise ValueError("ternary payload holds a byte above 242")
    digits = torch.empty((packed.numel(), 5), dtype=torch.int8, device=packed.device)
    rest = packed.clone()
    for column in range(5):
        quotient = torch.div(rest, 3, rounding_mode="floor")
        digits[:, column] = (rest - 3 * quotient).to(torch.int8) - 1
        rest = quotient
    return digits.view(-1)[:count]
