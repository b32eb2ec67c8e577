import shutil
from pathlib import Path

import pytest

import experiments.identity
from experiments.harness import resolve_cell
from experiments.identity import Identities, code_files
from experiments.scenario import load


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the code, which identities are then told from."""
    skip = shutil.ignore_patterns("__pycache__")
    for room in ("netsenseml", "topologies", "testbed", "experiments"):
        shutil.copytree(experiments.identity.ROOT / room, tmp_path / room, ignore=skip)
    monkeypatch.setattr(experiments.identity, "ROOT", tmp_path)
    return tmp_path


def digest() -> str:
    scenario = load("smoke")
    return Identities().digest(resolve_cell(scenario, scenario.cells()[0]))


def test_it_repeats_wherever_the_code_lies(tmp_path: Path, copy: Path) -> None:
    there = digest()
    assert there == digest()
    assert len(there) == 20
    (copy / "netsenseml" / "__pycache__").mkdir()
    (copy / "netsenseml" / "__pycache__" / "hook.pyc").write_bytes(b"x")
    assert digest() == there


@pytest.mark.parametrize(
    "name",
    [
        "netsenseml/codecs/topk.py",
        "topologies/spec.py",
        "testbed/cell.py",
        "testbed/net.py",
        "testbed/init.sh",
        "testbed/launcher.py",
        "experiments/rank.py",
        "experiments/accelerator.py",
        "experiments/workloads/fashion_cnn.py",
    ],
)
def test_code_that_matters_makes_new_cells(copy: Path, name: str) -> None:
    before = digest()
    with (copy / name).open("a") as file:
        file.write("\n# edited\n")
    assert digest() != before


@pytest.mark.parametrize(
    "name",
    [
        "experiments/plots.py",
        "experiments/report.py",
        "experiments/sweep.py",
        "experiments/commands/run.py",
        "experiments/scenarios/congested.yaml",
        "testbed/doctor.py",
        "testbed/setup.py",
    ],
)
def test_code_that_does_not_matter_makes_none(copy: Path, name: str) -> None:
    before = digest()
    with (copy / name).open("a") as file:
        file.write("\n# edited\n")
    assert digest() == before


def test_a_new_codec_counts_though_nothing_imports_it(copy: Path) -> None:
    before = digest()
    (copy / "netsenseml" / "codecs" / "mine.py").write_text("METHOD = None\n")
    assert digest() != before


def test_an_import_within_a_function_counts(copy: Path) -> None:
    (copy / "experiments" / "more.py").write_text("VALUE = 1\n")
    rank = copy / "experiments" / "rank.py"
    rank.write_text(rank.read_text() + "\n\ndef f():\n    from . import more\n")
    assert "experiments/more.py" in code_files("experiments.rank", ["fashion-cnn"])


def test_kernel_schema_and_versions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest()
    for name, value in (
        ("RECORDS_SCHEMA", 2),
        ("versions", lambda: {"python": "3.0"}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(experiments.identity, name, value)
            assert digest() != before
    known = Identities()
    scenario = load("smoke")
    spec = resolve_cell(scenario, scenario.cells()[0])
    assert known.digest(spec) == before
    known.kernel = "other"
    assert known.digest(spec) != before
