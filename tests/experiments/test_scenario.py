import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.errors import UserError
from experiments.methods import method_names
from experiments.scenario import SCENARIOS, load, names

CONGESTED = yaml.safe_load((SCENARIOS / "congested.yaml").read_text())


def write(folder: Path, data: object) -> Path:
    path = folder / "mine.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return path


def changed(where: str, value: Any) -> dict[str, Any]:
    """Return the congested scenario with one value changed; ``…`` deletes, a list extends."""
    data = copy.deepcopy(CONGESTED)
    *path, last = where.split(".")
    inner = data
    for key in path:
        inner = inner[key]
    if value is ...:
        del inner[last]
    elif isinstance(value, tuple):
        inner[last] += value
    else:
        inner[last] = value
    return data


@pytest.mark.parametrize("name", names())
def test_every_shipped_scenario_loads(name: str) -> None:
    scenario = load(name)
    assert scenario.name == name
    assert len(scenario.cells()) == len(scenario.methods) * len(scenario.seeds)
    assert len(scenario.description) > 20
    json.dumps(scenario.resolved(), allow_nan=False)


def test_congested_is_what_it_says() -> None:
    scenario = load("congested")
    assert [cell.key for cell in scenario.cells()] == [
        "allreduce-s0", "fp16-s0", "topk-0.1-s0", "topk-0.01-s0", "powersgd-s0", "netsense-s0",
    ]  # fmt: skip
    assert scenario.network.queue_bytes("h0-s0", "s0") == 65536
    assert scenario.network.bdp_bytes("h0-s0") == 50_000
    drops = [e for e in scenario.changes if e.to_dict()["changes"]["rate_mbps"] == 25]
    assert len(drops) == 4
    assert len(scenario.flows) > 10


def test_resolved_writes_everything_out(tmp_path: Path) -> None:
    data = load(write(tmp_path, CONGESTED)).resolved()
    assert data["topology"]["links"][0]["queue"] == {"bytes": 65536}
    assert data["events"][0]["at_s"] == 4
    assert data["traffic"][0]["duration_s"] > 0
    assert data["workload"]["weight_decay"] == 0
    assert data["methods"][0] == {"label": "allreduce", "name": "allreduce", "options": {}}
    assert list(data) == sorted(data)


def test_the_digest_follows_meaning_not_spelling(tmp_path: Path) -> None:
    first = load(write(tmp_path, CONGESTED)).digest()
    reordered = dict(reversed(CONGESTED.items()))
    assert load(write(tmp_path, reordered)).digest() == first
    explicit = changed("workload.weight_decay", 0)
    assert load(write(tmp_path, explicit)).digest() == first
    slower = changed("topology.delay_ms", 2)
    assert load(write(tmp_path, slower)).digest() != first


def test_labels_default_to_name_and_options(tmp_path: Path) -> None:
    data = changed("methods", [{"name": "topk", "options": {"ratio": 0.5}}, "fp16"])
    assert [c.label for c in load(write(tmp_path, data)).cells()] == ["topk-0.5", "fp16"]


def test_narrowed() -> None:
    scenario = load("congested").narrowed(methods=["netsense"], seeds=[3, 4], steps=10)
    assert [c.key for c in scenario.cells()] == ["netsense-s3", "netsense-s4"]
    assert (scenario.workload.steps, scenario.workload.eval_every) == (10, 10)
    assert scenario.name == "congested"
    with pytest.raises(UserError, match="did you mean 'netsense'"):
        load("congested").narrowed(methods=["netsens"])


def test_a_trace_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time_s,rate_mbps\n0,10\n1,20\n")
    entry = {"kind": "trace", "links": "h*-s0", "file": "t.csv", "stop_s": 2}
    data = changed("events", [entry])
    assert len(load(write(tmp_path, data)).changes) == 8


def test_timeout_has_a_default() -> None:
    assert load("congested").end_s == 600
    assert load("static-100m").end_s == 3600


def test_unknown_scenarios_suggest_the_nearest() -> None:
    with pytest.raises(UserError) as caught:
        load("congestd")
    assert "did you mean 'congested'" in str(caught.value)
    assert "smoke" in str(caught.value)


