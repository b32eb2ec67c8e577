"""The names of methods, tasks and devices, found without importing torch."""

from __future__ import annotations

import ast
from pathlib import Path

__all__ = ["REAL_DEVICES", "device_names", "is_adaptive", "method_names", "task_names"]

_HERE = Path(__file__).parent
#: what ``workload.device`` names beside the profiles: the processor or GPU that is there
REAL_DEVICES = ("cpu", "cuda")


def method_names() -> list[str]:
    """Return the methods of `netsenseml` without importing it, which would import torch.

    Each is one file of ``netsenseml/codecs`` that assigns ``METHOD``, and is named after it.
    """
    folder = _HERE.parent / "netsenseml" / "codecs"
    found = [path.stem for path in folder.glob("*.py") if _has_method(path)]
    return sorted(stem.replace("_", "-") for stem in found)


def task_names() -> list[str]:
    """Return what ``workload.task`` may be: each is one file of ``experiments/workloads``."""
    files = (_HERE / "workloads").glob("[a-z]*.py")
    return sorted(path.stem.replace("_", "-") for path in files)


def device_names() -> list[str]:
    """Return what ``workload.device`` may be: a file of ``experiments/devices``, or real."""
    return [*REAL_DEVICES, *sorted(path.stem for path in (_HERE / "devices").glob("[a-z]*.yaml"))]


def is_adaptive(name: str) -> bool:
    """Whether a method, or a label that begins like it, chooses among codecs as it goes."""
    return name.startswith("netsense")


def _has_method(path: Path) -> bool:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == "METHOD" for t in targets):
            return True
    return False
