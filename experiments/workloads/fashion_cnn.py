"""A small CNN on Fashion-MNIST, the real data of Debian's package dataset-fashion-mnist.

Xiao, Rasul and Vollgraf, "Fashion-MNIST" (arXiv 1708.07747): 60 000 training and 10 000 test
images of 28 x 28 grey pixels, ten classes.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

__all__ = ["CHECKSUMS", "Data", "DataError", "build_model", "loss", "prepare"]

FOLDER = Path("/usr/share/datasets/fashion-mnist")
CHECKSUMS = {
    "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
    "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
}
_MEAN, _STD = 0.2860, 0.3530  # of the training pixels


class DataError(Exception):
    """The data set is missing or not the one that was published."""


@dataclass(frozen=True)
class Data:
    """Images float32 (n, 1, 28, 28), normalised; labels int64 (n,)."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def check(folder: Path = FOLDER) -> None:
    """Compare the files with the published ones; raise `DataError` with what would mend it."""
    for name, expected in CHECKSUMS.items():
        path = folder / name
        if not path.exists():
            raise DataError(f"{path} is missing: apt-get install dataset-fashion-mnist brings it")
        if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise DataError(f"{path} is damaged: reinstall dataset-fashion-mnist")


def _read(name: str, header: int, folder: Path) -> Tensor:
    raw = bytearray(gzip.decompress((folder / name).read_bytes()))
    return torch.frombuffer(raw, dtype=torch.uint8)[header:]


def prepare(folder: Path = FOLDER) -> Data:
    """Load the checked data set into memory."""
    check(folder)

    def images(name: str) -> Tensor:
        pixels = _read(name, 16, folder).reshape(-1, 1, 28, 28).float()
        return pixels.div_(255).sub_(_MEAN).div_(_STD)

    return Data(
        images("train-images-idx3-ubyte.gz"),
        _read("train-labels-idx1-ubyte.gz", 8, folder).long(),
        images("t10k-images-idx3-ubyte.gz"),
        _read("t10k-labels-idx1-ubyte.gz", 8, folder).long(),
    )


def build_model() -> nn.Module:
    """Return the untrained network, 473 578 parameters; no layer keeps running statistics."""
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
