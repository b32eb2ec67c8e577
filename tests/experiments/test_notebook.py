"""The tidy table of everything measured, and the notebook over it, on a stored real sweep."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fixture_runs import congested_run

from experiments.__main__ import main
from experiments.analysis import load, remake
from experiments.commands.notebook import NOTEBOOK
from experiments.errors import UserError
from experiments.tidy import COLUMNS, tidy

SAMPLE = Path(__file__).parent / "sample_sweep"


def test_a_sweep_becomes_a_row_per_cell() -> None:
    cells = load(SAMPLE)
    assert list(cells.columns[: len(COLUMNS)]) == list(COLUMNS)
    assert len(cells) == 6
    assert set(cells["rate_mbps"]) == {30, 1000}
    dense = cells[cells["method"] == "allreduce"]
    assert list(dense["over_dense"]) == [1, 1]
    slow = cells[(cells["method"] == "netsense") & (cells["rate_mbps"] == 30)].iloc[0]
    assert slow["over_dense"] == pytest.approx(824.274 / 97.970)
    # two ranks, 32 samples each
    assert slow["efficiency"] == pytest.approx(0.060 / (64 / 824.274), rel=1e-3)


def test_a_run_and_a_sweep_share_one_table(tmp_path: Path) -> None:
    run = remake(congested_run(tmp_path / "congested" / "one", count=20)).run_dir
    outcome = run / "cells" / "fp16-s0" / "outcome.json"
    outcome.write_text(json.dumps(json.loads(outcome.read_text()) | {"status": "diverged"}))
    remake(run)
    cells = tidy([run, SAMPLE])
    assert list(cells["run"].unique()) == ["fixture", "quick"]
    bad = cells[~cells["valid"]]
    assert list(bad["method"]) == ["fp16"]
    assert math.isnan(bad["efficiency"].iloc[0])


def test_nothing_to_load_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run yet; make experiment"):
        tidy(results=tmp_path)


def test_the_notebook_is_committed_without_outputs() -> None:
    book = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 6
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


def test_the_notebook_runs_on_the_sample(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    out = tmp_path / "done.ipynb"
    # in a process of its own: what the kernel's client leaves open is not for a later test
    command = [sys.executable, "-m", "experiments", "notebook", str(SAMPLE), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cells = [c for c in json.loads(out.read_text())["cells"] if c["cell_type"] == "code"]
    pictures = [
        sum("image/png" in output.get("data", {}) for output in cell["outputs"]) for cell in cells
    ]
    assert sum(pictures) >= 5
    tables = ["text/html" in o.get("data", {}) for o in cells[-1]["outputs"]]
    assert any(tables)  # the question has an answer
    assert not [o for cell in cells for o in cell["outputs"] if o["output_type"] == "error"]


def test_a_run_that_is_not_there_is_told_before_a_kernel_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = pytest.importorskip("nbclient")
    monkeypatch.setattr(client, "NotebookClient", None)  # not callable: an error of its own
    assert main(["notebook", "nowhere"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no run 'nowhere'")


def test_a_cell_that_fails_is_one_line_without_colours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = pytest.importorskip("nbclient")
    from nbclient.exceptions import CellExecutionError

    def fails(self: object, **options: object) -> None:
        text = "Traceback\n\x1b[31mKeyError\x1b[39m: 'rate'"
        raise CellExecutionError(text, "KeyError", "'rate'")

    monkeypatch.setattr(client.NotebookClient, "execute", fails)
    assert main(["notebook", str(SAMPLE), "--out", str(tmp_path / "done.ipynb")]) == 1
    assert capsys.readouterr().err == "error: results/analysis.ipynb: KeyError: 'rate'\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("CellTimeoutError", "a cell took more than 7 s; --timeout-s allows more"),
        ("DeadKernelError", "its kernel died"),
    ],
)
def test_a_kernel_that_does_not_answer_is_one_line(
    error: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = pytest.importorskip("nbclient")
    from nbclient import exceptions

    def fails(self: object, **options: object) -> None:
        raise getattr(exceptions, error)("several\nlines")

    monkeypatch.setattr(client.NotebookClient, "execute", fails)
    out = tmp_path / "done.ipynb"
    assert main(["notebook", str(SAMPLE), "--timeout-s", "7", "--out", str(out)]) == 1
    assert capsys.readouterr().err == f"error: results/analysis.ipynb: {words}\n"
    assert not out.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["start", "cell"])
def test_stopped(moment: str, number: int, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    run, temporary = tmp_path / "run", tmp_path / "tmp"
    shutil.copytree(SAMPLE, run)
    temporary.mkdir()
    table = run / "summary.csv"
    table.unlink()
    os.mkfifo(table)  # a cell that reads it waits for its end
    held = []
    command = [sys.executable, "-m", "experiments", "notebook", str(run)]
    started = subprocess.Popen(
        [*command, "--out", str(tmp_path / "done.ipynb")],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def reached() -> bool:
        if moment == "start":
            return bool(list(temporary.glob("notebook-*/kernel.json")))
        try:
            held.append(os.open(table, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody reads yet
            return False
        return True

    deadline = time.monotonic() + 60
    while not reached():
        assert started.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started.send_signal(number)
    assert started.communicate(timeout=60) == ("", "interrupted\n")
    for descriptor in held:
        os.close(descriptor)
    assert started.returncode == 130
    assert not list(temporary.iterdir())
    assert not (tmp_path / "done.ipynb").exists()
