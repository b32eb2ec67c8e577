import pytest

from experiments.stats import bootstrap, percentile, speedup


def test_percentiles_interpolate() -> None:
    assert percentile([4, 1, 3, 2], 50) == 2.5
    assert percentile([0, 10], 95) == 9.5
    assert percentile([], 50) is None


def test_speedup_pairs_seeds() -> None:
    found = speedup({0: 20.0, 1: 30.0, 2: 40.0}, {0: 10.0, 1: 10.0, 3: 1.0})
    assert found is not None
    assert (found.median, found.n, found.low, found.high) == (2.5, 2, None, None)


@pytest.mark.parametrize("other", [{}, {1: 5.0}, {0: None}, {0: 0.0}, {0: float("nan")}])
def test_no_common_seed_is_no_speedup(other: dict[int, float | None]) -> None:
    assert speedup({0: 20.0}, other) is None


def test_intervals_repeat_and_contain_the_median() -> None:
    values = [1.0, 1.1, 1.2, 1.5, 2.0]
    first, second = bootstrap(values), bootstrap(values)
    assert first == second
    assert first is not None
    assert first.low is not None
    assert first.high is not None
    assert 1.0 <= first.low <= first.median == 1.2 <= first.high <= 2.0


def test_equal_repetitions_have_no_spread() -> None:
    found = bootstrap([3.0, 3.0, 3.0])
    assert found is not None
    assert (found.low, found.median, found.high) == (3.0, 3.0, 3.0)


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        bootstrap([1.0, float("nan")])
