"""Repeat a run from its manifest, and tell whether the numbers came out the same."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import UserError
from .runs import short
from .scenario import SCHEMA, digest_of

__all__ = ["changes_since", "first_difference", "read_run_manifest"]

#: what is compared beforehand: key of the manifest, and what to call it
_NAMED = {
    "guest_kernel": "guest kernel",
    "backend": "back end",
    "kernel": "the host's kernel",
    "cpu": "processor",
}
_MOST = 5  # of files or packages named


def read_run_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a finished run.

    Parameters
    ----------
    path : Path
        ``manifest.json``, or the run's folder.

    Raises
    ------
    UserError
        If it is none, was edited, or the run never ended.
    """
    path = path / "manifest.json" if path.is_dir() else path
    where = f"--from {short(path)}"
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{where}: is not JSON; expected a run's manifest.json") from None
    if not isinstance(manifest, dict):
        raise UserError(f"{where}: expected a run's manifest.json")
    if "sweep" in manifest:
        raise UserError(
            f"{where}: is a sweep's; repeat it in another folder:"
            f" {manifest.get('command')} --results elsewhere"
        )
    resolved = manifest.get("scenario")
    if not isinstance(resolved, dict) or "digest" not in manifest:
        raise UserError(f"{where}: expected a run's manifest.json: it holds no scenario")
    if resolved.get("schema") != SCHEMA:
        raise UserError(
            f"{where}: scenario.schema: expected {SCHEMA}; got {resolved.get('schema')}:"
            " use the code of its time"
        )
    if digest_of(resolved) != manifest["digest"]:
        raise UserError(f"{where}: scenario: was edited: its digest is another")
    if "summary" not in manifest:
        summary = path.with_name("summary.csv")
        if "wall_s" not in manifest or not summary.exists():
            raise UserError(f"{where}: holds no results to compare with: the run did not end")
        manifest["summary"] = summary.read_text().splitlines()
    return manifest


def changes_since(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what is not as it was at the time of the first run, a line each.

    Parameters
    ----------
    old, new
        Manifests, of the first run and of its repetition.
    """
    found = []
    git, now = old.get("git") or {}, new.get("git") or {}
    if git.get("commit") != now.get("commit"):
        found.append(f"commit: {_short(git.get('commit'))} then, {_short(now.get('commit'))} now")
    if git.get("diff_sha256") != now.get("diff_sha256"):
        states = [_state(state) for state in (git, now)]
        found.append(f"uncommitted changes: {states[0]} then, {states[1]} now")
    files = _changed(old.get("code") or {}, new.get("code") or {})
    if files and old.get("code"):
        found.append(f"code that runs in cells: {_some(files)}")
    elif found and old.get("code"):
        found.append("the code that runs in cells: the same")
    for group in ("versions", "packages", "programs"):
        then, today = old.get(group) or {}, new.get(group) or {}
        differing = [k for k in _changed(then, today) if then] if group in old else []
        named = [f"{k} {then.get(k)} then, {today.get(k)} now" for k in differing]
        seen = " ".join(found)
        named = [text for text in named if text not in seen]
        if named:
            found.append(f"{group}: {_some(named)}")
    for key, name in _NAMED.items():
        if key in old and key in new and old[key] != new[key]:
            found.append(f"{name}: {old[key]} then, {new[key]} now")
    return found


def _short(commit: str | None) -> str:
    return "no repository" if commit is None else commit[:10]


def _state(git: Mapping[str, Any]) -> str:
    return "none" if git.get("diff_sha256") is None else f"{git['diff_sha256'][:10]}"


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


def first_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return the first number that came out another, in words; None if all are the same.

    First the summaries are compared, cell by cell and column by column, then the raw records.

    Parameters
    ----------
    old, new
        Manifests, of the first run and of its repetition, each with ``summary``.
    """
    rows = [list(csv.DictReader(manifest["summary"])) for manifest in (old, new)]
    for then, now in zip(*rows, strict=False):
        cell = f"{then.get('method')} seed {then.get('seed')}"
        for column in {**then, **now}:
            if then.get(column) != now.get(column):
                values = [value or "nothing" for value in (then.get(column), now.get(column))]
                return f"{cell}: {column}: {values[0]} then, {values[1]} now"
    if len(rows[0]) != len(rows[1]):
        return f"{len(rows[0])} cells then, {len(rows[1])} now"
    cells = [manifest.get("cells") or {} for manifest in (old, new)]
    for key in cells[0]:
        if key in cells[1]:
            files = _changed(cells[0][key]["records"], cells[1][key]["records"])
            if files:
                return f"{key}: {files[0]} is not the same; the summary is"
    return None
