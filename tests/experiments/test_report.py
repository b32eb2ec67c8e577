import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fixture_runs import congested_run, small_run, write_cell

from experiments.analysis import RunTables
from experiments.output import exit_code, make_all, run_json
from experiments.overview import headline, overview


class Tags(HTMLParser):
    """Collects tags, ids, and addresses that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        for name in ("src", "href", "xlink:href", "data"):
            if values.get(name) and not str(values[name]).startswith("#"):
                self.fetched.append(f"{tag} {values[name]}")


def page_of(run_dir: Path) -> tuple[str, RunTables]:
    tables, paths = make_all(run_dir)
    return paths["report"].read_text(), tables


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RunTables]:
    run_dir = congested_run(tmp_path_factory.mktemp("run"), seeds=(0, 1, 2), count=40)
    return page_of(run_dir)


def test_the_page_fetches_nothing(whole: tuple[str, RunTables]) -> None:
    tags = Tags()
    tags.feed(whole[0])
    assert tags.fetched == []
    assert "url(http" not in whole[0]
    assert "<script" not in whole[0]
    assert len(tags.ids) == len(set(tags.ids))


def test_references_inside_pictures_resolve(whole: tuple[str, RunTables]) -> None:
    tags = Tags()
    tags.feed(whole[0])
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', whole[0]))
    assert {a or b for a, b in used} <= set(tags.ids)
    assert used


def test_the_page_says_what_the_tables_say(whole: tuple[str, RunTables]) -> None:
    page, tables = whole
    assert headline(tables) in page
    for row in overview(tables):
        assert f"{row.samples_per_second:,.0f}" in page
        assert row.gain is None or f"{row.gain.median:.2f}\u00d7" in page
    assert page.count("<svg") == 5
    assert "all 18 cells" in page


def test_no_nan_anywhere(tmp_path: Path) -> None:
    rows = [{"step": i, "t_start_s": i, "t_end_s": i + 1, "samples": 1, "loss": float("nan")}
            for i in range(5)]  # fmt: skip
    write_cell(tmp_path, "netsense", steps={0: rows})
    write_cell(tmp_path, "fp16", steps={0: []}, outcome={"status": "failed", "reason": "no <b>"})
    page, tables = page_of(tmp_path)
    text = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert not re.search(r"\b(nan|none|inf|NaT|&lt;NA&gt;)\b", text, flags=re.IGNORECASE)
    assert "no &lt;b&gt;" in page
    json.dumps(run_json(tables, {}), allow_nan=False)
    assert exit_code(tables) == 2


def test_what_a_reader_must_know_is_said(tmp_path: Path) -> None:
    run_dir = congested_run(tmp_path, count=30)
    for cell, change in (
        ("fp16-s0", {"status": "timeout", "reason": "rank 2 waited in all_reduce"}),
        ("topk-0.1-s0", {"replicas_identical": False}),
        ("powersgd-s0", {"link_verdict": "h0-s0: rate 9 % below asked"}),
    ):
        path = run_dir / "cells" / cell / "outcome.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    page, tables = page_of(run_dir)
    assert "1 of 6 cells did not end well: 1 timeout" in page
    assert "rank 2 waited in all_reduce" in page
    assert "topk-0.1: the ranks ended with different parameters" in page
    assert "powersgd seed 0: link not as asked: h0-s0: rate 9 % below asked" in page
    assert exit_code(tables) == 2


def test_a_method_that_never_compressed_is_named(tmp_path: Path) -> None:
    run_dir = small_run(tmp_path)
    for rank in (0, 1):
        path = run_dir / "cells" / "netsense-s0" / f"steps-rank{rank}.jsonl"
        path.write_text(path.read_text().replace('"wire_bytes": 2000', '"wire_bytes": 4000'))
    assert "netsense: never compressed anything" in page_of(run_dir)[0]


def test_the_headline_is_careful(tmp_path: Path) -> None:
    assert "only method" in headline(page_of(small_run(tmp_path / "a"))[1])
    run_dir = congested_run(tmp_path / "b", count=20)
    (run_dir / "cells" / "netsense-s0" / "outcome.json").unlink()
    assert headline(page_of(run_dir)[1]) == "netsense has no valid result here: failed."
