"""Hold what the links did during a run against what was asked of them, from their counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["byte_check", "rate_check"]

#: Ethernet, IP and TCP with time stamps, in every frame
HEADER_BYTES = 66
#: What gloo sends of its own per round of a collective: the heads of its messages and the
#: notices that a buffer is ready. Measured with collectives of 4 ranks: 306 to 309.
GLOO_ROUND_BYTES = 308


def rate_check(
    samples: Iterable[Mapping[str, Any]], tolerance: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare each direction's greatest throughput between two samples with its asked rate.

    Parameters
    ----------
    samples
        Lines of ``links.jsonl``.
    tolerance
        Share by which a rate may be exceeded, and missed where the queue cannot have run dry.

    Returns
    -------
    list of dict
        Per direction and asked rate: the greatest throughput, and the greatest in an interval
        that began with more queued than could be sent in it (None if none did), in Mbit/s of
        layer-2 bytes.
    list of str
        Deviations.
    """
    best: dict[tuple[str, float], list[float | None]] = defaultdict(lambda: [0.0, None])
    last: dict[str, Mapping[str, Any]] = {}
    for now in samples:
        name = now["direction"]
        before, last[name] = last.get(name), now
        if before is None or before["asked_rate_mbps"] != now["asked_rate_mbps"]:
            continue
        seconds = now["t_s"] - before["t_s"]
        if seconds < 0.05:
            continue
        rate = now["asked_rate_mbps"]
        # one packet of up to 64 KB may count whole in either interval
        slack = 65536 * 8e-6 / seconds
        got = (now["tx_bytes"] - before["tx_bytes"]) * 8e-6 / seconds
        entry = best[name, rate]
        entry[0] = max(entry[0] or 0.0, got - slack)
        # more was queued than the link can send in the interval: it cannot have been idle
        if before["backlog_bytes"] > rate * 1e6 / 8 * (seconds + before["asked_delay_ms"] / 1e3):
            entry[1] = max(entry[1] or 0.0, got + slack)
    table, wrong = [], []
    for (name, rate), (most, busy) in sorted(best.items()):
        table.append(
            {
                "direction": name,
                "asked_rate_mbps": rate,
                "most_mbps": round(most or 0.0, 6),
                "busy_mbps": None if busy is None else round(busy, 6),
            }
        )
        if most is not None and most > rate * (1 + tolerance):
            wrong.append(f"{name}: asked {rate:g} Mbit/s, sent {most:.3f}")
        if busy is not None and busy < rate * (1 - tolerance):
            wrong.append(f"{name}: asked {rate:g} Mbit/s, a queue stood and it sent {busy:.3f}")
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
    table, wrong = [], []
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
            wrong.append(
                f"{host}: its link carried {payload} bytes, its hook explains {explained}"
            )
    return table, wrong
