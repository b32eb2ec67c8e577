"""Everything needed to repeat a run: what, with which code, on which machine."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from .atomic import write_json

__all__ = ["code_state", "new_manifest", "now_utc", "update"]

SCHEMA = 1
_ROOT = Path(__file__).parent.parent
_PACKAGES = ("torch", "numpy", "pandas", "pyarrow", "matplotlib", "pydantic", "mininet")


def _git(*arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments], capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def code_state() -> dict[str, Any]:
    """Return the commit, and a hash of what differs from it (files not yet tracked included)."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None, "diff_sha256": None}
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
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


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
        "versions": _versions(),
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
    return {"scenario": resolved, "digest": digest, **environment(command)}


def update(run_dir: Path, **fields: Any) -> None:
    """Add fields to a run's manifest, for what is known only later."""
    path = run_dir / "manifest.json"
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_json(path, data | fields)
