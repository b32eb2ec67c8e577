"""Everything needed to repeat a run: what, with which code, on which machine."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from .atomic import write_json
from .identity import PROGRAM, code_files, guest_kernel, versions

__all__ = [
    "cell_facts",
    "code_state",
    "environment",
    "machine",
    "new_manifest",
    "now_utc",
    "update",
]

SCHEMA = 1
_ROOT = Path(__file__).parent.parent
_LONGEST_DIFF = 1 << 20
_PROGRAMS = {"iperf3": ("iperf3", "--version"), "tc": ("tc", "-V"), "git": ("git", "--version")}


def _git(*arguments: str, more: dict[str, str] | None = None) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments],
            capture_output=True,
            timeout=30,
            check=False,
            env={**os.environ, **(more or {})},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _diff() -> str | None:
    """Return what differs from the commit as a patch, files not yet tracked included."""
    index = _git("rev-parse", "--git-path", "index")
    if index is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        # a copy of the index: looking must not change what the user has staged
        own = Path(folder) / "index"
        place = _ROOT / index.decode().strip()
        if place.exists():
            shutil.copyfile(place, own)
        there = {"GIT_INDEX_FILE": str(own)}
        if _git("add", "--all", "--intent-to-add", more=there) is None:
            return None
        patch = _git("diff", "HEAD", "--binary", more=there)
    if patch is None or len(patch) > _LONGEST_DIFF:
        return None
    return patch.decode(errors="replace")


def code_state() -> dict[str, Any]:
    """Return the commit, and what differs from it (files not yet tracked included).

    ``diff`` is a patch, null if nothing differs or it is longer than a megabyte; ``diff_sha256``
    is there in any case.
    """
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None, "diff_sha256": None, "diff": None}
    digest = hashlib.sha256(_git("diff", "HEAD", "--binary") or b"")
    status = _git("status", "--porcelain") or b""
    untracked = _git("ls-files", "--others", "--exclude-standard", "-z") or b""
    for name in sorted(filter(None, untracked.split(b"\0"))):
        path = _ROOT / os.fsdecode(name)
        digest.update(name + b"\0")
        if path.is_file():
            digest.update(path.read_bytes())
    dirty = bool(status.strip())
    return {
        "commit": commit.decode().strip(),
        "dirty": dirty,
        "diff_sha256": digest.hexdigest() if dirty else None,
        "diff": _diff() if dirty else None,
    }


def _packages() -> dict[str, str]:
    """Return every Python package that is installed, and its version."""
    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _programs() -> dict[str, str | None]:
    """Return the first line of what programs of the testbed say of their version."""
    return {name: _says(*command) for name, command in _PROGRAMS.items()}


def _says(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0].strip() if lines else None


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def now_utc() -> str:
    """Return the time, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def machine() -> dict[str, Any]:
    """Return what tells one machine from another."""
    return {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0))}


def environment(command: str) -> dict[str, Any]:
    """Return what the code is and what it runs on, now.

    Parameters
    ----------
    command : str
        The command line that repeats the run.
    """
    return {
        "schema": SCHEMA,
        "command": command,
        "started_utc": now_utc(),
        "git": code_state(),
        "versions": versions(),
        "packages": _packages(),
        "programs": _programs(),
        "guest_kernel": guest_kernel(),
        "kernel": platform.release(),
        "system": platform.platform(),
        **machine(),
    }


def new_manifest(resolved: dict[str, Any], digest: str, command: str) -> dict[str, Any]:
    """Return the manifest of a run that starts now.

    Parameters
    ----------
    resolved : dict
        `Scenario.resolved`.
    digest : str
        `Scenario.digest`.
    command : str
        The command line that repeats the run.
    """
    return {
        "scenario": resolved,
        "digest": digest,
        "seeds": resolved["seeds"],
        "code": code_files(PROGRAM, _tasks(resolved)),
        **environment(command),
    }


def _tasks(resolved: dict[str, Any]) -> list[str]:
    own = resolved["workload"]["task"]
    return list(dict.fromkeys([own, *(job["task"] or own for job in resolved["jobs"])]))


def cell_facts(folder: Path, wall_s: float | None = None) -> dict[str, Any]:
    """Return what a run's manifest says of a cell, from what the cell left.

    Its status, virtual and wall seconds, the kernel and TCP's settings inside, every queueing
    discipline before and after, and the SHA-256 of each of its records.
    """
    outcome = _json(folder / "outcome.json") or {}
    records = sorted([*folder.rglob("*.jsonl"), *folder.glob("outcome.json")])
    return {
        "status": outcome.get("status", "failed"),
        "virtual_s": outcome.get("virtual_s"),
        "wall_s": wall_s,
        "system": _json(folder / "system.json"),
        "tc_before": _json(folder / "tc-before.json"),
        "tc_after": _json(folder / "tc-after.json"),
        "records": {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in records
        },
    }


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def update(run_dir: Path, **fields: Any) -> None:
    """Add fields to a run's manifest, for what is known only later."""
    path = run_dir / "manifest.json"
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_json(path, data | fields)
