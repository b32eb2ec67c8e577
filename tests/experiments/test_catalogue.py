"""The scenarios that come with the project, and the page that lists them."""

from pathlib import Path

from experiments import catalogue, scenario

ROOT = Path(__file__).parent.parent.parent
WANTED = {
    "static-200m", "static-500m", "static-800m", "static-10g", "congested", "degrading",
    "fluctuating", "spikes", "lossy-wan", "satellite", "two-sites", "oversubscribed", "straggler",
    "heterogeneous", "trace-cellular", "multi-job",
}  # fmt: skip


def test_the_page_lists_the_scenarios_as_they_are() -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    listed = page.partition("python -m experiments.catalogue -->\n")[2].partition("<!-- end -->")[
        0
    ]
    assert listed.strip() == catalogue.table().strip()


def test_all_the_networks_that_people_have_are_there() -> None:
    assert set(scenario.names()) >= WANTED


def test_times_out_after_the_longest_outage() -> None:
    outages = scenario.load("outages")
    assert outages.longest_outage_s == 3.0
    assert outages.resolved()["stall_s"] == 126.0
    assert scenario.load("congested").resolved()["stall_s"] == 120.0


def test_neighbours_come_one_by_one_up_to_fifty() -> None:
    flows = [flow.flows for flow in scenario.load("fluctuating").flows]
    assert flows[:6] == [1, 2, 5, 10, 20, 50]
    assert flows[5:] == [50, 20, 10, 5, 2, 1]
