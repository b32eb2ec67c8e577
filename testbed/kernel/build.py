"""Build the guest kernel once and keep it outside the checkout.

The kernel is the distribution's own source package with ``guest.config`` on top of
``tinyconfig`` and the patches of ``patches/`` applied; what a newer kernel needs otherwise lies
in a folder of ``patches/`` named by the first version that it is for. The result lies in the
user's cache under a hash of everything that goes into it, so that two checkouts share one
kernel and an edited patch makes a new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..needs import source_package

__all__ = [
    "BUILD_TOOLS",
    "KernelError",
    "Version",
    "ensure",
    "find_source",
    "fitted",
    "kernel_path",
    "source_version",
]

#: major and minor number of a kernel, compared as numbers: 6.8 is older than 6.12
Version = tuple[int, int]

HERE = Path(__file__).parent
CONFIG = HERE / "guest.config"
PATCHES = HERE / "patches"
SOURCES = Path("/usr/src")
#: what the patches in ``patches/`` itself are for; nothing older is tried
BASE: Version = (6, 1)
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


_INSTEAD = (
    "put Debian 12's linux-source-6.1.tar.xz (package linux-source-6.1) into /usr/src"
    " or name it in NETSENSEML_KERNEL_SOURCE"
)


class KernelError(Exception):
    """The guest kernel cannot be built; the text says why and what mends it."""


def cache_dir() -> Path:
    """Return the folder for built kernels: ``$NETSENSEML_CACHE`` or the user's cache."""
    base = os.environ.get("NETSENSEML_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netsenseml"


def find_source() -> Path:
    """Return the kernel source archive to build from.

    ``$NETSENSEML_KERNEL_SOURCE`` if it is set, else the distribution's: 6.1 where there is a
    choice, then one that patches were written for.

    Raises
    ------
    KernelError
        If there is none, or the variable names no kernel source archive.
    """
    chosen = os.environ.get("NETSENSEML_KERNEL_SOURCE")
    if chosen:
        if not Path(chosen).is_file():
            raise KernelError(
                f"NETSENSEML_KERNEL_SOURCE: no file {chosen}; it names a kernel source"
                " archive such as linux-source-6.1.tar.xz"
            )
        source_version(Path(chosen))
        return Path(chosen)
    found: list[tuple[bool, bool, bool, Version, Path]] = []
    written_for = {BASE, *_folders()}
    for pattern in ("linux-source-*.tar.*", "linux-source-*/linux-source-*.tar.*"):
        for path in SOURCES.glob(pattern):
            try:
                version = source_version(path)
            except KernelError:
                continue
            rank = (version != BASE, version not in written_for, version < BASE)
            found.append((*rank, version, path))
    if not found:
        raise KernelError(f"no kernel source in {SOURCES}: apt-get install {source_package()}")
    return min(found)[-1]


def source_version(source: Path) -> Version:
    """Return the version that the archive's name says: (6, 8) of ``linux-source-6.8.0.tar.bz2``.

    Raises
    ------
    KernelError
        If it says none.
    """
    match = re.match(r"linux-(?:source-)?(\d+)\.(\d+)[.\d]*\.tar\.", source.name)
    if match is None:
        raise KernelError(
            f"{source}: a kernel source archive is named like linux-source-6.1.tar.xz"
        )
    return int(match[1]), int(match[2])


def _folders() -> dict[Version, Path]:
    """Return the folders of ``patches/`` by the first kernel version that they are for."""
    found = {}
    for folder in PATCHES.iterdir():
        major, _, minor = folder.name.partition(".")
        if folder.is_dir() and major.isdigit() and minor.isdigit():
            found[int(major), int(minor)] = folder
    return found


def fitted(version: Version) -> list[Path]:
    """Return the files that a kernel version is built with: options, then patches in order.

    ``guest.config``, and of each other name the file for the newest version that is not newer
    than this one. A kernel newer than all folders gets what the newest one has.

    Parameters
    ----------
    version
        The kernel's.
    """
    by_name = {path.name: path for path in PATCHES.glob("*.patch")}
    for since, folder in sorted(_folders().items()):
        if since <= version:
            by_name |= {path.name: path for path in folder.iterdir()}
    configs = [path for name, path in by_name.items() if name.endswith(".config")]
    patches = [path for name, path in sorted(by_name.items()) if name.endswith(".patch")]
    return [CONFIG, *configs, *patches]


def _identity(source: Path) -> str:
    """Hash what the kernel is made of: source (by name and size), options, patches, build."""
    digest = hashlib.sha256()
    digest.update(f"{source.name} {source.stat().st_size}".encode())
    for path in fitted(source_version(source)):
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
    if source_version(source) < BASE:
        raise KernelError(f"{source} is too old for the patches; {_INSTEAD}")
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
    files = fitted(source_version(source))
    options = _options(path for path in files if path.suffix == ".config")
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as folder:
        log = target.parent / "build.log"
        progress(f"unpacking {source.name}", None)
        with open(log, "w") as out:
            _run(["tar", "-xf", str(source)], Path(folder), out, log)
            tree = next(path for path in Path(folder).iterdir() if path.is_dir())
            for patch in files:
                if patch.suffix == ".patch":
                    _apply(patch, source, tree, out, log)
            progress("configuring the guest kernel", None)
            _run(["make", "tinyconfig"], tree, out, log)
            with open(tree / ".config", "a") as config:
                config.writelines(f"{line}\n" for line in options)
            _run(["make", "olddefconfig"], tree, out, log)
            _check_options(options, source, tree / ".config")
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
            f"{patch.relative_to(PATCHES)} does not fit {source.name}, see {log}; {_INSTEAD}"
        ) from None


def _options(configs: Iterable[Path]) -> list[str]:
    """Return the options of the files as lines of a configuration; a later one prevails."""
    chosen: dict[str, str] = {}
    for line in (line for path in configs for line in path.read_text().splitlines()):
        match = re.match(r"(?:# )?(CONFIG_\w+)(?:=| is not set$)", line)
        if match:
            chosen[match[1]] = line
    return list(chosen.values())


def _check_options(options: list[str], source: Path, config: Path) -> None:
    """Refuse a kernel that silently dropped an option, as a missing dependency makes it do."""
    got = set(config.read_text().splitlines())
    lost = [line for line in options if line.endswith("=y") and line not in got]
    if lost:
        raise KernelError(f"{source.name} lacks {', '.join(lost)}; {_INSTEAD}")


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