MISTAKES = [
    ("bandwith_mbps", 10, "bandwith_mbps: unknown key"),
    (
        "topology.bandwith_mbps",
        10,
        "bandwith_mbps: unknown key; did you mean 'rate_mbps'",
    ),
    ("rate_mbps", 10, "rate_mbps: unknown key; 'rate_mbps' belongs under topology"),
    ("batch_size", 10, "batch_size: unknown key; 'batch_size' belongs under workload"),
    ("workload.seeds", [1], "workload.seeds: unknown key; 'seeds' belongs at the top level"),
    ("workload.step", 10, "workload.step: unknown key; did you mean 'steps'"),
    ("workload.steps", 1.5, "workload.steps: expected a"),
    ("workload.steps", "many", "workload.steps: expected a whole number; got 'many'"),
    ("workload.steps", 0, "workload.steps: expected greater than or equal to 1"),
    ("workload.lr", float("nan"), "workload.lr: expected a finite number"),
    ("workload.lr", 0, "workload.lr: expected greater than 0"),
    ("workload.optimizer", "sdg", "workload.optimizer: expected 'sgd' or 'adam'; got 'sdg'"),
    ("workload.eval_every", 10_000, "workload.eval_every: expected at most steps"),
    ("workload", ..., "workload: is missing"),
    ("workload.task", "fashion-cn", "workload.task: no 'fashion-cn'; did you mean 'fashion-cnn'"),
    ("workload.device", "resnet", "workload.device: no 'resnet'; did you mean 'resnet18'"),
    ("world_size", 1, "world_size: expected"),
    ("world_size", True, "world_size: expected a whole number"),
    ("clock", "cpu", "clock: expected 'virtual' or 'real'"),
    ("backend", "mininet", "backend: expected 'auto', 'guest', 'guest-real', 'host' or 'cluster'"),
    ("backend", "host", "clock: expected real with backend: host"),
    ("topology", ..., "topology: is missing"),
    ("seeds", [], "seeds: expected at least one entry"),
    ("seeds", [0, 0], "seeds.1: 0 is used twice"),
    ("target_accuracy", 75, "target_accuracy: expected"),
    ("topology.rate_mbps", 0, "topology.rate_mbps: expected a number from 0.001"),
    ("topology.loss_pct", 120, "topology.loss_pct: expected a number from 0 to 100 percent"),
    ("topology.builder", "strar", "did you mean 'star'"),
    ("topology", "star", "topology: expected a mapping"),
    ("events", ({"at_s": 700, "links": "h0-s0", "up": True},), "events.2.at_s: 700 s is after"),
    ("events", ({"at_s": 7, "links": "h9-s0", "up": True},), "events.2.links: no link matches"),
    ("events", (5,), "events.2: expected a mapping"),
    ("traffic", ({"kind": "iperf3-tcp", "source": "x0", "sink": "x7"},), "traffic.2.sink"),
    ("methods", ("netsens",), "methods.6: no method 'netsens'; did you mean 'netsense'"),
    ("methods", ("fp16",), "methods.6.label: 'fp16' is used twice"),
    ("methods", (3,), "methods.6: expected a method's name"),
    ("methods", ({"name": "topk", "option": {}},), "methods.6.option: unknown key"),
    (
        "methods",
        ({"name": "topk", "options": {"r": [1]}},),
        "methods.6.options.r: expected a finite num",
    ),
    (
        "methods",
        ({"name": "topk", "options": {"r": float("inf")}},),
        "options.r: expected a finite",
    ),
    ("workload.steps", 2**40, "workload.steps: expected less than or equal to 2147483647"),
    ("topology.rate_mbps", 2**63, "topology.rate_mbps: expected a number from 0.001"),
    ("methods", ({"name": "topk", "label": "a/b"},), "methods.6.label: expected"),
]


@pytest.mark.parametrize(("where", "value", "words"), MISTAKES, ids=[m[2] for m in MISTAKES])
def test_mistakes_are_one_line_with_file_and_key(
    tmp_path: Path, where: str, value: Any, words: str
) -> None:
    with pytest.raises(UserError) as caught:
        load(write(tmp_path, changed(where, value)))
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'mine.yaml'}: ")
    assert words in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [1", "line 2 is not YAML"), ("- 1", "expected a mapping"), ("", "expected a mapping")],
)
def test_files_that_are_no_scenario(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load(write(tmp_path, text + "\n"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("seeds: [0]", "seeds: the key is there twice, in line"),
        ("topology: {builder: star, builder: ring}", "builder: the key is there twice, in line"),
        ("segmentation: [2000-13-01]", "no value can be '2000-13-01'"),
        ("segmentation: [!!bool x]", "no value can be 'x'"),
        ("segmentation: [1" + "0" * 400 + "]", "no value can be '1000"),
        ("segmentation: [1" + "0" * 5000 + "]", "no value can be '1000"),
        ("segmentation: " + "[" * 5000, "is nested too deeply"),
    ],
    ids=lambda text: text[:30],
)
def test_what_yaml_itself_would_let_pass_or_fail_on(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        load(write(tmp_path, (SCENARIOS / "congested.yaml").read_text() + more + "\n"))
    assert str(caught.value).startswith(f"{tmp_path / 'mine.yaml'}: ")
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_merged_key_may_be_overridden(tmp_path: Path) -> None:
    text = (SCENARIOS / "congested.yaml").read_text()
    assert "events:\n" in text
    text = text.partition("events:\n")[0] + (
        "events:\n"
        "  - &drop {at_s: 4, links: 'h*-s0', rate_mbps: 25}\n"
        "  - {<<: *drop, at_s: 8, rate_mbps: 50}\n"
        "workload: {task: fashion-mlp, batch_size: 8, steps: 4, device: resnet18}\n"
        "methods: [fp16]\n"
    )
    assert [e.at_s for e in load(write(tmp_path, text)).changes] == [4.0] * 4 + [8.0] * 4


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "no.yaml")


def test_method_names_are_those_of_the_library() -> None:
    library = pytest.importorskip("netsenseml")
    if not hasattr(library, "methods"):
        pytest.skip("the library has no methods yet")
    assert method_names() == sorted(library.methods())


@pytest.mark.parametrize("name", names())
def test_the_library_accepts_the_options_of_shipped_scenarios(name: str) -> None:
    library = pytest.importorskip("netsenseml")
    if not hasattr(library, "options"):
        pytest.skip("the library has no methods yet")
    for cell in load(name).cells():
        library.options(cell.method)(**cell.options)
