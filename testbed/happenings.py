"""What happens to a cell's net while it trains: link changes, faults and flows, at their times."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .crosstraffic import SERVER_LEAD_S, CrossTraffic
from .linkwatch import LinkWatch
from .shaping import Shaper
from .timeline import Timeline

__all__ = ["Happenings"]


class Happenings:
    """Makes each thing happen and writes to ``events.jsonl`` when it was asked for and done.

    Parameters
    ----------
    timeline
        Where they are put.
    links
        Told of changes of a link, and of what happened at another time than asked.
    shaper, traffic
        What changes links, and starts and stops flows.
    rank_hosts
        The host of each rank.
    signal_rank
        Sends a signal to a rank.
    now_s
        Returns the time since training began.
    late_s
        How far from its time a thing may happen.
    path
        The file to write.
    """

    def __init__(
        self,
        timeline: Timeline,
        links: LinkWatch,
        shaper: Shaper,
        traffic: CrossTraffic,
        *,
        rank_hosts: Sequence[str],
        signal_rank: Callable[[int, int], None],
        now_s: Callable[[], float],
        late_s: float,
        path: Path,
    ) -> None:
        self._timeline = timeline
        self._links = links
        self._shaper = shaper
        self._traffic = traffic
        self._rank_hosts = list(rank_hosts)
        self._signal_rank = signal_rank
        self._now_s = now_s
        self._late_s = late_s
        self._file = open(path, "w")  # noqa: SIM115

    def schedule(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Put events (as `topologies.expand_events` makes them) and all flows on the timeline."""
        for event in events:
            self._timeline.at(event["at_s"], partial(self._event, event))
        for number, flow in enumerate(self._traffic.flows):
            start = max(flow.start_s, SERVER_LEAD_S)
            self._timeline.at(start - SERVER_LEAD_S, partial(self._listen, number))
            self._timeline.at(start, partial(self._flow, number, "start"))
            if flow.duration_s is not None:
                self._timeline.at(start + flow.duration_s, partial(self._flow, number, "stop"))

    def _event(self, event: Mapping[str, Any], at_s: float) -> None:
        kind = event["kind"]
        where = event.get("link") or event["host"]
        if kind == "link":
            names = [
                name
                for name, direction in self._shaper.directions.items()
                if direction.link == event["link"] and event["sender"] in (None, direction.sender)
            ]
            self._shaper.change(names, event["changes"])
            self._links.changed(names, at_s)
            detail = event["changes"]
        elif kind == "rank-killed":
            rank = self._rank_hosts.index(where)
            self._signal_rank(rank, signal.SIGKILL)
            detail = {"rank": rank}
        else:
            rank = self._rank_hosts.index(where)
            self._signal_rank(rank, signal.SIGSTOP)
            self._traffic.signal(where, signal.SIGSTOP)
            self._timeline.at(at_s + event["duration_s"], partial(self._resume, where, rank))
            detail = {"rank": rank, "duration_s": event["duration_s"]}
        self._record(at_s, kind, where, detail)

    def _resume(self, host: str, rank: int, at_s: float) -> None:
        self._signal_rank(rank, signal.SIGCONT)
        self._traffic.signal(host, signal.SIGCONT)
        self._record(at_s, "host-resumed", host, {"rank": rank})

    def _listen(self, number: int, at_s: float) -> None:
        self._traffic.listen(number)

    def _flow(self, number: int, what: str, at_s: float) -> None:
        getattr(self._traffic, what)(number)
        flow = self._traffic.flows[number]
        name = f"{number} {flow.source}>{flow.sink}"
        detail = {"flows": flow.flows, "kind": flow.kind}
        self._record(at_s, f"flow-{what}", name, detail, key="flow")

    def _record(
        self, at_s: float, kind: str, where: str, detail: Mapping[str, Any], key: str = "link"
    ) -> None:
        actual_s = round(self._now_s(), 9)
        record = {"requested_s": at_s, "actual_s": actual_s, "kind": kind}
        self._file.write(json.dumps({**record, key: where, "detail": detail}, allow_nan=False))
        self._file.write("\n")
        self._file.flush()
        if abs(actual_s - at_s) > self._late_s:
            self._links.wrong.append(f"{kind} {where} at {actual_s:.6f} s instead of {at_s:g} s")
