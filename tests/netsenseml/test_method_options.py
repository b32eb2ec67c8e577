"""Names and options are checked, and the message says what would be right."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

import netsenseml
from netsenseml.methods import find
from netsenseml.options import build_options

EXPECTED = {
    "allreduce", "fp16", "bf16", "int8", "topk", "randomk", "threshold", "dgc", "powersgd",
    "qsgd", "terngrad", "signsgd", "onebit", "netsense-paper", "netsense", "lowrank",
    "oktopk",
}  # fmt: skip


def test_all_methods_are_there() -> None:
    assert set(netsenseml.methods()) == EXPECTED


@pytest.mark.parametrize("method", sorted(EXPECTED))
def test_options_are_frozen_documented_and_refuse_illegal_values(method: str) -> None:
    kind = netsenseml.options(method)
    chosen = kind()
    assert kind.__doc__
    assert find(method).build(chosen).codecs()
    for item in dataclasses.fields(kind):
        assert item.name in kind.__doc__ or item.name == "error_feedback"
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(chosen, item.name, None)
        if "high" in item.metadata:
            beyond = item.metadata["high"] * 2 + 1
            with pytest.raises(ValueError, match=rf"{item.name} = .*must be in [\[(].*\]"):
                kind(**{item.name: beyond})
            with pytest.raises(ValueError, match="must be in"):
                kind(**{item.name: item.metadata["low"] - 1})
            with pytest.raises(TypeError, match="must be a"):
                kind(**{item.name: "1"})
        elif "names" in item.metadata:
            with pytest.raises(ValueError, match="must be one of"):
                kind(**{item.name: "nonsense"})
        else:
            with pytest.raises(TypeError, match="True or False"):
                kind(**{item.name: 1})


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no method 'topkk', did you mean 'topk'\?"):
        netsenseml.options("topkk")
    with pytest.raises(TypeError, match=r"no option 'ration', did you mean 'ratio'\?"):
        build_options(netsenseml.options("topk"), {"ration": 0.1}, "topk")


def test_paper_ratios_must_be_in_order() -> None:
    with pytest.raises(ValueError, match="start_ratio"):
        netsenseml.options("netsense-paper")(start_ratio=0.001)


def test_import_is_light() -> None:
    code = (
        "import sys, netsenseml; netsenseml.methods(); "
        "print([m for m in ('torch._dynamo', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.strip() == "[]"
