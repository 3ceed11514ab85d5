"""The one wait primitive: all, any, k of n; deadlines; nodes that are gone; what `auto` learns."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from hand import HandClock, settle
from hypothesis import given
from hypothesis import strategies as st

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.clock import NS_PER_S, Alarm
from netdfl.core.types import Inbox, Kind, Message, NodeId, Payload
from netdfl.node.deadline import AutoDeadline
from netdfl.node.mailbox import Mailbox
from netdfl.node.waits import OpenWait, Waits
from netdfl.transport.base import deliver_one

MS = 1_000_000
Need = Literal["all", "any", "none"] | int


class Desk:
    """One node's waits, with a hand on the clock and on what arrives."""

    def __init__(self, *, keep_late: bool = False) -> None:
        self.clock = HandClock()
        self.mailbox = Mailbox(keep_late=keep_late)
        self.waits = Waits(9, self.mailbox, self.clock)

    def arrive(self, *sources: NodeId, round: int = 0, step: int = 0) -> None:
        for src in sources:
            deliver_one(self.mailbox, Message(src, 9, Kind.DATA, 0, round, step, 0, Payload()))

    def start(
        self,
        *sources: NodeId,
        need: Need = "all",
        deadline_ns: int | Literal["auto"] | None = None,
        round: int = 0,
        step: int = 0,
        unknown: bool = False,
    ) -> asyncio.Task[tuple[Inbox, OpenWait]]:
        policy = WaitPolicy(need=need, deadline_ns=deadline_ns)
        awaited = None if unknown else frozenset(sources)
        return asyncio.create_task(self.waits.messages(round, step, awaited, policy))


def came(inbox: Inbox) -> list[NodeId]:
    return [m.src for m in inbox]


async def test_all_waits_for_every_source() -> None:
    desk = Desk()
    task = desk.start(1, 2, 3)
    desk.arrive(1)
    await settle()
    desk.arrive(3)
    await settle()
    assert not task.done()
    assert desk.waits.current is not None
    assert (desk.waits.current.need, desk.waits.current.have) == (3, {1, 3})
    desk.arrive(2)
    inbox, _ = await task
    assert (came(inbox), inbox.missing) == ([1, 2, 3], ())
    assert desk.waits.current is None


async def test_early_messages_end_a_wait_at_once() -> None:
    desk = Desk()
    desk.arrive(2, 1)
    inbox, _ = await desk.start(1, 2)
    assert came(inbox) == [1, 2]


@pytest.mark.parametrize(("need", "enough"), [("any", 1), (1, 1), (2, 2), (7, 3)])
async def test_any_and_k_of_n(need: Need, enough: int) -> None:
    desk = Desk()
    task = desk.start(1, 2, 3, need=need)
    for count, src in enumerate((3, 1, 2)):
        await settle()
        assert task.done() == (count >= enough)
        desk.arrive(src)
    inbox, _ = await task
    assert set(came(inbox)) | set(inbox.missing) == {1, 2, 3}
    assert len(inbox) >= enough


async def test_none_takes_what_is_there() -> None:
    desk = Desk()
    desk.arrive(2)
    inbox, _ = await desk.start(1, 2, need="none")
    assert (came(inbox), inbox.missing) == ([2], (1,))


async def test_no_sources_is_no_wait() -> None:
    inbox, _ = await Desk().start()
    assert (len(inbox), inbox.missing) == (0, ())


async def test_strangers_and_other_slots_do_not_count() -> None:
    desk = Desk()
    task = desk.start(1, 2, round=1)
    desk.arrive(7, round=1)
    desk.arrive(1, 2, round=2)
    desk.arrive(1, 2, round=1, step=1)
    desk.arrive(1, round=1)
    await settle()
    assert not task.done()
    desk.arrive(2, round=1)
    inbox, _ = await task
    assert {(m.round, m.step) for m in inbox} == {(1, 0)}


async def test_the_deadline_ends_a_wait_and_names_the_missing() -> None:
    desk = Desk()
    desk.clock.move_to(3 * MS)
    task = desk.start(1, 2, 3, deadline_ns=5 * MS)
    desk.arrive(2)
    await settle()
    desk.clock.move_to(8 * MS - 1)
    await settle()
    assert not task.done()
    desk.clock.move_to(8 * MS)
    inbox, wait = await task
    assert (came(inbox), inbox.missing) == ([2], (1, 3))
    assert wait.deadline_ns == 8 * MS


