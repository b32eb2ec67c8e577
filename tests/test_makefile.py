"""The front door: what `make` says and what it refuses before anything is set up."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACT = "help setup doctor experiment sweep reproduce report notebook bench test lint clean"


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *words], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout in which nothing was ever set up."""
    for name in ("Makefile", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for room in ("experiments", "testbed"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / room, tmp_path / room, ignore=skip)
    return tmp_path


def test_help_lists_every_target_in_one_screen() -> None:
    done = make(ROOT)
    assert done.returncode == 0
    listed = re.findall(r"^  ([a-z]+) ", done.stdout, re.MULTILINE)
    assert listed == CONTRACT.split()
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("", "SCENARIO=… is missing; there are: congested"),
        ("congestd", "did you mean 'congested'?"),
        ("zzz", "no scenario 'zzz' (there are: congested"),
        ("no.yaml", "no.yaml: no such file"),
        ("a'b; echo gone", "no scenario 'a'b; echo gone'"),
    ],
)
def test_a_wrong_scenario_is_refused_before_the_set_up(
    bare: Path, scenario: str, words: str
) -> None:
    done = make(bare, "experiment", f"SCENARIO={scenario}")
    ours, theirs = done.stderr.splitlines()
    assert words in ours
    assert ours.startswith("error: ")
    assert theirs.endswith("Error 1")  # make's own word on the status
    assert done.stdout == ""
    assert not (bare / ".venv").exists()
    assert not (bare / "results").exists()


def test_a_python_that_is_not_there_is_one_line(bare: Path) -> None:
    done = make(bare, "setup", "PYTHON=python9")
    assert done.returncode != 0
    assert done.stderr.splitlines()[0].startswith("error: no python9 here")


def test_a_wrong_sweep_is_refused_before_the_set_up(bare: Path) -> None:
    for name, words in (("quik", "did you mean 'quick'?"), ("", "SWEEP=… is missing; there are:")):
        done = make(bare, "sweep", f"SWEEP={name}")
        assert done.returncode != 0
        assert words in done.stderr.splitlines()[0]
        assert not (bare / ".venv").exists()


def test_clean_removes_what_was_made_and_nothing_else(bare: Path) -> None:
    for made in (".venv", ".pytest_cache", "build", "testbed/__pycache__"):
        (bare / made).mkdir()
    kept = bare / "results" / "congested"
    kept.mkdir(parents=True)
    (kept / "summary.csv").touch()
    before = {p for p in bare.rglob("*") if "__pycache__" not in p.parts}
    assert make(bare, "clean").returncode == 0
    gone = before - set(bare.rglob("*"))
    assert {p.name for p in gone} == {".venv", ".pytest_cache", "build"}
