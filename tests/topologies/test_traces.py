from pathlib import Path

import pytest

from topologies import SpecError, cellular, read_trace
from topologies.traces import parse_csv, parse_mahimahi

TRACES = Path(__file__).parent.parent.parent / "experiments" / "traces"


def test_mahimahi_counts_deliveries_per_window() -> None:
    # 1504 bytes each: three in the first 10 ms, one in the second
    steps, length_s = parse_mahimahi("1\n5\n10\n20\n", every_s=0.01)
    assert length_s == 0.02
    unit = 1504 * 8 / 1e6 / 0.01
    assert steps == [(0.0, pytest.approx(3 * unit)), (0.01, pytest.approx(unit))]


def test_mahimahi_conserves_bytes_in_a_short_last_window() -> None:
    text = "\n".join(str(7 * i) for i in range(1, 100))
    steps, length_s = parse_mahimahi(text, every_s=0.1)
    ends = [*(t for t, _ in steps[1:]), length_s]
    sent = sum(rate * (end - t) for (t, rate), end in zip(steps, ends, strict=True))
    assert sent == pytest.approx(99 * 1504 * 8 / 1e6)


def test_csv() -> None:
    assert parse_csv("time_s,rate_mbps\n0,10\n0.5,20.5\n") == ([(0, 10), (0.5, 20.5)], 1.0)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.csv", "t,rate\n0,1\n", "line 1: expected the header"),
        ("t.csv", "time_s,rate_mbps\n0,x\n", "line 2: expected two numbers"),
        ("t.csv", "time_s,rate_mbps\n0,1\n0,2\n", "line 3: expected a later time"),
        ("t.csv", "time_s,rate_mbps\n1,1\n", "first row at time 0"),
        ("t.csv", "time_s,rate_mbps\n0,-1\n", "line 2"),
        ("t.mahi", "5\n4\n", "line 2: time goes backwards"),
        ("t.mahi", "5\n4.5\n", "line 2: expected a whole number"),
        ("t.mahi", "²\n", "line 1: expected a whole number"),
        ("t.mahi", "1" * 400, "line 1: expected a whole number"),
        ("t.mahi", "900000000000\n", "every_s: makes 9000000000 windows"),
        ("t.mahi", "", "above 0"),
    ],
)
def test_mistakes_are_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=words):
        read_trace(tmp_path / name)


def test_the_traces_that_come_with_the_project_are_made_by_it(tmp_path: Path) -> None:
    cellular.main(tmp_path)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["cellular-drive.mahi", "cellular-walk.csv"]
    for name in made:
        assert (tmp_path / name).read_bytes() == (TRACES / name).read_bytes()
        steps, length_s = read_trace(TRACES / name, every_s=0.5)
        assert len(steps) == round(length_s / 0.5)
        assert max(rate for _, rate in steps) > 4 * sorted(rate for _, rate in steps)[3]
