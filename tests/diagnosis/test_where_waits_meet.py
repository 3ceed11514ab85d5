"""Stalls whose nodes wait in different ways: who is a root, in which order, how long, and what is not told twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from wait_graphs import FLYING, fleet, is_, lost, waits

from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.diagnose import diagnose
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.slow import find_slow
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, EdgeNow, NodeNow, State, WaitKind
from netdfl.diagnosis.why import Divide, Need

SECOND = 10**9
RUNS = is_(9, State.RUNNING)
Short = tuple[Cause, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def told(*nodes: NodeNow, patience_ns: int = SECOND, **more: Any) -> list[Finding]:
    return diagnose(fleet(*nodes, at_ns=7 * SECOND, **more), patience_ns=patience_ns)


def short(found: list[Finding]) -> list[Short]:
    """Cause, roots, culprits and who waits behind."""
    return [(each.cause, each.roots, each.culprits, each.behind) for each in found]


# knots


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        # a node that any of two would help is held by both
        ([waits(0, [1]), waits(1, [0, 2], need=1), waits(2, [0])], [(0, 1, 2)]),
        # the shortest circle through the lowest node, not the shortest of all
        ([waits(0, [1]), waits(1, [2]), waits(2, [0, 3]), waits(3, [4]), waits(4, [3, 0])], [(0, 1, 2)]),
        # each followed by one that it waits for
        ([waits(n, on, need=1) for n, on in enumerate([[2, 3], [3, 0], [1, 0], [0, 1]])], [(0, 2, 1, 3)]),
        # or else by the lowest that is left
        ([waits(0, [1, 2], need=1), waits(1, [0]), waits(2, [0])], [(0, 1, 2)]),
        # who would go on with one of a circle is behind it, and no second circle
        ([waits(0, [1]), waits(1, [0]), waits(2, [3]), waits(3, [2, 0], need=1)], [(0, 1)]),
        ([waits(0, [1]), waits(1, [0]), waits(2, [3]), waits(3, [2, 0])], [(0, 1), (2, 3)]),
    ],
)
def test_a_knot_is_as_small_as_what_holds_itself(nodes: list[NodeNow], expected: list[tuple[int, ...]]) -> None:
    found = find_stuck(fleet(*nodes))
    assert [each.roots for each in found] == expected


def test_a_knot_says_what_each_of_it_needs() -> None:
    nodes = waits(0, [1, 9], round=3, have=[7]), waits(1, [0, 2], need=1, round=4), waits(2, [0], what=WaitKind.ROOM)
    (found,) = find_stuck(fleet(*nodes, is_(9, State.RUNNING)))
    assert found.grounds.knot == (
        Need(0, 3, (1, 9), 2),
        Need(1, 4, (0, 2), 1),
        Need(2, 0, (0,), 1, room=True),
    )
    assert (found.cause, found.round) == (Cause.FLOW_CONTROL, 0)


# several waits of one stall


def test_a_stall_is_of_the_first_round_in_which_somebody_waits_and_since_then() -> None:
    nodes = waits(3, [1], round=5, since_ns=2 * SECOND), waits(2, [1], round=4, since_ns=3 * SECOND)
    (found,) = told(*nodes, is_(1, State.CRASHED))
    assert (found.roots, found.round, found.began_ns) == ((2, 3), 4, 2 * SECOND)


def test_who_would_be_left_out_anyway_is_not_blamed() -> None:
    both = waits(0, {8: AwaitedMessage(), 9: lost(9, 0)})
    crashed = is_(8, State.CRASHED)
    assert short(told(both, crashed, RUNS, detector="heartbeat")) == [(Cause.LOST_MESSAGE, (0,), (9,), ())]
    assert short(told(both, crashed, RUNS)) == [(Cause.UNREACHABLE, (0,), (8, 9), ())]


def test_mailboxes_are_full_where_all_wait_for_room() -> None:
    crashed = is_(1, State.CRASHED)
    (room,) = told(waits(0, [1], what=WaitKind.ROOM), crashed)
    assert room.what.startswith("node 0 can't send in round 0: the mailbox of node 1 is full")
    (mixed,) = told(waits(0, [1], what=WaitKind.ROOM), waits(2, [1]), crashed)
    assert mixed.what == "nodes 0 and 2 wait in round 0 for node 1, which crashed and does not return"


# what links divide


@pytest.mark.parametrize(
    ("events", "divides"),
    [
        ((1, 1, 1), (Divide(((6, 0), (7, 0), (8, 0)), ((6, 7, 8), (0,)), one_way=True),)),
        ((None, None, None), ()),
        ((1, 1, None), ()),
        ((1, 1), ()),
    ],
)
def test_messages_that_events_lost_on_many_links_are_told_by_what_these_divide(
    events: tuple[int | None, ...], divides: tuple[Divide, ...]
) -> None:
    sources = range(6, 6 + len(events))
    on = {src: replace(lost(src, 0), event=event) for src, event in zip(sources, events, strict=True)}
    (found,) = told(waits(0, on), *(is_(src, State.RUNNING) for src in sources))
    assert found.grounds.divides == divides


@pytest.mark.parametrize(("num", "divides"), [(2, 0), (3, 1)])
def test_two_links_that_are_down_are_told_by_themselves(num: int, divides: int) -> None:
    sources = range(6, 6 + num)
    edges = {(src, 0): EdgeNow(up=False) for src in sources}
    (found,) = told(waits(0, sources), *(is_(src, State.RUNNING) for src in sources), edges=edges)
    assert len(found.grounds.divides) == divides


def test_nodes_that_are_down_divide_nothing() -> None:
    (found,) = told(waits(0, [6, 7, 8]), *(is_(src, State.CRASHED) for src in (6, 7, 8)))
    assert found.grounds.divides == ()


# what ends by itself


def test_nodes_that_wait_for_each_other_until_a_deadline_are_behind_what_they_wait_for() -> None:
    circle = waits(0, [1, 9], deadline_ns=99 * SECOND), waits(1, [0], deadline_ns=99 * SECOND)
    assert short(told(*circle, RUNS)) == [(Cause.STRAGGLER, (0,), (9,), (1,))]
    assert told(*circle[:1], waits(1, [0]), is_(9, State.FINISHED)) == []


def test_the_first_of_its_ends_ends_a_wait_and_the_last_of_its_waits_a_stall() -> None:
    back = is_(1, State.CRASHED, back_ns=30 * SECOND)
    early, late = (waits(0, [1], deadline_ns=ns * SECOND) for ns in (25, 35))
    assert [each.until_ns for each in told(early, back)] == [25 * SECOND]
    assert [each.until_ns for each in told(late, back)] == [30 * SECOND]
    assert [each.until_ns for each in told(early, waits(2, [1]), back)] == [30 * SECOND]


def test_a_stall_of_which_one_wait_has_no_known_end_has_none() -> None:
    straggler = waits(0, [9], deadline_ns=25 * SECOND), waits(2, [9])
    assert [each.until_ns for each in told(*straggler, RUNS)] == [None]
    assert [each.until_ns for each in told(waits(0, [9]), RUNS)] == [None]


def test_what_holds_one_node_for_good_may_hold_another_for_a_while() -> None:
    found = told(waits(0, [1]), waits(2, [1], deadline_ns=20 * SECOND), is_(1, State.CRASHED))
    assert short(found) == [(Cause.UNREACHABLE, (0,), (1,), ()), (Cause.UNREACHABLE, (2,), (1,), ())]
    assert [(each.permanent, each.until_ns) for each in found] == [(True, None), (False, 20 * SECOND)]


def test_a_client_with_a_deadline_goes_on_without_its_server_and_is_told_as_any_other() -> None:
    cut = {(1, node): EdgeNow(up=False, heals_ns=20 * SECOND) for node in (0, 2)}
    idle, other = waits(0, [1], essential=True, deadline_ns=99 * SECOND), waits(2, [1], deadline_ns=99 * SECOND)
    done = is_(1, State.FINISHED)
    assert short(told(idle, done, edges=cut)) == [(Cause.UNREACHABLE, (0,), (1,), ())]
    assert short(told(idle, other, done, edges=cut)) == [
        (Cause.UNREACHABLE, (0, 2), (1,), ()),
    ]


def test_messages_on_their_way_are_each_a_stall_of_their_own() -> None:
    found = find_slow(fleet(waits(0, {8: FLYING, 9: FLYING}), is_(8, State.RUNNING), RUNS), (), 0)
    assert [(each.roots, each.culprits) for each in found] == [((0,), (8,)), ((0,), (9,))]


def test_of_a_room_that_is_wanted_at_several_each_node_is_one_stall() -> None:
    nodes = [waits(n, [m], what=WaitKind.ROOM) for n, m in ((0, 8), (1, 8), (2, 9))]
    found = find_slow(fleet(*nodes, is_(8, State.RUNNING), RUNS), (), 0)
    assert [(each.roots, each.culprits) for each in found] == [((0, 1), (8,)), ((2,), (9,))]


def test_what_was_never_sent_ends_with_its_wait_and_is_no_slow_stall() -> None:
    never = AwaitedMessage(AwaitedFate.NEVER)
    assert told(waits(0, {9: never}, deadline_ns=20 * SECOND), RUNS) == []
