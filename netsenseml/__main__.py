"""``python -m netsenseml``: the cost of the codecs on this machine; checks of options."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, NoReturn

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and exits with 1: 2 is for work that did not end well."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"error: {self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _Parser(prog="python -m netsenseml")
    verbs = parser.add_subparsers(dest="verb", required=True)
    bench = verbs.add_parser("bench", help="speed of the codecs against plain torch operators")
    bench.add_argument("--json", action="store_true", help="print one JSON object")
    bench.add_argument("--numel", type=int, default=11_700_000, help="floats (default: ResNet18)")
    bench.add_argument("--repeats", type=int, default=7, help="measurements of each pair")
    verbs.add_parser("build", help="compile the host kernels once, for all later trainings")
    verbs.add_parser("methods", help="list the methods and their options")
    verbs.add_parser("check", help="check [[method, options], …] from standard input, as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.verb == "methods":
        return _methods()
    if chosen.verb == "build":
        return _build()
    if chosen.verb == "check":
        try:
            asked = json.load(sys.stdin)
        except ValueError as error:
            print(f"check: standard input: expected JSON: {error}", file=sys.stderr)
            return 1
        return _check(asked)
    if chosen.numel < 100_000 or chosen.repeats < 1:
        print("bench: --numel must be at least 100000 and --repeats at least 1", file=sys.stderr)
        return 1
    return _bench(chosen.numel, chosen.repeats, chosen.json)


def _methods() -> int:
    import netsenseml

    for name in netsenseml.methods():
        print(f"{name:15s} {netsenseml.options(name)()}")
    return 0


def _build() -> int:
    from netsenseml.native import build

    try:
        print(build().__file__)
    except RuntimeError as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    return 0


def _check(asked: list[tuple[str, dict[str, Any]]]) -> int:
    """Say on standard output, in a line each, which options are illegal; 1 if any is."""
    import netsenseml
    from netsenseml.options import build_options

    wrong = []
    for method, options in asked:
        try:
            build_options(netsenseml.options(method), options, method)
        except (TypeError, ValueError) as error:
            wrong.append(str(error))
    print("\n".join(wrong))
    return 1 if wrong else 0


def _bench(numel: int, repeats: int, as_json: bool) -> int:
    import torch

    from netsenseml.bench import run
    from netsenseml.native import build

    if os.environ.get("NETSENSEML_NATIVE", "") == "":
        try:
            build()
        except RuntimeError as error:
            print(f"bench: without C++ kernels: {error}", file=sys.stderr)
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    results = [run(numel, repeats, device) for device in devices]
    if as_json:
        print(json.dumps({"results": results}, allow_nan=False, indent=1))
        return 0
    for result in results:
        print(f"{result['device']}, {numel} floats, {result['threads']} thread")
        for row in result["comparisons"]:
            print(
                f"  {row['name']:18s} {row['seconds'] * 1e3:8.1f} ms  {row['ratio']:6.2f} x "
                f"{row['reference']} (wanted {row['wanted_ratio']:g})"
            )
        print(f"  index bits per value at 1 %: {result['index_bits_at_1_percent']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
