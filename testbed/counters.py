"""Read the counters of every queueing discipline by netlink, without starting `tc`.

A sample every tenth of a second would otherwise cost more wall time than the training.
Layout: ``linux/rtnetlink.h``, ``linux/gen_stats.h``.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

__all__ = ["Counters", "read_counters"]

_RTM_GETQDISC = 38
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_TC_H_ROOT = 0xFFFFFFFF
_TCA_STATS2 = 7
_STATS_BASIC, _STATS_QUEUE = 1, 3


@dataclass(frozen=True)
class Counters:
    """What a qdisc has sent, dropped and holds; bytes as on the wire (headers per frame)."""

    tx_bytes: int
    tx_packets: int
    drops: int
    backlog_bytes: int
    backlog_packets: int


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("HH", data, at)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return found


def _counters(stats: bytes) -> Counters:
    groups = _attributes(stats)
    sent_bytes, sent_packets = struct.unpack_from("QI", groups[_STATS_BASIC])
    queued, backlog, drops = struct.unpack_from("III", groups[_STATS_QUEUE])
    return Counters(sent_bytes, sent_packets, drops, backlog, queued)


def read_counters() -> dict[str, Counters]:
    """Return the counters of the root qdisc of each device of this network namespace."""
    found: dict[int, Counters] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        # struct nlmsghdr, then struct tcmsg with ifindex 0: all devices
        message = struct.pack("IHHII", 36, _RTM_GETQDISC, _NLM_F_REQUEST_DUMP, 1, 0)
        link.send(message + struct.pack("BxxxiIII", 0, 0, 0, 0, 0))
        while True:
            data = link.recv(1 << 18)
            at = 0
            while at < len(data):
                length, kind = struct.unpack_from("IH", data, at)
                if kind == _NLMSG_DONE:
                    return _by_name(found)
                if kind == _NLMSG_ERROR:
                    code = -struct.unpack_from("i", data, at + 16)[0]
                    raise OSError(code, f"reading qdiscs: {os.strerror(code)}")
                index, _, parent = struct.unpack_from("iII", data, at + 20)
                stats = _attributes(data[at + 36 : at + length]).get(_TCA_STATS2)
                if parent == _TC_H_ROOT and stats is not None:
                    found[index] = _counters(stats)
                at += (length + 3) & ~3


def _by_name(found: dict[int, Counters]) -> dict[str, Counters]:
    names = dict(socket.if_nameindex())
    return {names[index]: counters for index, counters in found.items() if index in names}
