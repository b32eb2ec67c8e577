"""The table of scenarios in the documentation, made from the files themselves.

``python -m experiments.catalogue`` prints it; a test holds ``docs/scenarios.md`` against it.
"""

from __future__ import annotations

from .scenario import Scenario, load, names

__all__ = ["table"]


def _links(scenario: Scenario) -> str:
    """Return the builder and the range of rates and delays."""
    if scenario.topology is None:
        return "those there are"
    shapes = [s for link in scenario.network.links for _, _, s in link.directions()]
    parts = [scenario.network.name.replace("_", " ")]
    for unit, values in (
        ("Mbit/s", [s.rate_mbps for s in shapes]),
        ("ms", [s.delay_ms for s in shapes]),
    ):
        low, high = min(values), max(values)
        parts.append(f"{low:g} {unit}" if low == high else f"{low:g} to {high:g} {unit}")
    return ", ".join(parts)


def _changes(scenario: Scenario) -> str:
    """Return what happens during the run."""
    said = []
    kinds = dict.fromkeys(event.get("kind", "set") for event in scenario.events)
    if kinds:
        said.append(f"{', '.join(kinds)} ({len(scenario.changes)} changes)")
    if scenario.flows:
        most = max(flow.flows for flow in scenario.flows)
        each = "of one flow" if most == 1 else f"of up to {most} flows"
        said.append(f"{len(scenario.flows)} bursts of iperf3 {each}")
    said += [f"job {job.name} on {len(job.hosts)} hosts" for job in scenario.jobs]
    if scenario.workload.straggler:
        said.append(f"rank {scenario.workload.straggler.rank} computes slowly")
    return "; ".join(said) or "nothing"


def table() -> str:
    """Return a row per scenario: name, whom it stands for, links, what happens."""
    lines = ["| scenario | stands for | links | what happens |", "| --- | --- | --- | --- |"]
    for name in names():
        scenario = load(name)
        cells = (f"`{name}`", scenario.description, _links(scenario), _changes(scenario))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
