"""Measures, on one net, a link of each property that links can have, and planted faults."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import asdict, replace
from typing import Any

from testbed.linkprobe import Frames
from testbed.phasecheck import probe_deviations
from testbed.shaping import Direction, ShapingError
from tests.testbed.programs.alone import Bench, bench, main, tc
from topologies.shape import FRAME_BYTES

TOLERANCES = (0.01, 0.01, 0.1)


def measured(made: Bench, asked: list[Direction]) -> dict[str, Any]:
    """Return what each direction did, and what of it is not as asked."""
    probes = made.prober.measure(asked)
    count = len(asked)
    return {
        d.name: {
            "probe": asdict(probes[d.name]),
            "wrong": probe_deviations(d, probes[d.name], TOLERANCES, d.name, count),
        }
        for d in asked
    }


def shaped(plan: dict[str, Any]) -> dict[str, Any]:
    """A link per shape, measured from its host to the switch and back."""
    names = list(plan["shapes"])
    links = {f"h{i}-s0": plan["shapes"][name] for i, name in enumerate(names)}
    found = {}
    with bench(
        len(names), builder="star", rate_mbps=100, delay_ms=1, queue={"bytes": 65536}, links=links
    ) as made:
        for name, result in measured(made, list(made.shaper.directions.values())).items():
            host = name.replace("s0", "").strip(">")
            found[f"{names[int(host[1:])]} {'up' if name[0] == 'h' else 'down'}"] = result
    return found


def planted(plan: dict[str, Any]) -> dict[str, Any]:
    """Links that somebody changes behind the shaper's back."""
    with bench(5, builder="star", rate_mbps=100, delay_ms=1, queue={"bytes": 65536}) as made:
        down = [made.shaper.directions[f"s0>h{i}"] for i in range(5)]
        before = made.shaper.off()
        whole = "netem limit 52 rate {rate}bit delay 1ms"
        dev = [d.device for d in down]
        tc(f"qdisc del dev {dev[0]} root")
        tc(f"qdisc change dev {dev[1]} root handle 1: {whole.format(rate=8 * 100_000_000)}")
        tc(f"qdisc change dev {dev[2]} root handle 1: netem limit 12 rate 100mbit delay 1ms")
        # the right rate, and a bucket of 200 kB below it
        tc(f"qdisc del dev {dev[3]} root")
        tc(f"qdisc add dev {dev[3]} root handle 1: netem limit 100000 delay 1ms")
        tc(f"qdisc add dev {dev[3]} parent 1:1 tbf rate 100mbit burst 200kb limit 65536")
        tc(f"qdisc change dev {dev[4]} root handle 1: netem limit 52 rate 100mbit delay 3ms")
        names = ("removed", "unit", "limit", "burst", "delay")
        found = measured(made, down)
        result = {name: found[d.name]["wrong"] for name, d in zip(names, down, strict=True)}
        result["before"] = before
        result["read back"] = made.shaper.off()
        result["tc"] = _refused(lambda: made.shaper.change(["s0>h0"], {"rate_mbps": 50}))
    return result


def forgotten(plan: dict[str, Any]) -> dict[str, Any]:
    """A change of a link that tc is never told of."""
    with bench(1, builder="star", rate_mbps=100, delay_ms=1, queue={"bytes": 65536}) as made:
        real = made.shaper._run

        def forgetful(command: list[str], text: str) -> str:
            kept = [line for line in text.splitlines() if not line.startswith("qdisc change")]
            return real(command, "\n".join(kept))

        made.shaper._run = forgetful
        return {"change": _refused(lambda: made.shaper.change(["s0>h0"], {"rate_mbps": 50}))}


def _refused(act: Any) -> str:
    try:
        act()
    except ShapingError as error:
        return str(error)
    return ""


