"""What waits and late messages teach about deadlines and about who is missed."""

from __future__ import annotations

import asyncio

from tests.node.wait_desk import AUTO, PLAIN, Desk, S, at, come


async def test_what_a_wait_learns_is_how_late_messages_come_unless_they_are_asked_for() -> None:
    for asks in (False, True):
        desk = Desk(asks=asks)
        desk.arrive(1)
        task = await desk.wait(**AUTO)
        desk.clock.ns = 3 * S
        desk.arrive(2, 3)
        await asyncio.wait_for(task, 5)
        assert list(desk.waits.auto._lags) == ([] if asks else [0, 3 * S, 3 * S])
    plain = Desk()
    task = await plain.wait(**PLAIN)
    plain.arrive(1, 2, 3)
    await asyncio.wait_for(task, 5)
    assert not plain.waits.auto.knows


async def test_who_is_missed_by_a_deadline_is_missed_and_who_is_left_out_otherwise_is_not() -> None:
    for step, silent in ((at(31 * S), {2}), (come(2, round=5), set[int]())):
        desk = Desk()
        desk.waits.suspects.missed(2)
        task = await desk.wait(**AUTO)
        desk.arrive(1, 3)
        step(desk)
        await asyncio.wait_for(task, 5)
        desk.waits.suspects.nodes()
        assert {node for node, (times, _) in desk.waits.suspects._missed.items() if times > 1} == silent


async def test_what_comes_late_teaches_how_late_it_comes() -> None:
    desk = Desk()
    task = await desk.wait(**AUTO)
    desk.clock.move_to(30 * S)
    await task
    desk.clock.ns = 37 * S
    desk.arrive(2)
    assert list(desk.waits.auto._lags) == [37 * S]
