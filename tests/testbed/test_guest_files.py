"""What surrounds a guest on the host: its files are looked at while it writes them."""

from __future__ import annotations

import threading
from pathlib import Path

from testbed.guest import compile_rooms, written_bytes


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
