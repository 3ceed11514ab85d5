"""What joins the values of a sweep's figure: an order does, being in the same list does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from netdfl.scenario.model.study import FigureSpec
from netdfl.study.plan import places_of
from netdfl.study.plots import figure_of
from netdfl.study.summary import GridPoint


def points(x: str, values: Sequence[str], y: str = "test_accuracy") -> list[GridPoint]:
    return [
        GridPoint(case, ((x, value),), 0, {y: (0.8 + 0.01 * index, 0.82 + 0.01 * index)})
        for case in ("a", "b")
        for index, value in enumerate(values)
    ]


def axes_of(x: str, values: Sequence[str]) -> Any:
    figure = figure_of(points(x, values), FigureSpec(y="test_accuracy", x=x))
    figure.draw_without_rendering()
    return figure.axes[0]


@pytest.mark.parametrize(
    ("texts", "places"),
    [
        (["0", "5%", "0.1"], [0, 0.05, 0.1]),
        (["5ms", "1s", "2min", "10m"], [0.005, 1, 120, 600]),
        (["1Mbit", "10Mbit"], [1e6, 1e7]),
    ],
)
def test_numbers_and_quantities_stand_by_their_size(texts: Sequence[str], places: Sequence[float]) -> None:
    found = places_of(texts)
    assert found.ordered
    assert [found.at[text] for text in texts] == pytest.approx(places)


def test_categories_stand_side_by_side_and_no_line_joins_them() -> None:
    axes = axes_of("topology.kind", ["ring", "full", "star"])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["ring", "full", "star"]
    lines = [container.lines[0] for container in axes.containers]
    assert [line.get_linestyle() for line in lines] == ["None", "None"]
    assert {round(x) for line in lines for x in line.get_xdata()} == {0, 1, 2}


def test_a_line_joins_numbers() -> None:
    lines = [container.lines[0] for container in axes_of("links.default.loss", ["0", "0.1"]).containers]
    assert [line.get_linestyle() for line in lines] == ["-", "-"]


def test_accuracies_are_percentages() -> None:
    axes = axes_of("links.default.loss", ["0", "0.1"])
    assert all(label.get_text().endswith("%") for label in axes.get_yticklabels())
