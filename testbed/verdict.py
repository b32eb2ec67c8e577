"""Hold what the links did during a run against what was asked of them, from their counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from topologies.shape import FRAME_BYTES

__all__ = ["byte_check", "rate_check"]

#: A TCP segment of 1448 bytes travels in 1514, and every second one is acknowledged in 66.
HEADER_SHARE = FRAME_BYTES / 1448
ACK_SHARE = 66 / (2 * 1448)


def rate_check(
    samples: Iterable[Mapping[str, Any]], tolerance: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare each direction's greatest throughput between two samples with its asked rate.

    Parameters
    ----------
    samples
        Lines of ``links.jsonl``.
    tolerance
        Share by which a rate may be exceeded, and missed where a queue stood.

    Returns
    -------
    list of dict
        Per direction and asked rate: the greatest throughput, and the greatest while a queue
        stood at both ends of the interval (None if it never did), in Mbit/s of layer-2 bytes.
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
        in_flight = rate * 1e6 / 8 * now["asked_delay_ms"] / 1e3 + 2 * 65536
        if min(before["backlog_bytes"], now["backlog_bytes"]) > in_flight:
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
    sent: Mapping[str, int], received: Mapping[str, int], hook: Mapping[str, int]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Explain the bytes of each rank's uplink by what its hook handed to the collectives.

    Parameters
    ----------
    sent, received
        Per host, layer-2 bytes of its uplink and its downlink during the training.
    hook
        Per host, bytes that the collectives move out of it by the hook's account. Hosts that
        other traffic uses are left out by the caller.

    Returns
    -------
    list of dict
        Per host: counted bytes, hook bytes, and the share of what headers, acknowledgements
        and hook bytes together leave unexplained (retransmissions, set-up).
    list of str
        Hosts where more than 8 % is unexplained, or less was sent than the hook says.
    """
    table, wrong = [], []
    for host, payload in sorted(hook.items()):
        explained = payload * HEADER_SHARE + received[host] / HEADER_SHARE * ACK_SHARE
        unexplained = sent[host] / explained - 1 if explained else 0.0
        table.append(
            {
                "host": host,
                "link_bytes": sent[host],
                "hook_bytes": payload,
                "unexplained": round(unexplained, 6),
            }
        )
        if payload and not -0.03 <= unexplained <= 0.08:
            wrong.append(
                f"{host}: its link sent {sent[host]} bytes, its hook explains {explained:.0f}"
            )
    return table, wrong
