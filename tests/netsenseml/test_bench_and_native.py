"""The benchmark reports what it promises; the C++ kernel equals its fallback."""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

from netsenseml import native
from netsenseml.__main__ import main
from netsenseml.codecs.half import CHUNK
from netsenseml.codecs.int8 import dequantize, quantize


def test_bench_prints_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETSENSEML_NATIVE", "0")  # a build would take a minute
    assert main(["bench", "--json", "--numel", "300000", "--repeats", "3"]) == 0
    (result, *_) = json.loads(capsys.readouterr().out)["results"]
    assert result["index_bits_at_1_percent"] <= 12
    names = {row["name"] for row in result["comparisons"]}
    assert {"topk encode 0.01", "fp16 encode", "int8 encode", "sign encode"} <= names
    assert all(row["seconds"] > 0 for row in result["comparisons"])


def test_bench_refuses_nonsense(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--numel", "5"]) == 1
    assert "--numel must be at least" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bnch"], "invalid choice: 'bnch'"),
        (["bench", "--numel", "many"], "--numel: invalid int value"),
        (["bench", "--fast"], "--fast"),
        ([], "verb"),
    ],
)
def test_a_mistyped_command_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert says in said.err


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    assert "TopKOptions(ratio=0.1" in capsys.readouterr().out


def blocks_of_everything() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(256 * 40, generator=generator)
    source[:256] = 0
    source[256] = float("inf")
    source[512] = float("nan")
    source[768:1024] *= 1e-42
    source[1024:1280] = torch.arange(-128, 128) * 0.5  # ties
    return source


def test_quantizing_is_within_half_a_code() -> None:
    source = blocks_of_everything()[768:]
    scales, codes = torch.empty(37), torch.empty(source.numel(), dtype=torch.int8)
    quantize(source, 256, scales, codes, torch.empty(CHUNK))
    back = dequantize(scales, codes, 256, torch.empty_like(source))
    error = (back - source).view(-1, 256).abs().amax(1)
    assert bool((error <= 0.5001 * scales + 1e-40).all())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_native_equals_fallback(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built anew beside the lock file of an interrupted build, which torch would wait for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native._folder().mkdir(parents=True)
    (native._folder() / "lock").touch()
    code = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from test_bench_and_native import blocks_of_everything
from netsenseml.codecs.fp16 import Fp16
from netsenseml.codecs.int8 import quantize
from netsenseml.codecs.signs import l1_norm, sign_bits
from netsenseml.native import kernels
source = blocks_of_everything()
scales, codes = torch.empty(40), torch.empty(source.numel(), dtype=torch.int8)
quantize(source, 256, scales, codes, torch.empty(1 << 16))
print(scales.view(torch.int32).tolist(), codes.tolist())
source[512] = -0.0
source[513:515] = torch.tensor([7e4, 65520.0])
for scale, subtract in ((1.0, True), (2.0**13 / 3, True), (2.0**-9, True), (0.25, False)):
    left, wire = source[:10001].clone(), torch.empty(10001, dtype=torch.float16)
    Fp16(rescale=True).round(left, wire, scale, torch.empty(1 << 16), subtract=subtract)
    print(wire.view(torch.int16).tolist(), left.view(torch.int32).tolist())
for numel in (1, 7, 64, 1023, 1025, 9001, source.numel()):
    part = source[:numel] if numel < 9000 else source.repeat(30)[:30 * numel]
    numel = part.numel()
    negative, packed = torch.empty(numel, dtype=torch.bool), torch.empty((numel + 7) // 8,
                                                                        dtype=torch.uint8)
    sign_bits(part, negative, packed)
    finite = part.nan_to_num(posinf=3.0)
    print(negative.tolist(), packed.tolist(), l1_norm(finite).item().hex())
    exact = finite.double().abs().sum().item()
    assert abs(l1_norm(finite).item() - exact) <= 1e-6 * exact
print(kernels() is not None, file=sys.stderr)
"""
    outputs = []
    for asked in ("0", "1"):
        environment = {**os.environ, "NETSENSEML_NATIVE": asked}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, os.path.dirname(__file__)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=True,
        )
        assert done.stderr.splitlines()[-1] == str(asked == "1")
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]


def test_training_never_compiles(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty cache there are no kernels, and none are built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NETSENSEML_NATIVE", raising=False)
    native.kernels.cache_clear()
    try:
        assert native.kernels() is None
        assert list(tmp_path.iterdir()) == []
    finally:
        native.kernels.cache_clear()


@pytest.mark.parametrize(
    ("asked", "code", "says"),
    [
        ([["topk", {"ratio": 0.1}], ["netsense", {}]], 0, ""),
        ([["topk", {"ratio": 3}]], 1, "TopKOptions.ratio = 3: must be in (0, 1]"),
        ([["topk", {"ration": 0.1}]], 1, "did you mean"),
    ],
)
def test_options_are_checked(
    asked: list[object],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
    assert main(["check"]) == code
    assert says in capsys.readouterr().out
