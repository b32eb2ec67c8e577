"""Data sets on disk, checked before anything starts; ranks never download."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from .errors import UserError

__all__ = ["DATASETS", "Dataset", "check"]


@dataclass(frozen=True)
class Dataset:
    """Where a data set lies, what brings it, and the SHA-256 of each file."""

    folder: Path
    package: str
    files: dict[str, str]


#: By task. Fashion-MNIST: Xiao, Rasul and Vollgraf, arXiv 1708.07747.
DATASETS = {
    "fashion-cnn": Dataset(
        Path("/usr/share/datasets/fashion-mnist"),
        "dataset-fashion-mnist",
        {
            "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",  # noqa: E501
            "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",  # noqa: E501
            "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",  # noqa: E501
            "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",  # noqa: E501
        },
    ),
}


def check(task: str) -> None:
    """Compare the files of a task's data set with the published ones.

    Raises
    ------
    UserError
        Naming the package that brings what is missing or damaged.
    """
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
