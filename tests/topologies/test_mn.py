"""The builders as Mininet topologies; only the graph is built, no net is started."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from topologies import BUILDERS, SpecError

pytest.importorskip("mininet.topo")
MN = Path(__file__).parent.parent.parent / "topologies" / "mn.py"


def test_mininet_finds_every_builder_when_it_runs_the_file() -> None:
    customs: dict[str, Any] = {}
    exec(compile(MN.read_text(), str(MN), "exec"), customs, customs)  # as `mn --custom` does
    topos = customs["topos"]
    assert set(topos) == set(BUILDERS)
    for make in topos.values():
        topo = make(4)
        assert topo.hosts() == ["h0", "h1", "h2", "h3"]


def test_links_carry_their_shape() -> None:
    topos = runpy.run_path(str(MN))["topos"]
    topo = topos["two_sites"](ranks=2, wan_rate_mbps=20, wan_delay_ms=30)
    options = topo.linkInfo("s0", "s1")["params1"]
    assert (options["bw"], options["delay"]) == (20, "30ms")


def test_a_rate_mininet_would_ignore_is_refused() -> None:
    topos = runpy.run_path(str(MN))["topos"]
    with pytest.raises(SpecError, match="at most 1000"):
        topos["star"](2, rate_mbps=2500)
