"""Host kernels in C++, built with torch's own extension mechanism, ahead of time.

``python -m netsenseml build`` (and the benchmark) compile them once per machine into the user's
cache, which takes about a minute and needs a C++ compiler and ninja. Whatever trains afterwards
uses them if they are there and load, and the torch fallback otherwise; training never compiles.
Results are equal bit by bit, so ranks with and without them may train together.

The environment variable ``NETSENSEML_NATIVE`` overrules: ``0`` never uses them, ``1`` builds them
on first use if need be and fails if that fails.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import pathlib
import platform
import sys
import tempfile
from typing import Any

import torch

__all__ = ["build", "kernels"]

_NAME = "netsenseml_native"
_SOURCE = pathlib.Path(__file__).with_name("native.cpp")
_FLAGS = ("-O3", "-march=native", "-ffp-contract=off")


@functools.cache
def kernels() -> Any:
    """The extension module, or None where there is none to use.

    Raises
    ------
    RuntimeError
        ``NETSENSEML_NATIVE=1`` asked for it and it could not be built.
    """
    asked = os.environ.get("NETSENSEML_NATIVE", "")
    if asked == "0":
        return None
    if asked == "1":
        try:
            return build()
        except RuntimeError as error:
            raise RuntimeError(f"NETSENSEML_NATIVE=1: {error}, or unset the variable") from error
    try:
        return _load()
    except (OSError, ImportError):
        return None


def build() -> Any:
    """Compile the kernels unless this machine's cache has them; returns the module.

    Raises
    ------
    RuntimeError
        They could not be compiled or loaded.
    """
    try:
        return _load()
    except (OSError, ImportError):
        pass
    from torch.utils import cpp_extension

    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # In a folder of its own: torch's extension mechanism waits for ever for the lock file that
        # an interrupted build leaves behind.
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as place:
            cpp_extension.load(
                name=_NAME,
                sources=[str(_SOURCE)],
                extra_cflags=list(_FLAGS),
                build_directory=place,
                is_python_module=False,  # imported below, from where it stays
            )
            os.replace(pathlib.Path(place) / f"{_NAME}.so", folder / f"{_NAME}.so")
        return _load()
    except (OSError, ImportError, RuntimeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RuntimeError(
            f"the C++ kernels could not be built ({first}): install a C++ compiler and ninja"
        ) from error


def _load() -> Any:
    """The module as built before."""
    built = _folder() / f"{_NAME}.so"
    if not built.is_file():
        raise ImportError(f"no {built}")
    spec = importlib.util.spec_from_file_location(_NAME, built)
    if spec is None or spec.loader is None:
        raise ImportError(f"{built} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folder() -> pathlib.Path:
    """Where the build for this source, torch, Python and processor lives."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    parts = (_SOURCE.read_text(), torch.__version__, sys.version, _processor(), *_FLAGS)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return pathlib.Path(cache) / "netsenseml" / "native" / digest


def _processor() -> str:
    """What ``-march=native`` depends on: another processor may not know the instructions."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    wanted = ("model name", "flags", "Features")
    described = sorted({line for line in lines if line.startswith(wanted)})
    return "\n".join([platform.machine(), *described])
