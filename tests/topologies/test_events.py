from pathlib import Path

import pytest

from topologies import Fault, LinkEvent, SpecError, expand_events, star

NET = star(3, rate_mbps=100, delay_ms=1)


def expand(end_s: float = 100, **entry: object) -> list[LinkEvent | Fault]:
    return expand_events([entry], NET, end_s)


def rates(events: list[LinkEvent | Fault]) -> list[tuple[float, float]]:
    assert all(isinstance(e, LinkEvent) for e in events)
    return [(e.at_s, e.changes["rate_mbps"]) for e in events]  # type: ignore[union-attr]


def test_a_pattern_names_several_links() -> None:
    events = expand(at_s=2, links="h[12]-s0", rate_mbps=10, loss_pct=1)
    assert events == [
        LinkEvent(2.0, name, {"rate_mbps": 10.0, "loss_pct": 1.0}) for name in ("h1-s0", "h2-s0")
    ]


def test_events_are_sorted_and_ties_keep_their_order() -> None:
    entries = [
        {"at_s": 5, "links": "h0-s0", "rate_mbps": 5},
        {"at_s": 1, "links": "h0-s0", "rate_mbps": 1},
        {"at_s": 5, "links": "h0-s0", "rate_mbps": 6},
    ]
    assert rates(expand_events(entries, NET, 10)) == [(1, 1), (5, 5), (5, 6)]


def test_ramp() -> None:
    made = expand(
        kind="ramp", links="h0-s0", field="rate_mbps", start_s=1, stop_s=2, every_s=0.25,
        from_value=100, to_value=20,
    )  # fmt: skip
    assert rates(made) == [(1, 100), (1.25, 80), (1.5, 60), (1.75, 40), (2, 20)]


@pytest.mark.parametrize(
    ("stop_s", "expected"),
    [
        (11, [(1, 5), (3, 9), (6, 5), (8, 9)]),
        (7, [(1, 5), (3, 9), (6, 5), (7, 9)]),  # cut short, yet ends high
        (2, [(1, 5), (2, 9)]),
    ],
)
def test_square_ends_high(stop_s: float, expected: list[tuple[float, float]]) -> None:
    made = expand(
        kind="square", links="h0-s0", field="rate_mbps", start_s=1, stop_s=stop_s, low=5,
        low_s=2, high=9, high_s=3,
    )  # fmt: skip
    assert rates(made) == expected


def test_walk_depends_on_its_seed_only() -> None:
    def walk(seed: int) -> list[tuple[float, float]]:
        return rates(
            expand(
                kind="walk", links="h0-s0", field="rate_mbps", start_s=0, stop_s=20, every_s=0.5,
                from_value=50, low=20, high=80, step_pct=30, seed=seed,
            )
        )  # fmt: skip

    assert walk(1) == walk(1)
    assert walk(1) != walk(2)
    assert all(20 <= rate <= 80 for _, rate in walk(1))
    assert len({rate for _, rate in walk(1)}) > 20


