import pytest

from topologies import Flow, SpecError, expand_jobs, expand_traffic, star

NET = star(2, rate_mbps=100, delay_ms=1, extra_hosts=1)


def expand(end_s: float = 100, **more: object) -> list[Flow]:
    entry = {"kind": "iperf3-tcp", "source": "x0", "sink": "h1", **more}
    return expand_traffic([entry], NET, end_s)


def test_one_flow_until_the_end_of_training() -> None:
    assert expand(flows=4) == [Flow(0.0, None, "iperf3-tcp", "x0", "h1", 4)]


def test_regular_bursts() -> None:
    flows = expand(start_s=1, stop_s=8, on_s=2, off_s=1)
    assert [(f.start_s, f.duration_s) for f in flows] == [(1, 2), (4, 2), (7, 1)]


def test_drawn_bursts_depend_on_their_seed_only() -> None:
    def bursts(seed: int) -> list[tuple[float, float | None]]:
        flows = expand(stop_s=60, on_s=2, off_s=1, seed=seed)
        return [(f.start_s, f.duration_s) for f in flows]

    assert bursts(7) == bursts(7)
    assert bursts(7) != bursts(8)
    assert all(length is not None and 1 <= length <= 3 for _, length in bursts(7)[:-1])


def test_flows_of_all_entries_are_sorted() -> None:
    entries = [
        {"kind": "iperf3-tcp", "source": "x0", "sink": "h1", "start_s": 5},
        {"kind": "iperf3-udp", "source": "h0", "sink": "x0", "rate_mbps": 10, "start_s": 2},
    ]
    assert [f.start_s for f in expand_traffic(entries, NET, 10)] == [2, 5]


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"kind": "iperf"}, "0.kind", "iperf3-tcp"),
        ({"kind": "iperf3-udp"}, "0.rate_mbps", "is missing"),
        ({"sink": "h7"}, "0.sink", "no host"),
        ({"sink": "x0"}, "0.sink", "another host"),
        ({"flows": 0}, "0.flows", "1 to 128"),
        ({"on_s": 1, "stop_s": 5}, "0.off_s", "is missing"),
        ({"on_s": 1, "off_s": 1}, "0.stop_s", "is missing"),
        ({"seed": 1}, "0.seed", "means nothing"),
        ({"start_s": 101}, "0.start_s", "after the end"),
        ({"stop_s": 0}, "0.stop_s", "greater than 0"),
        ({"congestion_control": "bbr2"}, "0.congestion_control", "did you mean 'bbr'"),
        ({"congestion_control": "vegas"}, "0.congestion_control", "one of bbr, bic, cubic, dctcp"),
        ({"stop": 5}, "0.stop", "did you mean 'stop_s'"),
        ({"rate_mbps": 0}, "0.rate_mbps", "from 0.001 to 1000000"),
    ],
)
def test_mistakes_are_refused(change: dict[str, object], key: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        expand(**change)
    assert caught.value.key == key
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"hosts": None}, "0.hosts", "at least two hosts; got None"),
        ({"hosts": 5}, "0.hosts", "at least two hosts; got 5"),
        ({"hosts": {"x0": 1, "x1": 2}}, "0.hosts", "at least two hosts"),
        ({"hosts": ["x0", 5]}, "0.hosts", "5 is not free"),
        ({"options": {"ratio": float("nan")}}, "0.options.ratio", "finite number"),
        ({"options": {"ratio": [1]}}, "0.options.ratio", "finite number"),
        ({"options": {1: 1}}, "0.options", "got 1"),
        ({"steps": 10**400}, "0.steps", "whole number from 1"),
    ],
)
def test_mistakes_in_a_job_are_refused(change: dict, key: str, words: str) -> None:
    net = star(2, rate_mbps=100, delay_ms=1, extra_hosts=2)
    entry = {"kind": "training", "hosts": ["x0", "x1"], "method": "topk", **change}
    with pytest.raises(SpecError) as caught:
        expand_jobs([entry], net, 100)
    assert caught.value.key == key
    assert words in caught.value.message
