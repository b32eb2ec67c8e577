"""Run one cell on a net that stands: start its ranks, let things happen, watch, judge."""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from topologies import Flow, LinkEvent, Topology, phases

from .crosstraffic import CrossTraffic
from .happenings import Happenings
from .instants import Alarm, let_polling_pass
from .limits import limit_host
from .linkwatch import LinkWatch
from .ranks import RankProcess, start_rank
from .realwatch import RealLinkWatch
from .shaping import Shaper
from .timeline import Timeline
from .verdict import verdict

__all__ = ["Cell", "write_json"]

SAMPLE_S = 0.1
REAL_SAMPLE_S = 0.5  # a sample may come milliseconds late: over a longer time that is less
MASTER_PORT = 29500
_GRACE_S = 2.0
#: the virtual clock shows whole steps of 256 ns, so what is due at an instant may look undone then
_GRAIN_S = 1e-6
#: what shapes TCP; recorded as a host has them
RECORDED_SYSCTLS = (
    "net.core.default_qdisc",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
)


def write_json(path: Path, value: Any) -> None:
    """Write JSON by an atomic rename: a file that is there is whole."""
    staged = path.with_suffix(".part")
    staged.write_text(json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n")
    os.replace(staged, path)


class Cell:
    """One method and seed of a scenario, from the built net to the outcome."""

    def __init__(self, spec: dict[str, Any], folder: Path, net: Any, shaper: Shaper) -> None:
        self.spec = spec
        self.folder = folder
        self.net = net
        self.shaper = shaper
        self.topology = Topology.from_dict(spec["topology"])
        self.timeline = Timeline()
        self.selector = selectors.SelectSelector()
        self.alarm = Alarm()
        self.ranks: list[RankProcess] = []
        self.rivals: dict[str, list[RankProcess]] = {}
        self._programs: list[tuple[Any, dict[str, Any], Any]] = []  # with its ranks' spec and data
        self.start_s: float | None = None
        self.progress_s = time.monotonic()
        self.reason: str | None = None
        self.real = spec["clock"] == "real"
        watch = RealLinkWatch if self.real else LinkWatch
        events = [LinkEvent.from_dict(e) for e in spec["events"] if e["kind"] == "link"]
        self.links = watch(
            self.topology, shaper, folder / "links.jsonl", phases(self.topology, events)
        )
        flows = [Flow(**flow) for flow in spec["traffic"]]
        self.traffic = CrossTraffic(flows, self._enter, self._address)
        self.happenings = Happenings(
            self.timeline,
            self.links,
            shaper,
            self.traffic,
            rank_hosts=self.topology.rank_hosts(),
            signal_rank=lambda rank, number: self.ranks[rank].signal(number),
            now_s=self.now_s,
            late_s=0.1 if self.real else 0.001,
            path=folder / "events.jsonl",
        )

    # -- the net ---------------------------------------------------------------------------

    def _enter(self, host: str) -> list[str]:
        return ["nsenter", "--target", str(self.net.get(host).pid), "--net", "--uts"]

    def _address(self, host: str) -> str:
        from .net import address

        return address(self.topology, host)

    def now_s(self) -> float:
        """Return the time since training began."""
        assert self.start_s is not None
        return time.monotonic() - self.start_s

    def _pid(self, host: str) -> int:
        return self.net.get(host).pid

    def measure_machine(self) -> None:
        """On a real clock: measure the unshaped net, and refuse links that ask for more."""
        if isinstance(self.links, RealLinkWatch):
            self.links.measure_machine(self._pid, self._address)

    def record_system(self) -> None:
        """Write down the kernel, and the settings that TCP has in a host."""
        name = os.uname()
        command = [*self._enter(self.topology.hosts[0].name), "sysctl", "-e", *RECORDED_SYSCTLS]
        shown = subprocess.run(command, capture_output=True, text=True).stdout
        sysctls = dict(line.split(" = ", 1) for line in shown.splitlines() if " = " in line)
        system = {"release": name.release, "version": name.version, "sysctls": sysctls}
        write_json(self.folder / "system.json", system)

    def record_qdiscs(self, when: str) -> None:
        """Write down every queueing discipline with its settings and counters."""
        command = ["tc", "-s", "-j", "qdisc", "show"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        write_json(self.folder / f"tc-{when}.json", json.loads(shown))

    def probe(self, ports: dict[str, tuple[str, str]]) -> None:
        """Measure the quiet net, as it is and as it will be."""
        self.links.probe(self._pid, self._address)
        if not self.real:  # single frames a few µs apart are beyond a real clock
            hosts = {host.name for host in self.topology.hosts}
            self.links.rehearse(ports, lambda node: self._pid(node) if node in hosts else None)

    def _judge(self) -> None:
        """Judge what the links did, given what the ranks that share no link account for."""
        shared = {end for flow in self.traffic.flows for end in (flow.source, flow.sink)}
        hook = {
            host: (rank.result["link_bytes"], rank.result["rounds"])
            for host, rank in zip(self.topology.rank_hosts(), self.ranks, strict=True)
            if host not in shared and rank.result and "link_bytes" in rank.result
        }
        self.links.judge(hook)

    # -- what happens when -----------------------------------------------------------------

    def schedule(self) -> None:
        """Put the samples, link changes, faults and flows on the timeline."""
        self.timeline.every(REAL_SAMPLE_S if self.real else SAMPLE_S, self._sample)
        self.happenings.schedule(self.spec["events"])

    def _sample(self, at_s: float) -> None:
        self.links.sample(self.now_s())

    # -- the ranks -------------------------------------------------------------------------

    def prepare(self, program: Any) -> None:
        """Let the program load what its ranks share, for the ranks of the jobs beside it too."""
        jobs = [{**self.spec, **job} for job in self.spec.get("jobs", ())]
        self._programs = [(program, spec, program.prepare(spec)) for spec in [self.spec, *jobs]]

    def start_ranks(self) -> None:
        """Fork every rank into its host; the jobs beside the one under test record in folders."""
        own, *others = self._programs
        self.ranks = self._fork(*own, self.topology.rank_hosts(), self.folder, MASTER_PORT)
        for number, (job, other) in enumerate(zip(self.spec.get("jobs", ()), others, strict=True)):
            folder = self.folder / f"job-{job['name']}"
            folder.mkdir()
            ranks = self._fork(*other, job["hosts"], folder, MASTER_PORT + 1 + number)
            self.rivals[job["name"]] = ranks

    def _fork(
        self,
        program: Any,
        spec: dict[str, Any],
        prepared: Any,
        names: list[str],
        folder: Path,
        port: int,
    ) -> list[RankProcess]:
        from .net import interface

        hosts = {host.name: host for host in self.topology.hosts}
        made = []
        for rank, host in enumerate(names):
            context = {
                "rank": rank,
                "world_size": len(names),
                "interface": interface(self.net, host),
                "master_address": self._address(names[0]),
                "master_port": port,
                "folder": folder,
            }
            process = start_rank(
                self.net.get(host).pid, lambda where: program.run(spec, prepared, where), context
            )
            limit_host(hosts[host], [process.child.pid])
            made.append(process)
            self.selector.register(process.child.channel, selectors.EVENT_READ, process)
        return made

    def watch(self) -> str:
        """Wait until the ranks have ended, letting the timeline happen; return the status."""
        self.selector.register(sys.stdin, selectors.EVENT_READ, None)
        self.selector.register(self.alarm, selectors.EVENT_READ, self.alarm)
        while not all(rank.ended for rank in self.ranks):
            self.alarm.set(self._due_s() + _GRAIN_S)
            for key, _ in self.selector.select():
                if key.data is None:
                    if b"end" in os.read(0, 64):
                        return self._give_up("the guest's clock stood still")
                    self._ask_for_stacks()
                elif key.data is not self.alarm:
                    self._hear(key.data)
            status = self._trouble()
            if status is not None:
                return status
            others = [rank for ranks in self.rivals.values() for rank in ranks]
            waited = self.ranks + [rank for rank in others if not rank.ended]
            if self.start_s is None and all(rank.ready for rank in waited):
                self._begin()
            if self.start_s is not None:
                self.timeline.run_due(self.now_s())
            late = self._late()
            if late is not None:
                self._ask_for_stacks()
                time.sleep(_GRACE_S)
                return self._give_up(late)
        return "ok"

    def _late(self) -> str | None:
        """Say what took too long in virtual time, if anything did."""
        if self.start_s is not None and self.now_s() > self.spec["timeout_s"]:
            return f"not done after {self.spec['timeout_s']:g} s"
        if time.monotonic() - self.progress_s > self.spec["stall_s"]:
            return f"no rank finished a step for {self.spec['stall_s']:g} s"
        return None

    def _due_s(self) -> float:
        """Return the instant at which something is to be done even if no rank says a word."""
        stalled_s = self.progress_s + self.spec["stall_s"]
        due_s = self.timeline.next_due()
        if self.start_s is None or due_s is None:
            return stalled_s
        return min(stalled_s, self.start_s + due_s)

    def _begin(self) -> None:
        # on a round time: what was done before leaves no trace in the times of the training
        self.start_s = math.ceil(time.monotonic() * 10 + 1) / 10
        if not self.real:
            let_polling_pass()
        self.schedule()
        for rank in self.ranks:
            rank.begin(self.start_s)
        for job in self.spec.get("jobs", ()):
            for rank in self.rivals[job["name"]]:
                rank.begin(self.start_s + job["start_s"])
        self.progress_s = self.start_s

    def _hear(self, rank: RankProcess) -> None:
        for _ in rank.messages():
            if rank in self.ranks:  # what others do is no progress
                self.progress_s = time.monotonic()
        if rank.ended:
            self.selector.unregister(rank.child.channel)

    def _trouble(self) -> str | None:
        """Return the status if a rank ended badly: the first cause, not what followed from it."""
        for rank in self.ranks:
            if rank.result is not None and rank.result["status"] != "ok":
                self.reason = rank.result.get("reason")
                return str(rank.result["status"])
        lost = [rank.rank for rank in self.ranks if rank.ended and rank.result is None]
        if lost:
            self.reason = f"rank {lost[0]} died at step {self.ranks[lost[0]].step + 1}"
            return "failed"
        return None

    def _ask_for_stacks(self) -> None:
        """Let every rank write where each of its threads stands."""
        for rank in self.ranks:
            rank.signal(signal.SIGUSR1)

    def _give_up(self, why: str) -> str:
        """End a cell that makes no progress, and say who was last."""
        behind = min(self.ranks, key=lambda rank: rank.step)
        self.reason = f"{why}; rank {behind.rank} is at step {behind.step + 1}"
        return "timeout"

    def _failed_jobs(self) -> list[str]:
        """Return a line for each job beside this one that did not go on as it should."""
        return [
            f"job {name}: "
            + next((str(r.result["reason"]) for r in ranks if r.result), "a rank died")
            for name, ranks in self.rivals.items()
            if any(r.ended and (r.result or {}).get("status") != "ok" for r in ranks)
        ]

    # -- the end ---------------------------------------------------------------------------

    def outcome(self, status: str) -> dict[str, Any]:
        """Take down the ranks and say what came of the cell."""
        end_s = None if self.start_s is None else round(self.now_s(), 9)
        if self.start_s is not None:
            self._sample(end_s or 0.0)
            self.record_qdiscs("after")
            self._judge()
            self.links.wrong += self.traffic.died()
        self.links.wrong += self._failed_jobs()
        for rank in [*self.ranks, *(rank for own in self.rivals.values() for rank in own)]:
            rank.signal(signal.SIGKILL)
        results = [rank.result or {} for rank in self.ranks]
        digests = {result.get("digest") for result in results}
        return {
            "status": status,
            "reason": self.reason,
            "replicas_identical": len(digests) == 1 if digests and None not in digests else None,
            "digest": digests.pop() if len(digests) == 1 else None,
            "link_verdict": verdict(self.links.wrong),
            "link_deviations": list(dict.fromkeys(self.links.wrong)),
            "link_check": self.links.check,
            "virtual_s": end_s,
            "jobs": {name: ranks[0].step + 1 for name, ranks in self.rivals.items()},
            "warmup_steps": self.spec["warmup_steps"],
            "ranks": [{k: v for k, v in r.items() if k != "kind"} for r in results],
        }
