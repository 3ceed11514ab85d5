"""How a wait ends and whom it leaves out: by what came, who is gone or silent or ahead, a skip, or its deadline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hand import settle

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.types import Inbox, Kind, Message, Payload
from netdfl.node.asking import STEP_DONE
from netdfl.node.waits import OpenWait
from netdfl.record.base import WaitEnd
from netdfl.transport.base import deliver_one
from tests.node.wait_desk import AUTO, PLAIN, Desk, S, Step, at, come


def gone(node: int) -> Step:
    return lambda desk: desk.waits.set_gone(node)


def skip(*nodes: int) -> Step:
    return lambda desk: desk.waits.skip(frozenset(nodes))


def missed(node: int, times: int = 2) -> Step:
    return lambda desk: desk.waits.suspects.missed(node, times)


NOTHING: list[Step] = []
ENDS: dict[str, tuple[dict[str, Any], list[Step], list[Step], WaitEnd, tuple[int, ...], int | None]] = {
    "all came": (PLAIN, NOTHING, [come(1, 3), at(1), come(2)], WaitEnd.CAME, (), 2),
    "all came one by one at one instant": (PLAIN, NOTHING, [come(1), come(3), come(2)], WaitEnd.CAME, (), 1),
    "all were there": (PLAIN, [come(1, 2, 3)], NOTHING, WaitEnd.CAME, (), None),
    "enough came": (PLAIN | {"need": 2}, NOTHING, [come(1), at(1), come(3)], WaitEnd.CAME, (2,), 3),
    "the deadline": ({"deadline_ns": S}, NOTHING, [come(3), at(S)], WaitEnd.DEADLINE, (1, 2), 3),
    "one is gone": (PLAIN, NOTHING, [come(1, 3), gone(2)], WaitEnd.GONE, (2,), 1),
    "one was gone": (PLAIN, [gone(2)], [come(1), at(1), come(3)], WaitEnd.GONE, (2,), 3),
    "one is ahead": (AUTO, NOTHING, [come(1, 3), come(2, round=5)], WaitEnd.LOST, (2,), 1),
    "one was ahead": (AUTO, [come(2, round=5)], [come(1, 3)], WaitEnd.LOST, (2,), 1),
    "one is ahead by a step": (AUTO, NOTHING, [come(1, 3), come(2, step=2)], WaitEnd.LOST, (2,), 1),
    "one is skipped": (PLAIN, NOTHING, [come(1, 3), skip(2)], WaitEnd.SKIPPED, (2,), 1),
    "one was silent": (AUTO, [missed(2)], [come(1), at(1), come(3)], WaitEnd.CAME, (2,), 3),
    "all were silent": (AUTO, [missed(1), missed(2), missed(3)], NOTHING, WaitEnd.GONE, (1, 2, 3), None),
    "one was silent and one is gone": (AUTO, [missed(2)], [come(1), gone(3)], WaitEnd.CAME, (2, 3), 1),
    "a silent one may come": (AUTO, [missed(2)], [come(2), come(1), at(1), come(3)], WaitEnd.CAME, (), 3),
    "what suffices by one that is ahead of all": (
        PLAIN | {"cumulative": True}, NOTHING, [come(1, 3), come(2, round=7)], WaitEnd.LOST, (2,), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
async def test_a_wait_ends_so(case: str) -> None:
    policy, before, during, ended, missing, last = ENDS[case]
    desk = Desk()
    assert desk.waits.went_on_ns == 0
    for step in before:
        step(desk)
    task = await desk.wait(**policy)
    for step in during:
        assert not task.done()
        step(desk)
        await settle()
    inbox, wait = await asyncio.wait_for(task, 5)
    assert (wait.ended, inbox.missing, wait.last_src) == (ended, missing, last)
    assert {m.src for m in inbox} == {1, 2, 3} - set(missing)
    assert (desk.waits.current, desk.waits.went_on_ns) == (None, desk.clock.ns)


@pytest.mark.parametrize(
    ("policy", "before", "step"),
    [
        (PLAIN, [missed(2)], None),
        (AUTO, [missed(2, 1)], None),
        (AUTO | {"essential": True}, [missed(2)], None),
        (PLAIN | {"essential": True}, [gone(2)], None),
        (PLAIN, NOTHING, come(2, round=5)),
        (AUTO | {"ordered": False}, NOTHING, come(2, round=5)),
        (AUTO | {"resent": True}, NOTHING, come(2, round=5)),
        (PLAIN | {"essential": True}, NOTHING, gone(2)),
        (PLAIN, NOTHING, gone(7)),
        (AUTO, NOTHING, come(7, round=5)),
        (PLAIN | {"need": 2}, NOTHING, come(7)),
    ],
)
async def test_a_wait_goes_on_where_what_is_missing_may_come(
    policy: dict[str, Any], before: list[Step], step: Step | None
) -> None:
    desk = Desk()
    for each in before:
        each(desk)
    task = await desk.wait(**policy)
    desk.arrive(*((1,) if policy.get("need") == 2 else (1, 3)))
    if step is not None:
        step(desk)
    await settle()
    assert not task.done()
    desk.arrive(2)
    inbox, wait = await asyncio.wait_for(task, 5)
    assert (wait.ended, 2 in {m.src for m in inbox}) == (WaitEnd.CAME, True)


async def test_where_nobody_knows_who_sends_what_came_is_all_once_it_is_skipped() -> None:
    desk = Desk()
    task = await desk.wait(sources=None, **PLAIN)
    desk.arrive(1, 7)
    await settle()
    assert not task.done()
    desk.waits.skip(frozenset())
    inbox, wait = await asyncio.wait_for(task, 5)
    assert ([m.src for m in inbox], inbox.missing, wait.ended, wait.need) == ([1, 7], (), WaitEnd.CAME, 2)


@pytest.mark.parametrize(("lost", "ended"), [(False, WaitEnd.SKIPPED), (True, WaitEnd.LOST)])
async def test_who_is_skipped_is_called_lost_only_where_it_is_known(lost: bool, ended: WaitEnd) -> None:
    desk = Desk()
    task = await desk.wait(**PLAIN)
    desk.arrive(1, 3)
    desk.waits.skip(frozenset({2}), lost=lost)
    inbox, wait = await asyncio.wait_for(task, 5)
    assert (inbox.missing, wait.ended) == ((2,), ended)


async def test_a_node_that_returned_is_waited_for_again() -> None:
    desk = Desk()
    desk.waits.set_gone(2)
    desk.waits.set_gone(2)
    desk.waits.set_returned(2)
    desk.waits.set_returned(3)
    task = await desk.wait(**PLAIN)
    desk.arrive(1, 3)
    await settle()
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("policy", "limit_ns"),
    [
        (PLAIN, None),
        ({"deadline_ns": 7}, 7),
        ({"deadline_ns": 7, "patience": 3}, 7),
        (AUTO, 30 * S),
        (AUTO | {"patience": 3}, 90 * S),
    ],
)
async def test_an_automatic_deadline_is_multiplied_by_patience_and_a_given_one_is_not(
    policy: dict[str, Any], limit_ns: int | None
) -> None:
    desk = Desk()
    desk.clock.ns = 100
    task = await desk.wait(**policy)
    current = desk.waits.current
    assert current is not None
    assert current.deadline_ns == (None if limit_ns is None else 100 + limit_ns)
    assert (current.since_ns, current.asks, current.last_ns) == (100, False, None)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("policy", "kind", "sources", "asks"),
    [
        (AUTO, Kind.DATA, (1, 2, 3), True),
        (AUTO | {"patience": 2}, Kind.DATA, (1, 2, 3), True),
        (PLAIN, Kind.DATA, (1, 2, 3), False),
        ({"deadline_ns": 7}, Kind.DATA, (1, 2, 3), False),
        (AUTO, Kind.REPLY, (1, 2, 3), False),
        (AUTO, Kind.DATA, None, False),
    ],
)
async def test_those_that_are_late_are_asked_where_all_can_be_and_the_deadline_is_automatic(
    policy: dict[str, Any], kind: Kind, sources: Any, asks: bool
) -> None:
    desk = Desk(asks=True)
    task = await desk.wait(kind=kind, sources=sources, **policy)
    current = desk.waits.current
    assert current is not None
    assert current.asks is asks
    if asks:
        assert current.deadline_ns == policy.get("patience", 1) * desk.waits.auto.LONGEST_NS
    desk.arrive(1)
    desk.clock.move_to(S)
    questions = [(m.dst, m.kind, m.epoch, m.round, m.step) for m in desk.sent]
    assert questions == ([(peer, Kind.QUERY, 5, 4, 1) for peer in (2, 3)] if asks else [])
    task.cancel()
    await asyncio.wait([task])


async def done(task: asyncio.Task[tuple[Inbox, OpenWait]]) -> bool:
    await settle()
    return task.done()


async def test_a_first_wait_is_cut_short_once_half_has_come_and_later_ones_are_not() -> None:
    desk = Desk()
    task = await desk.wait(**AUTO)
    desk.clock.ns = S
    desk.arrive(1)
    assert desk.waits.current is not None
    assert desk.waits.current.deadline_ns == 30 * S, "one of three is not half"
    desk.arrive(2)
    assert desk.waits.current.deadline_ns == 4 * S
    desk.clock.move_to(4 * S)
    assert await done(task)
    again = asyncio.create_task(desk.waits.messages(5, 0, frozenset((1, 2, 3)), WaitPolicy()))
    await settle()
    assert desk.waits.current.deadline_ns == 4 * S + desk.waits.auto.ns() == 8 * S
    for step in (come(1, round=5, step=0), come(3, round=5, step=0, kind=Kind.NOTICE)):
        step(desk)
        assert desk.waits.current.deadline_ns == 8 * S
    again.cancel()
    await asyncio.wait([again])


async def test_a_first_wait_is_cut_short_where_a_notice_makes_half_of_what_came() -> None:
    desk = Desk()
    task = await desk.wait(**AUTO)
    desk.clock.ns = S
    desk.arrive(1)
    desk.arrive(3, kind=Kind.NOTICE)
    assert desk.waits.current is not None
    assert desk.waits.current.deadline_ns == 4 * S
    desk.clock.move_to(4 * S)
    inbox, wait = await asyncio.wait_for(task, 5)
    assert (inbox.missing, wait.ended) == ((2,), WaitEnd.DEADLINE)


async def test_a_node_that_asks_nobody_asks_nobody_whatever_peers_could_say() -> None:
    desk = Desk()
    desk.waits.can_ask = lambda peers: True
    task = await desk.wait(**AUTO)
    assert desk.waits.current is not None
    assert not desk.waits.current.asks
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("essential", [True, False])
async def test_who_is_gone_is_asked_only_where_there_is_no_round_without_it(essential: bool) -> None:
    desk = Desk(asks=True)
    desk.waits.set_gone(2)
    task = await desk.wait(**AUTO, essential=essential)
    desk.arrive(1)
    desk.clock.move_to(S)
    assert [query.dst for query in desk.sent] == ([2, 3] if essential else [3])
    task.cancel()
    await asyncio.wait([task])


async def test_who_does_not_answer_is_silent_from_then_on() -> None:
    desk = Desk(asks=True)
    task = await desk.wait(**AUTO)
    desk.arrive(1, 2)
    assert desk.waits.queries is not None
    desk.waits.queries.silent((3,))
    inbox, wait = await asyncio.wait_for(task, 5)
    assert (inbox.missing, wait.unanswered, desk.waits.suspects.nodes()) == ((3,), True, {3})


@pytest.mark.parametrize(("ordered", "proofs"), [(True, 1), (False, 2)])
async def test_who_is_past_it_says_so_once_where_links_keep_order_and_else_twice(ordered: bool, proofs: int) -> None:
    desk = Desk(asks=True)
    task = await desk.wait(**AUTO, ordered=ordered)
    desk.arrive(1, 2)
    for said in range(proofs):
        assert not await done(task), said
        while len(desk.sent) == said:
            desk.clock.move_to(min(timer.at_ns for timer in desk.clock.timers if timer.live))
        query = desk.sent[-1]
        answer = Message(3, 9, Kind.STATUS, 0, query.round, query.step, query.attempt, Payload(meta={STEP_DONE: True}))
        deliver_one(desk.mailbox, answer)
    inbox, wait = await asyncio.wait_for(task, 5)
    assert (inbox.missing, wait.ended) == ((3,), WaitEnd.LOST)


@pytest.mark.parametrize("asks", [True, False])
async def test_a_wait_that_is_ended_from_outside_leaves_no_timer(asks: bool) -> None:
    desk = Desk(asks=asks)
    task = await desk.wait(**AUTO)
    assert any(timer.live for timer in desk.clock.timers)
    task.cancel()
    await asyncio.wait([task])
    desk.arrive(1, 2)
    desk.arrive(3, kind=Kind.NOTICE)
    assert not any(timer.live for timer in desk.clock.timers)
    again = await desk.wait(**AUTO)
    desk.arrive(1, 2, 3)
    await again
    desk.waits.close()
    assert not any(timer.live for timer in desk.clock.timers)
