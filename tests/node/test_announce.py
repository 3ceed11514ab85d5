"""Notices: where receivers can't know who will send, they wait for those that do, and for nobody else."""

from __future__ import annotations

import asyncio

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.clock import RealClock
from netdfl.core.types import Kind, Message, Payload
from netdfl.node.mailbox import Mailbox
from netdfl.node.waits import Waits
from netdfl.transport.base import Fate, deliver_one

ALL = WaitPolicy(deadline_ns=None, announce=True)
MAY = frozenset({1, 2, 3})


def message(kind: Kind, src: int, round: int = 0) -> Message:
    return Message(src, 0, kind, 0, round, 0, 0, Payload())


def waits() -> tuple[Mailbox, Waits]:
    mailbox = Mailbox(keep_late=True)
    return mailbox, Waits(0, mailbox, RealClock())


async def test_a_wait_ends_with_the_last_message_or_notice() -> None:
    mailbox, wait = waits()
    deliver_one(mailbox, message(Kind.NOTICE, 1))
    task = asyncio.create_task(wait.messages(0, 0, MAY, ALL))
    await asyncio.sleep(0)
    assert wait.current is not None
    assert wait.current.sources == {2, 3}
    deliver_one(mailbox, message(Kind.DATA, 2))
    await asyncio.sleep(0)
    assert not task.done()
    deliver_one(mailbox, message(Kind.NOTICE, 3))
    inbox, _ = await task
    assert [m.src for m in inbox] == [2]
    assert inbox.missing == ()


async def test_who_declined_everything_leaves_nothing_to_wait_for() -> None:
    mailbox, wait = waits()
    for src in MAY:
        assert deliver_one(mailbox, message(Kind.NOTICE, src)) is Fate.DELIVERED
    inbox, _ = await wait.messages(0, 0, MAY, ALL)
    assert len(inbox) == 0


async def test_a_notice_counts_for_its_own_round_and_once() -> None:
    mailbox, wait = waits()
    assert deliver_one(mailbox, message(Kind.NOTICE, 1, round=1)) is Fate.DELIVERED
    assert deliver_one(mailbox, message(Kind.NOTICE, 1, round=1)) is Fate.DUPLICATE
    for src in MAY:
        deliver_one(mailbox, message(Kind.DATA, src))
    inbox, _ = await wait.messages(0, 0, MAY, ALL)
    assert len(inbox) == 3
    assert deliver_one(mailbox, message(Kind.NOTICE, 2)) is Fate.LATE


async def test_a_quorum_is_of_those_that_send() -> None:
    mailbox, wait = waits()
    deliver_one(mailbox, message(Kind.NOTICE, 1))
    deliver_one(mailbox, message(Kind.NOTICE, 2))
    deliver_one(mailbox, message(Kind.DATA, 3))
    inbox, _ = await wait.messages(0, 0, MAY, WaitPolicy(need=2, deadline_ns=None, announce=True))
    assert [m.src for m in inbox] == [3]


async def test_what_was_taken_early_is_not_waited_for() -> None:
    mailbox, wait = waits()
    for src in MAY:
        deliver_one(mailbox, message(Kind.DATA, src, round=1))
    assert len(mailbox.take_early((1, 0))) == 3
    inbox, _ = await wait.messages(1, 0, MAY, ALL)
    assert len(inbox) == 0
    assert inbox.missing == ()
