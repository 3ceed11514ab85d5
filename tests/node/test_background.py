"""What a peer that asks without end and reads nothing leaves at a node: few sends that wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hand import HandClock, settle

from netdfl.core.fates import OVERLOADED
from netdfl.core.types import Kind, Message, Multicast, Payload, messages_of
from netdfl.diagnosis.probing import DeadlockProber
from netdfl.node.background import MOST_WAITING, BackgroundSends
from netdfl.node.delivery import AcknowledgingTransport, ResendPolicy
from netdfl.transport.base import Fate, deliver_one
from tests.node.node_desk import ME, SHARE, Desk

ASKED = 4 * MOST_WAITING


class Queues:
    """A transport whose queue to node 1 is full until it is `read`; `sends` counts the calls for each receiver."""

    def __init__(self) -> None:
        self.read, self.sends, self.sent = asyncio.Event(), Counter[int](), list[Message]()

    def attach(self, sink: object) -> None: ...

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        for message in messages_of(multicasts):
            self.sends[message.dst] += 1
            if message.dst == 1:
                await self.read.wait()
            self.sent.append(message)

    async def aclose(self) -> None: ...


def answer(dst: int, number: int = 0) -> Message:
    return Message(ME, dst, Kind.STATUS, 0, 0, 0, number, Payload())


async def test_who_takes_no_answers_gets_no_more_and_others_do() -> None:
    queues, left_out = Queues(), list[Message]()
    background = BackgroundSends(queues.send, left_out.append)
    for number in range(ASKED):
        background.answer(answer(1, number))
        background.answer(answer(3, number))
        await settle()
    assert queues.sends == {1: MOST_WAITING, 3: ASKED}
    assert [each.attempt for each in left_out] == list(range(MOST_WAITING, ASKED))
    assert (background.is_full(1), background.is_full(3)) == (True, False)
    background.send(answer(1))
    queues.read.set()
    await settle()
    assert queues.sends[1] == MOST_WAITING + 1
    assert not background.is_full(1)


async def test_what_need_not_wait_is_sent_however_much_it_is() -> None:
    queues, left_out = Queues(), list[Message]()
    background = BackgroundSends(queues.send, left_out.append)
    for number in range(ASKED):
        background.answer(answer(3, number))
    await settle()
    assert [each.attempt for each in queues.sent] == list(range(ASKED))
    assert left_out == []


def query(number: int) -> Message:
    return Message(1, ME, Kind.QUERY, 0, 0, 0, number, Payload())


def probe(number: int) -> Message:
    meta = {"kind": "probe", "initiator": 1, "number": number, "slot": ["data", 0, 0], "path": [[1, 0]]}
    return Message(1, ME, Kind.PROBE, 0, 0, 0, number, Payload(meta=meta))


@pytest.mark.parametrize("asks", [query, probe], ids=lambda asks: asks.__name__)
async def test_questions_of_a_peer_that_reads_nothing_are_counted(asks: Callable[[int], Message]) -> None:
    queues = Queues()
    desk = Desk(transport=queues)
    DeadlockProber(desk.node, 2, after_ns=10**9, found=lambda finding: None)
    for number in range(ASKED):
        assert deliver_one(desk.node.mailbox, asks(number)) == Fate.DELIVERED
        await settle()
    assert queues.sends == {1: MOST_WAITING}
    assert desk.node.ledger.refused_count == {OVERLOADED: ASKED - MOST_WAITING}


async def test_requests_of_a_peer_that_reads_nothing_are_kept_and_then_held_back() -> None:
    queues = Queues()
    desk = Desk(transport=queues)
    desk.node.serve(lambda request: desk.node.reply(request, SHARE))
    fates = Counter[Any]()
    for number in range(ASKED):
        fates[deliver_one(desk.node.mailbox, Message(1, ME, Kind.REQUEST, 0, 4, 0, number, SHARE))] += 1
        await settle()
    assert queues.sends == {1: MOST_WAITING}
    assert fates == {Fate.DELIVERED: ASKED - fates[None], None: fates[None]}
    assert fates[None] > ASKED / 4
    assert deliver_one(desk.node.mailbox, Message(3, ME, Kind.REQUEST, 0, 4, 0, 0, SHARE)) == Fate.DELIVERED
    queues.read.set()
    await settle()
    desk.node.serve(lambda request: desk.node.reply(request, SHARE))
    await settle()
    assert len([each for each in queues.sent if each.dst == 1]) == ASKED - fates[None]


async def test_copies_of_a_message_whose_sender_reads_nothing_are_not_all_acknowledged() -> None:
    queues, left_out = Queues(), list[Message]()
    delivery = AcknowledgingTransport(ME, 0, queues, HandClock(), ResendPolicy(), left_out=left_out.append)
    desk = Desk()
    delivery.attach(desk.node.mailbox)
    for attempt in range(ASKED):
        deliver_one(delivery, Message(1, ME, Kind.DATA, 0, 5, 0, attempt, SHARE))
        await settle()
    assert queues.sends == {1: MOST_WAITING}
    assert {each.kind for each in left_out} == {Kind.ACK}
    assert len(left_out) == ASKED - MOST_WAITING
