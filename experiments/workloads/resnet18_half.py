"""ResNet18 with every width halved: about a quarter of the parameters, layer by layer."""

from __future__ import annotations

from torch import nn

from experiments.datasets import DATASETS
from experiments.networks.resnet import ResNet18
from experiments.workloads._pictures import Pictures, colour, few_pictures, loss

__all__ = ["PARAMETERS", "build_model", "inputs", "loss", "prepare"]

PARAMETERS = 2_927_380

inputs = colour


def prepare() -> Pictures:
    """Load a few images; the harness has checked the files."""
    return few_pictures(DATASETS["resnet18-half"].folder)


def build_model() -> nn.Module:
    """Return the untrained network."""
    return ResNet18(2)
