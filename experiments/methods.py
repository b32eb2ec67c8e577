"""The names of the methods, found without importing torch."""

from __future__ import annotations

import ast
from pathlib import Path

__all__ = ["is_adaptive", "method_names"]


def method_names() -> list[str]:
    """Return the methods of `netsenseml` without importing it, which would import torch.

    Each is one file of ``netsenseml/codecs`` that assigns ``METHOD``, and is named after it.
    """
    folder = Path(__file__).parent.parent / "netsenseml" / "codecs"
    found = [path.stem for path in folder.glob("*.py") if _has_method(path)]
    return sorted(stem.replace("_", "-") for stem in found)


def is_adaptive(name: str) -> bool:
    """Whether a method, or a label that begins like it, chooses among codecs as it goes."""
    return name.startswith("netsense")


def _has_method(path: Path) -> bool:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == "METHOD" for t in targets):
            return True
    return False
