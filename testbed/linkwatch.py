"""Watch the links of a cell: measure them before, sample them during, judge them after."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from topologies import Topology

from .calibration import deviations, probe_path
from .counters import read_counters
from .shaping import Shaper
from .verdict import byte_check, rate_check

__all__ = ["LinkWatch"]


class LinkWatch:
    """Writes ``links.jsonl`` and comes to a verdict.

    Parameters
    ----------
    spec
        The network asked for.
    shaper
        What is asked of each direction now.
    path
        Where samples go.

    Attributes
    ----------
    check : dict
        What was measured: of paths before, of rates and bytes after.
    wrong : list of str
        Deviations; empty is a good verdict.
    """

    #: On a virtual clock: rate by share, RTT by share or by a floor in ms
    tolerances = (0.01, 0.01, 0.1)

    def __init__(self, spec: Topology, shaper: Shaper, path: Path) -> None:
        self.check: dict[str, Any] = {}
        self.wrong: list[str] = []
        self._spec = spec
        self._shaper = shaper
        self._path = path
        self._file = open(path, "w")  # noqa: SIM115

    def probe(self, host_pid: Callable[[str], int], address: Callable[[str], str]) -> None:
        """Measure the quiet net, both directions of each host's link."""
        hosts = [host.name for host in self._spec.hosts]
        probes = []
        for source, sink in zip(hosts, hosts[1:] + hosts[:1], strict=True):
            if source == sink:
                continue
            probe = probe_path(self._spec, source, sink, host_pid, address)
            probes.append(probe)
            self.wrong += deviations(probe, self._spec, *self.tolerances)
        self.check["paths"] = [asdict(probe) for probe in probes]

    def sample(self, now_s: float) -> None:
        """Write down every direction's counters and what is asked of it."""
        counters = read_counters()
        for name, direction in self._shaper.directions.items():
            shape = direction.shape
            record = {
                "t_s": round(now_s, 9),
                "link": direction.link,
                "direction": name,
                **asdict(counters[direction.device]),
                "asked_rate_mbps": shape.rate_mbps,
                "asked_delay_ms": shape.delay_ms,
                "asked_loss_pct": shape.mean_loss_pct if direction.up else 100.0,
            }
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()

    def judge(self, hook: Mapping[str, tuple[int, int]]) -> None:
        """Judge what the links did, from the samples.

        Parameters
        ----------
        hook
            Per host that nobody else uses, the bytes and rounds its rank accounts for.
        """
        samples = [json.loads(line) for line in self._path.read_text().splitlines()]
        self.check["rates"], wrong = rate_check(samples, self.tolerances[0])
        self.wrong += wrong
        first: dict[str, Any] = {}
        last: dict[str, Any] = {}
        for sample in samples:
            first.setdefault(sample["direction"], sample)
            last[sample["direction"]] = sample
        sent = {
            name.partition(">")[0]: (
                end["tx_bytes"] - first[name]["tx_bytes"],
                end["tx_packets"] - first[name]["tx_packets"],
            )
            for name, end in last.items()
            if name.partition(">")[0] in hook
        }
        self.check["bytes"], wrong = byte_check(sent, hook)
        self.wrong += wrong
