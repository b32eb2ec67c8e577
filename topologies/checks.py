"""Checks of single values, shared by every specification.

A number out of range is refused here, before anything is built: Mininet prints such a mistake
and leaves the link unshaped.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "RATES_MBPS",
    "SpecError",
    "boolean",
    "choice",
    "integer",
    "known_keys",
    "nearest",
    "number",
    "rate",
    "scalar",
    "shown",
    "text",
]


#: rates of links and traffic; tc and iperf3 take what rounds to 0 bit/s for no limit at all
RATES_MBPS = (0.001, 1_000_000.0)
_MOST = 2**31 - 1  # of a whole number, unless said otherwise


class SpecError(ValueError):
    """A specification that cannot be a network.

    Parameters
    ----------
    key : str
        Dotted path of the offending value, for example ``links.2.rate_mbps``.
    message : str
        What was expected, in words, with the nearest valid name where there is one.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key
        self.message = message

    def under(self, prefix: str | int) -> SpecError:
        """Return the same error with its key moved below `prefix`."""
        return SpecError(f"{prefix}.{self.key}" if self.key else str(prefix), self.message)


def nearest(wrong: object, valid: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest valid name, or an empty string."""
    found = difflib.get_close_matches(str(wrong), list(valid), n=1, cutoff=0.5)
    return f"; did you mean '{found[0]}'?" if found else ""


def shown(value: object) -> str:
    """Return `value` on one line, short enough for a message."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _is_finite(value: object) -> bool:
    """Return whether `value` is a number, not a bool, that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def known_keys(
    key: str, data: object, valid: Iterable[str], required: Iterable[str] = ()
) -> dict[str, Any]:
    """Return `data` as a dict, refusing unknown and missing keys."""
    valid = list(valid)
    if not isinstance(data, Mapping):
        raise SpecError(key, f"expected a mapping with keys {', '.join(valid)}; got {shown(data)}")
    for name in data:
        if name not in valid:
            hint = nearest(name, valid) or f"; valid: {', '.join(valid)}"
            raise SpecError(f"{key}.{name}" if key else str(name), f"unknown key{hint}")
    for name in required:
        if name not in data:
            raise SpecError(f"{key}.{name}" if key else name, "is missing")
    return dict(data)


def number(
    key: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: bool = False,
    unit: str = "",
) -> float:
    """Return `value` as a float within [low, high], or (low, high] when `above` is set.

    Raises
    ------
    SpecError
        For anything that is not a finite number (a bool is not one) or is out of range.
    """
    unit = f" {unit}" if unit else ""
    if above and low == 0 and high == math.inf:
        wanted = f"a number greater than 0{unit}"
    elif high == math.inf:
        wanted = f"a number {'greater than' if above else 'of at least'} {low:.10g}{unit}"
    else:
        wanted = f"a number from {'above ' if above else ''}{low:.10g} to {high:.10g}{unit}"
    if low == -math.inf:
        wanted = f"a number{unit}"
    if not _is_finite(value) or not low <= value <= high or (above and value == low):  # type: ignore[operator]
        raise SpecError(key, f"expected {wanted}; got {shown(value)}")
    return float(value)  # type: ignore[arg-type]


def rate(key: str, value: object) -> float:
    """Return `value`, which must be a rate in Mbit/s within `RATES_MBPS`."""
    return number(key, value, *RATES_MBPS, unit="Mbit/s")


def integer(key: str, value: object, low: int, high: int = _MOST) -> int:
    """Return `value` as an int within [low, high]."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not low <= value <= high:  # type: ignore[operator]
        raise SpecError(key, f"expected a whole number from {low} to {high}; got {shown(value)}")
    return int(value)  # type: ignore[call-overload]


def boolean(key: str, value: object) -> bool:
    """Return `value`, which must be true or false."""
    if not isinstance(value, bool):
        raise SpecError(key, f"expected true or false; got {shown(value)}")
    return value


def text(key: str, value: object) -> str:
    """Return `value`, which must be a non-empty string."""
    if not isinstance(value, str) or not value:
        raise SpecError(key, f"expected a name; got {shown(value)}")
    return value


def choice(key: str, value: object, valid: Iterable[str]) -> str:
    """Return `value`, which must be one of `valid`."""
    valid = list(valid)
    if not isinstance(value, str) or value not in valid:
        hint = nearest(value, valid)
        raise SpecError(key, f"expected one of {', '.join(valid)}; got {shown(value)}{hint}")
    return value


def scalar(key: str, value: object) -> bool | int | float | str:
    """Return `value`, which must be a finite number, a text, true or false."""
    if not isinstance(value, (bool, str)) and not _is_finite(value):
        raise SpecError(
            key, f"expected a finite number, a text, true or false; got {shown(value)}"
        )
    return value  # type: ignore[return-value]
