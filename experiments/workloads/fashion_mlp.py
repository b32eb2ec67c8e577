"""A multi-layer perceptron on Fashion-MNIST, 535 818 parameters: no convolution, wide matrices."""

from __future__ import annotations

from torch import nn

from experiments.workloads.fashion_cnn import Data, inputs, loss, prepare

__all__ = ["PARAMETERS", "Data", "build_model", "inputs", "loss", "prepare"]

PARAMETERS = 535_818


def build_model() -> nn.Module:
    """Return the untrained network."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )
