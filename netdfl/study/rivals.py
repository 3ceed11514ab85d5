"""The points of a sweep that are compared with each other: methods at equal values of all else (at one level)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from netdfl.study.plan import Place, Values
from netdfl.study.summary import GridPoint, PairedDifference

METHODS = ("algorithm.name", "algorithm")


def rival_key(places: Iterable[Place]) -> str:
    """Return the varied key whose values are compared with each other; empty if the cases are compared.

    The cases are compared if there are several. Otherwise the key is the algorithm's if that varies, or the first key
    that varies.
    """
    cases: set[str] = set()
    values: dict[str, set[str]] = {}
    for case, varied in places:
        cases.add(case)
        for path, text in varied:
            values.setdefault(path, set()).add(text)
    varying = [path for path, texts in values.items() if len(texts) > 1]
    return "" if len(cases) > 1 or not varying else next((path for path in METHODS if path in varying), varying[0])


def rival_of(place: Place, key: str) -> str:
    """Return what is compared at a point: its value of the varied `key` or, for an empty key, its case."""
    case, values = place
    return dict(values).get(key, "") if key else case


def level_of(place: Place, key: str) -> Values:
    """Return the varied values of a point without the value of `key`."""
    return tuple(pair for pair in place[1] if pair[0] != key)


def levels_of(points: Sequence[GridPoint]) -> list[list[int]]:
    """Return the indices of points in groups. Points of a group differ only in case, or in the value of `rival_key`."""
    places = [(point.case, point.values) for point in points]
    key = rival_key(places)
    found: dict[Values, list[int]] = {}
    for index, place in enumerate(places):
        found.setdefault(level_of(place, key), []).append(index)
    return list(found.values())


def differing(points: Sequence[GridPoint], best: int, found: Iterable[PairedDifference]) -> Mapping[int, bool]:
    """Return whether each point that was compared with the point `best` differs from it, by index."""
    index = {id(point): place for place, point in enumerate(points)}
    pairs = [({index[id(each.first)], index[id(each.second)]}, each.holds) for each in found]
    return {(pair - {best}).pop(): holds for pair, holds in pairs if best in pair}


class RowMarks(NamedTuple):
    """The points whose numbers a table marks in one column.

    Attributes:
        best: the indices of the best points, and of those that are not known to differ from them.
        unknown: the indices of the points that were not compared with the best of their level.
    """

    best: set[int]
    unknown: set[int]


NO_MARKS = RowMarks(set(), set())


def marks_of(ranked: Sequence[int], shown: Mapping[int, str], differs: Mapping[int, bool]) -> RowMarks:
    """Return the marks of the points of one level.

    The best and the next ones are marked, down to the first that differs from the best; a point that was not compared
    with the best is skipped. Points whose numbers look alike are marked alike, and no point is marked where all would
    be.

    Args:
        ranked: the indices of the points, the best first.
        shown: the text of each point's number.
        differs: whether a point differs from the best, for those that were compared with it; if there are none, nothing
            is marked.
    """
    if not differs:
        return NO_MARKS
    marked = {shown[ranked[0]]}
    for index in ranked[1:]:
        if differs.get(index) and shown[index] not in marked:
            break
        marked |= {shown[index]} if index in differs else set()
    best = {index for index in ranked if shown[index] in marked}
    return NO_MARKS if len(best) == len(ranked) else RowMarks(best, set(ranked) - set(differs) - best)
