"""Watch the links of a cell: measure them before, sample them during, judge them after."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from topologies import Phase, Shape, Topology

from .calibration import deviations, probe_path
from .counters import read_counters
from .linkprobe import LinkProbe, Prober
from .phasecheck import binomial_range, loss_burst, probe_deviations
from .shaping import Direction, Shaper
from .verdict import Deviation, byte_check, loss_check, rate_check

__all__ = ["LinkWatch"]

#: rounds of probing; of a direction with more shapes than that, some of each size are probed
_MOST_ROUNDS = 12


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
    phases
        What will be asked of each direction from when on; from the shaper if left out.

    Attributes
    ----------
    check : dict
        What was measured: of paths and phases before, of rates, losses and bytes after.
    wrong : list of str
        Deviations; empty is a good verdict.
    """

    #: On a virtual clock: rate by share, RTT by share or by a floor in ms
    tolerances = (0.01, 0.01, 0.1)

    def __init__(
        self, spec: Topology, shaper: Shaper, path: Path, phases: Sequence[Phase] = ()
    ) -> None:
        self.check: dict[str, Any] = {}
        self.wrong: list[str] = []
        self._spec = spec
        self._shaper = shaper
        self._path = path
        self._file = open(path, "w")  # noqa: SIM115
        self._phases: dict[str, list[Phase]] = {}
        for phase in phases:
            self._phases.setdefault(phase.direction, []).append(phase)
        self._now: dict[str, int] = dict.fromkeys(shaper.directions, 0)
        self._probes: dict[tuple[str, Shape, bool], LinkProbe] = {}
        self._sent: dict[str, int] = {}
        self._gone: set[str] = set()

    def probe(self, host_pid: Callable[[str], int], address: Callable[[str], str]) -> None:
        """Measure the round trips of the quiet net, over both directions of each host's link."""
        hosts = [host.name for host in self._spec.hosts]
        probes = []
        for source, sink in zip(hosts, hosts[1:] + hosts[:1], strict=True):
            if source == sink:
                continue
            probe = probe_path(self._spec, source, sink, host_pid, address)
            probes.append(probe)
            self.wrong += deviations(probe, self._spec, *self.tolerances)
        self.check["paths"] = [asdict(probe) for probe in probes]

    def rehearse(
        self, ports: Mapping[str, tuple[str, str]], pid: Callable[[str], int | None]
    ) -> None:
        """Ask each direction of the quiet net for what it will do in each phase, and measure it.

        Afterwards everything is as before. `ports` and `pid` are those of `Prober`.
        """
        before = dict(self._shaper.directions)
        ends = {link.name: (link.a, link.b) for link in self._spec.links}
        prober = Prober(before, ports, ends, pid)
        plans = {name: self._plan(direction) for name, direction in before.items()}
        try:
            for number in range(max(map(len, plans.values()))):
                asked = {name: plan[number] for name, plan in plans.items() if number < len(plan)}
                changes = {n: d for n, d in asked.items() if d != self._shaper.directions[n]}
                if changes:
                    self._shaper.set(changes)
                for name, probe in prober.measure(asked.values()).items():
                    self._probes[name, asked[name].shape, asked[name].up] = probe
            changes = {n: d for n, d in before.items() if d != self._shaper.directions[n]}
            if changes:
                self._shaper.set(changes)
        finally:
            prober.close()
        self.check["phases"] = [row for name in before for row in self._judge_phases(before[name])]

    def _of(self, direction: Direction) -> list[Phase]:
        """Return the phases of a direction, at least one."""
        only = Phase(
            direction.link, direction.sender, direction.receiver, 0, 0.0, direction.shape,
            direction.up,
        )  # fmt: skip
        return self._phases.get(direction.name, [only])

    def _plan(self, direction: Direction) -> list[Direction]:
        """Return a direction as it will be in each of its phases, each once."""
        found = {(p.shape, p.up): None for p in self._of(direction)}
        shapes = list(found)
        if len(shapes) > _MOST_ROUNDS:
            shapes.sort(key=lambda entry: entry[0].rate_mbps)
            last = len(shapes) - 1
            shapes = [shapes[round(i * last / (_MOST_ROUNDS - 1))] for i in range(_MOST_ROUNDS)]
        return [replace(direction, shape=shape, up=up) for shape, up in shapes]

    def _judge_phases(self, direction: Direction) -> list[dict[str, Any]]:
        rows = []
        judged = set()
        for phase in self._of(direction):
            key = (direction.name, phase.shape, phase.up)
            probe = self._probes.get(key)
            if probe is None:
                continue
            asked = replace(direction, shape=phase.shape, up=phase.up)
            if key not in judged:
                judged.add(key)
                where = direction.name + (f" from {phase.start_s:g} s" if phase.number else "")
                self.wrong += probe_deviations(
                    asked, probe, self.tolerances, where, self._checks()
                )
            rows.append(
                {
                    "direction": direction.name,
                    "link": phase.link,
                    "phase": phase.number,
                    "start_s": phase.start_s,
                    "asked_rate_mbps": phase.shape.rate_mbps,
                    "asked_delay_ms": phase.shape.delay_ms,
                    "asked_loss_pct": phase.shape.mean_loss_pct if phase.up else 100.0,
                    "asked_queue_bytes": direction.queue_bytes,
                    **{f"got_{k}": _plain(v) for k, v in asdict(probe).items()},
                }
            )
        return rows

    def changed(self, names: Sequence[str], now_s: float) -> None:
        """Note that a new phase of these directions has begun."""
        for name in names:
            starts = [phase.start_s for phase in self._of(self._shaper.directions[name])]
            # a change is made at its time or a moment after it
            self._now[name] = max(i for i, start_s in enumerate(starts) if start_s <= now_s)

    def sample(self, now_s: float) -> None:
        """Write down every direction's counters and what is asked of it, and what it was got."""
        counters = read_counters()
        for name, direction in self._shaper.directions.items():
            sent = counters[direction.device].tx_bytes if direction.device in counters else -1
            if sent < self._sent.get(name, 0):  # a new one, or none, counts from 0
                self.wrong.append(Deviation(f"{name}: its qdisc is gone at {now_s:.1f} s"))
                self._gone.add(name)
            self._sent[name] = sent
            if name in self._gone:
                continue
            shape = direction.shape
            probe = self._probes.get((name, shape, direction.up))
            record = {
                "t_s": round(now_s, 9),
                "link": direction.link,
                "direction": name,
                "phase": self._now[name],
                **asdict(counters[direction.device]),
                "asked_rate_mbps": shape.rate_mbps,
                "asked_delay_ms": shape.delay_ms,
                "asked_loss_pct": shape.mean_loss_pct if direction.up else 100.0,
                "asked_queue_bytes": direction.queue_bytes,
                **_got(probe),
            }
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()

    def judge(self, hook: Mapping[str, tuple[int, int]]) -> None:
        """Judge what the links did, from the samples, and read every setting once more.

        Parameters
        ----------
        hook
            Per host that nobody else uses, the bytes and rounds its rank accounts for.
        """
        self.wrong += [Deviation(text) for text in self._shaper.off()]
        samples = [json.loads(line) for line in self._path.read_text().splitlines()]
        self.check["rates"], wrong = rate_check(samples, self.tolerances[0])
        self.wrong += wrong
        self.check["losses"], wrong = loss_check(samples, self._least_lost)
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
        self.check["bytes"], wrong = byte_check(sent, {h: v for h, v in hook.items() if h in sent})
        self.wrong += wrong

    def _least_lost(self, frames: int, pct: float, name: str) -> float:
        burst = loss_burst(self._shaper.directions[name].shape)
        return binomial_range(frames, pct / 100, burst, self._checks())[0]

    def _checks(self) -> int:
        """Return how many probes looked for what happens to frames at random."""
        return max(1, sum(probe.frames > 0 for probe in self._probes.values()))


def _plain(value: Any) -> Any:
    """Return a number that JSON knows: an infinite rate is none."""
    if isinstance(value, float):
        return round(value, 6) if value < 1e12 else None
    return value


def _got(probe: LinkProbe | None) -> dict[str, Any]:
    """Return what was measured of a shape before the training, None where nothing was."""
    if probe is None:
        return dict.fromkeys(
            ("got_rate_mbps", "got_short_mbps", "got_delay_ms", "got_loss_pct", "got_queue_frames")
        )
    return {
        "got_rate_mbps": _plain(probe.long_mbps),
        "got_short_mbps": _plain(probe.short_mbps),
        "got_delay_ms": probe.delay_ms,
        "got_loss_pct": round(100 * probe.lost / probe.frames, 6) if probe.frames else None,
        "got_queue_frames": probe.queue_frames,
    }
