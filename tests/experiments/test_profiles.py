"""Device profiles: what ships is whole and says where it comes from; what is charged adds up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from torch import nn

import netsenseml
from experiments import profiles
from experiments.__main__ import main
from experiments.accelerator import Accelerator, DeviceProfile
from experiments.errors import UserError
from experiments.flops import Gpu, curve_of, estimate
from experiments.measure import measure
from experiments.methods import is_adaptive
from experiments.profiles import DEVICES, load_profile, needed_mb

SHIPPED = sorted(p.stem for p in DEVICES.glob("*.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profiles_are_whole_and_name_their_source(name: str) -> None:
    data, scale = load_profile(name)
    assert data["kind"] == "estimate"
    assert "TFLOP/s" in data["formula"]
    data.pop("parameters", None)
    profile = DeviceProfile(**data)
    assert profile.backward_share(0) == 0
    assert profile.backward_share(1) == pytest.approx(1)
    assert scale >= 1


def test_encoding_takes_as_long_on_a_smaller_model() -> None:
    full, _ = load_profile("vgg16")
    small, scale = load_profile("vgg16-quarter")
    assert scale == pytest.approx(16, rel=0.01)
    assert small["forward_s"] == full["forward_s"]
    for codec, rate in full["encode_bytes_per_s"].items():
        whole_s = 4 * full["parameters"] / rate
        assert 4 * small["parameters"] / small["encode_bytes_per_s"][codec] == pytest.approx(
            whole_s
        )


def test_the_backward_pass_follows_its_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = DeviceProfile("", "", "", 1.0, 10.0, 0.5, {"default": 1}, {"default": 1},
                            backward_curve=[[0, 0], [0, 0.2], [0.5, 0.3], [1, 1]])  # fmt: skip
    slept: list[float] = []
    monkeypatch.setattr("experiments.accelerator.time.sleep", slept.append)
    accelerator = Accelerator(profile, 100)
    for _ in range(2):  # steps start afresh
        slept.clear()
        accelerator.forward()
        for numel in (50, 25, 25):
            accelerator.backward(numel)
        assert slept == pytest.approx([1.0, 3.0, 3.5, 3.5])
        assert accelerator.take_compute_s() == pytest.approx(11.0)


def test_an_estimate_is_arithmetic() -> None:
    made = estimate("two layers", [(100, 3000), (900, 1000)], 32, Gpu("a GPU", 1e-6, 0.5, 1e-6))
    assert made["forward_s"] == pytest.approx(2 * 4000 * 32 / 0.5e6)
    assert made["backward_s"] == pytest.approx(2 * made["forward_s"])
    assert made["backward_curve"] == [[0.0, 0.0], [0.9, 0.25], [1.0, 1.0]]
    assert made["encode_bytes_per_s"]["fp16"] == pytest.approx(1000 / 3, rel=0.01)
    assert "50% of 1e-06 TFLOP/s" in made["formula"]


def test_a_curve_of_many_layers_is_short() -> None:
    curve = curve_of([(1.0, 1.0)] * 500)
    assert len(curve) <= 26
    assert all(x == pytest.approx(y) for x, y in curve)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"forward_s": None}, "forward_s: is missing"),
        ({"forward_s": -1}, "forward_s: expected a number above 0; got -1"),
        ({"encode_bytes_per_s": {"fp16": 1.0}}, "encode_bytes_per_s: expected a rate for default"),
        ({"kind": "guess"}, "kind: expected estimate or measured; got 'guess'"),
        ({"backward_curve": [[0, 0], [0.5, 2], [1, 1]]}, "backward_curve: expected to rise"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(
    change: dict, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {**load_profile("resnet18")[0], **change}
    data = {key: value for key, value in data.items() if value is not None}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.setattr(profiles, "DEVICES", tmp_path)
    with pytest.raises(UserError, match=f"mine.yaml: {words}"):
        load_profile("mine")


def test_a_profile_with_a_key_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (DEVICES / "resnet18.yaml").read_text() + "forward_s: 1\n"
    (tmp_path / "mine.yaml").write_text(text)
    monkeypatch.setattr(profiles, "DEVICES", tmp_path)
    with pytest.raises(UserError, match=r"mine.yaml: forward_s: the key is there twice, in line"):
        load_profile("mine")


def test_large_models_get_the_memory_they_need() -> None:
    assert needed_mb(474_122, 8, "allreduce") is None
    # eight ranks of all-reduce on VGG16 were seen to take 12 GB; 24 is what a small machine has
    assert 12_000 < needed_mb(138_357_544, 8, "allreduce") < 20_000  # type: ignore[operator]
    assert needed_mb(138_357_544, 8, "topk") > 8 * 4 * 553  # type: ignore[operator]
    # a rank of netsense on half of VGG16 was seen to take 1550 MB
    assert needed_mb(34_600_000, 8, "netsense") > 8 * 1550  # type: ignore[operator]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resnet18", "--device", "estimate", "--tflops", "0"], "--tflops: expected a number"),
        (["resnet18", "--device", "estimate", "--tflops", "nan"], "--tflops: expected a number"),
        (["resnet18", "--device", "estimate", "--memory", "0"], "--memory: expected a number"),
        (["char-gpt", "--side", "64"], "--side 64: char-gpt takes no coloured pictures"),
        (["char-gpt", "--side", "64", "--device", "estimate"], "--side 64: char-gpt takes no"),
        (["fashion-mlp", "--side", "64"], "--side 64: fashion-mlp takes no"),
    ],
)
def test_a_profile_that_cannot_be_made_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "profile.yaml"
    assert main(["profile", *arguments, "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {words}")
    assert said.err.count("\n") == 1
    assert not out.exists()


def test_every_method_but_the_adaptive_ones_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tiny:
        loss = staticmethod(nn.functional.cross_entropy)

        def build_model(self) -> nn.Module:
            return nn.Linear(8, 300)

        def inputs(self, x: torch.Tensor) -> torch.Tensor:
            return x

        def prepare(self) -> SimpleNamespace:
            return SimpleNamespace(train_x=torch.randn(4, 8), train_y=torch.arange(4))

    monkeypatch.setattr("experiments.measure._task", lambda _: Tiny())
    made = measure("tiny", "cpu", 4, repeats=1)
    wanted = {m for m in netsenseml.methods() if not is_adaptive(m)}
    assert set(made["encode_bytes_per_s"]) == wanted | {"default"}
    assert set(made["decode_bytes_per_s"]) == wanted | {"default"}
    assert "dgc" in wanted
