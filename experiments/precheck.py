"""``python -m experiments.precheck NAME``: is there such a scenario?

Asked before minutes of set-up, so it runs on any Python with nothing installed; whether the
file is right is found out later.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]

SCENARIOS = Path(__file__).with_name("scenarios")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the scenario exists, otherwise 1 after one line that says which do."""
    name = " ".join(sys.argv[1:] if arguments is None else arguments).strip()
    if name.endswith((".yaml", ".yml")):
        if Path(name).is_file():
            return 0
        print(f"error: {name}: no such file", file=sys.stderr)
        return 1
    there = sorted(path.stem for path in SCENARIOS.glob("*.yaml"))
    if name in there:
        return 0
    if not name:
        print(f"error: SCENARIO=… is missing; there are: {', '.join(there)}", file=sys.stderr)
        return 1
    close = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    print(f"error: no scenario '{name}'{hint} (there are: {', '.join(there)})", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
