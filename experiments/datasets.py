"""Data sets on disk, checked before anything starts; ranks never download."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from .errors import UserError

__all__ = ["CIFAR100", "DATASETS", "Dataset", "check", "cifar100_folder"]


@dataclass(frozen=True)
class Dataset:
    """Where a data set lies, what brings it, and the SHA-256 of each file."""

    folder: Path
    package: str
    files: dict[str, str]


#: Fashion-MNIST: Xiao, Rasul and Vollgraf, arXiv 1708.07747.
_FASHION = Dataset(
    Path("/usr/share/datasets/fashion-mnist"),
    "dataset-fashion-mnist",
    {
        "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",  # noqa: E501
        "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",  # noqa: E501
        "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",  # noqa: E501
        "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",  # noqa: E501
    },
)

_FASHION_TASKS = (
    "fashion-cnn", "fashion-mlp", "resnet18", "resnet18-half", "resnet18-quarter", "vgg16",
    "vgg16-half", "vgg16-quarter", "vgg16-eighth",
)  # fmt: skip

#: By task.
DATASETS = dict.fromkeys(_FASHION_TASKS, _FASHION)

#: Where CIFAR-100 is looked for: `data` in the checkout, which a guest sees too.
CIFAR100 = Path(__file__).parent.parent / "data"
_CIFAR_BYTES = {"train.bin": 50_000 * 3074, "test.bin": 10_000 * 3074}


def cifar100_folder(root: Path = CIFAR100) -> Path:
    """Return the folder of CIFAR-100 below `root`, in its binary or its Python form.

    Raises
    ------
    UserError
        If there is neither, or a file is not as long as the published one.
    """
    binary, python = root / "cifar-100-binary", root / "cifar-100-python"
    if all((python / name).is_file() for name in ("train", "test")):
        return python
    if not all((binary / name).is_file() for name in _CIFAR_BYTES):
        raise UserError(
            f"{root}: has no CIFAR-100: expected the published folder cifar-100-python (train,"
            " test) or cifar-100-binary (train.bin, test.bin) in it"
        )
    for name, expected in _CIFAR_BYTES.items():
        size = (binary / name).stat().st_size
        if size != expected:
            raise UserError(f"{binary / name}: expected {expected} bytes; got {size}")
    return binary


def check(task: str) -> None:
    """Compare the files of a task's data set with the published ones.

    Raises
    ------
    UserError
        Naming the package that brings what is missing or damaged.
    """
    if task == "cifar100":
        cifar100_folder()
    dataset = DATASETS.get(task)
    if dataset is None:
        return
    for name, expected in dataset.files.items():
        path = dataset.folder / name
        if not path.exists():
            raise UserError(f"{path}: is missing; apt-get install {dataset.package} brings it")
        if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise UserError(
                f"{path}: is not the published file; apt-get install --reinstall"
                f" {dataset.package} mends it"
            )
