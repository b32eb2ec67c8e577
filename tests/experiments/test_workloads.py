"""Workloads: the networks are what they say, smaller ones keep the shape of the larger."""

from __future__ import annotations

import importlib
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from experiments import datasets, rank
from experiments.errors import UserError
from experiments.workloads import cifar100

TASKS = sorted(p.stem for p in Path(cifar100.__file__).parent.glob("[a-z]*.py"))
FULL = {"resnet18": 11_689_512, "vgg16": 138_357_544, "gpt2_small": 124_439_808}


def task(name: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"experiments.workloads.{name}")


def numels(name: str) -> list[int]:
    with torch.device("meta"):
        return [p.numel() for p in task(name).build_model().parameters()]


@pytest.mark.parametrize("name", TASKS)
def test_parameters_are_as_stated(name: str) -> None:
    assert sum(numels(name)) == task(name).PARAMETERS
    assert FULL.get(name, task(name).PARAMETERS) == task(name).PARAMETERS


@pytest.mark.parametrize(
    ("small", "full", "narrower"),
    [
        ("resnet18_half", "resnet18", 2),
        ("resnet18_quarter", "resnet18", 4),
        ("vgg16_half", "vgg16", 2),
        ("vgg16_quarter", "vgg16", 4),
        ("vgg16_eighth", "vgg16", 8),
    ],
)
def test_a_smaller_network_keeps_every_layers_share(small: str, full: str, narrower: int) -> None:
    few, many = numels(small), numels(full)
    assert len(few) == len(many)
    for a, b in zip(few, many, strict=True):
        if b > 0.01 * sum(many):  # biases and the first layer do not shrink with the square
            assert b / a == pytest.approx(narrower**2, rel=0.001)
    assert sum(many) / sum(few) == pytest.approx(narrower**2, rel=0.02)


@pytest.mark.parametrize("name", ["char_gpt", "fashion_mlp", "resnet18_quarter", "vgg16_eighth"])
def test_a_batch_gives_every_parameter_a_gradient(name: str) -> None:
    module = task(name)
    if name in datasets.DATASETS and not datasets.DATASETS[name].folder.exists():
        pytest.skip("needs dataset-fashion-mnist")
    data = module.prepare()
    model = module.build_model()
    module.loss(model(module.inputs(data.train_x[:32])), data.train_y[:32]).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    only_speed = name.startswith(("resnet", "vgg"))
    assert len(data.test_x) == len(data.test_y)
    assert (len(data.test_x) == 0) == only_speed


def test_text_windows_are_shifted_by_one_and_split() -> None:
    data = task("_text").windows(bytes(range(100)), 9)
    assert data.train_x[0].tolist() == list(range(9))
    assert data.train_y[0].tolist() == list(range(1, 10))
    assert (len(data.train_x), len(data.test_x)) == (10, 1)


def rows(count: int) -> tuple[np.ndarray, list[int]]:
    draw = np.random.default_rng(0)
    return draw.integers(0, 256, (count, 3072), dtype=np.uint8), [i % 100 for i in range(count)]


def test_cifar_in_its_python_form(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    pixels, labels = rows(20)
    for name in ("train", "test"):
        content = {b"data": pixels, b"fine_labels": labels}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    data = cifar100.prepare(tmp_path)
    assert data.train_x.shape == (20, 3, 32, 32)
    assert data.train_y.tolist() == labels
    (folder / "train").write_bytes(pickle.dumps({b"data": Path("x")}))
    with pytest.raises(UserError, match="is no file of CIFAR-100's Python version: it asks for"):
        cifar100.prepare(tmp_path)


def test_cifar_in_its_binary_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    pixels, labels = rows(20)
    raw = np.concatenate([np.zeros((20, 1)), np.array(labels)[:, None], pixels], 1)
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(raw.astype(np.uint8).tobytes())
    with pytest.raises(UserError, match="expected 153700000 bytes; got 61480"):
        cifar100.prepare(tmp_path)
    monkeypatch.setattr(datasets, "_CIFAR_BYTES", dict.fromkeys(("train.bin", "test.bin"), 61480))
    data = cifar100.prepare(tmp_path)
    assert data.train_y.tolist() == labels
    assert torch.equal(data.train_x.view(20, -1), torch.from_numpy(pixels))


def test_cifar_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no CIFAR-100: expected the published folder") as said:
        cifar100.prepare(tmp_path)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(("clock", "said"), [("virtual", "0"), ("real", None)])
def test_native_kernels_are_off_only_where_results_must_repeat(
    clock: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank, "_warm_up", lambda *_: None)
    monkeypatch.setattr(rank, "_task", lambda _: SimpleNamespace(prepare=lambda: None))
    monkeypatch.delenv("NETSENSEML_NATIVE", raising=False)
    threads = torch.get_num_threads()
    try:
        rank.prepare({"clock": clock})
        assert os.environ.get("NETSENSEML_NATIVE") == said
    finally:
        torch.set_num_threads(threads)
        os.environ.pop("NETSENSEML_NATIVE", None)
