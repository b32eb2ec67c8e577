"""What surrounds a guest on the host: its files are looked at while it writes them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from testbed.guest import compile_rooms, dying_with_parent, written_bytes


def test_files_may_be_renamed_while_their_sizes_are_read(tmp_path: Path) -> None:
    (tmp_path / "stays").write_bytes(b"1234")
    over = threading.Event()

    def rename() -> None:
        while not over.is_set():
            (tmp_path / "a.part").write_bytes(b"12")
            (tmp_path / "a.part").rename(tmp_path / "a.json")
            (tmp_path / "a.json").unlink()

    writer = threading.Thread(target=rename)
    writer.start()
    try:
        sizes = {written_bytes(tmp_path) for _ in range(2000)}
    finally:
        over.set()
        writer.join()
    assert sizes <= {4, 6, 8}


def test_what_a_guest_may_import_is_compiled(tmp_path: Path) -> None:
    for name in ("testbed/a.py", "tests/programs/b.py", "docs/c.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("X = 1\n")
    compile_rooms(tmp_path)
    found = {path.parent.parent.name for path in tmp_path.rglob("*.pyc")}
    assert found == {"testbed", "programs"}


def test_what_dies_with_its_parent_has_the_environment_it_was_given() -> None:
    given = {"PATH": os.environ["PATH"], "A": "1"}
    done = subprocess.run(
        [*dying_with_parent(), "env"], env=given, capture_output=True, text=True, check=True
    )
    assert dict(line.split("=", 1) for line in done.stdout.splitlines()) == given


_ORPHAN = """
import subprocess, sys
from testbed.guest import dying_with_parent
late = ["sh", "-c", 'read line; exec "$@"', "sh", *dying_with_parent(), "sleep", "60"]
print(subprocess.Popen(late, stdout=subprocess.DEVNULL).pid, flush=True)
"""


def _what_runs(pid: int) -> str:
    """Return the name of a process, nothing if it has ended."""
    try:
        head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    except FileNotFoundError:
        return ""
    return "" if rest.startswith("Z") else head.partition("(")[2]


@pytest.mark.parametrize("orphaned", [True, False])
def test_one_whose_parent_died_before_it_asked_ends_at_once(orphaned: bool) -> None:
    # it asks only when this test lets it go on, by a line: after its parent has ended, or before
    code = _ORPHAN + ("" if orphaned else "import time; time.sleep(60)")
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if orphaned:
            parent.wait()
        parent.stdin.write(b"go\n")
        parent.stdin.flush()
        seen = ""
        for _ in range(3000):
            seen = _what_runs(child)
            if seen in ("", "sleep"):
                break
            time.sleep(0.01)
        assert seen == ("" if orphaned else "sleep")
        parent.kill()
