"""Starts topologies by Mininet's own command, as a person would."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.testbed.programs.alone import main


def run(plan: dict[str, Any]) -> dict[str, Any]:
    """Return what each ``--topo`` said, run with ``--test pingall``."""
    found = {}
    for topo in plan["topos"]:
        command = ["mn", "--custom", "topologies/mn.py", "--topo", topo, "--link", "tc"]
        command += ["--switch", "lxbr", "--controller", "none", "--test", "pingall"]
        done = subprocess.run(command, capture_output=True, text=True)
        found[topo] = {"status": done.returncode, "said": done.stdout + done.stderr}
    return found


if __name__ == "__main__":
    main(run)