def changing(plan: dict[str, Any]) -> dict[str, Any]:
    """Change every kind of link in place, again and again, and measure it each time."""
    found = {}
    links = {"h1-s0": {"aqm": "red"}, "h2-s0": {"aqm": "fq_codel"}}
    with bench(
        3, builder="star", rate_mbps=100, delay_ms=1, queue={"bytes": 65536}, links=links
    ) as made:
        for changes in plan["changes"]:
            names = ["s0>h0", "s0>h1", "s0>h2"]
            made.shaper.change(names, changes)
            asked = [made.shaper.directions[name] for name in names]
            for name, result in measured(made, asked).items():
                found[f"{name} {changes}"] = result
    return found


def speeding(plan: dict[str, Any]) -> dict[str, Any]:
    """Return how many ms 40 frames take if the rate changes while most of them wait."""
    found: dict[str, Any] = {}
    links = {"h1-s0": {"aqm": "bfifo"}}
    with bench(
        2, builder="star", rate_mbps=1, delay_ms=1, queue={"bytes": 100_000}, links=links
    ) as made:
        for name, kind in (("s0>h0", "pfifo"), ("s0>h1", "bfifo")):
            for after_s, rate_mbps in ((0.1, 100.0), (0.003, 1.0)):

                def change(name: str = name, at: float = after_s, to: float = rate_mbps) -> None:
                    time.sleep(at)
                    made.shaper.change([name], {"rate_mbps": to})

                direction = {name: made.shaper.directions[name]}
                # drained at the slower of both rates
                direction[name] = replace(
                    direction[name], shape=replace(direction[name].shape, rate_mbps=1.0)
                )
                thread = threading.Thread(target=change)
                thread.start()
                frames = made.prober._round(direction, {name: [(0.0, 40)]})[name]
                thread.join()
                assert len(frames.got) == 40
                found[f"{kind} to {rate_mbps:g}"] = frames.delays_ms()[-1]
    return found


def crowded(plan: dict[str, Any]) -> dict[str, Any]:
    """Measure many directions at once, some of them with deep queues, as a cell's first process.

    It is ahead of the kernel's own threads, which take in frames when too many come at once.
    """
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    deep = {f"h{i}-s0": {"rate_mbps": 10_000, "queue": {"bytes": 4_000_000}} for i in (0, 1)}
    found = {}
    with bench(
        18, builder="star", rate_mbps=100, delay_ms=1, queue={"bytes": 65536}, links=deep
    ) as made:
        every = list(made.shaper.directions)
        found["all"] = measured(made, [made.shaper.directions[name] for name in every])
        made.shaper.change(every[4:], {"rate_mbps": 25.0})
        found["slower"] = measured(made, [made.shaper.directions[name] for name in every[4:]])
        made.shaper.change(every[4:], {"loss_pct": 5.0})
        found["lossy"] = measured(made, [made.shaper.directions[name] for name in every[4:]])
    fast = {"rate_mbps": 625.205, "delay_ms": 0.05, "queue": {"bytes": 262_228}}
    with bench(8, builder="star", **fast) as made:
        found["fast"] = measured(made, list(made.shaper.directions.values()))
    return found


def flooded(plan: dict[str, Any]) -> dict[str, Any]:
    """A frame whose address broke on h0's link, which the bridge therefore hands on to h1."""
    with bench(2, builder="star", rate_mbps=100, delay_ms=1, queue={"bytes": 65536}) as made:
        time.sleep(2)  # a kernel takes up to a second to see that cables are in
        prober = made.prober
        whole = prober._head["h0>s0"] + bytes(FRAME_BYTES - 14)
        prober._out["h0>s0"].send(whole[:2] + bytes([whole[2] ^ 16]) + whole[3:])
        time.sleep(0.1)
        came = bool(prober._in["s0>h1"].recv(1, socket.MSG_PEEK))
        frames = Frames()
        prober._receive("s0>h1", frames)
        return {"came": came, "broken": frames.broken}


def run(plan: dict[str, Any]) -> dict[str, Any]:
    parts = {
        "shaped": shaped, "planted": planted, "forgotten": forgotten, "changing": changing,
        "speeding": speeding, "crowded": crowded,
        "flooded": flooded,
    }  # fmt: skip
    return {name: part(plan) for name, part in parts.items() if name in plan["parts"]}


if __name__ == "__main__":
    main(run)
