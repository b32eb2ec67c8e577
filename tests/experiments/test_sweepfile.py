import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.errors import UserError
from experiments.scenario import load as load_scenario
from experiments.sweepfile import BASE, Sweep, Variation, load, names

GOOD = {
    "description": "Two rates and two sizes",
    "scenarios": ["smoke"],
    "set": {"workload.steps": 4, "seeds": [0, 1]},
    "grid": {"topology.rate_mbps": [30, 100], "world_size": [2, 4]},
}


def sweep(folder: Path, **changes: Any) -> Sweep:
    data = {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return load(path)


@pytest.mark.parametrize("name", names())
def test_every_shipped_sweep_loads(name: str) -> None:
    found = load(name)
    assert len(found.description) > 20
    assert found.variations


def test_rates_covers_what_it_says() -> None:
    rates = [v.scenario.topology["rate_mbps"] for v in load("rates").variations]
    assert (min(rates), max(rates)) == (30, 10_000)
    for variation in load("rates").variations:
        for link in variation.scenario.network.links:
            queue = variation.scenario.network.queue_bytes(link, link.a)
            assert queue > 0.5 * variation.scenario.network.bdp_bytes(link, link.a)


def test_the_example_in_the_documentation_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    path = tmp_path / "example.yaml"
    path.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    found = load(path)
    assert len(found.variations) == 2 * 2 + 1
    assert found.axes == ["world_size", "network", "topology.rate_mbps", "topology.delay_ms"]


def test_a_grid_is_every_combination_in_order(tmp_path: Path) -> None:
    found = sweep(tmp_path)
    assert [v.name for v in found.variations] == [
        "rate_mbps=30,world_size=2",
        "rate_mbps=30,world_size=4",
        "rate_mbps=100,world_size=2",
        "rate_mbps=100,world_size=4",
    ]
    last = found.variations[-1]
    assert last.key == "smoke/rate_mbps=100,world_size=4"
    assert last.axes == {"topology.rate_mbps": 100, "world_size": 4}
    assert last.scenario.world_size == 4
    assert last.scenario.workload.steps == 4
    assert last.scenario.seeds == [0, 1]
    assert last.scenario.name == "smoke"
    assert found.axes == ["topology.rate_mbps", "world_size"]


def test_named_values_change_several_keys(tmp_path: Path) -> None:
    grid = {"net": {"slow": {"topology.rate_mbps": 30, "topology.delay_ms": 9}, "asis": {}}}
    slow, asis = sweep(tmp_path, grid=grid).variations
    assert slow.name == "net=slow"
    assert slow.axes == {"net": "slow", "topology.rate_mbps": 30, "topology.delay_ms": 9}
    assert asis.axes == {"net": "asis"}
    methods = {"methods": {"one": ["fp16"], "two": ["fp16", "netsense"]}}
    found = sweep(tmp_path, grid=methods).variations
    assert [len(v.scenario.methods) for v in found] == [1, 2]


def test_a_list_of_variations_beside_or_without_a_grid(tmp_path: Path) -> None:
    more = [{"name": "far", "set": {"topology.delay_ms": 50}}]
    assert [v.name for v in sweep(tmp_path, grid={}, variations=more).variations] == ["far"]
    assert len(sweep(tmp_path, variations=more).variations) == 5
    plain = sweep(tmp_path, grid=...).variations
    assert [v.name for v in plain] == [BASE]


def test_options_of_a_method_are_changed_by_its_label(tmp_path: Path) -> None:
    topk = {"name": "topk", "label": "topk-0.1", "options": {"ratio": 0.1}}
    common = {"methods": ["netsense", topk]}
    grid = {"methods.topk-0.1.options.ratio": [0.1, 0.2]}
    found = sweep(tmp_path, set=common, grid=grid).variations
    assert [v.scenario.arms[1].options["ratio"] for v in found] == [0.1, 0.2]
    assert [v.scenario.arms[1].label for v in found] == ["topk-0.1"] * 2
    found = sweep(tmp_path, set={}, grid={"methods.netsense.options.max_k": [5]}).variations
    assert found[0].scenario.arms[1].options == {"max_k": 5}


def test_several_scenarios(tmp_path: Path) -> None:
    found = sweep(tmp_path, scenarios=["smoke", "static-100m"], set={}, grid={"seeds.0": [7]})
    assert [v.key for v in found.variations] == ["smoke/0=7", "static-100m/0=7"]
    assert found.variations[1].scenario.seeds == [7]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"scenarios": ["smok"]}, "did you mean 'smoke'"),
    ({"scenarios": []}, "scenarios: expected at least one entry"),
    ({"scenarios": ["smoke", "smoke"]}, "scenarios.1: 'smoke' is there twice"),
    ({"gird": {}}, "gird: unknown key; did you mean 'grid'"),
    ({"description": ...}, "description: is missing"),
    ({"set": {"topolgy.rate_mbps": 1}}, "has no key 'topolgy'; did you mean 'topology'"),
    ({"set": {"workload.step": 4}}, "workload.step: unknown key; did you mean 'steps'"),
    ({"grid": {"topology.rate_mbps": [-1]}}, "topology.rate_mbps: expected a number from 0.001"),
    ({"grid": {"topology.rate_mbps": []}}, "grid.topology.rate_mbps: expected at least one value"),
    ({"grid": {"topology.rate_mbps": 5}}, "grid.topology.rate_mbps: expected a list of values"),
    ({"grid": {"seeds": [[0], [1]]}}, "grid.seeds.0: expected a number, a text, true or false"),
    ({"grid": {"methods.topk.options.ratio": [1]}}, "no method labelled 'topk'; valid: allreduce"),
    ({"grid": {"methods": {"a b": []}}}, "grid.methods.a b: expected a name of letters"),
    ({"grid": {"seeds.5": [1]}}, "expected a number from 0 to 1 for '5'"),
    ({"grid": {"world_size.x": [1]}}, "there is no"),
    (
        {"grid": {"net": {1: {}}}},
        "grid.net.1: expected a name of letters",
    ),
    ({"grid": {"net": {"one": {1: 2}}}}, "grid.1: expected a path such as topology.rate_mbps"),
    ({"grid": {1: [2]}}, "grid: expected keys that are texts; got 1"),
    ({"grid": {"world_size": [{datetime.date.max: 1}]}}, "grid.world_size.0: expected a number"),
    ({"set": {"methods": [5], "methods.fp16.label": "x"}}, "no method is described by 5"),
    ({"variations": [{"set": {}}]}, "variations.0.name: is missing"),
    ({"grid": {}, "variations": [{"name": "a"}, {"name": "a"}]}, "'smoke/a' is there twice"),
]


@pytest.mark.parametrize(("changes", "words"), MISTAKES, ids=[m[1] for m in MISTAKES])
def test_mistakes_are_one_line(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        sweep(tmp_path, **changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(GOOD, sort_keys=False) + "set: {}\n")
    with pytest.raises(UserError, match=r"mine\.yaml: set: the key is there twice, in line \d"):
        load(path)


def test_a_variation_that_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        sweep(tmp_path, grid={"world_size": [2, 1]})
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'mine.yaml'}: scenario smoke, variation world_size=1: ")
    assert "world_size: expected greater than or equal to 2; got 1" in text


def test_sweeps_made_in_code() -> None:
    smoke = load_scenario("smoke")
    made = Sweep("two", "made in code", [Variation(smoke, "a"), Variation(smoke, "b")])
    assert [v.key for v in made.variations] == ["smoke/a", "smoke/b"]
    with pytest.raises(UserError, match="there twice"):
        Sweep("two", "made in code", [Variation(smoke), Variation(smoke)])
    with pytest.raises(UserError, match="at least one"):
        Sweep("none", "made in code", [])


def test_unknown_sweeps_suggest_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'quick'"):
        load("quik")
