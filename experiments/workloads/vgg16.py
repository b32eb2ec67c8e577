"""VGG16 in full, 138 357 544 parameters, for throughput: real gradients, of 2 images of 32 px.

What the device profile charges is another matter: batch 32 at 224 px.
"""

from __future__ import annotations

from torch import nn

from experiments.datasets import DATASETS
from experiments.networks.vgg import VGG16
from experiments.workloads._pictures import Pictures, colour, few_pictures, loss

__all__ = ["PARAMETERS", "build_model", "inputs", "loss", "prepare"]

PARAMETERS = 138_357_544

inputs = colour


def prepare() -> Pictures:
    """Load a few images; the harness has checked the files."""
    return few_pictures(DATASETS["vgg16"].folder)


def build_model() -> nn.Module:
    """Return the untrained network."""
    return VGG16()
