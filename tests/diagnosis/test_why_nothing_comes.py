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
    AwaitedFate,
    AwaitedMessage,
    EdgeNow,
    Snapshot,
    State,
    WaitKind,
)
from netdfl.diagnosis.why import ReasonKind

SECOND = 10**9
DOWN, HEALS = EdgeNow(up=False), EdgeNow(up=False, heals_ns=20 * SECOND)
UP = EdgeNow()
NEVER, MISSED = AwaitedMessage(AwaitedFate.NEVER), AwaitedMessage(AwaitedFate.MISSED)
HELD, UNSENT = AwaitedMessage(AwaitedFate.HELD), AwaitedMessage()


def by_down(**more: Any) -> AwaitedMessage:
    """What was lost while the link from node 1 was down."""
    return replace(lost(1, 0, "down"), **more)


def by_gone(**more: Any) -> AwaitedMessage:
    """A request of node 0 that was lost while node 1 was down."""
    return replace(lost(0, 1, LOST_BY_GONE), **more)


STAYS_DOWN = {
    State.ABSENT: ReasonKind.ABSENT,
    State.CRASHED: ReasonKind.CRASHED,
    State.PAUSED: ReasonKind.PAUSED,
    State.STANDING: ReasonKind.STANDING,
    State.STOPPED: ReasonKind.SILENT,
}
SENDS_NOTHING = STAYS_DOWN | {State.STOPPED: ReasonKind.STOPPED}
WHYS: tuple[tuple[ReasonKind, State, AwaitedMessage, EdgeNow], ...] = (
    # a message that is not sent yet: it is a matter of the sender's state, unless its link is down
    (ReasonKind.AT_WORK, State.RUNNING, UNSENT, UP),
    (ReasonKind.FETCHING, State.FETCHING, UNSENT, UP),
    (ReasonKind.WAITING, State.WAITING, UNSENT, UP),
    (ReasonKind.WAITING, State.SENDING, UNSENT, UP),
    (ReasonKind.ABSENT, State.ABSENT, UNSENT, UP),
    (ReasonKind.CRASHED, State.CRASHED, UNSENT, UP),
    (ReasonKind.PAUSED, State.PAUSED, UNSENT, UP),
    (ReasonKind.STANDING, State.STANDING, UNSENT, UP),
    (ReasonKind.SILENT, State.STOPPED, UNSENT, UP),
    (ReasonKind.SILENT, State.BLOCKED, UNSENT, UP),
    (ReasonKind.FINISHED, State.FINISHED, UNSENT, UP),
    *((ReasonKind.CUT, state, UNSENT, edge) for edge in (DOWN, HEALS) for state in State if state not in STAYS_DOWN),
    # the longer outage is told, and of two for good the sender's
    *((why, state, UNSENT, edge) for edge in (DOWN, HEALS) for state, why in STAYS_DOWN.items()),
    (ReasonKind.CUT, State.CRASHED, HELD, DOWN),
    # on its way, or held by a full mailbox, whatever its sender does meanwhile
    *((ReasonKind.ON_ITS_WAY, state, FLYING, UP) for state in (State.RUNNING, State.CRASHED, State.FINISHED)),
    *((ReasonKind.FULL, state, HELD, UP) for state in (State.RUNNING, State.CRASHED, State.FINISHED)),
    (ReasonKind.CUT, State.RUNNING, FLYING, DOWN),
    (ReasonKind.CUT, State.RUNNING, HELD, HEALS),
    # never sent, whatever becomes of its link
    (ReasonKind.PAST, State.RUNNING, NEVER, UP),
    (ReasonKind.PAST, State.WAITING, NEVER, DOWN),
    (ReasonKind.FINISHED, State.FINISHED, NEVER, DOWN),
    (ReasonKind.TAKEN_FOR_GONE, State.RUNNING, replace(NEVER, reason=TAKEN_FOR_GONE), UP),
    (ReasonKind.TAKEN_FOR_GONE, State.FINISHED, replace(NEVER, reason=TAKEN_FOR_GONE), DOWN),
    (ReasonKind.RETURNED_PAST, State.RUNNING, MISSED, UP),
    (ReasonKind.RETURNED_PAST, State.RUNNING, MISSED, DOWN),
    # lost: by its link, or by the outage where that lasts for good or a copy has to wait for its end
    (ReasonKind.LOST, State.RUNNING, lost(1, 0), UP),
    (ReasonKind.LOST, State.CRASHED, lost(1, 0), UP),
    (ReasonKind.LOST, State.RUNNING, lost(1, 0), DOWN),
    (ReasonKind.LOST, State.RUNNING, by_down(), UP),
    (ReasonKind.LOST, State.RUNNING, by_down(), HEALS),
    (ReasonKind.CUT, State.RUNNING, by_down(), DOWN),
    (ReasonKind.CUT, State.RUNNING, by_down(reason="reset"), DOWN),
    (ReasonKind.CUT, State.RUNNING, by_down(resent=True), HEALS),
    (ReasonKind.LOST, State.RUNNING, by_down(resent=True), UP),
    (ReasonKind.RECEIVER_RESTARTED, State.RUNNING, lost(1, 0, LOST_BY_RESTART), UP),
    (ReasonKind.RECEIVER_DOWN, State.RUNNING, by_gone(), UP),
    (ReasonKind.RECEIVER_DOWN, State.RUNNING, by_gone(resent=True), UP),
    (ReasonKind.ABSENT, State.ABSENT, by_gone(), UP),
    (ReasonKind.CRASHED, State.CRASHED, by_gone(), UP),
    (ReasonKind.PAUSED, State.PAUSED, by_gone(), UP),
    (ReasonKind.STANDING, State.STANDING, by_gone(), UP),
    (ReasonKind.STOPPED, State.STOPPED, by_gone(), UP),
    (ReasonKind.RECEIVER_DOWN, State.BLOCKED, by_gone(), UP),
    # where it was not the one that was asked, its outage matters only to what it would send again
    *((ReasonKind.RECEIVER_DOWN, state, lost(1, 0, LOST_BY_GONE), UP) for state in State),
    *((why, state, replace(lost(1, 0, LOST_BY_GONE), resent=True), UP) for state, why in SENDS_NOTHING.items()),
    *((why, state, replace(lost(1, 0), resent=True), UP) for state, why in SENDS_NOTHING.items()),
)