def test_trace_repeats_and_holds_a_least_rate(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time_s,rate_mbps\n0,10\n1,0\n2,30\n")
    entry = {"kind": "trace", "links": "h0-s0", "file": "t.csv", "start_s": 2, "stop_s": 6.5}
    events = expand_events([entry], NET, 10, tmp_path)
    assert rates(events) == [(2, 10), (3, 0.1), (4, 30), (5, 10), (6, 0.1)]


def test_partition_cuts_and_heals() -> None:
    made = expand(kind="partition", nodes=["h0", "h1"], at_s=1, until_s=3)
    assert made == [
        LinkEvent(1.0, "h0-s0", {"up": False}),
        LinkEvent(1.0, "h1-s0", {"up": False}),
        LinkEvent(3.0, "h0-s0", {"up": True}),
        LinkEvent(3.0, "h1-s0", {"up": True}),
    ]


def test_faults() -> None:
    assert expand(kind="rank-killed", host="h1", at_s=4) == [Fault(4.0, "rank-killed", "h1")]
    paused = expand(kind="host-paused", host="h2", at_s=4, duration_s=2)
    assert paused == [Fault(4.0, "host-paused", "h2", 2.0)]


@pytest.mark.parametrize(
    ("entry", "key", "words"),
    [
        ({"at_s": 101, "links": "h0-s0", "up": False}, "0.at_s", "after the end"),
        ({"at_s": 1, "links": "h9-s0", "up": False}, "0.links", "did you mean"),
        ({"at_s": 1, "links": "h0-s0"}, "0", "changes nothing"),
        ({"at_s": 1, "links": "h0-s0", "rate_mbps": 0}, "0.rate_mbps", "from 0.001 to 1000000"),
        ({"at_s": 1, "links": "h0-s0", "up": 0}, "0.up", "true or false"),
        ({"at_s": -1, "links": "h0-s0", "up": True}, "0.at_s", "at least 0"),
        ({"at_s": 1, "links": "h0-s0", "rate": 5}, "0.rate", "did you mean 'rate_mbps'"),
        ({"at_s": 1, "links": "h0-s0", "up": True, "sender": "h1"}, "0.sender", "h0 or s0"),
        ({"kind": "squar", "links": "h0-s0"}, "0.kind", "did you mean 'square'"),
        ({"kind": "host-paused", "host": "h0", "at_s": 1}, "0.duration_s", "is missing"),
        ({"kind": "rank-killed", "host": "h7", "at_s": 1}, "0.host", "with a rank (h0, h1, h2)"),
        ({"kind": "partition", "nodes": ["h0"], "at_s": 3, "until_s": 2}, "0.until_s", "than 3"),
        ({"kind": "trace", "links": "h0-s0", "file": "no", "stop_s": 3}, "0.file", "cannot read"),
        ({"kind": "trace", "links": "h0-s0", "file": None, "stop_s": 3}, "0.file", "got None"),
        ({"kind": "trace", "links": "h0-s0", "file": "\0", "stop_s": 3}, "0.file", "cannot read"),
        ({"at_s": 10**400, "links": "h0-s0", "up": True}, "0.at_s", "at least 0"),
        ("down", "0", "expected a mapping"),
    ],
)
def test_mistakes_are_refused(entry: object, key: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        expand_events([entry], NET, 100)
    assert caught.value.key == key
    assert words in caught.value.message


@pytest.mark.parametrize("host", ["s0", "x0", ["h0"], None])
@pytest.mark.parametrize("kind", ["rank-killed", "host-paused"])
def test_faults_are_for_hosts_with_a_rank(kind: str, host: object) -> None:
    net = star(2, rate_mbps=100, delay_ms=1, extra_hosts=1)
    entry = {"kind": kind, "host": host, "at_s": 1}
    entry |= {"duration_s": 1} if kind == "host-paused" else {}
    with pytest.raises(SpecError) as caught:
        expand_events([entry], net, 10)
    assert caught.value.key == "0.host"
    assert "expected a host with a rank (h0, h1)" in caught.value.message


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"at_s": 1, "rate_mbps": 4e-7}, "rate_mbps"),
        ({"kind": "ramp", "every_s": 1, "from_value": 5, "to_value": 4e-7}, "to_value"),
        ({"kind": "square", "low": 4e-7, "low_s": 1, "high": 2, "high_s": 1}, "low"),
        ({"kind": "walk", "every_s": 1, "from_value": 5, "low": 4e-7, "high": 9, "step_pct": 5,
          "seed": 1}, "low"),
        ({"kind": "trace", "file": "t.csv", "start_s": 1, "stop_s": 3, "least_mbps": 4e-7},
         "least_mbps"),
    ],
)  # fmt: skip
def test_rates_that_tc_takes_for_no_limit_are_refused(
    entry: dict, key: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("time_s,rate_mbps\n0,1\n")
    more = {"field": "rate_mbps", "start_s": 1, "stop_s": 3}
    entry = entry if entry.get("kind") in (None, "trace") else {**more, **entry}
    with pytest.raises(SpecError, match=r"from 0\.001 to 1000000") as caught:
        expand_events([{"links": "h0-s0", **entry}], NET, 10, tmp_path)
    assert caught.value.key == f"0.{key}"


def test_a_runaway_expansion_is_refused() -> None:
    with pytest.raises(SpecError, match="at most"):
        expand(
            end_s=1e9, kind="ramp", links="h0-s0", field="rate_mbps", start_s=0, stop_s=1e8,
            every_s=0.001, from_value=1, to_value=2,
        )  # fmt: skip
