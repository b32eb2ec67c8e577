import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from fixture_runs import congested_run, small_run, write_cell

from experiments.analysis import remake
from experiments.plots import PLOTS, accuracy, breakdown, step_parts, throughput, write_plots
from experiments.sensing import real_rate, sensing, spans
from experiments.style import style_of


def words(figure: object) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]  # type: ignore[attr-defined]


def end(run_dir: Path, cell: str, **outcome: object) -> None:
    path = run_dir / "cells" / cell / "outcome.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | outcome))


def test_pictures_repeat_byte_for_byte(tmp_path: Path) -> None:
    made = []
    for folder in ("a", "b"):
        run_dir = congested_run(tmp_path / folder, count=30)
        write_plots(remake(run_dir))
        made.append({p.name: p.read_bytes() for p in (run_dir / "plots").iterdir()})
    assert sorted(made[0]) == sorted(f"{name}.{kind}" for name in PLOTS for kind in ("svg", "png"))
    assert made[0] == made[1]


def test_values_and_speedups_stand_beside_the_bars(tmp_path: Path) -> None:
    tables = remake(congested_run(tmp_path, count=40))
    rate = tables.summary.set_index("method")["samples_per_second"]
    figure = throughput(tables)
    assert figure is not None
    shown = words(figure)
    assert f"{rate['allreduce']:,.0f}" in shown
    assert f"{rate['netsense'] / rate['allreduce']:.2f}\u00d7" in shown


def test_cells_that_did_not_end_well_are_shown_as_such(tmp_path: Path) -> None:
    run_dir = congested_run(tmp_path, count=30)
    end(run_dir, "fp16-s0", status="diverged")
    end(run_dir, "powersgd-s0", link_verdict="h0-s0: rate off")
    shutil.rmtree(run_dir / "cells" / "topk-0.1-s0")
    tables = remake(run_dir)
    for draw in (throughput, breakdown):
        figure = draw(tables)
        assert figure is not None
        assert {"diverged", "link not as asked", "not run"} <= set(words(figure))
    figure = accuracy(tables)
    assert figure is not None
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"fp16 (diverged)", "topk-0.1 (not run)", "powersgd (link not as asked)"} <= set(legend)


@pytest.mark.filterwarnings("error")
def test_a_run_that_measured_nothing_still_draws(tmp_path: Path) -> None:
    write_cell(tmp_path, "netsense", steps={0: [], 1: []}, outcome={"status": "failed"})
    assert [plot.name for plot in write_plots(remake(tmp_path))] == ["throughput"]


def test_parts_of_a_step_add_up(tmp_path: Path) -> None:
    parts = step_parts(remake(small_run(tmp_path)), "netsense")
    assert sum(parts.values()) == pytest.approx((100 + 100 + 300 + 400) / 4)
    assert parts["compute"] == pytest.approx(60)
    assert parts["encode + decode"] == 0


def test_the_real_rate_is_that_of_the_slowest_link() -> None:
    links = pd.DataFrame({"t_s": [0, 0, 1, 1], "asked_rate_mbps": [100.0, 25.0, 100.0, None]})
    assert real_rate(links).to_dict("list") == {"t_s": [0, 1], "rate_mbps": [25.0, 100.0]}


def test_overlapping_traffic_is_merged_and_ends_with_the_training() -> None:
    rows = [("flow-start", "a", 1), ("flow-start", "b", 2), ("flow-stop", "a", 3),
            ("flow-stop", "b", 4), ("flow-start", "c", 8), ("flow-start", "d", 99)]  # fmt: skip
    events = pd.DataFrame(rows, columns=["kind", "flow", "actual_s"])
    assert spans(events, 10.0) == [(1, 4), (8, 10)]
    assert spans(pd.DataFrame(), 10.0) == []


def test_there_is_no_sensing_without_an_adaptive_method(tmp_path: Path) -> None:
    run_dir = congested_run(tmp_path, count=10)
    shutil.rmtree(run_dir / "cells" / "netsense-s0")
    assert sensing(remake(run_dir)) is None


def test_styles_are_fixed_and_distinct() -> None:
    known = ["allreduce", "fp16", "topk-0.1", "topk-0.01", "powersgd", "netsense"]
    assert len({style_of(label).colour for label in known}) == 6
    assert len({style_of(label).marker for label in known}) == 6
    assert style_of("my-method") == style_of("my-method")


def test_pictures_need_no_display_and_change_nothing_global(tmp_path: Path) -> None:
    run_dir = small_run(tmp_path)
    code = (
        "import matplotlib, sys; rc = matplotlib.rcParams\n"
        # asking for the backend would choose one
        "now = lambda: {k: rc[k] for k in rc if k != 'backend'}\n"
        "before = now()\n"
        "from experiments.output import make_all; from pathlib import Path\n"
        "make_all(Path(sys.argv[1]))\n"
        "assert now() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    root = Path(__file__).parent.parent.parent
    subprocess.run([sys.executable, "-c", code, str(run_dir)], check=True, timeout=120, cwd=root,
                   env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})  # fmt: skip
