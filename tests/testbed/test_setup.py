import fcntl
import io
import os
import re
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from testbed import setup
from testbed.kernel import build as kernel_build
from testbed.setup import SetupError
from testbed.steps import Step

ROOT = Path(__file__).parent.parent.parent
PINS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def _asked() -> list[Requirement]:
    """Return what pyproject.toml asks for, extras included; 3.10 has no tomllib."""
    text = (ROOT / "pyproject.toml").read_text()
    project = text.partition("[project]")[2].partition("[tool.")[0]
    lines = [line.partition("#")[0] for line in project.splitlines()]
    quoted = re.findall(r'"([A-Za-z][\w.-]*>=[\w.]+)"', "\n".join(lines))
    return [Requirement(text) for text in quoted]


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_every_dependency_is_pinned_once_for_each_python(python: str) -> None:
    environment = {**default_environment(), "python_version": python}
    pins = [pin for pin in PINS if pin.marker is None or pin.marker.evaluate(environment)]
    names = [_name(pin.name) for pin in pins]
    assert sorted(names) == sorted(set(names))
    found = {_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
    asked = _asked()
    assert len(asked) > 10
    for want in asked:
        assert want.specifier.contains(found[_name(want.name)], prereleases=True), want


def test_what_is_installed_is_what_is_pinned() -> None:
    for pin in PINS:
        if pin.marker is None or pin.marker.evaluate():
            assert version(pin.name).partition("+")[0] == next(iter(pin.specifier)).version


def test_a_machine_that_is_set_up_is_left_alone_in_under_2_s() -> None:
    before = (ROOT / ".venv" / "made-from").stat()
    start = os.times()
    done = subprocess.run(
        ["make", "setup"], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    end = os.times()  # of the processor: what else runs on the machine does not count
    took_s = sum(end[2:4]) - sum(start[2:4])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (ROOT / ".venv" / "made-from").stat().st_mtime_ns == before.st_mtime_ns
    assert took_s < 2


def test_the_bootstrap_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\n"
        "import testbed.setup, testbed.doctor, testbed.__main__, experiments.precheck\n"
        "mine = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "ours = {'testbed', 'experiments', 'topologies'}\n"
        "print(sorted(mine - set(sys.stdlib_module_names) - ours))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_without_root_the_one_line_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SetupError) as error:
        setup.install_packages(["mininet", "iperf3"])
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith("apt-get install -y --no-install-recommends mininet iperf3")
    setup.install_packages([])  # nothing to do, nothing to ask


def test_without_apt_the_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"mininet; there is no apt-get"):
        setup.install_packages(["mininet"])


def test_a_failing_command_speaks_for_itself() -> None:
    script = "echo fine; echo 'E: Unable to locate package foo'; exit 100"
    heard: list[str] = []
    with pytest.raises(SetupError, match=r"`sh -c .* failed: E: Unable to locate package foo"):
        setup._watched(["sh", "-c", script], None, heard.append)
    assert heard == ["fine", "E: Unable to locate package foo"]


def _checkout(folder: Path, pins: str) -> Path:
    (folder / "constraints.txt").write_text(pins)
    return folder


def test_a_venv_is_made_once_and_again_when_the_pins_change(tmp_path: Path) -> None:
    root = _checkout(tmp_path, "# nothing\n")
    setup.make_venv(root)
    stamp = root / ".venv" / "made-from"
    first = stamp.stat().st_mtime_ns
    assert subprocess.run([root / ".venv" / "bin" / "python", "-c", ""]).returncode == 0
    setup.make_venv(root)
    assert stamp.stat().st_mtime_ns == first

    _checkout(tmp_path, "# nothing else\n")
    setup.make_venv(root)
    assert stamp.stat().st_mtime_ns > first


def test_a_venv_whose_python_is_gone_is_made_again(tmp_path: Path) -> None:
    root = _checkout(tmp_path, "")
    setup.make_venv(root)
    python = root / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(tmp_path / "removed")
    setup.make_venv(root)
    assert subprocess.run([python, "-c", ""]).returncode == 0


def test_an_interrupted_installation_is_not_taken_for_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _checkout(tmp_path, "no-such-package-at-all==1.0\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # the test needs no network
    with pytest.raises(SetupError, match=r"pip .*failed: ERROR: .*no-such-package-at-all"):
        setup.make_venv(root)
    assert not (root / ".venv" / "made-from").exists()


def test_too_little_space_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "_VENV_BYTES", 2**60)
    with pytest.raises(SetupError, match=r"takes \d+ GiB; [\d.]+ GiB are free"):
        setup.make_venv(_checkout(tmp_path, ""))
    assert not (tmp_path / ".venv").exists()


def test_a_missing_kernel_source_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise kernel_build.KernelError("no kernel source in /usr/src")

    monkeypatch.setattr(kernel_build, "find_source", none)
    with pytest.raises(SetupError, match="no kernel source"):
        setup.build_kernel()


def test_a_second_set_up_waits_for_the_first(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with setup._locked(tmp_path):
            order.append("second")

    with setup._locked(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        handle = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_under_sudo_everything_but_apt_is_the_user_s(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    code = (
        "import os, pathlib, sys\nfrom testbed import setup\n"
        "setup._leave_root()\npathlib.Path(sys.argv[1]).write_text(os.environ['HOME'])\n"
    )
    folder = Path("/dev/shm") / f"netsenseml-test-{os.getpid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    try:
        subprocess.run(
            [sys.executable, "-c", code, str(folder / "file")],
            cwd=ROOT,
            env={**os.environ, "SUDO_UID": "65534", "SUDO_GID": "65534"},
            check=True,
        )
        assert (folder / "file").stat().st_uid == 65534
        assert (folder / "file").read_text() != os.environ.get("HOME")
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_elsewhere_than_a_terminal_a_step_is_few_whole_lines() -> None:
    out = io.StringIO()
    with Step("cooking", out) as step:
        for percent in range(100):
            step.update("stirring", percent / 100)
    lines = out.getvalue().splitlines()
    assert lines[0] == "cooking …"
    assert lines[1:-1] == ["cooking: 25 %", "cooking: 50 %", "cooking: 75 %"]
    assert re.fullmatch(r"cooking: done in \d+ s", lines[-1])
    assert "\x1b" not in out.getvalue()
