"""Pictures over networks and methods."""

from __future__ import annotations

from experiments.canvas import style_context
from experiments.crossing import break_even, heat_map


def words(figure: object) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]  # type: ignore[attr-defined]


def test_the_heat_map_says_why_a_cell_is_empty() -> None:
    rows = {"200m": {"allreduce": 0.02, "netsense": 0.91}, "10g": {"allreduce": "diverged"}}
    with style_context():
        figure = heat_map(rows, ["allreduce", "netsense"])
    assert figure is not None
    assert words(figure) == [".020", "0.91", "diverged"]
    assert heat_map({"200m": {"netsense": "not run"}}, ["netsense"]) is None


def test_break_even_is_relative_to_dense_at_the_same_rate() -> None:
    panel = {
        "allreduce": {200.0: 10.0, 10_000.0: 100.0},
        "topk-0.1": {200.0: 5.0, 500.0: 7.0, 10_000.0: 90.0},
    }
    with style_context():
        figure = break_even({"resnet18": panel, "vgg16": {"netsense": {200.0: 1.0}}})
    assert figure is not None
    assert len(figure.axes) == 1  # nothing to compare with in the other
    assert list(figure.axes[0].lines[0].get_ydata()) == [0.5, 0.9]
    assert break_even({"vgg16": {"netsense": {200.0: 1.0}}}) is None


def test_rates_are_named_where_there_is_room() -> None:
    rates = [20.24, 25.0, 40.09, 2500.0]
    panel = {m: dict.fromkeys(rates, 1.0) for m in ("allreduce", "netsense")}
    with style_context():
        figure = break_even({"resnet18": panel})
    assert figure is not None
    labels = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert labels == ["20.24 M", "40.09 M", "2.5 G"]
