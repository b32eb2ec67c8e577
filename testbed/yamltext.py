"""Read YAML so that no mistake passes: the one reader of all files that people write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["YamlError", "read_yaml"]

_MOST_BITS = 64  # of a whole number: no count, seed or size has more


class YamlError(Exception):
    """A file that is no YAML or can be read in two ways; the text is one line."""


class _Loader(yaml.SafeLoader):
    """The usual loader takes the last of two equal keys, and fails on values that are none."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        # asked before construction, which puts the keys of a merge (<<) beside those that
        # override them
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if (key.tag, key.value) in lines:
                first = lines[key.tag, key.value]
                raise YamlError(
                    f"{key.value}: the key is there twice, in line {first} and in line {line}"
                )
            lines[key.tag, key.value] = line
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError):  # the 31st of June; 5000 digits
            raise _no_value(node) from None
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise _no_value(node)
        return value


def _no_value(node: Any) -> YamlError:
    text = str(node.value)
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    return YamlError(f"line {node.start_mark.line + 1}: no value can be '{shown}'")


def read_yaml(path: Path) -> Any:
    """Return what a YAML file holds.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    YamlError
        It cannot be read, is not YAML, or has a key twice in one mapping. The text names the
        line, not the file.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # a safe one
    except OSError as error:
        raise YamlError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise YamlError("expected UTF-8 text") from None
    except ValueError:
        raise YamlError("cannot be read: no file has such a name") from None
    except RecursionError:
        raise YamlError("is nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1} " if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise YamlError(f"{where}is not YAML: {problem}") from None