async def test_unknown_senders_end_by_quorum_or_deadline() -> None:
    desk = Desk()
    task = desk.start(need=2, unknown=True)
    desk.arrive(5)
    await settle()
    assert not task.done()
    desk.arrive(8)
    inbox, _ = await task
    assert (came(inbox), inbox.missing) == ([5, 8], ())
    task = desk.start(need="all", unknown=True, round=1, deadline_ns=5 * MS)
    desk.arrive(3, round=1)
    await settle()
    desk.clock.move_to(5 * MS)
    inbox, _ = await task
    assert came(inbox) == [3]


async def test_a_wait_leaves_its_timer_to_the_next_and_the_last_leaves_none() -> None:
    desk = Desk()
    for round in range(3):
        desk.clock.ns = round * MS
        task = desk.start(1, deadline_ns=5 * MS, round=round)
        await settle()
        desk.arrive(1, round=round)
        assert not (await task)[0].missing
    assert [(timer.at_ns, timer.live) for timer in desk.clock.timers] == [(5 * MS, True)]
    task = desk.start(1, deadline_ns=4 * MS, round=3)
    await settle()
    desk.clock.move_to(5 * MS)  # before it is due: the timer is set for when it is
    await settle()
    assert not task.done()
    desk.clock.move_to(6 * MS)
    assert (await task)[0].missing == (1,)
    assert not any(timer.live for timer in desk.clock.timers)
    task = desk.start(1, deadline_ns=1 * MS, round=4)
    await settle()
    desk.arrive(1, round=4)
    await task
    desk.waits.close()
    assert not any(timer.live for timer in desk.clock.timers)


async def test_a_wait_without_a_deadline_leaves_no_timer_of_the_last() -> None:
    desk = Desk()
    task = desk.start(1, deadline_ns=5 * MS)
    await settle()
    desk.arrive(1)
    await task
    task = desk.start(1, round=1)
    await settle()
    assert not any(timer.live for timer in desk.clock.timers)
    desk.arrive(1, round=1)
    await task


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20), st.booleans()), max_size=12))
def test_an_alarm_rings_exactly_when_it_is_due(steps: list[tuple[int, int, bool]]) -> None:
    """Against one that is a timer of its own each time: `wait` ms, then set for `ahead` ms later, or stopped."""
    clock, rang, expected = HandClock(), list[int](), list[int]()
    alarm = Alarm(clock, lambda: rang.append(clock.ns))
    due: int | None = None

    def until(end: int) -> None:
        nonlocal due
        for ns in range(clock.ns, end + 1):
            clock.move_to(ns)
            if due is not None and due <= ns:
                expected.append(ns)
                due = None

    for wait, ahead, stops in steps:
        until(clock.ns + wait)
        due = None if stops else clock.ns + ahead
        if due is None:
            alarm.stop()
        else:
            alarm.set(due, ("alarm", due))
    until(clock.ns + 21)
    assert rang == expected
    assert not any(timer.live for timer in clock.timers)


async def test_a_cancelled_wait_leaves_no_timer() -> None:
    desk = Desk()
    task = desk.start(1, deadline_ns=5 * MS)
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [timer.live for timer in desk.clock.timers] == [False]


# Nodes that are gone


async def test_a_gone_node_is_not_waited_for_until_it_returns() -> None:
    desk = Desk()
    task = desk.start(1, 2)
    desk.arrive(1)
    await settle()
    desk.waits.set_gone(2)
    inbox, _ = await task
    assert (came(inbox), inbox.missing) == ([1], (2,))
    desk.arrive(1, round=1)
    inbox, _ = await desk.start(1, 2, round=1)
    assert inbox.missing == (2,)
    desk.waits.set_returned(2)
    task = desk.start(1, 2, round=2)
    desk.arrive(1, round=2)
    await settle()
    assert not task.done()
    desk.arrive(2, round=2)
    assert came((await task)[0]) == [1, 2]


async def test_a_quorum_is_still_waited_for_while_it_can_be_met() -> None:
    desk = Desk()
    task = desk.start(1, 2, 3, need=2)
    desk.arrive(1)
    desk.waits.set_gone(3)
    await settle()
    assert not task.done()
    desk.waits.set_gone(2)
    assert (await task)[0].missing == (2, 3)


# Mass


async def test_late_mass_comes_with_the_next_wait_of_any_source() -> None:
    desk = Desk(keep_late=True)
    desk.arrive(1)
    await desk.start(1, 2, need="any")
    desk.arrive(2)
    desk.arrive(1, round=1)
    inbox, _ = await desk.start(1, round=1)
    assert [(m.src, m.round) for m in inbox] == [(1, 1), (2, 0)]


