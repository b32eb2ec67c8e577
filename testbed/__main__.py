"""``python -m testbed doctor|calibrate|shell``.

Exit 0: all well. 1: a mistake, or nothing works here. 2: a network is not what was asked for.
130: interrupted.

argparse, not typer: the doctor is asked before anything is installed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import asked, calibrate, doctor
from .backends import ON_ONE_MACHINE, ChoiceError

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
    for name, function, text in (
        ("calibrate", calibrate.calibrate, "measure a network: what was asked, what is got"),
        ("shell", calibrate.shell, "an interactive prompt in a network: h0 ping h1, exit"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("net", nargs="+", metavar="SCENARIO", help=asked.HELP)
        verb.add_argument(
            "--backend", choices=["auto", *ON_ONE_MACHINE], help="instead of its own"
        )
        verb.set_defaults(run=function)
        if name == "calibrate":
            verb.add_argument("--json", action="store_true", help="print JSON")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = build().parse_args(arguments)
    # one way to stop, which ends the guest and removes its folder
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (asked.AskError, ChoiceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
