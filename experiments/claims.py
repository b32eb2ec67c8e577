"""The claims and the bars, each with our number, its conditions, and whether it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from .reproduction import BASELINES, CONSTRAINED, WORDS, Place, Reproduction, named

__all__ = ["Claim", "claims", "spread"]

_PAPER_LOW, _PAPER_HIGH = 1.55, 9.84
_ADMITTED_POINTS = 0.5
_OURS = "netsense"
_DENSE = "allreduce"
_RATE = "samples_per_second"
_NAMED_GAPS = 3


@dataclass(frozen=True)
class Claim:
    """One line of the result.

    Parameters
    ----------
    claim, wanted, ours, conditions : str
    holds : bool, optional
        None: not measured.
    """

    claim: str
    wanted: str
    ours: str
    conditions: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """In words."""
        return "not measured" if self.holds is None else "met" if self.holds else "missed"


def spread(values: list[float]) -> str:
    """Return the smallest, middle and largest of some ratios, and their number."""
    if not values:
        return "not measured"
    low, middle, high = min(values), float(np.median(values)), max(values)
    return f"{low:.2f} / {middle:.2f} / {high:.2f} (n = {len(values)})"


def claims(found: Reproduction) -> list[Claim]:
    """Return every claim, measured or not."""
    return [
        *_paper(found),
        *_efficiency(found),
        _dense_limit(found),
        _nearly_fastest(found),
        *_never_slower(found),
        *_time_to_accuracy(found),
        *_scaling(found),
        _replicas(found),
    ]


def _claim(
    claim: str, wanted: str, ours: str, conditions: str, holds: bool | None, gaps: list[str]
) -> Claim:
    """Return a claim over cells of which some, the `gaps`, have no valid value.

    They are named, and nothing is met that one of them might have changed.
    """
    if gaps:
        named_gaps = ", ".join(gaps[:_NAMED_GAPS])
        more = f" and {len(gaps) - _NAMED_GAPS} more" if len(gaps) > _NAMED_GAPS else ""
        ours = f"{ours}; without a value: {named_gaps}{more}"
        holds = None if holds else holds
    return Claim(claim, wanted, ours, conditions, holds)


def _paper(found: Reproduction) -> Iterator[Claim]:
    gains = found.gains(BASELINES, CONSTRAINED)
    values = list(gains.values())
    least = min(gains, key=lambda k: gains[k], default="")
    most = max(gains, key=lambda k: gains[k], default="")
    constrained = [place for place in found.places if place[1] in CONSTRAINED]
    gaps = _rate_gaps(found, constrained, BASELINES)
    yield _claim(
        "Throughput over compression-enabled systems, smallest",
        f"{_PAPER_LOW}\u00d7 (paper)",
        f"{gains[least]:.2f}\u00d7: {least}" if gains else "not measured",
        f"all cells on constrained networks; min / median / max: {spread(values)}",
        gains[least] >= _PAPER_LOW if gains else None,
        gaps,
    )
    yield _claim(
        "Throughput over compression-enabled systems, largest",
        f"{_PAPER_HIGH}\u00d7 (paper)",
        f"{gains[most]:.2f}\u00d7: {most}" if gains else "not measured",
        "the same cells",
        gains[most] >= _PAPER_HIGH if gains else None,
        gaps,
    )
    formats = ("topk-0.1-int64", "topk-0.1")
    topk = found.gains(formats, CONSTRAINED)
    best = max(topk, key=lambda k: topk[k], default="")
    yield _claim(
        "Largest speed-up over TopK-0.1",
        f"above {_PAPER_HIGH}\u00d7",
        f"{topk[best]:.2f}\u00d7: {best}" if topk else "not measured",
        f"constrained networks, both wire formats; {spread(list(topk.values()))}",
        topk[best] > _PAPER_HIGH if topk else None,
        _rate_gaps(found, constrained, formats),
    )


def _rate_gaps(found: Reproduction, places: list[Place], others: Iterable[str]) -> list[str]:
    """Return the cells without a throughput among ours and others' in some places."""
    return found.gaps("throughput", places=places, methods=(_OURS, *others), column=_RATE)


def _efficiency(found: Reproduction) -> Iterator[Claim]:
    for model, network in found.places:
        wanted = {"200m": 0.80, "500m": 0.90, "800m": 0.90}.get(network)
        if wanted is None:
            continue
        value = found.value((model, network), _OURS, "efficiency")
        yield _claim(
            f"Efficiency of netsense, {named((model, network))}",
            f"at least {wanted:.2f}",
            "not measured" if value is None else f"{value:.3f}",
            _stands_for(found, model, network),
            None if value is None else value >= wanted,
            _rate_gaps(found, [(model, network)], ()),
        )


def _stands_for(found: Reproduction, model: str, network: str) -> str:
    rows = found.cells
    rows = rows[(rows["model"] == model) & (rows["network"] == network)]
    rows = rows[rows["method"] == _OURS]
    if rows.empty:
        return ""
    task, factor = str(rows["task"].iloc[0]), float(rows["factor"].iloc[0])
    return "full size" if factor == 1 else f"{task}, rate divided by {factor:.2f}"


