"""The reproduction: what is asked of it, and what its page and document say of known numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fixture_reproduction import COMPUTE_S, SHARE, comm_s, reproduction_run

from experiments.claims import claims, spread
from experiments.reproduce import METHODS, NETWORKS, reproduction
from experiments.reproduction import BASELINES, CONSTRAINED, Reproduction
from experiments.reproduction_page import write_document, write_page
from experiments.sweep_tables import remake_sweep


def found(folder: Path) -> Reproduction:
    return Reproduction(remake_sweep(folder))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    return found(reproduction_run(tmp_path_factory.mktemp("whole")))


@pytest.mark.parametrize("quick", [True, False])
def test_every_cell_has_eight_ranks_and_one_configuration_per_method(quick: bool) -> None:
    sweep = reproduction(quick)
    options: dict[str, set[str]] = {}
    for variation in sweep.variations:
        assert variation.scenario.world_size == 8
        for cell in variation.scenario.cells():
            options.setdefault(cell.label, set()).add(str((cell.method, cell.options)))
    assert all(len(seen) == 1 for seen in options.values())
    assert options["netsense"] == {str(("netsense", {}))}


def test_the_full_run_has_every_method_on_every_network() -> None:
    seen: dict[tuple[object, object], set[str]] = {}
    for variation in reproduction(False).variations:
        if variation.axes["part"] == "throughput":
            labels = {cell.label for cell in variation.scenario.cells()}
            place = (variation.axes["model"], variation.axes["network"])
            seen[place] = seen.get(place, set()) | labels
    assert seen == {(m, n): set(METHODS) for m in ("resnet18", "vgg16") for n in NETWORKS}


def test_networks_are_scaled_by_one_factor() -> None:
    for variation in reproduction(True).variations:
        network, factor = NETWORKS[str(variation.axes["network"])], float(variation.axes["factor"])
        link = variation.scenario.resolved()["topology"]["links"][0]
        assert link["rate_mbps"] * factor == pytest.approx(network.rate_mbps, rel=1e-3)
        assert link["delay_ms"] == network.delay_ms
        rates = [e["rate_mbps"] * factor for e in variation.scenario.events]
        assert rates == pytest.approx(list(network.falls_to), rel=1e-3)


def test_no_cell_is_left_out_of_the_speed_ups(whole: Reproduction) -> None:
    gains = whole.gains(BASELINES, CONSTRAINED)
    rows = whole.cells[whole.cells["method"].isin(BASELINES)]
    beside = [p for p in whole.places if whole.value(p, "netsense", "step_ms")]
    places = list(zip(rows["model"], rows["network"], strict=True))
    assert len(gains) == sum(p[1] in CONSTRAINED and p in beside for p in places)
    one = COMPUTE_S["resnet18"]
    slow, fast = (one + comm_s("resnet18", "200m", m) for m in ("qsgd", "netsense"))
    assert gains["resnet18, 200 Mbit/s, over qsgd"] == pytest.approx(slow / fast, rel=1e-3)


def test_every_bar_is_there_and_says_met_or_missed(whole: Reproduction) -> None:
    listed = {claim.claim: claim for claim in claims(whole)}
    assert listed["Efficiency of netsense, resnet18, 200 Mbit/s"].holds is True
    assert listed["Largest speed-up over TopK-0.1"].holds is True
    assert listed["VGG16 at 500 Mbit/s over dense all-reduce"].holds is True
    assert listed["Scaling by similarity, vgg16, 500 Mbit/s"].holds is True
    assert listed["Best time to accuracy, 500 Mbit/s"].holds is True
    assert listed["At 10 Gbit/s against dense, resnet18"].holds is True
    assert all(claim.holds is not None for claim in listed.values())


def test_bars_are_missed_when_the_numbers_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHARE, "netsense", 3.0)
    listed = {c.claim: c for c in claims(found(reproduction_run(tmp_path, ratio=1.1)))}
    missed = {claim for claim, c in listed.items() if c.holds is False}
    assert len(missed) == len(listed) - 1  # the replicas are still identical
    assert "10.0% apart" in listed["Scaling by similarity, resnet18, 200 Mbit/s"].ours


def test_what_has_not_run_is_not_measured(tmp_path: Path) -> None:
    folder = reproduction_run(tmp_path, without="/netsense")
    listed = claims(found(folder))
    assert {c.verdict for c in listed if "netsense" in c.claim} == {"not measured"}
    text = write_document(found(folder), tmp_path / "document.md").read_text()
    assert "cells have not run" in text
    assert not re.search(r"\bnan\b", text)


FAILED = {"status": "failed", "reason": "a rank died", "replicas_identical": None}
SLOWEST = "Throughput over compression-enabled systems, smallest"
FASTEST = "In every cell fastest or within 5 % of it"
SAME = "Replicas stay identical"


@pytest.mark.parametrize(
    ("cell", "outcome", "said", "spoilt"),
    [
        ("throughput-resnet18-half/200m/qsgd", FAILED, "failed", {SLOWEST, FASTEST, SAME}),
        ("throughput-resnet18-half/200m/qsgd", {"status": "diverged"}, "diverged",
         {SLOWEST, FASTEST, SAME}),
        ("throughput-resnet18-half/200m/qsgd", {"link_verdict": "off"}, "link not as asked",
         {SLOWEST, FASTEST, SAME}),
        ("throughput-resnet18/200m/netsense", FAILED, "failed", {SLOWEST, FASTEST, SAME}),
        ("accuracy-fashion-cnn/500m/allreduce", FAILED, "failed",
         {"Best time to accuracy, 500 Mbit/s", SAME}),
        ("proof-vgg16/500m/allreduce", FAILED, "failed",
         {"Scaling by similarity, vgg16, 500 Mbit/s", SAME}),
    ],
)  # fmt: skip
def test_a_cell_without_a_value_is_named_and_meets_nothing(
    cell: str, outcome: dict[str, object], said: str, spoilt: set[str], tmp_path: Path
) -> None:
    tables = found(reproduction_run(tmp_path, ended={cell: outcome}))
    assert cell in tables.gaps()[0]
    listed = {claim.claim: claim for claim in claims(tables)}
    for claim in spoilt:
        assert listed[claim].holds is not True
        assert re.search(rf"{cell}\S*-s0 \({said}\)", listed[claim].ours), listed[claim].ours


def test_replicas_that_differ_are_a_miss_even_where_others_are_unknown(tmp_path: Path) -> None:
    ended = {"200m/qsgd": FAILED, "200m/fp16": {"replicas_identical": False}}
    listed = {c.claim: c for c in claims(found(reproduction_run(tmp_path, ended=ended)))}
    assert listed[SAME].verdict == "missed"


def test_the_document_holds_every_claim(whole: Reproduction, tmp_path: Path) -> None:
    text = write_document(whole, tmp_path / "one.md").read_text()
    for claim in claims(whole):
        assert f"| {claim.claim} | {claim.wanted} | {claim.ours} |" in text
    assert "**An estimate.** 3 x 2 x MAC" in text
    tables = re.findall(r"^\|.*\|\n\|[-| ]+\|\n", text, re.MULTILINE)
    assert len(tables) == 5
    assert "None" not in text


def test_the_page_stands_alone(whole: Reproduction) -> None:
    page = write_page(whole).read_text()
    assert page.count("<svg") >= 4
    assert "An estimate" in page
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*', page)


def test_a_spread_counts_what_it_is_of() -> None:
    assert spread([3.0, 1.0, 2.0]) == "1.00 / 2.00 / 3.00 (n = 3)"
    assert spread([]) == "not measured"


def test_a_method_that_was_not_evaluated_in_time_has_no_accuracy(whole: Reproduction) -> None:
    place = whole.learning_places[0]
    at_s, best = whole.best_at_equal_time(place)
    assert at_s is not None
    early = whole.tables.evals[whole.tables.evals["t_s"] <= at_s]["method"]
    assert {m for m, value in best.items() if value is not None} <= set(early)
    assert best["allreduce"] is None  # its first evaluation comes after netsense's last
