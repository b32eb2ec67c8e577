"""``python -m experiments.precheck [--sweep] NAME``: is there such a scenario, or sweep?

Asked before minutes of set-up, so it runs on any Python with nothing installed; whether the
file is right is found out later.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]

HERE = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the scenario or sweep exists, otherwise 1 after one line that says which do."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    kind = "sweep" if words[:1] == ["--sweep"] else "scenario"
    name = " ".join(words[1:] if kind == "sweep" else words).strip()
    if name.endswith((".yaml", ".yml")):
        if Path(name).is_file():
            return 0
        print(f"error: {name}: no such file", file=sys.stderr)
        return 1
    there = sorted(path.stem for path in (HERE / f"{kind}s").glob("*.yaml"))
    if name in there:
        return 0
    known = f"there are: {', '.join(there)}"
    if not name:
        print(f"error: {kind.upper()}=… is missing; {known}", file=sys.stderr)
        return 1
    close = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    print(f"error: no {kind} '{name}'{hint} ({known})", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
