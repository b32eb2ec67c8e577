"""What this machine cannot run is skipped, and says what it would take."""

from __future__ import annotations

import os
from functools import cache

import pytest

# `make test` runs these tests: the make that some of them call must not take itself for its child
for _name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"):
    os.environ.pop(_name, None)


def pytest_configure(config: pytest.Config) -> None:
    """Keep every worker, and the guests it boots, to a processor of its own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw").removeprefix("gw")
    if worker:
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[int(worker) % len(cpus)]})


@cache
def _no_guest() -> str | None:
    from testbed.doctor import diagnose

    guest = next(b for b in diagnose() if b.name == "guest")
    return "; ".join(f"{lack.what}: {lack.mend}" for lack in guest.lacks) or None


def _no_root() -> str | None:
    return None if os.geteuid() == 0 else "needs root"


@cache
def _no_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "needs a CUDA device"


_LACKS = {"guest": _no_guest, "root": _no_root, "gpu": _no_gpu}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, lacks in _LACKS.items():
        if item.get_closest_marker(mark) and (why := lacks()):
            pytest.skip(why)