def _dense_limit(found: Reproduction) -> Claim:
    place = ("vgg16", "500m")
    gain = found.gain(place, _DENSE)
    dense = found.value(place, _DENSE, "step_ms")
    compute = found.value(place, _OURS, "compute_ms_p50")
    known = gain is not None and dense is not None and compute is not None
    limit = dense / compute if known else None  # type: ignore[operator]
    return _claim(
        "VGG16 at 500 Mbit/s over dense all-reduce",
        "78\u00d7 or the compute limit",
        f"{gain:.1f}\u00d7 of at most {limit:.1f}\u00d7" if known else "not measured",
        "the limit is dense step time over compute time; within 5 % of it counts",
        gain >= min(78.0, 0.95 * limit) if known else None,  # type: ignore[operator]
        _rate_gaps(found, [place], [_DENSE]),
    )


def _nearly_fastest(found: Reproduction) -> Claim:
    lost = found.accuracy_lost()
    admitted = [m for m in found.methods if lost.get(m, 0.0) <= _ADMITTED_POINTS]
    behind, seen = [], 0
    for place in found.places:
        mine = found.value(place, _OURS, _RATE)
        rates = {m: found.value(place, m, _RATE) for m in admitted}
        known = {m: rate for m, rate in rates.items() if rate is not None}
        if mine is None or len(known) < 2:
            continue
        seen += 1
        best = max(known, key=lambda m: known[m])
        if mine < 0.95 * known[best]:
            behind.append(f"{named(place)}: {mine / known[best]:.2f} of {best}")
    out = sorted(set(found.methods) - set(admitted))
    basis = f"left out, too far below dense in accuracy: {', '.join(out)}" if out else ""
    # what left a method out must itself have been measured
    gaps = found.gaps("throughput", methods=[_OURS, *admitted], column=_RATE)
    gaps += found.gaps("accuracy", methods=[_DENSE, *out], column="final_accuracy") if out else []
    return _claim(
        "In every cell fastest or within 5 % of it",
        "all cells",
        "not measured" if not seen else "; ".join(behind) or f"all {seen}",
        "among methods within 0.5 points of dense; a method whose accuracy was not measured "
        f"counts. {basis}".strip(),
        not behind if seen else None,
        gaps,
    )


def _never_slower(found: Reproduction) -> Iterator[Claim]:
    for place in found.places:
        if place[1] != "10g":
            continue
        gain = found.gain(place, _DENSE)
        yield _claim(
            f"At 10 Gbit/s against dense, {place[0]}",
            "at least 0.98\u00d7",
            "not measured" if gain is None else f"{gain:.3f}\u00d7",
            _stands_for(found, *place),
            None if gain is None else gain >= 0.98,
            _rate_gaps(found, [place], [_DENSE]),
        )


def _time_to_accuracy(found: Reproduction) -> Iterator[Claim]:
    for place in found.learning_places:
        times = found.times_to_accuracy(place)
        known = {m: t for m, t in times.items() if t is not None}
        mine = known.get(_OURS)
        best = min(known, key=lambda m: known[m], default="")
        text = "not measured"
        if _OURS in times:
            text = (
                "target missed"
                if mine is None
                else f"{mine:.2f} s; best: {best} {known[best]:.2f} s"
            )
        seeds = found.learning["seed"].nunique()
        yield _claim(
            f"Best time to accuracy, {WORDS.get(place[1], place[1])}",
            "the shortest",
            text,
            f"real training, {seeds} seed{'s' if seeds != 1 else ''}, network scaled to the model",
            None if _OURS not in times else mine is not None and mine <= known[best],
            found.gaps("accuracy", places=[place]),
        )


def _scaling(found: Reproduction) -> Iterator[Claim]:
    agree = found.agreements()
    for place in dict.fromkeys(
        (c["axes"]["model"], c["axes"]["network"])
        for c in found.tables.manifest["cells"]
        if c["axes"]["part"] == "proof"
    ):
        pair = agree.get(named(place))
        off = abs(pair[0] / pair[1] - 1) if pair else None
        yield _claim(
            f"Scaling by similarity, {named(place)}",
            "step times within 3 %",
            f"{pair[0]:,.1f} and {pair[1]:,.1f} ms, {off:.1%} apart" if pair else "not measured",
            "dense all-reduce in two sizes",
            None if off is None else off <= 0.03,
            [
                *found.gaps("proof", places=[place]),
                *found.gaps("throughput", places=[place], methods=[_DENSE]),
            ],
        )


def _replicas(found: Reproduction) -> Claim:
    rows = found.tables.summary
    same = rows["replicas_identical"].eq(True)
    differ = rows["replicas_identical"].eq(False)
    return _claim(
        "Replicas stay identical",
        "all cells, bit by bit",
        f"{int(same.sum())} of {len(found.tables.manifest['cells'])}",
        "parameters of all ranks at the end; the public code's do not",
        not differ.any() if len(rows) else None,
        found.gaps(column="replicas_identical"),
    )
