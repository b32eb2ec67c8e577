"""What a cell's result depends on, and the hash of it: two cells with one hash are one cell.

That is what the cell is told, the code that runs in its guest, the guest's kernel, and the
versions of Python and of the numerical libraries. Names of scenarios and variations that lead
to a cell, the machine, plots, reports and documentation are not part of it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from testbed.kernel import build as kernel_build

from .errors import UserError

__all__ = [
    "PROGRAM",
    "RECORDS_SCHEMA",
    "Identities",
    "code_files",
    "guest_kernel",
    "tasks_of",
    "versions",
]

PROGRAM = "experiments.rank"  # what ranks run
RECORDS_SCHEMA = 1  # of the raw records; a change makes every cell a new one
ROOT = Path(__file__).parent.parent
_ROOMS = ("netsenseml", "topologies", "testbed", "experiments")
#: found by their names and not by imports, so all of it counts
_WHOLE = ("netsenseml", "topologies")
_SUFFIXES = (".py", ".cpp")
#: besides the program and its task: the guest's first process, and what starts the guest
_ENTRIES = ("testbed.first", "testbed.launcher")
_OTHERS = ("testbed/init.sh",)
_LIBRARIES = ("torch", "numpy", "mininet")


def versions() -> dict[str, str | None]:
    """Return the versions that results depend on, None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def guest_kernel() -> str | None:
    """Return the hash of the guest kernel's source, patches and options; None without source."""
    try:
        return kernel_build.kernel_path().parent.name
    except kernel_build.KernelError:
        return None


def _file_of(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(path: Path) -> Iterator[str]:
    """Yield the project's modules that a file imports, wherever in the file."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    package = parts[:-1]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)  # may be modules too


def _closure(modules: Iterable[str]) -> set[Path]:
    """Return the project's files that modules import, directly or not, themselves included."""
    found: set[Path] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module.split(".")[0] not in _ROOMS:
            continue
        path = _file_of(module)
        if path is not None and path not in found:
            found.add(path)
            waiting += _imports(path)
    return found


def code_files(program: str, tasks: Iterable[str]) -> dict[str, str]:
    """Return the files that run in a cell's guest, or start it, with the SHA-256 of each.

    Parameters
    ----------
    program
        The rank program's module.
    tasks
        The workloads' names.
    """
    names = [f"experiments.workloads.{task.replace('-', '_')}" for task in tasks]
    files = _closure([*_ENTRIES, program, *names])
    for room in _WHOLE:
        files |= {p for p in (ROOT / room).rglob("*") if p.suffix in _SUFFIXES and p.is_file()}
    files |= {ROOT / other for other in _OTHERS}
    return {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
    }


def tasks_of(spec: dict[str, Any]) -> list[str]:
    """Return the workloads of a cell: its own, and those of jobs beside it."""
    return list(dict.fromkeys(one["workload"]["task"] for one in (spec, *spec["jobs"])))


class Identities:
    """Tells the identity of cells; reads code, kernel and versions once.

    Raises
    ------
    UserError
        If there is no telling the guest's kernel.
    """

    def __init__(self) -> None:
        try:
            self.kernel = kernel_build.kernel_path().parent.name
        except kernel_build.KernelError as error:
            raise UserError(str(error)) from None
        self.versions = versions()
        self._code: dict[tuple[str, ...], dict[str, str]] = {}

    def code(self, spec: dict[str, Any]) -> dict[str, str]:
        """Return `code_files` of a cell."""
        key = (spec["program"], *tasks_of(spec))
        if key not in self._code:
            self._code[key] = code_files(key[0], key[1:])
        return self._code[key]

    def of(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return all that the result of a cell depends on, as plain data.

        Parameters
        ----------
        spec
            What the cell is told.
        """
        return {
            "schema": RECORDS_SCHEMA,
            "cell": spec,
            "code": self.code(spec),
            "kernel": self.kernel,
            "versions": self.versions,
        }

    def digest(self, spec: dict[str, Any]) -> str:
        """Return the hash of `of`: 20 hexadecimal digits, the name of the cell's folder."""
        text = json.dumps(self.of(spec), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:20]