def two(state: State, awaited: AwaitedMessage, edge: EdgeNow, **more: Any) -> Snapshot:
    """Node 0 waits for node 1."""
    asked = awaited.edge or (1, 0)
    return fleet(waits(0, {1: awaited}), is_(1, state, **more), edges={asked: edge})


@pytest.mark.parametrize(("why", "state", "awaited", "edge"), WHYS)
def test_why_an_awaited_node_gives_nothing(
    why: ReasonKind, state: State, awaited: AwaitedMessage, edge: EdgeNow
) -> None:
    snapshot = two(state, awaited, edge)
    assert why_of(snapshot, 0, 1) is why
    assert (cause_of(snapshot, 0, 1) is None) == (why is ReasonKind.WAITING)


def test_who_is_asked_and_returns_lost_a_request_only_where_it_is_not_sent_again() -> None:
    for resent, why in ((False, ReasonKind.RECEIVER_DOWN), (True, ReasonKind.CRASHED)):
        assert why_of(two(State.CRASHED, by_gone(resent=resent), UP, back_ns=9), 0, 1) is why


@pytest.mark.parametrize("state", State)
def test_room_is_wanting_because_a_mailbox_is_full_or_its_owner_is_down(state: State) -> None:
    down = {state: why for state, why in STAYS_DOWN.items() if why is not ReasonKind.SILENT}
    silent = dict.fromkeys((State.STOPPED, State.BLOCKED), ReasonKind.SILENT)
    snapshot = fleet(waits(0, [1], what=WaitKind.ROOM), is_(1, state), edges={(1, 0): DOWN})
    assert why_of(snapshot, 0, 1) is {**down, **silent}.get(state, ReasonKind.FULL)


def test_who_waits_for_more_than_there_are_does_not_know_who_will_send() -> None:
    for need, why in ((2, ReasonKind.PAST), (3, ReasonKind.UNKNOWN_SENDERS)):
        assert why_of(fleet(waits(0, {1: NEVER}, need=need), is_(1, State.RUNNING)), 0, 1) is why
