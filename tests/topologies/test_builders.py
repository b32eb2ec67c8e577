import pytest

from topologies import BUILDERS, SpecError, Topology, build, dumbbell, leaf_spine, ring, star, tree

NEEDED: dict[str, dict[str, object]] = {
    "dumbbell": {"bottleneck_rate_mbps": 20},
    "two_sites": {"wan_rate_mbps": 20, "wan_delay_ms": 30},
}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("ranks", [1, 2, 5, 64])
def test_every_builder_makes_a_tree_with_all_hosts(name: str, ranks: int) -> None:
    leaves = {"leaves": 1} if name == "leaf_spine" and ranks == 1 else {}
    data = {"builder": name, "rate_mbps": 100, "delay_ms": 1, "extra_hosts": 3}
    net = build({**data, **NEEDED.get(name, {}), **leaves}, ranks)
    assert net.rank_hosts() == [f"h{i}" for i in range(ranks)]
    assert [h.name for h in net.hosts if h.name.startswith("x")] == ["x0", "x1", "x2"]
    assert len(net.links) == len(net.nodes()) - 1
    assert Topology.from_dict(net.to_dict()) == net


def test_dumbbell_halves_share_the_bottleneck() -> None:
    net = dumbbell(4, rate_mbps=100, delay_ms=1, bottleneck_rate_mbps=20, bottleneck_delay_ms=10)
    assert net.bottleneck_mbps("h0", "h1") == 100
    assert net.bottleneck_mbps("h0", "h2") == 20
    assert net.rtt_ms("h1", "h3") == 24


def test_ring_is_open() -> None:
    net = ring(4, rate_mbps=10, delay_ms=1, trunk_delay_ms=2)
    assert net.rtt_ms("h0", "h1") == 8
    assert net.rtt_ms("h0", "h3") == 16
    assert "s3-s0" not in [k.name for k in net.links]


def test_leaf_spine_uplinks_are_oversubscribed() -> None:
    net = leaf_spine(8, rate_mbps=100, delay_ms=1, leaves=2, oversubscription=4)
    assert net.bottleneck_mbps("h0", "h3") == 100
    assert net.bottleneck_mbps("h0", "h4") == 100
    assert net.link("s1-s0").rate_mbps == 100  # 4 hosts x 100 / 4
    assert leaf_spine(8, rate_mbps=100, delay_ms=1, leaves=2).link("s1-s0").rate_mbps == 400


def test_tree_fills_leaves_in_turn() -> None:
    net = tree(4, rate_mbps=10, delay_ms=1)
    assert [k.b for k in net.links if k.a.startswith("h")] == ["s1", "s1", "s2", "s2"]


def test_single_links_and_hosts_may_differ() -> None:
    data = {
        "builder": "star", "rate_mbps": 100, "delay_ms": 1,
        "links": {"h1-s0": {"rate_mbps": 10, "reverse": {"rate_mbps": 5}}},
        "hosts": {"h0": {"cpu": 0.5, "memory_mb": 512}},
    }  # fmt: skip
    net = build(data, 2)
    assert net.bottleneck_mbps("h1", "h0") == 10
    assert net.bottleneck_mbps("h0", "h1") == 5
    assert (net.hosts[0].cpu, net.hosts[0].memory_mb) == (0.5, 512)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"builder": "str", "rate_mbps": 1, "delay_ms": 1}, "builder: .*did you mean 'star'"),
        ({"builder": "star", "delay_ms": 1}, "rate_mbps: is missing"),
        ({"builder": "star", "rate_mbps": 1, "delay_ms": 1, "wan_rate_mbps": 1}, "unknown key"),
        ({"builder": "star", "rate_mbps": 1, "delay_ms": 1, "links": {"h9-s0": {}}}, "h9-s0"),
        ({"builder": "star", "rate_mbps": 1, "delay_ms": 1, "extra_hosts": 1.5}, "extra_hosts"),
        ({"builder": "two_sites", "rate_mbps": 1, "delay_ms": 1}, "wan_rate_mbps: is missing"),
        ({"rate_mbps": 1}, "builder: is missing"),
        ([], "expected a mapping"),
    ],
)
def test_mistakes_are_refused(data: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        build(data, 2)


def test_a_graph_needs_a_host_per_rank() -> None:
    data = star(2, rate_mbps=1, delay_ms=1).to_dict()
    assert build(data, 2).rank_hosts() == ["h0", "h1"]
    with pytest.raises(SpecError, match="h0 to h2"):
        build(data, 3)
