"""The words of which the sentences of a diagnosis are made: one and many, known and unknown ends, a few and a lot."""

from __future__ import annotations

import pytest

from netdfl.diagnosis import words

SECOND = 10**9


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.listed([4]), "4"),
        (words.listed([4, 5]), "4 and 5"),
        (words.listed([4, 5, 6], "or"), "4, 5 or 6"),
        (words.listed(range(8)), "0, 1, 2, 3, 4, 5, 6 and 7"),
        (words.listed(range(9)), "0, 1, 2, 3, 4, 5, 6 and 2 more"),
        (words.listed(range(5), most=3), "0, 1 and 3 more"),
        (words.nodes([4]), "node 4"),
        (words.nodes([5, 4]), "nodes 4 and 5"),
        (words.seconds(1_250_000_000), "1.25 s"),
        (words.rounds([3]), "round 3"),
        (words.rounds([4, 3, 5]), "rounds 3 to 5"),
        (words.behind([], [0]), ""),
        (words.behind([4], [0]), "; 4 waits behind it"),
        (words.behind([4, 5], [0, 1]), "; 4 and 5 wait behind them"),
        (words.lacking([1, 2], 2, room=False), "1 and 2"),
        (words.lacking([1, 2], 3, room=False), "1 and 2"),
        (words.lacking([1, 2], 1, room=False), "1 or 2"),
        (words.lacking([1, 2, 5], 2, room=False), "2 of 1, 2 and 5"),
        (words.lacking([1], 1, room=True), "room at 1"),
        (words.arrows([(2, 3), (3, 2)]), "2->3 and 3->2"),
    ],
)
def test_what_is_counted_is_listed(said: str, expected: str) -> None:
    assert said == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [([], ""), ([None], ""), ([0], " (events[0])"), ([2, None], ""), ([0, 2], ""), ([None, None], "")],
)
def test_an_entry_is_named_where_it_alone_did_it(events: list[int | None], expected: str) -> None:
    assert words.entry(events) == expected


@pytest.mark.parametrize(
    ("ends", "until", "back", "hoped"),
    [
        ([None], "for good", "does not return", "does not return"),
        ([20 * SECOND], "until 20 s", "returns at 20 s", "may return until 20 s"),
        ([5 * SECOND, 20 * SECOND], "until 20 s", "returns at 20 s", "may return until 20 s"),
        ([20 * SECOND, None], "for good", "does not return", "does not return"),
    ],
)
def test_an_outage_lasts_until_the_last_of_its_ends(ends: list[int | None], until: str, back: str, hoped: str) -> None:
    assert words.until(ends) == until
    assert words.back(ends, many=False, hoped=False) == back
    assert words.back(ends, many=False, hoped=True) == hoped
    many = words.back(ends, many=True, hoped=False)
    assert many == back.replace("does", "do").replace("returns", "return")


@pytest.mark.parametrize(
    ("at_ns", "in_rounds", "many", "expected"),
    [
        ([20 * SECOND], [None], False, "joins at 20 s"),
        ([None], [7], False, "joins in round 7"),
        ([20 * SECOND], [7], False, "joins at 20 s"),
        ([5 * SECOND, 20 * SECOND], [None, None], True, "join at 20 s"),
        ([None, None], [7, 9], True, "join in rounds 7 to 9"),
        ([20 * SECOND, None], [None, 9], True, "join at 20 s and in round 9"),
        ([None], [None], False, "has not joined"),
        ([None, None], [None, None], True, "have not joined"),
    ],
)
def test_nodes_that_have_yet_to_join_do_so_at_a_time_or_in_a_round(
    at_ns: list[int | None], in_rounds: list[int | None], many: bool, expected: str
) -> None:
    assert words.joins(at_ns, in_rounds, many=many) == expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([4], "node 4"),
        ([3, 4], "nodes 3 and 4"),
        ([2, 3, 4], "nodes 2 to 4"),
        ([0, 1, 2, 3, 6], "nodes 0 to 3 and 6"),
        ([6, 9, 8, 0, 1, 3, 4, 5], "nodes 0, 1, 3 to 6, 8 and 9"),
    ],
)
def test_three_nodes_or_more_in_a_row_are_told_by_their_ends(ids: list[int], expected: str) -> None:
    assert words.span(ids) == expected
