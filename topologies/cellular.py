"""Make the traces that come with the project: a mobile link, drawn from a seed.

``python -m topologies.cellular FOLDER`` writes them again, byte for byte. Nothing was recorded
anywhere: the rate is a product of a slow walk (moving through cells), a fast one (fading) and
hand-overs during which nothing is delivered. The shapes are those that measurements of mobile
networks describe (Winstein, Sivaraman and Balakrishnan, NSDI 2013: rates that change tenfold
within seconds, outages of some hundred milliseconds).
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

__all__ = ["cellular_rates", "csv_text", "mahimahi_text", "main"]

_STEP_S = 0.5
_DELIVERY_BITS = 1504 * 8


def cellular_rates(
    seed: int, seconds: float, mean_mbps: float, handover_every_s: float
) -> list[float]:
    """Return a rate in Mbit/s for each half second.

    Parameters
    ----------
    seed : int
    seconds : float
        Length.
    mean_mbps : float
        Around which the rate wanders, a factor of three to either side.
    handover_every_s : float
        Mean time between hand-overs of one step, in which the rate is 0.
    """
    draw = random.Random(seed)
    slow = fast = 0.0
    rates = []
    for _ in range(round(seconds / _STEP_S)):
        slow = 0.97 * slow + draw.gauss(0.0, 0.15)
        fast = 0.5 * fast + draw.gauss(0.0, 0.2)
        factor = math.exp(max(-1.1, min(1.1, slow + fast)))
        handover = draw.random() < _STEP_S / handover_every_s
        rates.append(0.0 if handover else round(mean_mbps * factor, 2))
    return rates


def csv_text(rates: list[float]) -> str:
    """Return rates as ``time_s,rate_mbps`` lines."""
    rows = [f"{i * _STEP_S:g},{rate:g}" for i, rate in enumerate(rates)]
    return "\n".join(["time_s,rate_mbps", *rows]) + "\n"


def mahimahi_text(rates: list[float]) -> str:
    """Return rates as one line per packet-delivery opportunity, in whole milliseconds."""
    lines = []
    bits = 0.0
    for ms in range(1, round(len(rates) * _STEP_S * 1e3) + 1):
        bits += rates[int((ms - 1) / 1e3 / _STEP_S)] * 1e3
        while bits >= _DELIVERY_BITS:
            bits -= _DELIVERY_BITS
            lines.append(str(ms))
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    """Write both traces to `folder`."""
    walk = cellular_rates(seed=1, seconds=60, mean_mbps=8, handover_every_s=20)
    drive = cellular_rates(seed=2, seconds=20, mean_mbps=4, handover_every_s=6)
    (folder / "cellular-walk.csv").write_text(csv_text(walk), encoding="utf-8")
    (folder / "cellular-drive.mahi").write_text(mahimahi_text(drive), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
