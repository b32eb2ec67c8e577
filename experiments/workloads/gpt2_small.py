"""GPT-2 small in full, 124 439 808 parameters, for throughput: real gradients of short windows.

Tokens are the bytes of a real text, the first 256 of the vocabulary. What the device profile
charges is another matter: a batch of full windows.
"""

from __future__ import annotations

from torch import Tensor, nn

from experiments.networks.gpt import GPT
from experiments.workloads._pictures import COMPUTED
from experiments.workloads._text import Text, reference_text, windows

__all__ = ["PARAMETERS", "build_model", "inputs", "loss", "prepare"]

PARAMETERS = 124_439_808
_LENGTH = 32


def prepare() -> Text:
    """Load the text; none of it for testing."""
    text = windows(reference_text(), _LENGTH)
    return Text(text.train_x, text.train_y, text.test_x[:0], text.test_y[:0])


def inputs(tokens: Tensor) -> Tensor:
    """Return token numbers, int64, of the first windows: the network's real work is not timed."""
    return tokens[:COMPUTED].long()


def build_model() -> nn.Module:
    """Return the untrained network."""
    return GPT(vocabulary=50257, context=1024, width=768, layers=12, heads=12)


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy of the windows that were computed with."""
    return nn.functional.cross_entropy(output, target[: len(output)])
