"""What a sweep's table marks as best: within each level of what varies beside the methods, and not by silence."""

from __future__ import annotations

import re

import pytest

from netdfl.study.rivals import levels_of, rival_key
from netdfl.study.summary import GridPoint
from netdfl.study.tables import SweepTable

FIRST, WORST = [0.930, 0.932, 0.931, 0.929], [0.5, 0.5, 0.5, 0.51]
NEAR, NOISY = [0.925, 0.934, 0.926, 0.927], [0.95, 0.80, 0.97, 0.82]
LESS = [x - 0.01 - 1e-4 * n for n, x in enumerate(FIRST)]


def point(method: str, numbers: list[float], loss: str = "", *, figure: str = "test_accuracy") -> GridPoint:
    """A point of the case `method`, at a level of loss if there is one."""
    by_seed = {seed: {figure: value} for seed, value in enumerate(numbers)}
    values = (("links.default.loss", loss),) if loss else ()
    return GridPoint(method, values, 0, {figure: tuple(numbers)}, by_seed)


def table(*points: GridPoint) -> SweepTable:
    return SweepTable(points, sorted({name for each in points for name in each.figures}), frozenset())


def caption_of(found: SweepTable, title: str = "digits") -> str:
    (caption,) = re.findall(r"\\caption\{(.*)\}\n", found.latex(title))
    return str(caption)


@pytest.mark.parametrize(
    ("places", "key"),
    [
        ([("a", (("loss", "0"),)), ("b", (("loss", "1"),))], ""),
        ([("", (("loss", x), ("algorithm.name", y))) for x in "01" for y in "ab"], "algorithm.name"),
        ([("", (("loss", x), ("algorithm", "{}"))) for x in "01"], "loss"),
        ([("", (("delivery", x), ("loss", y))) for x in "ab" for y in "01"], "delivery"),
        ([("one", (("loss", x),)) for x in "01"], "loss"),
        ([], ""),
    ],
)
def test_methods_stand_against_each_other_and_else_what_varies_first(
    places: list[tuple[str, tuple[tuple[str, str], ...]]], key: str
) -> None:
    assert rival_key(places) == key


def test_the_best_is_chosen_within_each_level() -> None:
    """Though the first method without loss is better than all with loss, each level has its own best."""
    lossy = [[x - 0.2 for x in row] for row in (LESS, FIRST)]
    found = table(
        point("a", FIRST, "0"), point("a", lossy[0], "0.2"), point("b", LESS, "0"), point("b", lossy[1], "0.2")
    )
    assert levels_of(found.points) == [[0, 2], [1, 3]]
    assert found.best("test_accuracy") == {0, 3}
    rule = "Bold: for each message loss the best mean, and the next ones down to the first that differs from it"
    assert rule in found.markdown()
    assert rule in caption_of(found)


def test_a_level_whose_rows_would_all_be_bold_has_no_bold() -> None:
    other = [point("a", FIRST, "0.2"), point("b", NEAR, "0.2")]
    assert table(point("a", FIRST, "0"), point("b", LESS, "0"), *other).best("test_accuracy") == {0}
    same = table(point("a", FIRST, "0"), point("b", NEAR, "0"), *other)
    assert same.best("test_accuracy") == set()
    assert "Bold" not in same.markdown() + same.latex("digits")


def test_no_row_is_marked_where_a_better_one_differs_from_the_best() -> None:
    """The noisy row is not known to differ from the best, but the one between them is, and has a better mean."""
    found = table(point("a", FIRST), point("b", LESS), point("c", NOISY), point("d", WORST))
    held = {(each.first.case, each.second.case): each.holds for each in found.found("test_accuracy")}
    assert (held["a", "b"], held["a", "c"]) == (True, False)
    assert found.best("test_accuracy") == {0}


def test_a_row_that_was_not_compared_has_a_mark_of_its_own_and_ends_nothing() -> None:
    found = table(point("a", FIRST), point("once", [0.9293]), point("c", NEAR), point("d", WORST))
    assert (found.best("test_accuracy"), found.not_compared("test_accuracy")) == ({0, 2}, {1})
    assert "| once | 1 | 92.9% † |" in found.markdown()
    assert "† Not compared with the best" in found.markdown()
    assert r"92.9\%$^\dagger$" in found.latex("digits")
    assert r"$^\dagger$ Not compared with the best" in found.latex("digits")


def test_where_nothing_is_compared_nothing_is_marked() -> None:
    found = table(point("a", [0.9]), point("b", [0.8]), point("c", [0.7]))
    assert found.best("test_accuracy") == found.not_compared("test_accuracy") == set()
    assert caption_of(found) == "Test accuracy of digits, one seed."
    lone = table(point("a", FIRST, "0"), point("b", WORST, "0"), point("a", LESS, "0.2"))
    assert lone.best("test_accuracy") == {0}, "a row that is alone in its level is no best"


def test_equal_numbers_are_marked_alike_and_nothing_where_all_are_equal() -> None:
    def lasting(*rows: float) -> SweepTable:
        places = [("a", "0"), ("a", "0.2"), ("b", "0"), ("b", "0.2")]
        return table(
            *(point(m, [x] * 3, loss, figure="virtual_duration_s") for (m, loss), x in zip(places, rows, strict=True))
        )

    found = lasting(4.67, 5.1, 4.6702, 4.67)
    assert found.best("virtual_duration_s") == {3}, "4.67 and 4.6702 differ in every run, and look alike"
    assert found.markdown().count("**4.67**") == 1
    assert lasting(4.67, 4.67, 4.6702, 4.67).best("virtual_duration_s") == set()
    assert table(*(point(m, [x] * 3, figure="error") for m, x in zip("abc", (4.67, 4.6702, 5.1), strict=True))).best(
        "error"
    ) == {0, 1}


def test_a_caption_is_two_short_sentences() -> None:
    caption = caption_of(table(point("a", FIRST), point("b", WORST[:3])), "50% & more")
    assert caption == (
        r"Test accuracy of 50\% \& more: mean $\pm$ standard deviation over 3 to 4 seeds, below it the 95\% confidence "
        "interval of the mean. Bold: the best mean, and the next ones down to the first that differs from it "
        "significantly (paired t-tests over the seeds, corrected by Holm, 0.05); none where all would "
        "be bold."
    )
    many = {"bytes_sent": (3e6, 3e6), "rounds": (4.0, 4.0), "error": (1.0, 2.0), "test_loss": (1.0, 2.0)}
    points = [GridPoint(case, (), 0, many, {}) for case in "ab"]
    assert caption_of(SweepTable(points, ["error"], frozenset({"error"}))).startswith(
        "Error (distance to the known answer) of digits: mean over 2 seeds"
    )
    assert caption_of(SweepTable(points, list(many), frozenset())).startswith("Results of digits: mean $\\pm$")
    assert caption_of(SweepTable(points, ["bytes_sent", "rounds"], frozenset())) == (
        "Bytes sent and rounds of digits: mean over 2 seeds."
    )
