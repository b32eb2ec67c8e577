"""A quarter-width ResNet18 on CIFAR-100, 714 996 parameters, when the data set is on disk.

A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009: 50 000 training and
10 000 test images of 32 x 32 pixels in 100 classes. Put the published ``cifar-100-python`` or
``cifar-100-binary`` folder into ``data/`` of the checkout; nothing is downloaded.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.datasets import CIFAR100, cifar100_folder
from experiments.errors import UserError
from experiments.networks.resnet import ResNet18

__all__ = ["PARAMETERS", "Data", "build_model", "inputs", "loss", "prepare"]

PARAMETERS = 714_996
_PIXELS = 3 * 32 * 32
_MEAN, _STD = 0.4776, 0.2681  # of the training pixels, all channels together


@dataclass(frozen=True)
class Data:
    """Images uint8 (n, 3, 32, 32), as stored; labels int64 (n,)."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


class _Plain(pickle.Unpickler):
    """Reads arrays, and refuses anything else a pickle might run."""

    def find_class(self, module: str, name: str) -> Any:
        arrays = {"_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer"}
        if module.split(".")[0] == "numpy" and name in arrays:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them for 2
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _pickled(path: Path) -> tuple[Tensor, Tensor]:
    try:
        found = _Plain(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        pixels = np.array(found[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        labels = np.array(found[b"fine_labels"], dtype=np.int64)
    except Exception as error:
        raise UserError(f"{path}: is no file of CIFAR-100's Python version: {error}") from None
    return torch.from_numpy(pixels), torch.from_numpy(labels)


def _binary(path: Path) -> tuple[Tensor, Tensor]:
    raw = np.frombuffer(bytearray(path.read_bytes()), dtype=np.uint8).reshape(-1, 2 + _PIXELS)
    pixels = torch.from_numpy(np.ascontiguousarray(raw[:, 2:])).view(-1, 3, 32, 32)
    return pixels, torch.from_numpy(raw[:, 1].astype(np.int64))


def prepare(root: Path = CIFAR100) -> Data:
    """Load the data set into memory, from whichever of its two forms is there."""
    folder = cifar100_folder(root)
    if folder.name.endswith("binary"):
        return Data(*_binary(folder / "train.bin"), *_binary(folder / "test.bin"))
    return Data(*_pickled(folder / "train"), *_pickled(folder / "test"))


def inputs(images: Tensor) -> Tensor:
    """Return what the network takes: float32 of the same shape, normalised."""
    return images.float().div_(255).sub_(_MEAN).div_(_STD)


def build_model() -> nn.Module:
    """Return the untrained network."""
    return ResNet18(narrower=4, classes=100)


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy of class scores (n, 100) against labels (n,)."""
    return nn.functional.cross_entropy(output, target)
