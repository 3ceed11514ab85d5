"""Remedies and orders where the waits of one stall differ: what would help one of them alone is not offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stall_terms import ANSWERED, BEATS, DEADLINE, RESEND, SKIP
from wait_graphs import FLYING, fleet, is_, lost, waits

from netdfl.core.control import Again, Recover
from netdfl.core.types import Kind
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.diagnose import diagnose
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.remedies import (
    ALL,
    ANY,
    CALLED_GONE_NS,
    FEWER_STEPS,
    GIVEN_UP_NS,
    HALVES,
    MOST_RESENDS,
    Recovery,
    advise,
)
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, EdgeNow, NodeNow, Snapshot, State, WaitKind

SECOND = 10**9
RUNS = is_(9, State.RUNNING)
PLAIN, COPY, LATE = (DEADLINE, SKIP), (DEADLINE, RESEND, ANSWERED, SKIP), (DEADLINE, RESEND, SKIP)


def offered(*nodes: NodeNow, **more: Any) -> tuple[str, ...]:
    """The remedies of the one stall of these nodes."""
    (found,) = diagnose(fleet(*nodes, at_ns=7 * SECOND, **more), patience_ns=SECOND)
    return found.remedies


@pytest.mark.parametrize(
    ("second", "remedies"),
    [
        ({}, COPY),
        ({"in_vain": True}, PLAIN),
        ({"in_vain": True, "passes_ns": 9 * SECOND}, PLAIN),
        ({"in_vain": True, "passes_ns": 9 * SECOND, "passes_for_good": True}, COPY),
        ({"in_vain": True, "passes_ns": 9 * SECOND, "passes_for_good": True, "outage_ns": 99 * SECOND}, LATE),
        ({"kept": False}, PLAIN),
        ({"notice": True}, LATE),
    ],
)
def test_copies_are_offered_where_they_would_do_for_each_message(
    second: dict[str, Any], remedies: tuple[str, ...]
) -> None:
    node = waits(0, {8: lost(8, 0), 9: replace(lost(9, 0), **second)})
    assert offered(node, is_(8, State.RUNNING), RUNS) == remedies


def test_a_detector_is_offered_where_silence_is_mutual_on_each_link() -> None:
    nodes = waits(0, [8]), waits(1, [9]), is_(8, State.RUNNING), RUNS
    cut = dict.fromkeys([(8, 0), (9, 1)], EdgeNow(up=False, event=2))
    both = cut | {(0, 8): EdgeNow(up=False)}
    assert offered(*nodes, edges=cut) == PLAIN
    assert offered(*nodes, edges=both) == PLAIN
    assert offered(*nodes, edges=both | {(1, 9): EdgeNow(up=False)}) == (DEADLINE, BEATS, SKIP)


def test_a_detector_is_not_offered_where_one_of_the_nodes_returned_past() -> None:
    missed = AwaitedMessage(AwaitedFate.MISSED)
    assert offered(waits(0, {8: AwaitedMessage(), 9: missed}), is_(8, State.CRASHED), RUNS) == PLAIN


def test_a_node_that_cannot_do_without_a_server_is_helped_by_no_setting() -> None:
    server, client = is_(4, State.CRASHED), waits(0, [4], essential=True)
    assert offered(client, waits(1, [4]), server) == ()
    assert offered(waits(0, {9: lost(9, 0)}, essential=True), RUNS) == COPY


def test_a_deadline_does_not_help_who_waits_for_a_server_that_never_sent() -> None:
    never = AwaitedMessage(AwaitedFate.NEVER)
    assert offered(waits(0, {9: never}, essential=True), RUNS) == (SKIP,)
    assert offered(waits(0, [1], essential=True), waits(1, [0])) == PLAIN


def test_halves_are_offered_for_answers_that_are_never_given_alone() -> None:
    never = AwaitedMessage(AwaitedFate.NEVER)
    assert offered(waits(0, {9: never}, what=WaitKind.REPLY), RUNS) == (HALVES, SKIP, DEADLINE)
    assert offered(waits(0, [1], what=WaitKind.REPLY), waits(1, [0], what=WaitKind.REPLY)) == (HALVES, SKIP, DEADLINE)
    assert offered(waits(0, [1], what=WaitKind.REPLY), waits(1, [0])) == PLAIN


def test_room_is_all_that_a_fleet_needs_where_one_node_waits_for_it() -> None:
    assert offered(waits(0, [1], what=WaitKind.ROOM), waits(1, [0])) == (ALL,)


def test_any_is_offered_where_each_waiter_would_have_another() -> None:
    assert offered(waits(0, [9], have=[5]), waits(1, [9], have=[5]), RUNS) == (ANY,)
    assert offered(waits(0, [9], have=[5]), waits(1, [9]), RUNS) == ()
    assert offered(waits(0, [8], have=[5]), is_(8, State.CRASHED, back_ns=30 * SECOND)) == (DEADLINE, BEATS)


@pytest.mark.parametrize(
    ("lasts_ns", "remedies"),
    [
        (CALLED_GONE_NS, ()),
        (CALLED_GONE_NS + 1, (BEATS,)),
        (GIVEN_UP_NS, (BEATS,)),
        (GIVEN_UP_NS + 1, (DEADLINE, BEATS)),
    ],
)
def test_an_outage_is_gone_on_without_where_that_takes_less_than_the_outage(
    lasts_ns: int, remedies: tuple[str, ...]
) -> None:
    waiter = waits(0, [8], since_ns=3 * SECOND)
    assert offered(waiter, is_(8, State.CRASHED, back_ns=3 * SECOND + lasts_ns)) == remedies


def test_a_deadline_of_one_waiter_leaves_nothing_to_offer() -> None:
    nodes = waits(0, [9], have=[5], deadline_ns=8 * SECOND), waits(1, [9], have=[5]), RUNS
    assert offered(*nodes) == ()


def test_what_is_not_allowed_is_not_offered() -> None:
    snapshot = fleet(waits(0, {9: lost(9, 0)}), RUNS)
    (found,) = find_stuck(snapshot)
    assert advise(found, snapshot, lambda setting: "on_stall" in setting).remedies == (RESEND, SKIP)
    circles = replace(found, cause=Cause.LIVELOCK)
    assert advise(circles, snapshot, lambda setting: True).remedies == (FEWER_STEPS,)


# orders


def only(snapshot: Snapshot) -> Finding:
    (found,) = diagnose(snapshot, patience_ns=SECOND)
    return found


def test_only_what_is_confirmed_and_for_good_is_ended() -> None:
    snapshot = fleet(waits(0, {9: lost(9, 0)}, round=3), RUNS)
    found = only(snapshot)
    for choice, order in (("skip", Recover(skip=(9,))), ("resend", Recover(again=(Again(0, 3, 0, Kind.DATA),)))):
        recovery = Recovery(choice, lambda *sent: True)  # type: ignore[arg-type]
        assert recovery.orders(replace(found, permanent=False), snapshot) == []
        assert recovery.orders(replace(found, suspected=True), snapshot) == []
        assert [each for _, each in recovery.orders(found, snapshot)] == [order]


def test_each_root_leaves_out_its_own_culprits() -> None:
    snapshot = fleet(waits(0, [1]), waits(1, [2]), waits(2, [0]))
    orders = Recovery("skip", lambda *sent: True).orders(only(snapshot), snapshot)
    assert orders == [(0, Recover(skip=(1,))), (1, Recover(skip=(2,))), (2, Recover(skip=(0,)))]
    both = fleet(waits(3, {9: lost(9, 3), 8: lost(8, 3)}), is_(8, State.RUNNING), RUNS)
    assert Recovery("skip", lambda *sent: True).orders(only(both), both) == [(3, Recover(skip=(8, 9)))]


def test_who_waits_for_room_or_no_more_can_leave_nobody_out() -> None:
    recovery = Recovery("skip", lambda *sent: True)
    room = fleet(waits(0, [1], what=WaitKind.ROOM), waits(1, [0]))
    assert recovery.orders(only(room), room) == []
    before = fleet(waits(0, [1]), waits(1, [0]))
    assert recovery.orders(only(before), fleet(is_(0, State.RUNNING), waits(1, [0]))) == []


def test_messages_are_sent_again_together_or_not_at_all() -> None:
    parts = {8: lost(8, 0), 9: lost(9, 0)}
    snapshot = fleet(waits(0, parts, round=3), is_(8, State.RUNNING), RUNS)
    found = only(snapshot)
    again = Again(0, 3, 0, Kind.DATA)
    both = [(8, Recover(again=(again,))), (9, Recover(again=(again,)))]
    recovery = Recovery("resend", lambda *sent: True)
    assert [recovery.orders(found, snapshot) for _ in range(MOST_RESENDS + 1)] == [both] * MOST_RESENDS + [[]]
    one = Recovery("resend", lambda src, sent: src == 9)
    assert one.orders(found, snapshot) == []
    assert not one.resent
    vain = fleet(waits(0, parts | {8: replace(lost(8, 0), in_vain=True)}, round=3), is_(8, State.RUNNING), RUNS)
    assert Recovery("resend", lambda *sent: True).orders(only(vain), vain) == []
    spent = Recovery("resend", lambda *sent: True)
    spent.resent[8, again] = MOST_RESENDS
    assert spent.orders(found, snapshot) == []


def test_nothing_is_sent_again_where_nothing_was_lost() -> None:
    snapshot = fleet(waits(0, [1]), waits(1, [0]))
    assert Recovery("resend", lambda *sent: True).orders(only(snapshot), snapshot) == []


@pytest.mark.parametrize(
    ("awaited", "what", "order"),
    [
        (replace(lost(9, 0), notice=True), WaitKind.MESSAGE, (9, Again(0, 3, 0, Kind.NOTICE))),
        (replace(lost(9, 0), edge=None), WaitKind.MESSAGE, (9, Again(0, 3, 0, Kind.DATA))),
        (lost(9, 0), WaitKind.REPLY, (9, Again(0, 3, 0, Kind.REPLY))),
        (lost(0, 9), WaitKind.REPLY, (0, Again(9, 3, 0, Kind.REQUEST))),
    ],
)
def test_what_is_sent_again_is_what_was_lost(awaited: AwaitedMessage, what: WaitKind, order: tuple[int, Again]) -> None:
    snapshot = fleet(waits(0, {9: awaited}, round=3, what=what), RUNS)
    assert Recovery("resend", lambda *sent: True).orders(only(snapshot), snapshot) == [
        (order[0], Recover(again=(order[1],)))
    ]


def test_what_is_on_its_way_needs_no_remedy() -> None:
    assert offered(waits(0, {9: FLYING}), RUNS) == ()
