"""A livelock is messages without an end of a round: who takes part, since when, and what is no livelock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from wait_graphs import FLYING, fleet, is_, lost, waits

from netdfl.core.types import Edge
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.diagnose import LIVELOCK_MESSAGES, LONGEST_ROUND_NS, confirm, diagnose, find_livelock
from netdfl.diagnosis.finding import Cause, Finding, by_verdict
from netdfl.diagnosis.snapshot import EdgeNow, NodeNow, Snapshot, State
from netdfl.diagnosis.why import Grounds

SECOND = 10**9
BEFORE_NS, NOW_NS = SECOND, 9 * SECOND


def busy(node: int, ns: int, *, round: int = 4, **more: Any) -> NodeNow:
    """A node that waits for what is on its way, for a moment only."""
    return replace(waits(node, {1 - node if node < 2 else 0: FLYING}, round=round, since_ns=ns - 5), **more)


def look(ns: int, sent: Mapping[Edge, int], *others: NodeNow, rounds: tuple[int, int] = (4, 6)) -> Snapshot:
    nodes = {node: busy(node, ns, round=round) for node, round in enumerate(rounds)}
    nodes |= {each.node: each for each in others}
    edges = {edge: EdgeNow(sent=count, delivered=count) for edge, count in sent.items()}
    return fleet(*nodes.values(), edges=edges, at_ns=ns)


EACH = {(0, 1): 10, (1, 0): 20}
MORE = {(0, 1): 60, (1, 0): 70}
BEFORE, NOW = look(BEFORE_NS, EACH), look(NOW_NS, MORE)


def test_a_livelock_is_told_in_full() -> None:
    assert find_livelock(BEFORE, NOW) == Finding(
        cause=Cause.LIVELOCK,
        roots=(0, 1),
        culprits=(0, 1),
        grounds=Grounds(at_ns=NOW_NS, passed=100, window_ns=8 * SECOND, rounds=(4, 6)),
        round=4,
        witness=((0, 1), (1, 0)),
        began_ns=BEFORE_NS,
        found_ns=NOW_NS,
    )


def test_who_sends_little_is_behind_and_counts_all_the_same() -> None:
    third = busy(2, BEFORE_NS), busy(2, NOW_NS)
    more = {**MORE, (0, 1): 10 + LIVELOCK_MESSAGES, (2, 0): LIVELOCK_MESSAGES - 1}
    found = find_livelock(look(BEFORE_NS, EACH, third[0]), look(NOW_NS, more, third[1]))
    assert found is not None
    assert (found.roots, found.behind, found.witness) == ((0, 1), (2,), ((0, 1), (1, 0)))
    assert found.grounds.passed == LIVELOCK_MESSAGES + 50 + LIVELOCK_MESSAGES - 1


@pytest.mark.parametrize("few", [0, LIVELOCK_MESSAGES - 1])
def test_a_few_messages_are_none(few: int) -> None:
    assert find_livelock(BEFORE, look(NOW_NS, {edge: count + few for edge, count in EACH.items()})) is None


def test_a_round_that_ended_is_progress_of_all() -> None:
    ended = look(NOW_NS, MORE, replace(busy(1, NOW_NS, round=6), finished=6))
    assert find_livelock(BEFORE, ended) is None
    gone = is_(2, State.CRASHED)
    assert find_livelock(look(BEFORE_NS, EACH, gone), look(NOW_NS, MORE, gone)) is not None
    done = is_(2, State.FINISHED, round=3)
    assert find_livelock(look(BEFORE_NS, EACH, done), look(NOW_NS, MORE, replace(done, finished=5))) is None


def test_where_nobody_is_left_nobody_goes_in_circles() -> None:
    nodes = is_(0, State.FINISHED), is_(1, State.CRASHED)
    one, two = (fleet(*nodes, edges={(0, 1): EdgeNow(sent=count)}, at_ns=count) for count in (1, 99))
    assert find_livelock(one, two) is None


@pytest.mark.parametrize(("since_ns", "is_one"), [(BEFORE_NS, False), (BEFORE_NS + 1, True)])
def test_who_was_at_work_all_the_time_may_end_its_round(since_ns: int, is_one: bool) -> None:
    worker = is_(2, State.RUNNING, since_ns=since_ns, round=4)
    found = find_livelock(look(BEFORE_NS, EACH, is_(2, State.RUNNING, round=4)), look(NOW_NS, MORE, worker))
    assert (found is not None) == is_one


def test_who_waits_for_one_thing_all_the_time_is_no_reason_to_hope() -> None:
    waiter = waits(2, {0: FLYING}, round=4, since_ns=0)
    assert find_livelock(look(BEFORE_NS, EACH, waiter), look(NOW_NS, MORE, waiter)) is not None


def test_who_has_only_just_returned_may_end_its_round() -> None:
    crashed, back = is_(2, State.CRASHED, round=4), is_(2, State.RUNNING, round=4, since_ns=NOW_NS - 1)
    assert find_livelock(look(BEFORE_NS, EACH, crashed), look(NOW_NS, MORE, back)) is None


STEPS = LONGEST_ROUND_NS // (NOW_NS - BEFORE_NS)
"""So many steps take the longest time at one step in the window."""


@pytest.mark.parametrize(
    ("then", "now", "steps", "is_one"),
    [
        ((4, 1), (4, 2), 2 + STEPS, False),
        ((4, 1), (4, 2), 3 + STEPS, True),
        ((4, 1), (4, 3), 3 + 2 * STEPS, False),
        ((4, 1), (4, 3), 4 + 2 * STEPS, True),
        ((4, 1), (4, 1), 2, True),
        ((4, 2), (4, 1), 2, True),
        ((3, 1), (4, 2), 2, True),
    ],
)
def test_who_gets_on_in_its_steps_may_end_its_round_within_an_hour(
    then: tuple[int, int], now: tuple[int, int], steps: int, is_one: bool
) -> None:
    one, two = (
        replace(busy(2, ns, round=round), finished=2, step=step, steps=steps)
        for ns, (round, step) in ((BEFORE_NS, then), (NOW_NS, now))
    )
    found = find_livelock(look(BEFORE_NS, EACH, one), look(NOW_NS, MORE, two))
    assert (found is not None) == is_one


def test_a_livelock_is_looked_for_where_nothing_else_is_found() -> None:
    assert [each.cause for each in diagnose(NOW, patience_ns=SECOND, window=BEFORE)] == [Cause.LIVELOCK]
    assert diagnose(NOW, patience_ns=SECOND) == []
    stuck = waits(2, {0: lost(0, 2)}, round=4, since_ns=0)
    found = diagnose(look(NOW_NS, MORE, stuck), patience_ns=SECOND, window=look(BEFORE_NS, EACH, stuck))
    assert [each.cause for each in found] == [Cause.LOST_MESSAGE]


# what two looks confirm


def circle(since_ns: int = 0, have: int = 0, counts: Mapping[Edge, int] | None = None, **more: NodeNow) -> Snapshot:
    nodes = {0: waits(0, [1], since_ns=since_ns), 1: waits(1, [0], have=range(7, 7 + have)), 2: is_(2, State.RUNNING)}
    edges = {edge: EdgeNow(sent=count, delivered=count) for edge, count in (counts or {(0, 1): 3, (2, 1): 3}).items()}
    return fleet(*nodes.values(), edges=edges)


@pytest.mark.parametrize(
    ("first", "suspected"),
    [
        (circle(), False),
        (circle(since_ns=1), True),
        (circle(have=1), True),
        (circle(counts={(0, 1): 3, (2, 1): 2}), True),
        (circle(counts={(0, 1): 3, (2, 1): 3, (1, 0): 1}), True),
        (circle(counts={(0, 1): 3, (2, 1): 3, (0, 2): 1}), False),
        (fleet(is_(0, State.RUNNING), *list(circle().nodes.values())[1:], edges=circle().edges), True),
    ],
)
def test_a_stall_is_confirmed_where_its_waits_and_what_comes_to_them_stood_still(
    first: Snapshot, suspected: bool
) -> None:
    (found,) = find_stuck(circle())
    assert [each.suspected for each in confirm([found], first, circle())] == [suspected]
    slow = replace(found, permanent=False)
    assert confirm([slow], first, circle()) == [slow]


def test_confirmed_deadlocks_are_listed_by_themselves() -> None:
    (found,) = find_stuck(circle())
    others = [replace(found, suspected=True), replace(found, over=True), replace(found, cause=Cause.LOST_MESSAGE)]
    verdict = by_verdict([found, *others])
    assert verdict == {"deadlocks": [found.to_json()], "stalls": [each.to_json() for each in others]}
