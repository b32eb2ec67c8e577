"""Watch the links of a cell on a real clock, where the machine itself can be the bottleneck."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from topologies import Topology

from .calibration import deviations
from .linkwatch import LinkWatch
from .transfers import ceiling_mbps, probe_paths, trip_ms

__all__ = ["MACHINE", "CeilingError", "RealLinkWatch", "check_ceiling"]

#: A link may use this share of what the machine carries unshaped: shaping costs some of it
_HEADROOM = 0.8


#: In the cell's folder, once the machine has been measured, which uses it up for a moment
MACHINE = "machine.json"


class CeilingError(Exception):
    """A link asks for more than this machine carries; the text has both numbers."""


def check_ceiling(
    spec: Topology, host_pid: Callable[[str], int], address: Callable[[str], str]
) -> float:
    """Measure the machine's own ceiling over the unshaped net and refuse rates above it.

    Returns
    -------
    float
        Mbit/s per host, all hosts sending at once.

    Raises
    ------
    CeilingError
        If a link asks for more than 80 % of it.
    """
    got = ceiling_mbps(spec, host_pid, address)
    asked, link = max(
        (shape.rate_mbps, link.name) for link in spec.links for _, _, shape in link.directions()
    )
    if asked > _HEADROOM * got:
        raise CeilingError(
            f"link {link} asks for {asked:g} Mbit/s, but on a real clock this machine carries"
            f" {got:.0f} Mbit/s per host with all hosts sending, so at most {_HEADROOM * got:.0f}"
        )
    return round(got, 3)


class RealLinkWatch(LinkWatch):
    """As `LinkWatch`: longer measurements, wider tolerances."""

    #: rate by share, RTT by share or by a floor in ms
    tolerances = (0.03, 0.05, 0.5)

    def measure_machine(
        self, host_pid: Callable[[str], int], address: Callable[[str], str]
    ) -> None:
        """Measure what the machine itself takes and carries, while nothing is shaped yet."""
        self.check["ceiling_mbps"] = check_ceiling(self._spec, host_pid, address)
        first, second = [host.name for host in self._spec.hosts][:2]
        self.check["own_rtt_ms"] = round(trip_ms(first, second, host_pid, address) or 0.0, 6)
        # whoever watches the processors from outside starts to count when it sees this
        self._path.with_name(MACHINE).write_text(json.dumps(self.check) + "\n")

    def probe(self, host_pid: Callable[[str], int], address: Callable[[str], str]) -> None:
        """Measure the quiet net, both directions of each host's link."""
        own_ms = self.check.get("own_rtt_ms", 0.0)
        probes = probe_paths(self._spec, host_pid, address, own_ms)
        for probe in probes:
            self.wrong += deviations(probe, self._spec, *self.tolerances)
        self.check["paths"] = [asdict(probe) for probe in probes]
