"""Turn pydantic's findings into one line a person can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from topologies.checks import nearest, shown

__all__ = ["explain", "hint", "no_such"]

_WANTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "string_type": "a text",
    "too_short": "at least one entry",
}


def explain(error: ValidationError, sections: Mapping[str, Sequence[str]]) -> str:
    """Return the first mistake as ``key: what was expected``.

    Parameters
    ----------
    error : ValidationError
        What pydantic found.
    sections : dict of str to list of str
        The valid keys of each section, the top level under ``""``.
    """
    # A union reports each member's complaint; the one that went deepest is about the real key.
    details = error.errors(include_url=False)
    first = [d for d in details if d["loc"][:2] == details[0]["loc"][:2]]
    detail = max(first, key=lambda d: len(d["loc"]))
    members = ("str", "Method", "bool", "int", "float")  # of the unions, not keys of the file
    loc = [str(p) for p in detail["loc"] if p not in members] or [""]
    kind = detail["type"]
    if loc[-1] == "[key]":  # what is wrong is the key itself
        return f"{'.'.join(loc[:-2])}: expected keys that are texts; got {detail['input']}"
    key = ".".join(loc)
    if kind == "extra_forbidden":
        return f"{key}: unknown key{_right_key(loc[-1], loc[0] if loc[1:] else '', sections)}"
    if kind == "missing":
        return f"{key}: is missing"
    wanted = _WANTED.get(kind, detail["msg"].removeprefix("Input should be "))
    if loc[0] == "methods" and len(loc) == 2:
        wanted = "a method's name or a mapping with name, label and options"
    if "options" in loc[2:-1]:
        wanted = "a finite number, a text, true or false"
    return f"{key}: expected {wanted}; got {shown(detail['input'])}"


def _right_key(wrong: str, section: str, sections: Mapping[str, Sequence[str]]) -> str:
    """Name the nearest key of a section, or the section a misplaced key belongs to."""
    valid = sections.get(section, sections[""])
    for other, keys in sections.items():
        if other != section and wrong in keys:
            return f"; '{wrong}' belongs {f'under {other}' if other else 'at the top level'}"
    return hint(wrong, valid)


def no_such(name: str, valid: Sequence[str], kind: str = "") -> str:
    """Return the end of a message: that there is no such name, and the nearest or all valid."""
    return f"no {kind + ' ' if kind else ''}'{name}'{hint(name, valid)}"


def hint(wrong: str, valid: Sequence[str]) -> str:
    """Return the end of a message: the nearest valid name, or all of them."""
    return nearest(wrong, valid) or f"; valid: {', '.join(valid)}"
