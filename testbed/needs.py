"""What has to be on the machine, and which Debian or Ubuntu package brings it.

A need is judged by the thing itself (a command, a file), not by the package manager's word, so
that tools from elsewhere count. Nothing but the standard library is used: this runs before
anything is set up.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Need",
    "apt_line",
    "find_command",
    "missing",
    "needs",
    "packages",
    "source_package",
]

#: an ordinary user's PATH leaves these out on Debian, where `tc` and others live
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Need:
    """Something that must be there.

    Parameters
    ----------
    package
        The package that brings it.
    why
        What it is for, in a few words.
    commands
        Programs that must be found.
    globs
        Absolute patterns, any one of which must match a file.
    modules
        Importable modules that must be found.
    """

    package: str
    why: str
    commands: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    def lacks(self) -> list[str]:
        """Return what of it is not there."""
        lost = [name for name in self.commands if find_command(name) is None]
        if self.globs and not any(_matches(glob) for glob in self.globs):
            lost.append(self.globs[0])
        lost += [name for name in self.modules if not _importable(name)]
        return lost


def find_command(name: str) -> str | None:
    """Return the path of a program, looked for in PATH and where the administrator's are."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SBIN])
    return shutil.which(name, path=path)


def _matches(glob: str) -> bool:
    return any(Path("/").glob(glob.lstrip("/")))


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def _os_release() -> dict[str, str]:
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key: "".join(shlex.split(value)) for key, _, value in pairs}


def source_package(release: dict[str, str] | None = None) -> str:
    """Return the package of the kernel source: Debian 12 names the version, others do not."""
    release = _os_release() if release is None else release
    debian_12 = release.get("ID") == "debian" and release.get("VERSION_ID") == "12"
    return "linux-source-6.1" if debian_12 else "linux-source"


def needs() -> list[Need]:
    """Return all that set-up and a run on the virtual clock take, beside Python packages."""
    found = [
        Need("util-linux", "namespaces", ("setpriv", "setarch", "nsenter", "unshare", "taskset")),
        Need("mininet", "hosts", ("mnexec",)),
        Need("iproute2", "links and shaping", ("ip", "tc")),
        Need("iperf3", "cross traffic", ("iperf3",)),
        Need("bridge-utils", "Mininet's bridges ask for it", ("brctl",)),
        Need("net-tools", "Mininet's hosts ask for it", ("ifconfig",)),
        Need("iputils-ping", "looking around in a net", ("ping",)),
        Need("procps", "settings of the guest", ("sysctl",)),
        Need("hostname", "names of the hosts", ("hostname",)),
        Need("dataset-fashion-mnist", "training data", globs=_FASHION_MNIST),
        *_kernel_source(),
        *(Need(name, "building the guest kernel", (tool,)) for tool, name in _BUILD.items()),
        Need("libc6-dev", "building the guest kernel", globs=("/usr/include/stdio.h",)),
    ]
    if sys.prefix == sys.base_prefix and sys.base_prefix == "/usr":
        # Debian cuts this out of Python's standard library
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        found.append(Need(package, "the virtual environment", modules=("ensurepip",)))
    return found


def _kernel_source() -> list[Need]:
    """Return what the source that ``kernel.build.find_source`` finds takes to be there."""
    chosen = os.environ.get("NETSENSEML_KERNEL_SOURCE")
    if chosen:  # a wrong path is the build's to say: no package mends it
        bzip2, found = chosen.endswith(".bz2"), []
    else:
        # before it is installed, too: Ubuntu packs it so
        bzip2 = any(map(_matches, _BZIP2_SOURCE)) or _os_release().get("ID") == "ubuntu"
        found = [Need(source_package(), "the guest kernel", globs=_KERNEL_SOURCE)]
    if bzip2:
        found.append(Need("bzip2", "unpacking the kernel source", ("bzip2",)))
    return found


_FASHION_MNIST = ("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz",)
_KERNEL_SOURCE = (
    "/usr/src/linux-source-*.tar.*",
    "/usr/src/linux-source-*/linux-source-*.tar.*",
)
_BZIP2_SOURCE = tuple(f"{glob.removesuffix('*')}bz2" for glob in _KERNEL_SOURCE)
_BUILD = {
    "gcc": "gcc",
    "make": "make",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "xz": "xz-utils",
    "patch": "patch",
    "tar": "tar",
}


def missing(wanted: Iterable[Need]) -> list[Need]:
    """Return the needs that are not met."""
    return [need for need in wanted if need.lacks()]


def packages(lacking: Iterable[Need]) -> list[str]:
    """Return the packages that bring what is lacking, each once, sorted."""
    return sorted({need.package for need in lacking})


def apt_line(names: Sequence[str]) -> str:
    """Return the one command, for root, that installs packages."""
    return shlex.join(["apt-get", "install", "-y", "--no-install-recommends", *names])
