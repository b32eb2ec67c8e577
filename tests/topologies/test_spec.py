import pytest

from topologies import GilbertElliott, Host, Link, Queue, SpecError, Switch, Topology, star


def link(a: str, b: str, **more: object) -> dict[str, object]:
    return {"a": a, "b": b, "rate_mbps": 10, "delay_ms": 1, **more}


def graph(*links: dict[str, object], hosts: int = 2, **more: object) -> dict[str, object]:
    names = [f"h{i}" for i in range(hosts)]
    return {"hosts": names, "switches": ["s0"], "links": list(links), **more}


def test_delay_is_one_way_and_per_link() -> None:
    net = star(4, rate_mbps=100, delay_ms=15)
    assert net.rtt_ms("h0", "h3") == 60
    assert [(k.name, sender) for k, sender in net.path("h0", "h3")] == [
        ("h0-s0", "h0"),
        ("h3-s0", "s0"),
    ]


def test_bandwidth_delay_product() -> None:
    net = star(2, rate_mbps=100, delay_ms=10)  # 40 ms round trip
    assert net.bdp_bytes("h0-s0") == 500_000
    assert net.queue_bytes("h0-s0", "h0") == 500_000


def test_queue_in_each_unit() -> None:
    sizes = [
        star(2, rate_mbps=100, delay_ms=10, queue=queue).queue_bytes("h0-s0", "s0")
        for queue in ({"bytes": 65536}, {"packets": 10}, {"bdp": 0.5}, Queue(bdp=0.001))
    ]
    assert sizes == [65536, 15140, 250_000, 2 * 1514]


def test_directions_may_differ() -> None:
    net = Topology.from_dict(
        graph(
            link("h0", "s0", reverse={"rate_mbps": 1, "queue": {"packets": 5}}), link("h1", "s0")
        )
    )
    assert net.bottleneck_mbps("h0", "h1") == 10
    assert net.bottleneck_mbps("h1", "h0") == 1
    first = net.link("h0-s0")
    assert [(a, b, s.rate_mbps, s.queue) for a, b, s in first.directions()] == [
        ("h0", "s0", 10, Queue(bdp=1.0)),
        ("s0", "h0", 1, Queue(packets=5)),
    ]


def test_round_trip_through_plain_data() -> None:
    loss = {"kind": "gilbert-elliott", "p_pct": 1, "r_pct": 25}
    net = Topology.from_dict(
        graph(
            link("h0", "s0", loss_model=loss, jitter_ms=0.5, jitter_keeps_order=False),
            link("h1", "s0", reverse={"delay_ms": 3, "loss_pct": 1}),
        )
    )
    assert Topology.from_dict(net.to_dict()) == net
    assert net.link("h0-s0").loss_model == GilbertElliott(1, 25)


def test_mean_loss_of_bursts() -> None:
    assert GilbertElliott(p_pct=1, r_pct=24).mean_loss_pct == pytest.approx(4.0)


def test_longest_round_trip_counts_for_the_queue_of_a_shared_link() -> None:
    data = {
        "hosts": ["h0", "h1", "h2"],
        "switches": ["s0", "s1"],
        "links": [link("h0", "s0", delay_ms=1), link("h1", "s0", delay_ms=5),
                  link("s0", "s1", delay_ms=10), link("h2", "s1", delay_ms=2)],
    }  # fmt: skip
    net = Topology.from_dict(data)
    assert net.bdp_bytes("s0-s1") == round(10e6 / 8 * 2 * 17e-3)  # h1 to h2
    with_stp = Topology.from_dict({**data, "stp": True})
    assert with_stp.bdp_bytes("s0-s1") == net.bdp_bytes("s0-s1")


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"rate_mbps": 0}, "links.0.rate_mbps", "from 0.001 to 1000000"),
        ({"rate_mbps": "100 Mbit"}, "links.0.rate_mbps", "expected a number"),
        ({"rate_mbps": float("nan")}, "links.0.rate_mbps", "expected a number"),
        ({"rate_mbps": True}, "links.0.rate_mbps", "expected a number"),
        ({"loss_pct": 120}, "links.0.loss_pct", "0 to 100 percent"),
        ({"delay_ms": -1}, "links.0.delay_ms", "0 to 60000 ms"),
        ({"jitter_ms": 2}, "links.0.jitter_ms", "at most delay_ms"),
        ({"bandwith_mbps": 10}, "links.0.bandwith_mbps", "did you mean 'rate_mbps'"),
        ({"queue": {"bytes": 5, "bdp": 1}}, "links.0.queue", "exactly one"),
        ({"queue": {"byte": 5}}, "links.0.queue.byte", "did you mean 'bytes'"),
        ({"queue": {"bytes": 5}}, "links.0.queue.bytes", "from 1514"),
        ({"reverse": {"loss_pct": -1}}, "links.0.reverse.loss_pct", "0 to 100"),
        ({"reverse": {"lossy": 1}}, "links.0.reverse.lossy", "unknown key"),
        ({"loss_model": {"kind": "gilbert"}}, "links.0.loss_model.kind", "gilbert-elliott"),
        ({"b": "s9"}, "links.0.b", "did you mean 's0'"),
        ({"b": "h0"}, "links.0.b", "another node"),
    ],
)
def test_impossible_links_are_refused(change: dict[str, object], key: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        Topology.from_dict(graph(link("h0", "s0") | change, link("h1", "s0")))
    assert caught.value.key == key
    assert words in caught.value.message


def test_a_loop_needs_stp() -> None:
    triangle = {
        "hosts": ["h0", "h1"],
        "switches": ["s0", "s1", "s2"],
        "links": [link("h0", "s0"), link("h1", "s1"), link("s0", "s1"), link("s1", "s2"),
                  link("s2", "s0")],
    }  # fmt: skip
    with pytest.raises(SpecError, match="stp"):
        Topology.from_dict(triangle)
    net = Topology.from_dict({**triangle, "stp": True})
    assert [k.name for k, _ in net.path("h0", "h1")] == ["h0-s0", "s0-s1", "h1-s1"]


def test_unreachable_hosts_are_named() -> None:
    with pytest.raises(SpecError, match="h2"):
        Topology.from_dict(graph(link("h0", "s0"), link("h1", "s0"), hosts=3))


@pytest.mark.parametrize("name", ["h0.1", "H0", "", "averyverylongname"])
def test_names_must_fit_interfaces(name: str) -> None:
    shaped = {"rate_mbps": 1, "delay_ms": 0}
    with pytest.raises(SpecError, match=r"hosts\.0\.name"):
        Topology(
            "t", (Host(name),), (Switch("s0"),), (Link(name="k", a=name or "x", b="s0", **shaped),)
        )


def test_names_of_interfaces_fit_fifteen_letters() -> None:
    nine, ten = "a" * 9, "a" * 10
    for name, links, fits in ((ten, 9, True), (ten, 10, False), (nine, 10, True)):
        data = {
            "hosts": [f"h{i}" for i in range(links)],
            "switches": [name],
            "links": [link(f"h{i}", name) for i in range(links)],
        }
        if fits:
            Topology.from_dict(data)
        else:
            with pytest.raises(SpecError, match="too long"):
                Topology.from_dict(data)
