"""Hold what the links did during a run against what was asked of them, from their counters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["Deviation", "byte_check", "loss_check", "rate_check", "verdict"]

#: Ethernet, IP and TCP with time stamps, in every frame
HEADER_BYTES = 66
#: What gloo sends of its own per round of a collective: the heads of its messages and the
#: notices that a buffer is ready. Measured with collectives of 4 ranks: 306 to 309.
GLOO_ROUND_BYTES = 308
#: after a change, the queue is taken to be of before it for so long, unless it was empty since
_STALE_S = 1.0


class Deviation(str):
    """A line that says how something is not what was asked.

    Parameters
    ----------
    text : str
    excess : float
        How many times the tolerance it is off; infinite where there is no measure.
    """

    excess: float

    def __new__(cls, text: str, excess: float = math.inf) -> Deviation:
        """Make the line."""
        made = super().__new__(cls, text)
        made.excess = excess
        return made


def verdict(wrong: Iterable[str]) -> str:
    """Return ``ok``, or the worst deviation and how many more there are."""
    listed = list(dict.fromkeys(wrong))
    if not listed:
        return "ok"
    worst = max(listed, key=lambda text: getattr(text, "excess", math.inf))
    return worst + (f" (and {len(listed) - 1} more)" if len(listed) > 1 else "")


def rate_check(
    samples: Iterable[Mapping[str, Any]], tolerance: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare each direction's greatest throughput in each phase with the rate asked of it.

    Parameters
    ----------
    samples
        Lines of ``links.jsonl``.
    tolerance
        Share by which a rate may be exceeded, and missed where the queue cannot have run dry.

    Returns
    -------
    list of dict
        Per direction and phase: the greatest throughput, and the greatest in an interval that
        began with more queued than could be sent in it (None if none did), in Mbit/s of layer-2
        bytes.
    list of str
        Deviations.
    """
    best: dict[tuple[str, int, float], list[float | None]] = defaultdict(lambda: [0.0, None])
    seen: set[tuple[str, int, float]] = set()
    for before, now, seconds in _intervals(samples):
        name, rate = now["direction"], now["asked_rate_mbps"]
        key = (name, now.get("phase", 0), rate)
        # one packet of up to 64 KB may count whole in either interval
        slack = 65536 * 8e-6 / seconds
        # in netem as it comes, what was queued before a change of the rate keeps its time
        stale = 0.0 if key in seen or not key[1] else before["backlog_bytes"] * 8e-6 / seconds
        seen.add(key)
        got = (now["tx_bytes"] - before["tx_bytes"]) * 8e-6 / seconds
        entry = best[key]
        entry[0] = max(entry[0] or 0.0, got - slack - stale)
        # more was queued than the link can send in the interval: it cannot have been idle
        if before["backlog_bytes"] > rate * 1e6 / 8 * (seconds + before["asked_delay_ms"] / 1e3):
            entry[1] = max(entry[1] or 0.0, got + slack)
    table: list[dict[str, Any]] = []
    wrong: list[str] = []
    for (name, phase, rate), (most, busy) in sorted(best.items()):
        table.append(
            {
                "direction": name,
                "phase": phase,
                "asked_rate_mbps": rate,
                "most_mbps": round(most or 0.0, 6),
                "busy_mbps": None if busy is None else round(busy, 6),
            }
        )
        off = [(most or 0.0) / rate - 1, 0.0 if busy is None else 1 - busy / rate]
        said = [f"sent {most:.3f}", f"a queue stood and it sent {busy or 0.0:.3f}"]
        wrong += [
            Deviation(f"{name}: asked {rate:g} Mbit/s, {text}", share / tolerance)
            for share, text in zip(off, said, strict=True)
            if share > tolerance
        ]
    return table, wrong


def _intervals(
    samples: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], float]]:
    """Yield pairs of samples of a direction within one phase, and the seconds between them."""
    last: dict[str, Mapping[str, Any]] = {}
    for now in samples:
        name = now["direction"]
        before, last[name] = last.get(name), now
        if before is None or before.get("phase", 0) != now.get("phase", 0):
            continue
        seconds = now["t_s"] - before["t_s"]
        if before["asked_rate_mbps"] == now["asked_rate_mbps"] and seconds >= 0.05:
            yield before, now, seconds


def loss_check(
    samples: Iterable[Mapping[str, Any]], least: Callable[[int, float, str], float]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare the frames that each direction dropped in each phase with the loss asked of it.

    The counters do not tell a frame lost on purpose from one that found the queue full, so that
    only too few drops are a deviation.

    Parameters
    ----------
    least
        Returns, for a number of frames, a loss in percent and a direction, how many must be
        lost at least.
    """
    sums: dict[tuple[str, int, float], list[int]] = defaultdict(lambda: [0, 0])
    began_s: dict[tuple[str, int, float], float] = {}
    for before, now, _ in _intervals(samples):
        key = (now["direction"], now.get("phase", 0), now["asked_loss_pct"])
        start_s = began_s.setdefault(key, before["t_s"])
        if key[1] and before["backlog_bytes"] and start_s > before["t_s"] - _STALE_S:
            continue  # what was queued before the change still leaves as it would have
        began_s[key] = -math.inf
        own = sums[key]
        dropped = now["drops"] - before["drops"]
        own[0] += dropped + now["tx_packets"] - before["tx_packets"]
        own[1] += dropped
    table: list[dict[str, Any]] = []
    wrong: list[str] = []
    for (name, phase, pct), (frames, dropped) in sorted(sums.items()):
        table.append(
            {
                "direction": name,
                "phase": phase,
                "asked_loss_pct": pct,
                "frames": frames,
                "dropped": dropped,
            }
        )
        if dropped < (need := least(frames, pct, name)):
            text = f"{name}: asked to lose {pct:g} % of {frames} frames, lost {dropped}"
            wrong.append(Deviation(text, need / max(dropped, 1)))
    return table, wrong


def byte_check(
    sent: Mapping[str, tuple[int, int]], hook: Mapping[str, tuple[int, int]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Explain the bytes of each rank's uplink by what its hook handed to the collectives.

    Parameters
    ----------
    sent
        Per host, layer-2 bytes and frames of its uplink during the training.
    hook
        Per host, bytes that the collectives move out of it by the hook's account, and their
        rounds. Hosts that other traffic uses are left out by the caller.

    Returns
    -------
    list of dict
        Per host: the bytes inside the frames that were counted, the hook's bytes, and the share
        that these and gloo's own messages leave unexplained: retransmissions.
    list of str
        Hosts where more than 8 % is unexplained, or 3 % less was sent than is explained.
    """
    table: list[dict[str, Any]] = []
    wrong: list[str] = []
    for host, (handed, rounds) in sorted(hook.items()):
        nbytes, frames = sent[host]
        payload = nbytes - HEADER_BYTES * frames
        explained = handed + GLOO_ROUND_BYTES * rounds
        unexplained = payload / explained - 1 if explained else 0.0
        table.append(
            {
                "host": host,
                "link_bytes": nbytes,
                "payload_bytes": payload,
                "hook_bytes": handed,
                "rounds": rounds,
                "unexplained": round(unexplained, 6),
            }
        )
        if handed and not -0.03 <= unexplained <= 0.08:
            text = f"{host}: its link carried {payload} bytes, its hook explains {explained}"
            wrong.append(Deviation(text, abs(unexplained) / 0.08))
    return table, wrong
