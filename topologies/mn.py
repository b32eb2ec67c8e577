"""The builders as Mininet custom topologies.

``mn --custom topologies/mn.py --topo star,4`` builds a star with 4 hosts;
``--topo two_sites,ranks=4,wan_rate_mbps=20`` sets any builder parameter. Rates and delays become
Mininet ``TCLink`` options (``--link tc``). Mininet can shape 1000 Mbit/s at most and ignores
more without stopping, so a faster link is refused here. Defaults are those of `DEFAULTS`.
"""

import os
import sys
from typing import Any

from mininet.topo import Topo

# `mn --custom` executes the text of this file, outside any package and without a `__file__`.
sys.path.insert(
    0, os.path.dirname(os.path.dirname(os.path.abspath(sys._getframe().f_code.co_filename)))
)

from topologies.builders import BUILDERS
from topologies.checks import SpecError
from topologies.spec import Topology

__all__ = ["SpecTopo", "topos"]

_MOST_MBPS = 1000  # mininet/link.py: bwParamMax
DEFAULTS: dict[str, dict[str, float]] = {
    "dumbbell": {"bottleneck_rate_mbps": 50},
    "two_sites": {"wan_rate_mbps": 20, "wan_delay_ms": 20},
}


class SpecTopo(Topo):  # type: ignore[misc]
    """A Mininet topology with the nodes and links of a `topologies.Topology`."""

    def build(self, spec: Topology) -> None:  # type: ignore[override]
        """Add every node and link of `spec`."""
        for host in spec.hosts:
            self.addHost(host.name)
        for i, switch in enumerate(spec.switches):
            self.addSwitch(switch.name, dpid=f"{i + 1:x}")
        for link in spec.links:
            options = [_options(spec, link, sender) for sender in (link.a, link.b)]
            self.addLink(link.a, link.b, params1=options[0], params2=options[1])


def _options(spec: Topology, link: Any, sender: str) -> dict[str, Any]:
    """Return the TCLink options for one direction of `link`."""
    shape = link.shape(sender)
    if shape.rate_mbps > _MOST_MBPS:
        raise SpecError("rate_mbps", f"Mininet shapes at most {_MOST_MBPS} Mbit/s on {link.name}")
    packets = max(2, spec.queue_bytes(link, sender) // 1514)
    options = {"bw": shape.rate_mbps, "delay": f"{shape.delay_ms:g}ms", "max_queue_size": packets}
    if shape.jitter_ms:
        options["jitter"] = f"{shape.jitter_ms:g}ms"
    if shape.mean_loss_pct:
        options["loss"] = shape.mean_loss_pct
    return options


def _maker(name: str) -> Any:
    def make(ranks: int = 4, **parameters: Any) -> SpecTopo:
        values = {"rate_mbps": 100, "delay_ms": 1, **DEFAULTS.get(name, {}), **parameters}
        return SpecTopo(spec=BUILDERS[name](int(ranks), **values))

    return make


topos = {name: _maker(name) for name in BUILDERS}
