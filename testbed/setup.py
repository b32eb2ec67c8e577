"""Put on this machine what a run needs, once: ``python3 -m testbed.setup``.

Three steps, each skipped when its result is there: Debian packages (root only, for nothing but
apt-get), the guest kernel, the virtual environment ``.venv``. With the word ``python`` only the
last. Only the standard library is used, and any Python that can read this file may start it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .kernel import build as kernel_build
from .needs import apt_line, missing, needs, packages
from .steps import Step

__all__ = ["SetupError", "main", "set_up"]

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 10)
_GIB = 2**30
_VENV_BYTES = 2 * _GIB
_KERNEL_BYTES = 2 * _GIB  # the unpacked source, gone after the build


class SetupError(Exception):
    """The machine cannot be set up; the text says in one line why and what mends it."""


def set_up(root: Path = ROOT, *, guest: bool = True) -> None:
    """Install whatever is missing.

    Parameters
    ----------
    root
        The checkout; ``.venv`` is made in it from its ``constraints.txt``.
    guest
        Whether guests will run; without, Python packages are enough.

    Raises
    ------
    SetupError
        If something is missing that cannot be installed from here.
    """
    if sys.version_info < OLDEST_PYTHON:
        raise SetupError(
            f"Python {sys.version.split()[0]} is too old: 3.10 or newer is needed;"
            " name another one by PYTHON=…"
        )
    install_packages(packages(missing(need for need in needs() if guest or need.modules)))
    _leave_root()
    if guest:
        build_kernel()  # first: where its source does not fit, nothing else is worth the wait
    with _locked(root):
        make_venv(root)


# -- Debian packages -----------------------------------------------------------------------


def install_packages(names: Sequence[str]) -> None:
    """Install Debian packages, without those they merely recommend; needs root if any."""
    if not names:
        return
    if shutil.which("apt-get") is None:
        raise SetupError(
            f"these Debian packages or what they hold are needed: {' '.join(names)};"
            " there is no apt-get here to install them"
        )
    if os.geteuid() != 0:
        raise SetupError(f"missing packages; as root, run: {apt_line(names)}")
    with Step(f"installing {len(names)} Debian packages") as step:
        options = ["-o", "DPkg::Lock::Timeout=300"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        step.update("reading package lists", 0.0)
        _watched(["apt-get", "update", *options], environment, lambda line: None)
        counts = {"all": 0, "done": 0}

        def hear(line: str) -> None:
            found = re.match(r"(\d+) upgraded, (\d+) newly installed", line)
            if found:
                counts["all"] = int(found[1]) + int(found[2])
            if line.startswith("Setting up "):
                counts["done"] += 1
                step.update(line.split()[2], counts["done"] / max(1, counts["all"]))

        install = apt_line(names).split()
        _watched([install[0], *options, *install[1:]], environment, hear)


def _leave_root() -> None:
    """Become the user who called sudo, so that no file of theirs comes to belong to root."""
    uid = int(os.environ.get("SUDO_UID") or 0)
    if os.geteuid() != 0 or uid == 0:
        return
    user = pwd.getpwuid(uid)
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(uid)
    os.environ["HOME"] = user.pw_dir
    os.environ.pop("XDG_CACHE_HOME", None)


# -- the virtual environment ---------------------------------------------------------------


def make_venv(root: Path) -> None:
    """Make ``.venv`` with what ``constraints.txt`` pins, unless it is there already."""
    venv, wanted = root / ".venv", root / "constraints.txt"
    stamp = venv / "made-from"
    key = hashlib.sha256(wanted.read_bytes()).hexdigest()
    python = venv / "bin" / "python"
    runs = os.access(python, os.X_OK)
    if runs and stamp.is_file() and stamp.read_text() == key:
        return
    _require_space(root, _VENV_BYTES, "the virtual environment")
    total = sum("==" in line for line in wanted.read_text().splitlines())
    with Step("installing Python packages") as step:
        if not runs or not stamp.is_file():
            step.update("making .venv", 0.0)
            _watched([sys.executable, "-m", "venv", "--clear", str(venv)], None, lambda line: None)
        seen: set[str] = set()

        def hear(line: str) -> None:
            words = line.split()
            if line.startswith(("Collecting ", "Requirement already satisfied: ")):
                seen.add(words[-1] if words[0] == "Collecting" else words[3])
                step.update(line, 0.7 * min(1.0, len(seen) / total))
            elif line.startswith("Installing collected packages"):
                step.update("unpacking", 0.75)

        pip = [str(python), "-m", "pip", "install", "--progress-bar", "off", "--no-input"]
        environment = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        _watched([*pip, "-r", str(wanted)], environment, hear)
    staged = stamp.with_suffix(".new")
    staged.write_text(key)
    os.replace(staged, stamp)


# -- the guest kernel ----------------------------------------------------------------------


def build_kernel() -> None:
    """Build the guest kernel, unless it is in the user's cache."""
    try:
        path = kernel_build.kernel_path()
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        _require_space(path.parent, _KERNEL_BYTES, "building the guest kernel")
        with Step("building the guest kernel") as step:
            kernel_build.ensure(step.update)
    except kernel_build.KernelError as error:
        raise SetupError(str(error)) from None


# -- common --------------------------------------------------------------------------------


def _require_space(folder: Path, needed: int, what: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SetupError(
            f"{folder}: {what} takes {needed / _GIB:.0f} GiB; {free / _GIB:.1f} GiB are free"
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let a second set-up of the same checkout wait for the first."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _watched(
    command: Sequence[str], environment: dict[str, str] | None, hear: Callable[[str], None]
) -> None:
    """Run a command, hand its lines to `hear`, and raise with its own words if it fails."""
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        lines = []
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                hear(lines[-1])
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        said = [line for line in lines if line.startswith(("E: ", "ERROR: ", "Error: "))]
        last = said or [line for line in lines if line][-1:] or ["it said nothing"]
        name = " ".join([Path(command[0]).name, *command[1:4]])
        hint = " (Ubuntu: is universe enabled?)" if "Unable to locate" in last[0] else ""
        raise SetupError(f"`{name} …` failed: {'; '.join(last)}{hint}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Set the machine up and return the exit status: 0, or 1 after one line that says why."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words not in ([], ["python"]):
        print(f"error: expected nothing or 'python'; got '{' '.join(words)}'", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # one way to stop: clean up
    try:
        set_up(guest=not words)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or ROOT}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
