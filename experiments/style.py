"""One colour, marker and position per method, the same in every picture and table.

Colours are those of Okabe and Ito ("Color Universal Design", 2008) and Paul Tol's muted scheme,
which people with the common colour blindnesses can tell apart; the marker carries the same
information a second time. A method that is not listed gets its style from a hash of its name,
so a new method looks the same everywhere too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["INVALID", "PARTS", "Style", "marker_size", "style_of"]


@dataclass(frozen=True)
class Style:
    """How one method is drawn: matplotlib colour and marker."""

    colour: str
    marker: str


_FIXED = {
    "netsense": Style("#D55E00", "*"),
    "allreduce": Style("#4D4D4D", "o"),
    "fp16": Style("#56B4E9", "s"),
    "topk-0.1": Style("#0072B2", "^"),
    "topk-0.01": Style("#009E73", "v"),
    "powersgd": Style("#CC79A7", "D"),
    "dgc": Style("#E69F00", "P"),
    "qsgd": Style("#999933", "X"),
    "netsense-paper": Style("#882255", "p"),
    "topk-0.1-int64": Style("#332288", "<"),
    "powersgd-4": Style("#AA4499", "d"),
}
_COLOURS = ("#117733", "#44AA99", "#661100", "#6699CC", "#B8860B", "#888888")
_MARKERS = (">", "h", "8", "H")

INVALID = "#BBBBBB"  # a cell that did not end well
# Parts of a step, from "the limit" to "the cost".
PARTS = {
    "compute": "#44AA99",
    "encode + decode": "#DDCC77",
    "exposed communication": "#CC6677",
    "waiting for stragglers": "#88CCEE",
}


def style_of(label: str) -> Style:
    """Return the style of the method called `label`."""
    if label in _FIXED:
        return _FIXED[label]
    digest = hashlib.sha256(label.encode()).digest()
    return Style(_COLOURS[digest[0] % len(_COLOURS)], _MARKERS[digest[1] % len(_MARKERS)])


def marker_size(style: Style) -> float:
    """Return the size, in points, at which a method's marker looks as large as others."""
    return 10.0 if style.marker == "*" else 5.5  # a star has little area for its width
