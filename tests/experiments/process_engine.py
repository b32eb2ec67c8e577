"""An engine whose cells are small real processes, and a program that runs a sweep with it.

A cell writes its steps line by line, in pieces, so that being killed tears a line. The program
is killed by tests: ``python process_engine.py PLAN FOLDER LOG`` (PLAN pickled by `store_plan`).
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from experiments.identity import Identities
from experiments.progress import Progress
from experiments.sweep import PlannedCell, run_planned
from experiments.sweepfile import Sweep, Variation
from testbed.guest import dying_with_parent

# $1: the log of starts; $2: what the cell is called there; $3: its steps; $4: its status
_CELL = """
echo "$2" >> "$1"
i=0
while [ $i -lt $3 ]; do
    printf '{"step": %d, "t_start_s": %d.0, "t_end_s"' $i $i >> steps-rank0.jsonl
    sleep 0.01
    i=$((i + 1))
    printf ': %d.0, "samples": 32, "loss": 1.0}\\n' $i >> steps-rank0.jsonl
done
printf '{"status": "%s", "reason": null, "warmup_steps": 1, "virtual_s": 1.0}\\n' $4 > .outcome
mv .outcome outcome.json
"""


class ProcessJob:
    """A cell that is a shell."""

    def __init__(self, folder: Path, spec: dict[str, Any], log: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "cell.json").write_text(json.dumps(spec))
        self.folder = folder
        name = f"{spec['topology']['links'][0]['rate_mbps']:g} {spec['label']}"
        status = "failed" if (log.parent / "broken").exists() else "ok"
        arguments = [str(log), f"{name} s{spec['seed']}", str(spec["steps"]), status]
        self._process = subprocess.Popen(
            [*dying_with_parent(), "sh", "-c", _CELL, "cell", *arguments], cwd=folder
        )

    def steps(self) -> int:
        path = self.folder / "steps-rank0.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def poll(self) -> dict[str, Any] | None:
        if self._process.poll() is None:
            return None
        return json.loads((self.folder / "outcome.json").read_text())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class ProcessEngine:
    """Runs cells as processes; `log` gets a line whenever one starts."""

    def __init__(self, log: Path, slots: int = 2) -> None:
        self.slots = slots
        self.memory_mb: int | None = None
        self._log = log
        self.most = 0
        self._jobs: list[ProcessJob] = []

    def submit(self, folder: Path, spec: dict[str, Any]) -> ProcessJob:
        self._jobs.append(ProcessJob(folder, spec, self._log))
        self.most = max(self.most, sum(job._process.poll() is None for job in self._jobs))
        return self._jobs[-1]


Plan = tuple[Sweep, list[PlannedCell], Identities]


def store_plan(plan: Plan, path: Path) -> None:
    """Write a plan for the program."""
    path.write_bytes(pickle.dumps(plan))


class Said(Progress):
    """Prints every note."""

    def note(self, text: str) -> None:
        print(text, flush=True)


def main() -> None:
    plan, folder, log = map(Path, sys.argv[1:])
    sweep, cells, identities = pickle.loads(plan.read_bytes())
    engine = ProcessEngine(log)
    run_planned(sweep, cells, identities, folder, engine=engine, progress=Said())


if __name__ == "__main__":
    main()

__all__ = ["Plan", "ProcessEngine", "Said", "Variation", "store_plan"]
