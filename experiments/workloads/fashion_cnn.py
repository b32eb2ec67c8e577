"""A small CNN on Fashion-MNIST, the real data of Debian's package dataset-fashion-mnist.

Xiao, Rasul and Vollgraf, "Fashion-MNIST" (arXiv 1708.07747): 60 000 training and 10 000 test
images of 28 x 28 grey pixels, ten classes.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from experiments.datasets import DATASETS

__all__ = ["PARAMETERS", "Data", "build_model", "inputs", "loss", "prepare"]

PARAMETERS = 474_122
FOLDER = DATASETS["fashion-cnn"].folder
_MEAN, _STD = 0.2860, 0.3530  # of the training pixels


@dataclass(frozen=True)
class Data:
    """Images uint8 (n, 1, 28, 28), as stored; labels int64 (n,)."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def _read(name: str, header: int, folder: Path) -> Tensor:
    raw = bytearray(gzip.decompress((folder / name).read_bytes()))
    return torch.frombuffer(raw, dtype=torch.uint8)[header:]


def prepare(folder: Path = FOLDER) -> Data:
    """Load the data set into memory; the harness has checked the files.

    Pixels stay bytes: the ranks are forked from the process that holds them, and every page
    costs a guest time.
    """

    def images(name: str) -> Tensor:
        return _read(name, 16, folder).reshape(-1, 1, 28, 28)

    return Data(
        images("train-images-idx3-ubyte.gz"),
        _read("train-labels-idx1-ubyte.gz", 8, folder).long(),
        images("t10k-images-idx3-ubyte.gz"),
        _read("t10k-labels-idx1-ubyte.gz", 8, folder).long(),
    )


def inputs(images: Tensor) -> Tensor:
    """Return what the network takes: float32 of the same shape, normalised."""
    return images.float().div_(255).sub_(_MEAN).div_(_STD)


def build_model() -> nn.Module:
    """Return the untrained network, 474 122 parameters; no layer keeps running statistics."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(576, 768),
        nn.ReLU(),
        nn.Linear(768, 10),
    )


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy of class scores (n, 10) against labels (n,)."""
    return nn.functional.cross_entropy(output, target)
