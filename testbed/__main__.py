"""``python -m testbed doctor``. Exit 0: all well. 1: a mistake, or nothing works here.

argparse, not typer: the doctor is asked before anything is installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import doctor

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        sys.exit(1)


def build() -> argparse.ArgumentParser:
    """Return the command line; a new verb is one more sub-parser here."""
    parser = _Parser(prog="testbed", description="The machine and the networks made on it.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verb = verbs.add_parser("doctor", help="what works on this machine, and what mends the rest")
    verb.add_argument("--json", action="store_true", help="print JSON")
    verb.set_defaults(run=lambda options: doctor.main(options.json))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = build().parse_args(arguments)
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
