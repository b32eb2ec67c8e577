"""A harness that is killed leaves nothing, and a run beside it does not notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.doctor import diagnose
from testbed.kernel import build

WORLD = Path(__file__).with_name("contained_world.py")
OWN_SHARED_MEMORY = 'mount -t tmpfs none /dev/shm; exec "$@"'
#: Wall time means nothing inside a guest on a virtual clock: an outcome is the same every time
FEW, MANY = 3, 30


def world(backend: str, folder: Path, moments: int, seed: int) -> dict[str, Any]:
    """Kill harnesses in a world of their own; return its report."""
    found = next(b for b in diagnose() if b.name == backend)
    if not found.works:
        pytest.skip("; ".join(f"{lack.what}: {lack.mend}" for lack in found.lacks))
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *rights, "--pid", "--mount", "--net", "--ipc", "--fork"]
    command = [*unshare, "--kill-child", "--mount-proc", "sh", "-ec"]
    command += [OWN_SHARED_MEMORY, "sh", sys.executable, str(WORLD), backend, str(folder)]
    done = subprocess.run(
        [*command, "--moments", str(moments), "--seed", str(seed)],
        capture_output=True,
        text=True,
        env={**os.environ, "NETSENSEML_CACHE": str(build.cache_dir())},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(report: dict[str, Any], folder: Path, virtual: bool) -> None:
    assert report["code"] == 0
    for moment in report["moments"]:
        assert moment["left"] == {}, moment
    assert report["beside"] == 0
    assert report["end"] == {}
    if virtual:
        undisturbed = (folder / "whole" / "cell-s0" / "outcome.json").read_bytes()
        for path in (folder / "beside").glob("*/outcome.json"):
            assert path.read_bytes() == undisturbed


@pytest.mark.guest
def test_a_killed_run_leaves_nothing(tmp_path: Path) -> None:
    check(world("guest", tmp_path, FEW, seed=1), tmp_path, virtual=True)


@pytest.mark.root
def test_a_killed_run_on_the_host_leaves_nothing(tmp_path: Path) -> None:
    check(world("host", tmp_path, FEW, seed=2), tmp_path, virtual=False)


@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.parametrize(("backend", "moments"), [("guest", MANY), ("guest-real", FEW)])
def test_a_run_may_be_killed_at_any_moment(tmp_path: Path, backend: str, moments: int) -> None:
    check(world(backend, tmp_path, moments, seed=3), tmp_path, virtual=backend == "guest")


def test_a_leftover_is_seen(tmp_path: Path) -> None:
    """The comparison itself: a process, a mount, shared memory and a file are each found."""
    probe = (
        "import subprocess, sys, os; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; import contained_world as w; tmp = Path(sys.argv[2])\n"
        "before = w.snapshot([tmp], None)\n"
        "subprocess.Popen(['unshare', '--uts', 'sleep', '60'])\n"
        "subprocess.run(['ip', 'link', 'add', 'left', 'type', 'bridge'])\n"
        "subprocess.run(['mount', '-t', 'tmpfs', 'none', '/mnt'], check=True)\n"
        "Path('/dev/shm/left').touch(); (tmp / 'left').touch()\n"
        "import time; time.sleep(0.3)\n"
        "print(sorted(w.difference(before, w.snapshot([tmp], None))))\n"
    )
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *rights, "--pid", "--mount", "--net", "--ipc", "--fork"]
    command = [*unshare, "--kill-child", "--mount-proc", "sh", "-ec"]
    arguments = [
        OWN_SHARED_MEMORY,
        "sh",
        sys.executable,
        "-c",
        probe,
        str(WORLD.parent),
        str(tmp_path),
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    if "denied" in done.stderr or "not permitted" in done.stderr:
        pytest.skip("no namespaces for an ordinary user here")
    found = done.stdout.strip()
    for kind in (
        "interfaces",
        "mounts",
        "namespaces",
        "processes",
        "shared memory",
        "temporary files",
    ):
        assert f"'{kind}'" in found, (found, done.stderr)
