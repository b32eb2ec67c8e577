"""Build the guest kernel once and keep it outside the checkout.

The kernel is the distribution's own source package with ``guest.config`` on top of
``tinyconfig`` and the patches of ``patches/`` applied. The result lies in the user's cache
under a hash of everything that goes into it, so that two checkouts share one kernel and an
edited patch makes a new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["BUILD_TOOLS", "KernelError", "ensure", "find_source", "kernel_path"]

HERE = Path(__file__).parent
CONFIG = HERE / "guest.config"
PATCHES = HERE / "patches"
BUILD_TOOLS = ("gcc", "make", "flex", "bison", "bc", "xz", "patch", "tar")
_ENVIRONMENT = {
    # nothing of the building machine may end up in the kernel: its version string is
    # mixed into the random numbers that the guest draws
    "ARCH": "um",
    "KBUILD_BUILD_TIMESTAMP": "2024-01-01",
    "KBUILD_BUILD_USER": "testbed",
    "KBUILD_BUILD_HOST": "guest",
    "LC_ALL": "C",
}


class KernelError(Exception):
    """The guest kernel cannot be built; the text says why and what mends it."""


def cache_dir() -> Path:
    """Return the folder for built kernels: ``$NETSENSEML_CACHE`` or the user's cache."""
    base = os.environ.get("NETSENSEML_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netsenseml"


def find_source() -> Path:
    """Return the kernel source archive of the distribution, 6.1 where there is a choice.

    Raises
    ------
    KernelError
        If no source package is installed.
    """
    found: list[tuple[int, str, Path]] = []
    for pattern in ("linux-source-*.tar.*", "linux-source-*/linux-source-*.tar.*"):
        for path in Path("/usr/src").glob(pattern):
            match = re.search(r"linux-source-(\d+\.\d+)", path.name)
            if match:
                found.append((match[1] != "6.1", match[1], path))
    if not found:
        raise KernelError(
            "no kernel source in /usr/src: apt-get install linux-source-6.1"
            " (Ubuntu: linux-source) bring it"
        )
    return min(found)[2]


def _identity(source: Path) -> str:
    """Hash what the kernel is made of: source (by name and size), options, patches, build."""
    digest = hashlib.sha256()
    digest.update(f"{source.name} {source.stat().st_size}".encode())
    for path in (CONFIG, *sorted(PATCHES.glob("*.patch"))):
        digest.update(path.name.encode() + path.read_bytes())
    digest.update(repr(sorted(_ENVIRONMENT.items())).encode())
    return digest.hexdigest()[:16]


def kernel_path(source: Path | None = None) -> Path:
    """Return where the kernel for this source, options and patches lies or will lie."""
    return cache_dir() / "guest-kernel" / _identity(source or find_source()) / "linux"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: a second builder waits for the first instead of repeating it."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure(progress: Callable[[str, float | None], None] = lambda text, share: None) -> Path:
    """Return the guest kernel, building it if it is not in the cache.

    Parameters
    ----------
    progress
        Called with what is being done and the share done (0 to 1, None if unknown).

    Raises
    ------
    KernelError
        If the source or a tool is missing, a patch does not apply or the build fails.
    """
    source = find_source()
    target = kernel_path(source)
    if target.exists():
        return target
    missing = [tool for tool in BUILD_TOOLS if shutil.which(tool) is None]
    if missing:
        raise KernelError(f"building the guest kernel needs {', '.join(missing)}")
    with _locked(target.parent):
        if not target.exists():
            for left in target.parent.glob("build-*"):  # by a build that was killed
                shutil.rmtree(left)
            _build(source, target, progress)
    return target


def _build(source: Path, target: Path, progress: Callable[[str, float | None], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as folder:
        log = target.parent / "build.log"
        progress(f"unpacking {source.name}", None)
        with open(log, "w") as out:
            _run(["tar", "-xf", str(source)], Path(folder), out, log)
            tree = next(path for path in Path(folder).iterdir() if path.is_dir())
            for patch in sorted(PATCHES.glob("*.patch")):
                _apply(patch, source, tree, out, log)
            progress("configuring the guest kernel", None)
            _run(["make", "tinyconfig"], tree, out, log)
            with open(tree / ".config", "a") as config:
                config.write(CONFIG.read_text())
            _run(["make", "olddefconfig"], tree, out, log)
            _check_options(tree / ".config")
            _compile(tree, out, log, progress)
            _run(["strip", "--strip-debug", "linux"], tree, out, log)
        # the rename is atomic: a kernel that is there is whole
        staged = target.with_suffix(".new")
        shutil.copy2(tree / "linux", staged)
        os.replace(staged, target)


def _apply(patch: Path, source: Path, tree: Path, out, log: Path) -> None:
    try:
        _run(["patch", "-p1", "-i", str(patch)], tree, out, log)
    except KernelError:
        raise KernelError(
            f"{patch.name} does not fit {source.name}, see {log}; put Debian 12's"
            " linux-source-6.1.tar.xz (package linux-source-6.1) into /usr/src"
        ) from None


def _check_options(config: Path) -> None:
    """Refuse a kernel that silently dropped an option, as a missing dependency makes it do."""
    got = set(config.read_text().splitlines())
    lost = [
        line for line in CONFIG.read_text().splitlines() if line.endswith("=y") and line not in got
    ]
    if lost:
        raise KernelError(f"this kernel source lacks {', '.join(lost)}: use linux-source-6.1")


def _compile(tree: Path, out, log: Path, progress: Callable[[str, float | None], None]) -> None:
    expected = 700  # objects of this configuration, for the progress bar only
    with subprocess.Popen(
        ["make", f"-j{os.cpu_count() or 1}", "linux"],
        cwd=tree,
        env={**os.environ, **_ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as make:
        assert make.stdout is not None
        built = 0
        try:
            for line in make.stdout:
                out.write(line)
                if line.startswith("  CC "):
                    built += 1
                    progress("compiling the guest kernel", min(0.99, built / expected))
        except BaseException:
            make.terminate()
            raise
    if make.returncode:
        raise KernelError(f"the guest kernel does not build, see {log}")


def _run(command: list[str], tree: Path, out, log: Path) -> None:
    out.flush()
    result = subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, **_ENVIRONMENT},
        stdout=out,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode:
        raise KernelError(f"`{' '.join(command)}` failed, see {log}")
