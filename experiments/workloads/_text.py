"""Real English text that every Python brings: the language reference behind ``help()``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Text", "reference_text", "windows"]


@dataclass(frozen=True)
class Text:
    """Windows of tokens uint8 (n, length), and the tokens that follow each, int64 (n, length)."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def reference_text() -> bytes:
    """Return the reference, about 0.7 MB of ASCII; what is not ASCII becomes a question mark."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")


def windows(text: bytes, length: int) -> Text:
    """Cut text into windows that do not overlap; every tenth is for testing."""
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    count = (len(tokens) - 1) // length
    x = tokens[: count * length].view(count, length)
    y = tokens[1 : count * length + 1].view(count, length).long()
    test = torch.arange(count) % 10 == 9
    return Text(x[~test], y[~test], x[test], y[test])
