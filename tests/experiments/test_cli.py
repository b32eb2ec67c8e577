import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fixture_runs import congested_run, small_run

from experiments.__main__ import main
from experiments.analysis import remake
from experiments.atomic import point
from experiments.manifest import code_state, new_manifest, update
from experiments.runs import find_run, new_run
from experiments.scenario import load, names

ROOT = Path(__file__).parent.parent.parent


def test_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names()
    assert main(["list", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == names()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "There are: congested"),
        (["run", "congestd"], "did you mean 'congested'"),
        (["run", "no.yaml"], "no.yaml: cannot be read"),
        (["run", "smoke", "--methods", "netsens"], "did you mean 'netsense'"),
        (["run", "smoke", "--seeds", "one"], "--seeds: expected whole numbers"),
        (["run", "smoke", "--seeds", "2147483648"], "--seeds: expected whole numbers below"),
        (["run", "smoke", "--seeds", "1,1"], "--seeds: expected each once"),
        (["run", "smoke", "--steps", "0"], "--steps"),
        (["run", "smoke", "--stps", "1"], "--stps"),
        (["rn"], "rn"),
        (["report", "nothing"], "no run 'nothing'"),
        (["compare", "nothing", "nowhere"], "no run 'nothing'"),
    ],
)
def test_mistakes_are_one_line_and_exit_1(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--results", str(tmp_path)] if arguments[0] != "rn" else []
    assert main([*arguments, *more]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, experiments.__main__ as m; m.main(['run', 'congestd'])\n"
        "heavy = {'pandas', 'matplotlib', 'torch', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_report_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = small_run(tmp_path / "run")
    assert main(["report", str(run_dir)]) == 0
    assert "256" in capsys.readouterr().out
    assert main(["report", str(run_dir), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["cells"][0]["samples_per_second"] == 256
    assert Path(data["paths"]["report"]).exists()


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = congested_run(tmp_path / "a", count=20)
    b = congested_run(tmp_path / "b", count=20)
    c = congested_run(tmp_path / "c", count=40)
    for run_dir in (a, b, c):
        remake(run_dir)
    assert main(["compare", str(a), str(b), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same_summary"] is True
    assert main(["compare", str(a), str(c)]) == 0
    assert "not identical" in capsys.readouterr().out


def test_runs_are_found_by_scenario(tmp_path: Path) -> None:
    run_dir = new_run(tmp_path, "congested", "abcdef0123")
    small_run(run_dir)
    point(run_dir.parent / "latest", run_dir.name)
    assert find_run("congested", tmp_path) == run_dir
    assert find_run(f"congested/{run_dir.name}", tmp_path) == run_dir
    assert new_run(tmp_path, "congested", "abcdef0123") != run_dir


def test_latest_moves_at_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        point(tmp_path / "latest", name)
        assert (tmp_path / "latest").resolve() == tmp_path / name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "one", "two"]


def test_results_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("experiments.harness")
    (tmp_path / "file").write_text("")
    assert main(["run", "smoke", "--results", str(tmp_path / "file")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_the_manifest_holds_what_a_repetition_needs(tmp_path: Path) -> None:
    scenario = load("smoke")
    update(tmp_path, **new_manifest(scenario.resolved(), scenario.digest(), "make it"))
    update(tmp_path, wall_s=1.5)
    data = json.loads((tmp_path / "manifest.json").read_text())
    assert data["scenario"] == scenario.resolved()
    assert data["digest"] == scenario.digest()
    assert data["wall_s"] == 1.5
    assert data["versions"]["python"]
    assert data["cores"] == len(os.sched_getaffinity(0))


def test_the_state_of_the_code(tmp_path: Path) -> None:
    state = code_state()
    if state["commit"] is None:
        pytest.skip("not a git checkout")
    assert len(state["commit"]) == 40
    assert (state["diff_sha256"] is not None) == state["dirty"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_stopped_cleans_up(
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stopped(scenario: object, folder: Path) -> None:
        (folder / "half").touch()
        signal.raise_signal(number)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("experiments.harness.start_seconds", stopped)
    assert main(["bench"]) == 130
    assert not list(tmp_path.iterdir())
    # the one line after that of the progress
    assert capsys.readouterr().err.splitlines()[1:] == ["interrupted"]
