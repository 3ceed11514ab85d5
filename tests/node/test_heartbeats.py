"""Heartbeats: who falls silent is named once, who is heard again returns, and a paused node judges nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from heapq import heappop, heappush

from netdfl.core.fates import Fate
from netdfl.core.types import Kind, Message, Multicast, Payload, messages_of
from netdfl.node.heartbeats import Heartbeats
from netdfl.node.mailbox import Mailbox
from netdfl.transport.base import deliver_one

EVERY = 100


class HandClock:
    """Time that moves to the next sleeper when everybody sleeps."""

    def __init__(self) -> None:
        self.now, self.sleepers = 0, []

    def now_ns(self) -> int:
        return self.now

    async def sleep_until(self, at_ns: int) -> None:
        waiter = asyncio.get_running_loop().create_future()
        heappush(self.sleepers, (at_ns, id(waiter), waiter))
        await waiter

    async def move(self, to_ns: int) -> None:
        await self.settle()
        while self.sleepers and self.sleepers[0][0] <= to_ns:
            self.now, _, waiter = heappop(self.sleepers)
            waiter.set_result(None)
            await self.settle()
        self.now = to_ns

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


class Sent:
    """A transport that keeps what is sent; a send to `stuck` never ends."""

    def __init__(self, stuck: int = -1) -> None:
        self.messages: list[Message] = []
        self.stuck = stuck

    def attach(self, sink: object) -> None: ...

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        self.messages += messages_of(multicasts)
        if self.messages[-1].dst == self.stuck:
            await asyncio.get_running_loop().create_future()

    async def aclose(self) -> None: ...


class Watch:
    """Node 0 with peers 1 and 2, its news, and its clock."""

    def __init__(self, stuck: int = -1) -> None:
        self.clock, self.transport, self.mailbox = HandClock(), Sent(stuck), Mailbox(keep_late=False)
        self.news: list[tuple[int, str, int]] = []
        self.still = False
        self.heartbeats = Heartbeats(
            0,
            (2, 1),
            every_ns=EVERY,
            misses=3,
            clock=self.clock,
            transport=self.transport,
            mailbox=self.mailbox,
            gone=lambda peer: self.news.append((self.clock.now, "gone", peer)),
            returned=lambda peer: self.news.append((self.clock.now, "returned", peer)),
            still=lambda: self.still,
            epoch=4,
        )

    def hear(self, peer: int, number: int) -> None:
        assert deliver_one(self.mailbox, Message(peer, 0, Kind.HEARTBEAT, 0, number, 0, 0, Payload())) == Fate.DELIVERED

    async def until(self, to_ns: int, *heard: int) -> None:
        while self.clock.now < to_ns:
            for peer in heard:
                self.hear(peer, self.clock.now)
            await self.clock.move(self.clock.now + EVERY)


async def run(watch: Watch, *steps: tuple[int, tuple[int, ...]]) -> None:
    task = asyncio.create_task(watch.heartbeats.run())
    for to_ns, heard in steps:
        await watch.until(to_ns, *heard)
    task.cancel()
    await asyncio.wait([task])


async def test_a_silent_peer_is_named_once_and_returns_once_when_heard():
    watch = Watch()
    await run(watch, (1000, (1, 2)), (2000, (1,)), (3000, (1, 2)))
    assert [(what, peer) for _, what, peer in watch.news] == [("gone", 2), ("returned", 2)]
    assert watch.news[0][0] == 900 + 4 * EVERY
    assert watch.heartbeats.silent == set()


async def test_a_beat_goes_to_every_peer_every_interval_with_numbers_of_its_own():
    watch = Watch()
    await run(watch, (500, (1, 2)))
    for peer in (1, 2):
        beats = [m for m in watch.transport.messages if m.dst == peer]
        assert [m[:7] for m in beats] == [(0, peer, Kind.HEARTBEAT, 4, number, 0, 0) for number in range(6)]
        assert not any(m.payload.arrays or m.payload.meta for m in beats)


async def test_a_peer_that_takes_nothing_does_not_silence_the_node_for_the_others():
    watch = Watch(stuck=1)
    await run(watch, (500, (1, 2)))
    assert [m.dst for m in watch.transport.messages].count(2) == 6
    assert [m.dst for m in watch.transport.messages].count(1) == 1


async def test_a_paused_node_neither_beats_nor_judges_and_begins_anew():
    watch = Watch()
    watch.still = True
    task = asyncio.create_task(watch.heartbeats.run())
    await watch.until(1000)
    assert (watch.transport.messages, watch.news) == ([], [])
    watch.still = False
    await watch.until(1300, 1)
    assert watch.news == []
    await watch.until(1600, 1)
    assert [(what, peer) for _, what, peer in watch.news] == [("gone", 2)]
    task.cancel()
    await asyncio.wait([task])


def heard_at(watch: Watch, at_ns: int, number: int) -> None:
    watch.clock.now = at_ns
    watch.hear(1, number)


def test_a_wait_is_left_to_the_detector_while_it_is_young_or_a_beat_is_overdue() -> None:
    watch = Watch()
    for number in range(6):
        heard_at(watch, number * EVERY, number)
    may = watch.heartbeats.may_call_gone
    assert [may(1, since_ns) for since_ns in (0, 2 * EVERY)] == [False, True]
    watch.clock.now += 2 * EVERY
    assert may(1, 0)
    assert not may(7, 0), "nobody watches it"


def test_where_beats_are_lost_a_wait_is_left_to_the_detector_for_as_long_as_it_may_take() -> None:
    watch = Watch()
    for number in range(0, 200, 2):  # three in a row are lost after fourteen on average
        heard_at(watch, number * EVERY, number)
        if number in (60, 100):
            assert watch.heartbeats.may_call_gone(1, 0) == (number == 60)
    seldom = Watch()
    for number in (n for n in range(200) if n % 40):
        heard_at(seldom, number * EVERY, number)
    assert not seldom.heartbeats.may_call_gone(1, 0)


def test_the_chance_of_an_error_counts_from_when_beats_began_to_be_lost() -> None:
    """A wait since 0, whose peer is heard well for 500 beats; then every other one is lost, three in a row after 14."""
    watch, left_to_it = Watch(), []
    for number in (*range(500), *range(500, 700, 2)):
        heard_at(watch, number * EVERY, number)
        if watch.heartbeats.may_call_gone(1, 0):
            left_to_it.append(number)
    late = [number for number in left_to_it if number > 4]
    assert late
    assert min(late) < 600
    assert {*range(540, 570, 2)} <= set(late)
    assert 698 not in late


async def test_the_chance_of_an_error_begins_anew_when_a_peer_is_heard_again() -> None:
    watch = Watch()
    task = asyncio.create_task(watch.heartbeats.run())
    await asyncio.sleep(0)
    for number in range(0, 120, 2):
        heard_at(watch, number * EVERY, number)
    assert not watch.heartbeats.may_call_gone(1, 0)
    watch.heartbeats.silent.add(1)
    heard_at(watch, 124 * EVERY, 124)
    assert watch.news == [(124 * EVERY, "returned", 1)]
    assert watch.heartbeats.may_call_gone(1, 0)
    task.cancel()
    await asyncio.wait([task])
