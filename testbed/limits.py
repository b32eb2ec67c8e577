"""Limit what a host may use, by control groups, where the kernel has them.

On a virtual clock processor work takes no time, so a CPU limit changes nothing there: what a
slow host costs is charged by its device profile instead. Memory is limited on any clock.
"""

from __future__ import annotations

from pathlib import Path

from topologies import Host

__all__ = ["LimitError", "limit_host"]

_PERIOD_US = 100_000


class LimitError(Exception):
    """A limit that was asked for cannot be set; the text names the controller."""


def limit_host(host: Host, pids: list[int], root: Path = Path("/cgroup")) -> None:
    """Put processes of `host` under its limits; their children stay under them.

    Parameters
    ----------
    host
        With its `cpu` (cores) and `memory_mb` limits; None is unlimited.
    pids
        Processes, as seen from here.
    root
        Where the version 1 controllers are mounted.

    Raises
    ------
    LimitError
        If the kernel lacks a controller that is needed: a limit is never silently off.
    """
    if host.cpu is not None:
        quota = round(host.cpu * _PERIOD_US)
        settings = {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": quota}
        _group(root / "cpu,cpuacct", host.name, settings, pids)
    if host.memory_mb is not None:
        settings = {"memory.limit_in_bytes": host.memory_mb << 20}
        _group(root / "memory", host.name, settings, pids)


def _group(controller: Path, name: str, settings: dict[str, int], pids: list[int]) -> None:
    if not (controller / "tasks").exists():
        raise LimitError(f"host {name}: this kernel has no control group {controller.name}")
    group = controller / name
    group.mkdir(exist_ok=True)
    for key, value in settings.items():
        (group / key).write_text(str(value))
        got = int((group / key).read_text())
        if got != value:
            raise LimitError(f"host {name}: {key} asked {value}, got {got}")
    for pid in pids:
        (group / "tasks").write_text(str(pid))
