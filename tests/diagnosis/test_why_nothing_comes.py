"""Why an awaited node gives nothing: of its state, what became of the message, and its link, the one that holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from wait_graphs import FLYING, fleet, is_, lost, waits

from netdfl.diagnosis.reasons import cause_of, why_of
from netdfl.diagnosis.snapshot import (
    LOST_BY_GONE,
    LOST_BY_RESTART,
    TAKEN_FOR_GONE,
    Awaited,
    AwaitedFate,
    EdgeNow,
    Snapshot,
    State,
    What,
)
from netdfl.diagnosis.why import Why

SECOND = 10**9
DOWN, HEALS = EdgeNow(up=False), EdgeNow(up=False, heals_ns=20 * SECOND)
UP = EdgeNow()
NEVER, MISSED = Awaited(AwaitedFate.NEVER), Awaited(AwaitedFate.MISSED)
HELD, UNSENT = Awaited(AwaitedFate.HELD), Awaited()


def by_down(**more: Any) -> Awaited:
    """What was lost while the link from node 1 was down."""
    return replace(lost(1, 0, "down"), **more)


def by_gone(**more: Any) -> Awaited:
    """A request of node 0 that was lost while node 1 was down."""
    return replace(lost(0, 1, LOST_BY_GONE), **more)


STAYS_DOWN = {
    State.CRASHED: Why.CRASHED,
    State.PAUSED: Why.PAUSED,
    State.STANDING: Why.STANDING,
    State.STOPPED: Why.SILENT,
}
SENDS_NOTHING = STAYS_DOWN | {State.STOPPED: Why.STOPPED}
WHYS: tuple[tuple[Why, State, Awaited, EdgeNow], ...] = (
    # a message that is not sent yet: it is a matter of the sender's state, unless its link is down
    (Why.AT_WORK, State.RUNNING, UNSENT, UP),
    (Why.FETCHING, State.FETCHING, UNSENT, UP),
    (Why.WAITING, State.WAITING, UNSENT, UP),
    (Why.WAITING, State.SENDING, UNSENT, UP),
    (Why.CRASHED, State.CRASHED, UNSENT, UP),
    (Why.PAUSED, State.PAUSED, UNSENT, UP),
    (Why.STANDING, State.STANDING, UNSENT, UP),
    (Why.SILENT, State.STOPPED, UNSENT, UP),
    (Why.SILENT, State.BLOCKED, UNSENT, UP),
    (Why.FINISHED, State.FINISHED, UNSENT, UP),
    *((Why.CUT, state, UNSENT, edge) for edge in (DOWN, HEALS) for state in State if state not in STAYS_DOWN),
    # the longer outage is told, and of two for good the sender's
    *((why, state, UNSENT, edge) for edge in (DOWN, HEALS) for state, why in STAYS_DOWN.items()),
    (Why.CUT, State.CRASHED, HELD, DOWN),
    # on its way, or held by a full mailbox, whatever its sender does meanwhile
    *((Why.ON_ITS_WAY, state, FLYING, UP) for state in (State.RUNNING, State.CRASHED, State.FINISHED)),
    *((Why.FULL, state, HELD, UP) for state in (State.RUNNING, State.CRASHED, State.FINISHED)),
    (Why.CUT, State.RUNNING, FLYING, DOWN),
    (Why.CUT, State.RUNNING, HELD, HEALS),
    # never sent, whatever becomes of its link
    (Why.PAST, State.RUNNING, NEVER, UP),
    (Why.PAST, State.WAITING, NEVER, DOWN),
    (Why.FINISHED, State.FINISHED, NEVER, DOWN),
    (Why.TAKEN_FOR_GONE, State.RUNNING, replace(NEVER, reason=TAKEN_FOR_GONE), UP),
    (Why.TAKEN_FOR_GONE, State.FINISHED, replace(NEVER, reason=TAKEN_FOR_GONE), DOWN),
    (Why.RETURNED_PAST, State.RUNNING, MISSED, UP),
    (Why.RETURNED_PAST, State.RUNNING, MISSED, DOWN),
    # lost: by its link, or by the outage where that lasts for good or a copy has to wait for its end
    (Why.LOST, State.RUNNING, lost(1, 0), UP),
    (Why.LOST, State.CRASHED, lost(1, 0), UP),
    (Why.LOST, State.RUNNING, lost(1, 0), DOWN),
    (Why.LOST, State.RUNNING, by_down(), UP),
    (Why.LOST, State.RUNNING, by_down(), HEALS),
    (Why.CUT, State.RUNNING, by_down(), DOWN),
    (Why.CUT, State.RUNNING, by_down(reason="reset"), DOWN),
    (Why.CUT, State.RUNNING, by_down(resent=True), HEALS),
    (Why.LOST, State.RUNNING, by_down(resent=True), UP),
    (Why.RECEIVER_RESTARTED, State.RUNNING, lost(1, 0, LOST_BY_RESTART), UP),
    (Why.RECEIVER_DOWN, State.RUNNING, by_gone(), UP),
    (Why.RECEIVER_DOWN, State.RUNNING, by_gone(resent=True), UP),
    (Why.CRASHED, State.CRASHED, by_gone(), UP),
    (Why.PAUSED, State.PAUSED, by_gone(), UP),
    (Why.STANDING, State.STANDING, by_gone(), UP),
    (Why.STOPPED, State.STOPPED, by_gone(), UP),
    (Why.RECEIVER_DOWN, State.BLOCKED, by_gone(), UP),
    # where it was not the one that was asked, its outage matters only to what it would send again
    *((Why.RECEIVER_DOWN, state, lost(1, 0, LOST_BY_GONE), UP) for state in State),
    *((why, state, replace(lost(1, 0, LOST_BY_GONE), resent=True), UP) for state, why in SENDS_NOTHING.items()),
    *((why, state, replace(lost(1, 0), resent=True), UP) for state, why in SENDS_NOTHING.items()),
)


def two(state: State, awaited: Awaited, edge: EdgeNow, **more: Any) -> Snapshot:
    """Node 0 waits for node 1."""
    asked = awaited.edge or (1, 0)
    return fleet(waits(0, {1: awaited}), is_(1, state, **more), edges={asked: edge})


@pytest.mark.parametrize(("why", "state", "awaited", "edge"), WHYS)
def test_why_an_awaited_node_gives_nothing(why: Why, state: State, awaited: Awaited, edge: EdgeNow) -> None:
    snapshot = two(state, awaited, edge)
    assert why_of(snapshot, 0, 1) is why
    assert (cause_of(snapshot, 0, 1) is None) == (why is Why.WAITING)


def test_who_is_asked_and_returns_lost_a_request_only_where_it_is_not_sent_again() -> None:
    for resent, why in ((False, Why.RECEIVER_DOWN), (True, Why.CRASHED)):
        assert why_of(two(State.CRASHED, by_gone(resent=resent), UP, back_ns=9), 0, 1) is why


@pytest.mark.parametrize("state", State)
def test_room_is_wanting_because_a_mailbox_is_full_or_its_owner_is_down(state: State) -> None:
    down = {State.CRASHED: Why.CRASHED, State.PAUSED: Why.PAUSED, State.STANDING: Why.STANDING}
    silent = dict.fromkeys((State.STOPPED, State.BLOCKED), Why.SILENT)
    snapshot = fleet(waits(0, [1], what=What.ROOM), is_(1, state), edges={(1, 0): DOWN})
    assert why_of(snapshot, 0, 1) is {**down, **silent}.get(state, Why.FULL)


def test_who_waits_for_more_than_there_are_does_not_know_who_will_send() -> None:
    for need, why in ((2, Why.PAST), (3, Why.UNKNOWN_SENDERS)):
        assert why_of(fleet(waits(0, {1: NEVER}, need=need), is_(1, State.RUNNING)), 0, 1) is why
