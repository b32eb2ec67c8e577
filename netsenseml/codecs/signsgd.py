"""``signsgd``: the sign of every entry times the mean magnitude of its parameter.

Source: S. P. Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019, Algorithm 1: the scale
``|p|_1 / d`` per layer, error feedback; signs of J. Bernstein et al., "signSGD", ICML 2018. Here
the ranks' scaled signs are averaged, where the latter takes a majority vote.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.codecs.signs import SignCodec, l1_norm
from netsenseml.methods import Method, fixed
from netsenseml.options import Options

__all__ = ["METHOD", "SignSgd", "SignSgdOptions"]


@dataclass(frozen=True)
class SignSgdOptions(Options):
    """Options of ``signsgd``.

    Attributes
    ----------
    error_feedback : bool
        Carry the error over to the next step; without it signSGD need not converge.
    """

    error_feedback: bool = True


class SignSgd(SignCodec):
    """Zero counts as positive; a parameter that is all zero has scale 0."""

    name = "signsgd"
    scales = 1

    def measure(
        self, parts: list[torch.Tensor], negative: list[torch.Tensor], scales: torch.Tensor
    ) -> None:
        for row, part in zip(scales, parts, strict=True):
            row[0] = l1_norm(part) / max(1, part.numel())

    def values(self, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return scales[:, 0], -scales[:, 0]


METHOD = Method("signsgd", SignSgdOptions, fixed(lambda options: SignSgd()))
