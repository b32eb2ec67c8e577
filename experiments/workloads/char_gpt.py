"""A GPT over the characters of Python's language reference, 817 920 parameters, for accuracy.

Accuracy is the share of next characters that are guessed. The text is the standard library's
own, so it differs a little between versions of Python.
"""

from __future__ import annotations

from torch import Tensor, nn

from experiments.networks.gpt import GPT
from experiments.workloads._text import Text, reference_text, windows

__all__ = ["PARAMETERS", "build_model", "inputs", "loss", "prepare"]

PARAMETERS = 817_920
_LENGTH = 64


def prepare() -> Text:
    """Load the text."""
    return windows(reference_text(), _LENGTH)


def inputs(tokens: Tensor) -> Tensor:
    """Return token numbers, int64."""
    return tokens.long()


def build_model() -> nn.Module:
    """Return the untrained network: 4 layers, 128 wide, over 64 characters."""
    return GPT(vocabulary=128, context=_LENGTH, width=128, layers=4, heads=4)


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy of scores (n, 128, 64) against characters (n, 64)."""
    return nn.functional.cross_entropy(output, target)
