"""Which entries of a schedule do not fit each other, link by link, against what compiling refuses."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from netdfl.core.rng import Streams
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.when import Facts

NODES = 5
FACTS = Facts(NODES, Streams(7), {}, 100 * 10**9, 50)
Link = tuple[int, int]


def refused(*entries: dict[str, Any]) -> list[tuple[int, str]]:
    try:
        compile_events(entries, FACTS)
    except ScheduleError as error:
        return error.problems
    return []


@st.composite
def groups(draw: st.DrawFn) -> list[list[int]]:
    """Two to four groups of some of the nodes."""
    of = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, None]), min_size=NODES, max_size=NODES))
    parts = [[node for node in range(NODES) if of[node] == group] for group in range(4)]
    kept = [part for part in parts if part]
    return kept if len(kept) > 1 else [[0, 1], [2, 3]]


def cut_by(parts: list[list[int]], one_way: bool) -> set[Link]:
    pairs = [(first, second) for first in parts for second in parts if first is not second]
    return {(a, b) for first, second in pairs[: 1 if one_way else None] for a in first for b in second}


@given(groups(), groups(), st.booleans(), st.booleans(), st.booleans())
def test_partitions_contradict_where_each_keeps_a_pair_together_that_the_other_parts(
    first: list[list[int]], second: list[list[int]], one_way: bool, other_mode: bool, overlap: bool
) -> None:
    one_way = one_way and len(second) == 2
    modes = ["down_drop", "down_hold" if other_mode else "down_drop"]
    entries = [
        {"at": "5s", "for": "9s", "partition": first, "mode": modes[0]},
        {"at": "8s" if overlap else "14s", "for": "9s", "partition": second, "one_way": one_way, "mode": modes[1]},
    ]
    cuts, also = cut_by(first, False), cut_by(second, one_way)
    common = sorted({node for part in first for node in part} & {node for part in second for node in part})
    parted = {((a, b) in cuts, (a, b) in also) for a, b in combinations(common, 2)}
    cross = not one_way and (True, False) in parted and (False, True) in parted
    wrong = overlap and (bool(cuts & also) if other_mode else cross)
    found = refused(*entries)
    assert [index for index, _ in found] == [1] * wrong
    assert all(("one mode" if other_mode else "contradicts") in text for _, text in found)


LINKS = st.sampled_from(["0->1", "1->0", "0--1", "[0..2]->3", "3->[0..2]", "0..3->3", "3->0..3", "all", "4--3"])


def links_of(text: str) -> set[Link]:
    every = {(a, b) for a in range(NODES) for b in range(NODES) if a != b}
    named = {
        "0->1": {(0, 1)},
        "1->0": {(1, 0)},
        "0--1": {(0, 1), (1, 0)},
        "[0..2]->3": {(0, 3), (1, 3), (2, 3)},
        "3->[0..2]": {(3, 0), (3, 1), (3, 2)},
        "0..3->3": {(0, 3), (1, 3), (2, 3)},  # of a node with itself there is none
        "3->0..3": {(3, 0), (3, 1), (3, 2)},
        "4--3": {(4, 3), (3, 4)},
    }
    return named.get(text, every)


@given(LINKS, LINKS, st.sampled_from(["1s", "9s"]), st.booleans())
@example("0..3->3", "3->0..3", "9s", True)
def test_a_heal_needs_a_link_that_broke_for_good_before(broken: str, healed: str, at: str, for_good: bool) -> None:
    ends = {} if for_good else {"for": "1s"}
    found = refused({"at": "5s", "link": broken, "state": "down_drop", **ends}, {"at": at, "heal": healed})
    fits = for_good and at == "9s" and links_of(broken) & links_of(healed)
    assert [index for index, _ in found] == ([] if fits else [1])


@example("[0..2]->3", "0..3->3", "1s", "0bit")
@example("3->[0..2]", "3->0..3", "1s", "0bit")
@given(LINKS, LINKS, st.sampled_from(["1s", "9s"]), st.sampled_from(["0bit", "1Mbit"]))
def test_a_rate_of_zero_needs_a_later_one_of_all_its_links(stopped: str, moved: str, at: str, rate: str) -> None:
    found = refused({"at": "5s", "link": stopped, "rate": "0bit"}, {"at": at, "link": moved, "rate": rate})
    last = 1 if at == "9s" else 0
    lasting = {(0, stopped)} | ({(1, moved)} if rate == "0bit" else set())
    order = [(0, stopped), (1, moved)] if last else [(1, moved), (0, stopped)]
    wrong = {i for i, text in lasting if (i, text) == order[1] or not links_of(text) <= links_of(order[1][1])}
    assert {index for index, _ in found} == wrong
