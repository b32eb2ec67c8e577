import pytest

from topologies import LinkEvent, SpecError, Topology, expand_jobs, expand_traffic, phases, star

NET = star(2, rate_mbps=100, delay_ms=1, extra_hosts=2)


def of(found: list, direction: str) -> list[tuple[float, float, bool]]:
    return [(p.start_s, p.shape.rate_mbps, p.up) for p in found if p.direction == direction]


def test_every_direction_has_a_phase_from_change_to_change() -> None:
    events = [
        LinkEvent(2.0, "h0-s0", {"rate_mbps": 10.0}),
        LinkEvent(3.0, "h0-s0", {"up": False}, sender="s0"),
        LinkEvent(4.0, "h0-s0", {"up": True}),
    ]
    found = phases(NET, events)
    assert of(found, "h1>s0") == [(0, 100, True)]
    assert of(found, "h0>s0") == [(0, 100, True), (2, 10, True), (4, 10, True)]
    assert of(found, "s0>h0") == [(0, 100, True), (2, 10, True), (3, 10, False), (4, 10, True)]


def test_changes_of_one_moment_are_one_phase() -> None:
    events = [
        LinkEvent(2.0, "h0-s0", {"rate_mbps": 10.0}),
        LinkEvent(2.0, "h0-s0", {"delay_ms": 5.0}),
    ]
    last = [p for p in phases(NET, events) if p.direction == "h0>s0"][-1]
    assert (last.number, last.shape.rate_mbps, last.shape.delay_ms) == (1, 10, 5)


def test_changes_that_together_are_impossible_are_refused() -> None:
    events = [
        LinkEvent(1.0, "h0-s0", {"jitter_ms": 0.5}),
        LinkEvent(2.0, "h0-s0", {"delay_ms": 0.2}),
    ]
    with pytest.raises(SpecError, match=r"h0-s0 at 2 s: jitter_ms: expected at most delay_ms"):
        phases(NET, events)


def test_a_job_beside_the_one_under_test() -> None:
    entries = [
        {"kind": "iperf3-tcp", "source": "x0", "sink": "h0"},
        {"kind": "training", "hosts": ["x0", "x1"], "method": "allreduce", "start_s": 2},
    ]
    (job,) = expand_jobs(entries, NET, 10)
    assert (job.hosts, job.method, job.name, job.start_s) == (
        ("x0", "x1"),
        "allreduce",
        "rival",
        2,
    )
    assert [flow.kind for flow in expand_traffic(entries, NET, 10)] == ["iperf3-tcp"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hosts": ["x0"]}, "0.hosts: expected a list of at least two"),
        ({"hosts": ["x0", "h1"]}, "'h1' is not free for a job"),
        ({"hosts": ["x0", "x0"]}, "'x0' is not free"),
        ({"hosts": ["x0", "x9"]}, "did you mean 'x1'|did you mean 'x0'|free: x1"),
        ({"method": ""}, "0.method"),
        ({"start_s": 20}, "0.start_s: 20 s is after the end"),
        ({"rate_mbps": 5}, "0.rate_mbps: unknown key"),
        ({"name": "A b"}, "0.name: expected a-z"),
    ],
)
def test_a_job_that_cannot_be_is_refused(change: dict[str, object], says: str) -> None:
    entry = {"kind": "training", "hosts": ["x0", "x1"], "method": "allreduce"} | change
    with pytest.raises(SpecError, match=says):
        expand_jobs([entry], NET, 10)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"aqm": "codel"}, "aqm: .*did you mean 'fq_codel'"),
        ({"ecn": True}, "ecn: expected an aqm that marks"),
        ({"ecn": 1, "aqm": "red"}, "ecn: expected true or false"),
    ],
)
def test_a_queue_that_cannot_be_managed_so_is_refused(change: dict, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        star(2, rate_mbps=100, delay_ms=1, **change)


def test_a_managed_queue_survives_plain_data() -> None:
    net = star(2, rate_mbps=100, delay_ms=1, aqm="red", ecn=True)
    assert Topology.from_dict(net.to_dict()) == net
    assert net.link("h0-s0").shape("s0").ecn
