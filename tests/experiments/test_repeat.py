import copy
import json
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main
from experiments.manifest import new_manifest
from experiments.repeat import changes_since, first_difference, read_run_manifest
from experiments.scenario import load

SUMMARY = ["method,seed,status,step_ms_p50", "fp16,0,ok,100.0000", "netsense,0,ok,"]


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    scenario = load("smoke")
    manifest = new_manifest(scenario.resolved(), scenario.digest(), "make it")
    records = {"outcome.json": "a", "steps-rank0.jsonl": "b"}
    return manifest | {"summary": SUMMARY, "cells": {"fp16-s0": {"records": records}}, "wall_s": 1}


@pytest.fixture
def manifest(made: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(made)


def stored(folder: Path, manifest: dict[str, Any]) -> Path:
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest))
    return path


def test_a_manifest_holds_what_a_repetition_needs(made: dict[str, Any], tmp_path: Path) -> None:
    path = stored(tmp_path, made)
    assert read_run_manifest(path) == read_run_manifest(tmp_path) == json.loads(path.read_text())
    assert made["packages"]["torch"]
    assert made["programs"]["tc"]
    assert made["seeds"] == [0]
    assert "testbed/cell.py" in made["code"]
    assert made["guest_kernel"]


def test_nothing_changed_is_nothing_told(manifest: dict[str, Any]) -> None:
    assert changes_since(manifest, manifest) == []
    assert first_difference(manifest, manifest) is None


def test_what_changed_is_told_beforehand(made: dict[str, Any], manifest: dict[str, Any]) -> None:
    manifest["git"] = {"commit": "f" * 40, "diff_sha256": "e" * 64}
    manifest["code"]["netsenseml/hook.py"] = "other"
    manifest["versions"]["torch"] = manifest["packages"]["torch"] = "9.9"
    manifest["cpu"] = "abacus"
    told = "\n".join(changes_since(made, manifest))
    assert "commit: " in told
    assert "ffffffffff now" in told
    assert "uncommitted changes: " in told
    assert "code that runs in cells: netsenseml/hook.py" in told
    assert told.count("9.9 now") == 1
    assert "processor: " in told


def test_another_commit_with_the_same_code_says_so(
    made: dict[str, Any], manifest: dict[str, Any]
) -> None:
    manifest["git"]["commit"] = "f" * 40
    assert "the code that runs in cells: the same" in changes_since(made, manifest)


@pytest.mark.parametrize(
    ("summary", "records", "words"),
    [
        (["fp16,0,ok,100.0001"], {}, "fp16 seed 0: step_ms_p50: 100.0000 then, 100.0001 now"),
        (["fp16,0,ok,100.0000", "netsense,0,failed,"], {}, "netsense seed 0: status: ok then"),
        (["fp16,0,ok,100.0000", "netsense,0,ok,1"], {}, "step_ms_p50: nothing then, 1 now"),
        (["fp16,0,ok,100.0000"], {}, "2 cells then, 1 now"),
        (SUMMARY[1:], {"steps-rank0.jsonl": "c"}, "fp16-s0: steps-rank0.jsonl is not the same"),
    ],
)
def test_the_first_difference_is_named(
    made: dict[str, Any],
    manifest: dict[str, Any],
    summary: list[str],
    records: dict[str, str],
    words: str,
) -> None:
    manifest["summary"] = [SUMMARY[0], *summary]
    manifest["cells"]["fp16-s0"]["records"] |= records
    assert words in (first_difference(made, manifest) or "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sweep": {"name": "x"}}, "is a sweep's"),
        ({"scenario": None}, "it holds no scenario"),
        ({"digest": "0" * 64}, "was edited"),
        ({"summary": ...}, "the run did not end"),
    ],
)
def test_manifests_that_cannot_be_repeated(
    manifest: dict[str, Any],
    changes: dict[str, Any],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest |= changes
    path = stored(tmp_path, {k: v for k, v in manifest.items() if v is not ...})
    results = tmp_path / "results"
    assert main(["run", "--from", str(path), "--results", str(results)]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not results.exists()


@pytest.mark.parametrize(
    ("text", "words"), [("{", "is not JSON"), ("[]", "expected a run's"), (None, "cannot be read")]
)
def test_files_that_are_no_manifest(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "manifest.json"
    if text is not None:
        path.write_text(text)
    assert main(["run", "--from", str(path), "--results", str(tmp_path / "results")]) == 1
    assert words in capsys.readouterr().err


def test_an_older_schema_needs_the_code_of_its_time(
    manifest: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest["scenario"]["schema"] = 0
    assert main(["run", "--from", str(stored(tmp_path, manifest))]) == 1
    assert "scenario.schema: expected 1; got 0" in capsys.readouterr().err


def test_from_takes_no_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "smoke", "--from", "manifest.json"]) == 1
    assert "SCENARIO: expected none with --from" in capsys.readouterr().err
