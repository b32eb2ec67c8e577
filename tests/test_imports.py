"""Every import goes in an allowed direction; see the table of rooms in the documentation."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("netsenseml", "topologies", "testbed", "experiments")
FILES = sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))

HEAVY = {"matplotlib", "pandas", "pyarrow"}  # analysis only
LEARNING = {"netsenseml", "torch"}
NETWORK = {"topologies", "testbed"}

# Modules of experiments by what they are part of; folders end with a dot.
PARTS = {
    "neutral": {"", "atomic", "datasets", "devices", "devices.", "errors", "methods", "runs",
                "style"},
    "analysis": {
        "analysis", "breakdown", "canvas", "claims", "columns", "crossing", "learning", "outages",
        "output", "overview", "plots", "records", "report", "reproduction", "reproduction_page",
        "sensing", "stats", "sweep_output", "sweep_report", "sweep_tables", "tidy",
    },
    "rank": {
        "accelerator", "cluster", "flops", "hardware", "measure", "networks", "networks.", "rank",
        "workloads", "workloads.",
    },
    "harness": {
        "catalogue", "consistency", "engine", "estimate", "harness", "identity", "manifest",
        "mistakes", "overrides", "precheck", "profiles", "progress", "repeat",
        "reproduce", "scenario", "sections", "store", "sweep", "sweepfile", "yamlfile",
    },
    "shell": {"__main__", "commands."},
}  # fmt: skip
# part: (parts of experiments it may import, other modules it must not import)
RULES: dict[str, tuple[set[str], set[str]]] = {
    "neutral": (set(), HEAVY | LEARNING | NETWORK),
    "analysis": ({"neutral", "analysis"}, LEARNING | NETWORK),
    "rank": ({"neutral", "rank"}, HEAVY | NETWORK),
    "harness": ({"neutral", "harness"}, HEAVY | LEARNING),
    "shell": (set(PARTS), HEAVY | LEARNING | NETWORK),
}


def imported(tree: ast.AST, module: str, is_package: bool = False) -> set[str]:
    """Return the absolute names of all modules that a file imports, wherever in the file."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            # `from package import module` names modules too
            found |= {name} if node.module else set()
            found |= {f"{name}.{alias.name}" for alias in node.names if not node.module}
    return found


def part_of(name: str) -> str:
    """Return the part of experiments that a module (without ``experiments.``) belongs to."""
    for part, members in PARTS.items():
        folders = tuple(m for m in members if m.endswith("."))
        if name in members or name.startswith(folders) or f"{name}." in folders:
            return part
    raise AssertionError(f"experiments.{name} belongs to no part: add it to PARTS in {__file__}")


def faults(module: str, names: set[str]) -> list[str]:
    """Return what is wrong with a module importing `names`."""
    room, _, rest = module.partition(".")
    tops = {name.split(".")[0] for name in names} - {room}
    own = tops - set(sys.stdlib_module_names)
    if room == "netsenseml":
        bad = own - {"torch", "numpy"}
    elif room == "topologies":
        bad = own - ({"mininet"} if module == "topologies.mn" else set())
    elif room == "testbed":
        bad = own & (HEAVY | LEARNING | {"experiments"})
    else:
        allowed, forbidden = RULES[part_of(rest)]
        bad = own & forbidden
        for name in names:
            inner = name.partition("experiments.")[2] if name.startswith("experiments.") else None
            if inner is not None and part_of(inner) not in {part_of(rest), *allowed}:
                bad = bad | {name}
    return [f"{module} must not import {name}" for name in sorted(bad)]


def module_of(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_in_allowed_directions(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = imported(tree, module_of(path), path.name == "__init__.py")
    assert faults(module_of(path), names) == []


def test_one_module_of_the_testbed_imports_mininet() -> None:
    users = [
        module_of(path)
        for path in FILES
        if any(
            name.split(".")[0] == "mininet"
            for name in imported(ast.parse(path.read_text(encoding="utf-8")), module_of(path))
        )
    ]
    assert len([m for m in users if m.startswith("testbed")]) <= 1
    assert [m for m in users if m.startswith("topologies")] == ["topologies.mn"]


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("netsenseml.hook", "import topologies"),
        ("netsenseml.hook", "from experiments.errors import UserError"),
        ("netsenseml.hook", "import yaml"),
        ("topologies.spec", "import numpy"),
        ("topologies.spec", "import mininet.topo"),
        ("testbed.guest", "from experiments import scenario"),
        ("testbed.guest", "def f():\n    import torch"),
        ("experiments.plots", "from topologies import Topology"),
        ("experiments.plots", "from .scenario import load"),
        ("experiments.rank", "import pandas"),
        ("experiments.rank", "from testbed import guest"),
        ("experiments.harness", "from .analysis import load"),
        ("experiments.harness", "import matplotlib.figure"),
        ("experiments.scenario", "import netsenseml"),
        ("experiments.commands.run", "import pandas as pd"),
    ],
)
def test_a_planted_fault_is_found(module: str, code: str) -> None:
    assert faults(module, imported(ast.parse(code), module))
