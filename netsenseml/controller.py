"""The controller of ``netsense``: expected progress per second, with memory and hysteresis.

Every step, on every rank alike, from the same gathered measurements:

1. Update latency, bandwidth, pace and codec costs.
2. For every candidate, step time = compute time + overhead. The overhead is the one measured
   when this candidate was in use at a like bandwidth, or else the model's.
3. Progress per second = statistical efficiency / step time. Of all candidates within a small
   tolerance of the best, the least lossy is wanted: dense whenever dense hides behind compute.
4. Change to it at once after a change of bandwidth; otherwise only when it is wanted for some
   steps in a row (three times as many after every such change), when the present one is clearly
   slower, or when a less lossy one would still do with less bandwidth.

Measured beats modelled, so a mistaken prediction costs two steps and is not repeated: the
controller cannot swing between two candidates whose predictions contradict each other.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netsenseml.codecs.base import Codec
from netsenseml.costs import CodecCosts, Network, overhead_s
from netsenseml.layout import Group
from netsenseml.policy import Decision, Measurement, Policy
from netsenseml.sensing import LinkSense, Pace
from netsenseml.transport import link_bytes, round_count

__all__ = ["Candidate", "Controller"]

_MEMORY = 16  # overhead samples kept per candidate
_NEWEST = 9  # of those taken at a like bandwidth, how many count
_LIKE = 1.5  # factor within which bandwidths are alike
_EXPIRY = 400  # steps after which a measurement is forgotten
_ALERT = 4  # steps after a change of bandwidth in which no patience is asked
_PROBE_AFTER = 6  # quiet steps before the first probe step
_PROBE_EVERY = 200
_PROBE_APART = 80  # steps at least between two of them, however often the bandwidth changes
_PROBE_STEPS = 8
_PROBE_SHARE = 0.4  # part of a message's time that latency may take before a probe is sent
_PROBE_DOUBT = 0.5  # of the bandwidth, for what it costs: it may have been taken too high
_PROBE_COST = 0.35  # part by which one of them may be longer
_PROBE_LEAST = 3  # so many are sent even if they last longer than twice that
_PATIENCE_FASTER = 2
_PATIENCE_FINER = 3
_PATIENCE_MAX = 64
#: A less lossy codec would send all that was left unsent at once, a step many times too long that
#: training does not get over: for so many steps only this part of it goes along with each.
_RELEASE, _RELEASE_STEPS = 0.1, 20
_SLACK = 0.03  # further progress per second given up before a codec is left for a faster one


@dataclass(frozen=True)
class Candidate:
    """A codec at a strength.

    Attributes
    ----------
    key : str
        ``family`` or ``family:strength``.
    codec : Codec
    efficiency : float
        Progress of one step relative to a dense step, in (0, 1].
    """

    key: str
    codec: Codec
    efficiency: float


class Controller(Policy):
    """Chooses among candidates, given in order from least to most lossy.

    Parameters
    ----------
    candidates : sequence of Candidate
    start : str
        Key of the candidate used until there is a bandwidth estimate.
    tolerance : float
        Progress per second given up for a less lossy codec.
    caution : float
        Less bandwidth a less lossy codec must be able to live with.
    """

    needs_agreement = True

    def __init__(
        self,
        candidates: Sequence[Candidate],
        start: str,
        tolerance: float = 0.02,
        caution: float = 0.1,
    ) -> None:
        self._candidates = {candidate.key: candidate for candidate in candidates}
        self._order = [candidate.key for candidate in candidates]
        self._tolerance = tolerance
        self._caution = caution
        self._link = LinkSense()
        self._pace = Pace()
        self._costs = CodecCosts()
        self._current = start
        self._reason = "start small: nothing is known of the network yet"
        self._measured: dict[str, list[list[float]]] = {}  # [step, bandwidth, overhead]
        self._wanted = ""
        self._wanted_for = 0
        self._patience = 1
        self._alert = 0
        self._in_use = 0
        self._step = 0
        self._quiet = 0
        self._next_probe = _PROBE_AFTER
        self._probed = -_PROBE_APART
        self._home = ""
        self._away = 0
        self._dear_s = 0.0
        self._releasing = 0
        self._chains = 1.0  # buckets whose collectives did not overlap with another's

    def codecs(self) -> tuple[Codec, ...]:
        return tuple(candidate.codec for candidate in self._candidates.values())

    def decide(self, step: int, world: int) -> Decision:
        if world == 1:
            return Decision(self._candidates[self._order[0]].codec, "one rank: nothing to send")
        rate = self._link.bandwidth
        return Decision(
            codec=self._candidates[self._current].codec,
            reason=self._reason,
            bandwidth_mbps=None if rate is None else rate * 8e-6,
            latency_ms=self._link.latency_s * 1e3 or None,
            release=_RELEASE if self._releasing else 1.0,
        )

    def observe(self, groups: Sequence[Group], rows: Sequence[Measurement]) -> None:
        if len(rows) == 1:
            return
        self._step += 1
        self._releasing = max(0, self._releasing - 1)
        changed = self._link.add(rows)
        self._pace.add(rows)
        self._costs.add(
            self._current,
            max(row.encode_s for row in rows),
            max(row.decode_s for row in rows),
            rows[0].dense_bytes,
        )
        news = changed and self._in_use > 2  # sooner it says as much of the codec as of the net
        self._alert = _ALERT if changed else self._alert
        self._patience = 1 if news else self._patience
        self._remember(min(row.overhead_s for row in rows))
        if groups:
            self._chains = rows[0].rounds / max(1, self._rounds(self._current, groups, len(rows)))
        self._in_use += 1
        if self._home:
            self._away -= 1
            # one late step alone is a lost packet
            lasted = min(overhead for _, _, overhead in self._measured[self._current][-2:])
            if self._pace.compute_s + lasted > self._dear_s:
                self._away = min(self._away, _PROBE_LEAST - (_PROBE_STEPS - self._away))
            # also after a change: the first messages of a size meet windows made for less
            if self._away > 0:
                return
            self._take(self._home)
            self._home = ""
            self._reason = f"{self._current}: back from a larger message"
            self._probed = self._step
        self._quiet += 1
        if changed:
            self._quiet = 0
        if news:
            # Exchanges show that the rate is another, but not which.
            rest = self._probed + _PROBE_APART - self._step
            self._next_probe = max(_PROBE_AFTER, rest)
        if self._link.bandwidth is not None and self._pace.known:
            self._choose(groups, len(rows))
        elif self._link.bandwidth is not None:
            self._reason = "start small: the compute time is not known yet"
        self._alert = max(0, self._alert - 1)

    def _remember(self, overhead: float) -> None:
        if self._link.bandwidth is None:
            return
        history = self._measured.setdefault(self._current, [])
        history.append([self._step, self._link.bandwidth, overhead])
        del history[:-_MEMORY]

    def _recall(self, key: str, bandwidth: float) -> float | None:
        """The overhead of a candidate as measured at a like bandwidth, if it was."""
        seen = [
            overhead
            for step, rate, overhead in self._measured.get(key, [])
            if self._step - step <= _EXPIRY and 1 / _LIKE <= rate / bandwidth <= _LIKE
        ]
        return statistics.median_low(seen[-_NEWEST:]) if len(seen) >= 2 else None

    def _choose(self, groups: Sequence[Group], world: int) -> None:
        net = Network(
            bandwidth=self._link.bandwidth or 1.0,
            latency_s=self._link.latency_s,
            first_ready_s=self._pace.first_ready_s,
            compute_s=self._pace.compute_s,
            world=world,
        )
        score = {key: self._score(key, groups, net) for key in self._order}
        best = max(score.values())
        floor = best * (1 - self._tolerance)
        wanted = next(key for key in self._order if score[key] >= floor)
        finer = self._order.index(wanted) < self._order.index(self._current)
        slow = score[self._current] < best * (1 - self._tolerance - _SLACK)
        if wanted == self._current or not (finer or slow or self._alert):
            self._stay(net, "best expected progress")
            if not self._alert and self._quiet >= self._next_probe:
                self._probe(groups, net)
            return
        if finer and not self._alert and not slow:
            poor = dataclasses.replace(net, bandwidth=net.bandwidth * (1 - self._caution))
            if self._score(wanted, groups, poor) < floor:
                return self._stay(net, f"{wanted} would do, but without reserve")
        self._wanted_for = self._wanted_for + 1 if self._wanted == wanted else 1
        self._wanted = wanted
        patience = self._patience * (_PATIENCE_FASTER if slow else _PATIENCE_FINER)
        if slow and None not in (self._recall(k, net.bandwidth) for k in (wanted, self._current)):
            patience = _PATIENCE_FASTER  # a measured mistake is no prediction to be doubted
        if self._alert or self._wanted_for >= patience:
            if not self._alert:
                self._patience = min(3 * self._patience, _PATIENCE_MAX)
            gain = "more progress" if slow else "less loss at nearly the same speed"
            self._switch(wanted, net, gain)

    def _probe(self, groups: Sequence[Group], net: Network) -> None:
        """Where latency hides the rate, send a few steps of a size large enough to show it.

        Of the candidates that send all at once and cost little, the one with the least latency
        in it. One step of it alone might meet a congestion window made for less.
        """
        self._quiet, self._next_probe = 0, _PROBE_EVERY
        if self._shows(self._current, groups, net.world):
            return
        poor = dataclasses.replace(net, bandwidth=net.bandwidth * _PROBE_DOUBT)
        score = {key: self._score(key, groups, poor) for key in self._order}
        floor = score[self._current] / (1 + _PROBE_COST)
        mine = self._bytes(self._current, groups, net.world)
        shares = {
            key: self._share(key, groups, net.world)
            for key in self._order
            if score[key] >= floor
            and self._single(key, groups, net.world)
            and self._bytes(key, groups, net.world) > mine
        }
        if shares:
            self._home, self._away = self._current, _PROBE_STEPS
            step_s = self._candidates[self._current].efficiency / score[self._current]
            self._dear_s = step_s * (1 + 2 * _PROBE_COST)
            self._take(min(shares, key=lambda key: shares[key]))
            self._reason = f"{self._home} -> {self._current} for a while: a larger message"

    def _shows(self, key: str, groups: Sequence[Group], world: int) -> bool:
        """Whether the rate is seen in what a candidate sends; exchanges show changes only."""
        plan = self._candidates[key].codec.transfers(groups[0], world)
        exchanged = any(transfer.kind == "exchange" for transfer in plan)
        return not exchanged and self._share(key, groups, world) <= _PROBE_SHARE

    def _share(self, key: str, groups: Sequence[Group], world: int) -> float:
        """Part of a candidate's time on the network that is latency."""
        rounds = self._rounds(key, groups, world) * self._chains
        return self._link.share(self._bytes(key, groups, world), rounds)

    def _rounds(self, key: str, groups: Sequence[Group], world: int) -> int:
        """Message rounds if the buckets' collectives overlap in full."""
        plan = self._candidates[key].codec.transfers(groups[0], world)
        return sum(round_count(transfer.kind, world) for transfer in plan)

    def _bytes(self, key: str, groups: Sequence[Group], world: int) -> int:
        codec = self._candidates[key].codec
        plans = [codec.transfers(group, world) for group in groups]
        return sum(link_bytes(t.kind, t.nbytes, world) for plan in plans for t in plan)

    def _single(self, key: str, groups: Sequence[Group], world: int) -> bool:
        """Whether a codec sends each bucket in one collective."""
        codec = self._candidates[key].codec
        return all(len(codec.transfers(group, world)) == 1 for group in groups)

    def _stay(self, net: Network, why: str) -> None:
        self._wanted, self._wanted_for = "", 0
        self._reason = f"{self._current}: {why} at {net.bandwidth * 8e-6:.3g} Mbit/s"

    def _switch(self, key: str, net: Network, why: str) -> None:
        self._reason = f"{self._current} -> {key}: {why} at {net.bandwidth * 8e-6:.3g} Mbit/s"
        self._take(key)
        self._wanted, self._wanted_for = "", 0

    def _take(self, key: str) -> None:
        """Use another candidate; where it is less lossy, what was left unsent goes slowly."""
        if self._order.index(key) < self._order.index(self._current):
            self._releasing = _RELEASE_STEPS
        self._current, self._in_use = key, 0

    def _score(self, key: str, groups: Sequence[Group], net: Network) -> float:
        """Expected progress per second."""
        candidate = self._candidates[key]
        overhead = self._recall(key, net.bandwidth)
        if overhead is None:
            overhead = overhead_s(candidate.codec, self._costs.rates(key), groups, net)
        return candidate.efficiency / max(1e-9, net.compute_s + overhead)

    def state_dict(self) -> dict[str, Any]:
        return {
            "link": self._link.state_dict(),
            "pace": self._pace.state_dict(),
            "costs": self._costs.state_dict(),
            "current": self._current,
            "reason": self._reason,
            "measured": {key: [list(x) for x in xs] for key, xs in self._measured.items()},
            "wanted": self._wanted,
            "wanted_for": self._wanted_for,
            "patience": self._patience,
            "alert": self._alert,
            "in_use": self._in_use,
            "step": self._step,
            "quiet": self._quiet,
            "next_probe": self._next_probe,
            "probed": self._probed,
            "home": self._home,
            "away": self._away,
            "dear_s": self._dear_s,
            "releasing": self._releasing,
            "chains": self._chains,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._link.load_state_dict(saved["link"])
        self._pace.load_state_dict(saved["pace"])
        self._costs.load_state_dict(saved["costs"])
        self._current = str(saved["current"])
        self._reason = str(saved["reason"])
        self._measured = {key: [list(x) for x in xs] for key, xs in saved["measured"].items()}
        self._wanted, self._wanted_for = str(saved["wanted"]), int(saved["wanted_for"])
        self._patience = int(saved["patience"])
        self._alert, self._in_use = int(saved["alert"]), int(saved["in_use"])
        self._step = int(saved["step"])
        self._quiet, self._next_probe = int(saved["quiet"]), int(saved["next_probe"])
        self._probed = int(saved["probed"])
        self._home, self._away = str(saved["home"]), int(saved["away"])
        self._dear_s = float(saved["dear_s"])
        self._releasing = int(saved["releasing"])
        self._chains = float(saved["chains"])
