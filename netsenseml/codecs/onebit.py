"""``onebit``: 1-bit SGD: each sign has its own reconstruction value.

Source: F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
Distributed Training of Speech DNNs", Interspeech 2014, section 2: threshold 0, the two values are
the means of the entries quantized to each, error feedback always. There the values are per column
of a weight matrix, here per parameter. It differs from ``signsgd`` where a gradient is skewed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.codecs.signs import SignCodec
from netsenseml.methods import Method, fixed
from netsenseml.options import Options

__all__ = ["METHOD", "OneBit", "OneBitOptions"]


@dataclass(frozen=True)
class OneBitOptions(Options):
    """Options of ``onebit``.

    Attributes
    ----------
    error_feedback : bool
        Carry the quantization error over to the next step.
    """

    error_feedback: bool = True


class OneBit(SignCodec):
    """Two fp32 values per parameter: the means of its entries at or above 0, and below."""

    name = "onebit"
    scales = 2

    def measure(
        self, parts: list[torch.Tensor], negative: list[torch.Tensor], scales: torch.Tensor
    ) -> None:
        for row, part, below in zip(scales, parts, negative, strict=True):
            fewer = below.sum()
            low = (part * below).sum()
            row[0] = (part.sum() - low) / (part.numel() - fewer).clamp(min=1)
            row[1] = low / fewer.clamp(min=1)

    def values(self, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return scales[:, 0], scales[:, 1]


METHOD = Method("onebit", OneBitOptions, fixed(lambda options: OneBit()))