async def test_late_mass_of_an_earlier_step_does_not_stand_for_the_awaited_message() -> None:
    desk = Desk(keep_late=True)
    await desk.start(1, need="none", step=0)
    desk.arrive(1, step=0)
    inbox, _ = await desk.start(1, need="none", step=1)
    assert [(m.src, m.step) for m in inbox] == [(1, 0)]
    assert inbox.missing == (1,)


# The deadline that adapts


def test_a_deadline_goes_by_own_rounds_and_by_most_messages_within_bounds() -> None:
    auto = AutoDeadline()
    assert auto.ns() == 30 * NS_PER_S
    auto.came(3, 5 * MS)
    assert auto.ns() == 2 * NS_PER_S
    auto.trained(1 * NS_PER_S)
    assert auto.ns() == 12_020 * MS
    auto.came(32, 1 * NS_PER_S)
    assert auto.ns() == 16 * NS_PER_S


def test_lags_that_a_time_out_caused_do_not_lengthen_the_deadline() -> None:
    auto = AutoDeadline()
    for _ in range(32):
        for lag_ns in (50 * MS, 50 * MS, auto.ns(), auto.ns()):
            auto.came(1, lag_ns)
    assert auto.ns() == 2 * NS_PER_S


async def test_auto_stops_waiting_for_a_neighbor_missed_twice_until_it_is_heard_again() -> None:
    desk = Desk()
    for round in range(2):
        task = desk.start(1, 2, round=round, deadline_ns="auto")
        await settle()
        desk.arrive(1, round=round)
        desk.clock.move_to(desk.waits.current.deadline_ns)
        inbox, _ = await task
        assert inbox.missing == (2,)
    task = desk.start(1, 2, round=2, deadline_ns="auto")
    desk.arrive(1, round=2)
    inbox, _ = await task
    assert inbox.missing == (2,)
    desk.arrive(2, round=0)
    assert desk.waits.suspects.nodes() == frozenset()


async def test_auto_learns_from_what_came_in_time_and_late_not_from_deadlines() -> None:
    desk = Desk()
    task = desk.start(1, deadline_ns="auto")
    await settle()
    assert desk.waits.current is not None
    assert desk.waits.current.deadline_ns == 30 * NS_PER_S
    desk.clock.move_to(1 * NS_PER_S)
    desk.arrive(1)
    await task
    assert desk.waits.auto.ns() == 4 * NS_PER_S
    task = desk.start(1, round=1, deadline_ns="auto")
    await settle()
    desk.clock.move_to(5 * NS_PER_S)
    await task
    assert desk.waits.auto.ns() == 4 * NS_PER_S
    desk.clock.move_to(8 * NS_PER_S)
    desk.arrive(1, round=1)
    for _ in range(3):
        desk.waits.auto.late(1, 0, desk.clock.now_ns())
    assert desk.waits.auto.ns() == 28 * NS_PER_S


@pytest.mark.parametrize(
    ("policy", "goes_on"),
    [
        (WaitPolicy(), True),
        (WaitPolicy(resent=True), False),
        (WaitPolicy(ordered=False), False),
        (WaitPolicy(deadline_ns=None), False),
    ],
)
async def test_a_later_message_tells_that_the_awaited_one_is_lost(policy: WaitPolicy, goes_on: bool) -> None:
    desk = Desk()
    task = asyncio.create_task(desk.waits.messages(0, 0, frozenset({1, 2}), policy))
    desk.arrive(1)
    desk.arrive(2, round=1)
    await settle()
    assert task.done() == goes_on
    if goes_on:
        assert task.result()[0].missing == (2,)
    task.cancel()


async def test_one_that_is_ahead_before_the_wait_begins_is_not_waited_for() -> None:
    desk = Desk()
    desk.arrive(2, round=1)
    desk.arrive(1)
    inbox, _ = await desk.start(1, 2, deadline_ns="auto")
    assert inbox.missing == (2,)


async def test_where_links_keep_no_order_one_that_is_ahead_is_waited_for() -> None:
    desk = Desk()
    desk.arrive(2, round=1)
    desk.arrive(1)
    task = asyncio.create_task(desk.waits.messages(0, 0, frozenset({1, 2}), WaitPolicy(ordered=False)))
    await settle()
    assert not task.done()
    desk.arrive(2)
    inbox, _ = await task
    assert (came(inbox), inbox.missing) == ([1, 2], ())


def test_a_policy_needs_so_many_of_the_awaited() -> None:
    assert [WaitPolicy(need=need).count(4) for need in ("all", "any", "none", 2, 9)] == [4, 1, 0, 2, 4]
    assert WaitPolicy(need="any").count(0) == 0
