"""A wait says the same of messages that were there before it began and of those that come at its first instant."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any

import pytest
from hand import HandClock, settle
from hypothesis import example, given
from hypothesis import strategies as st

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.types import Kind, Message, Payload
from netdfl.node.mailbox import Mailbox
from netdfl.node.waits import OpenWait, Waits
from netdfl.record.base import WaitEnd
from netdfl.transport.base import deliver_one

MS = 1_000_000
WAITED = (2, 0)
SLOTS = [WAITED, WAITED, WAITED, (2, 1), (3, 0)]
POLICIES = [
    WaitPolicy(need=need, deadline_ns=deadline_ns, ordered=ordered)
    for need in ("all", "any", 2)
    for deadline_ns in ("auto", 5 * MS, None)
    for ordered in (True, False)
] + [WaitPolicy(deadline_ns=None, cumulative=True), WaitPolicy(resent=True)]
CAME = st.tuples(st.integers(0, 4), st.sampled_from(SLOTS), st.sampled_from([Kind.DATA, Kind.DATA, Kind.NOTICE]))


async def waited(policy: WaitPolicy, came: list[Any], sources: frozenset[int] | None, early: bool) -> Any:
    """All that a wait says and leaves, `came` being there before it or at once after; None where it began as over."""
    clock, mailbox = HandClock(), Mailbox(keep_late=False)
    waits = Waits(9, mailbox, clock)
    clock.move_to(7 * MS)

    def arrive() -> None:
        for src, (round, step), kind in came:
            deliver_one(mailbox, Message(src, 9, kind, 0, round, step, 0, Payload()))

    if early:
        arrive()
    task = asyncio.create_task(waits.messages(*WAITED, sources, policy))
    await settle()
    if not early:
        if task.done():
            return None
        arrive()
        await settle()
    at_once, wait = task.done(), waits.current
    if not at_once:
        assert wait is not None
        if wait.deadline_ns is None:
            task.cancel()
            return said(wait), waits.auto.ns(), at_once
        clock.move_to(wait.deadline_ns)
    inbox, wait = await task
    took = [(m.src, m.round, m.step) for m in inbox], inbox.missing, waits.suspects.nodes()
    return said(wait), waits.auto.ns(), at_once, took


def said(wait: OpenWait) -> dict[str, Any]:
    """Without what is of no account: when a wait would have ended that has, and who else is ahead."""
    silent = wait.silent if wait.sources is None else wait.silent & wait.sources  # whose notice came is no source
    deadline_ns = None if wait.ended in (WaitEnd.CAME, WaitEnd.LOST) else wait.deadline_ns
    return asdict(replace(wait, last_src=None, silent=silent, deadline_ns=deadline_ns))


@given(
    st.sampled_from(POLICIES),
    st.lists(CAME, max_size=6),
    st.one_of(st.none(), st.frozensets(st.integers(0, 3), min_size=1)),
)
@example(WaitPolicy(deadline_ns=5 * MS), [(1, WAITED, Kind.DATA)], frozenset({1}))
@example(WaitPolicy(deadline_ns=5 * MS), [(4, WAITED, Kind.DATA)], frozenset({1}))
@example(WaitPolicy(), [(0, WAITED, Kind.DATA), (0, WAITED, Kind.NOTICE)], frozenset({0}))
@example(WaitPolicy(), [(1, WAITED, Kind.NOTICE), (1, (2, 1), Kind.DATA)], frozenset({0, 1}))
@example(WaitPolicy(), [(0, WAITED, Kind.DATA), (1, WAITED, Kind.NOTICE)], frozenset({0, 1, 2}))
def test_a_wait_says_the_same_of_what_was_there_and_of_what_comes_at_once(
    policy: WaitPolicy, came: list[Any], sources: frozenset[int] | None
) -> None:
    during = asyncio.run(waited(policy, came, sources, early=False))
    if during is not None:
        assert asyncio.run(waited(policy, came, sources, early=True)) == during


@pytest.mark.parametrize("came", [0, 1, 2])
async def test_a_wait_whose_sender_choose_alone_is_skipped_with_what_has_come(came: int) -> None:
    mailbox = Mailbox(keep_late=False)
    waits = Waits(9, mailbox, HandClock())
    task = asyncio.create_task(waits.messages(0, 0, None, WaitPolicy(deadline_ns=None)))
    await settle()
    for src in range(came):
        deliver_one(mailbox, Message(src, 9, Kind.DATA, 0, 0, 0, 0, Payload()))
    await settle()
    assert not task.done()
    waits.skip(frozenset())
    inbox, wait = await asyncio.wait_for(task, timeout=60)
    assert ([m.src for m in inbox], wait.need, wait.ended) == (list(range(came)), came, WaitEnd.CAME)
