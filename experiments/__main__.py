"""``python -m experiments run|sweep|list|report|compare|profile|reproduce|notebook``.

Exit 0: all well. 1: a mistake of the user's, one line says which. 2: some cell did not end well.
130: interrupted.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from .commands import (
    bench,
    compare,
    notebook,
    plan,
    profile,
    report,
    reproduce,
    run,
    sweep,
)
from .commands import list as list_
from .errors import UserError

__all__ = ["main"]

# verb -> its function; a new verb is one more file in commands/ and one more line here
VERBS: dict[str, Callable[..., Any]] = {
    "run": run.run,
    "sweep": sweep.sweep,
    "list": list_.list_scenarios,
    "report": report.report,
    "compare": compare.compare,
    "bench": bench.bench,
    "profile": profile.profile,
    "reproduce": reproduce.reproduce,
    "notebook": notebook.notebook,
    "plan": plan.plan,
}


class _Group(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer would end without a word
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None


def build() -> typer.Typer:
    """Return the command line."""
    app = typer.Typer(
        cls=_Group,
        help="Run scenarios, and make tables, pictures and pages of what they measured.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for verb, function in VERBS.items():
        app.command(verb)(function)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    # one way to stop, which ends guests and removes temporary folders
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        code = build()(args=words or ["--help"], prog_name="experiments", standalone_mode=False)
        return int(code or 0)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except typer.Abort:
        return 130
    except Exception as error:
        # Mistyped options; typer has its own copy of click in newer versions, so no type to name.
        message = getattr(error, "format_message", None)
        if message is None:
            traceback.print_exc()
            return 2
        print(f"error: {' '.join(str(message()).split())}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
