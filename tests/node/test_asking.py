"""A wait under an automatic deadline asks whether what is missing will still come, and goes by the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from test_waits import MS, HandClock, came, settle

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.clock import NS_PER_S
from netdfl.core.types import Inbox, Kind, Message, NodeId, Payload
from netdfl.node.asking import (
    FIRST_NS,
    LATEST_FIRST_NS,
    LATEST_NS,
    MOST_OPEN,
    SILENT_NS,
    TRIES,
    AnswerTime,
    PeerQuery,
    QueriedWait,
    StatusQueries,
)
from netdfl.node.mailbox import Mailbox
from netdfl.node.waits import OpenWait, Waits
from netdfl.record.base import WaitEnd
from netdfl.transport.base import Fate, deliver_one


class Desk:
    """Node 9 with its questions, a hand on the clock and on what arrives."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.mailbox = Mailbox(keep_late=False)
        self.sent: list[Message] = []
        asking = partial(StatusQueries, 9, self.clock, self.sent.append, 0)
        self.waits = Waits(9, self.mailbox, self.clock, asking, lambda peers: True)
        assert self.waits.queries is not None
        self.queries = self.waits.queries

    def start(self, *sources: NodeId, round: int = 0, **policy: Any) -> asyncio.Task[tuple[Inbox, OpenWait]]:
        return asyncio.create_task(self.waits.messages(round, 0, frozenset(sources), WaitPolicy(**policy)))

    def arrive(self, *sources: NodeId, round: int = 0) -> None:
        for src in sources:
            deliver_one(self.mailbox, Message(src, 9, Kind.DATA, 0, round, 0, 0, Payload()))

    def move_on(self, ns: int) -> None:
        """Let time pass, timer by timer."""
        end = self.clock.now_ns() + ns
        while due := [t.at_ns for t in self.clock.timers if t.live and t.at_ns <= end]:
            self.clock.move_to(min(due))
        self.clock.move_to(end)

    def say(self, query: Message, past: object) -> Fate | None:
        head = (query.dst, query.src, Kind.STATUS, 0, query.round, query.step, query.attempt)
        return deliver_one(self.mailbox, Message(*head, Payload(meta={"past": past})))

    def questions(self) -> Iterator[Message]:
        while self.sent:
            yield self.sent.pop(0)


async def test_nobody_is_asked_before_a_wait_has_lasted() -> None:
    desk = Desk()
    task = desk.start(1, 2)
    await settle()
    desk.move_on(FIRST_NS - 1)
    desk.arrive(1, 2)
    await task
    desk.move_on(NS_PER_S)
    assert desk.sent == []


async def test_a_sender_that_is_past_the_step_is_not_waited_for() -> None:
    desk = Desk()
    task = desk.start(1, 2)
    desk.arrive(1)
    await settle()
    desk.move_on(FIRST_NS)
    (query,) = desk.questions()
    assert (query.kind, query.dst, query.round, query.step) == (Kind.QUERY, 2, 0, 0)
    assert desk.say(query, True) is Fate.DELIVERED
    inbox, wait = await task
    assert (came(inbox), inbox.missing, wait.ended) == ([1], (2,), "lost")


async def test_a_sender_that_is_slow_is_waited_for_however_long_it_takes() -> None:
    desk = Desk()
    task = desk.start(1)
    await settle()
    for _ in range(60):
        desk.move_on(NS_PER_S)
        for query in desk.questions():
            desk.say(query, False)
        await settle()
        assert not task.done()
    desk.arrive(1)
    inbox, _ = await task
    assert came(inbox) == [1]


async def test_the_longer_a_sender_takes_the_less_often_it_is_asked() -> None:
    desk = Desk()
    task = desk.start(1)
    await settle()
    asked = 0
    for _ in range(400):
        desk.move_on(100 * MS)
        for query in desk.questions():
            asked += 1
            desk.say(query, False)
    assert asked < 15
    task.cancel()


async def test_who_does_not_answer_is_given_up_and_not_waited_for_again_until_it_is_heard() -> None:
    desk = Desk()
    task = desk.start(1, 2)
    desk.arrive(1)
    await settle()
    desk.move_on(SILENT_NS - 1)
    await settle()
    assert not task.done()
    desk.move_on(60 * NS_PER_S)
    inbox, wait = await task
    assert (inbox.missing, wait.ended, len(desk.sent)) == ((2,), "deadline", TRIES)
    desk.arrive(1, round=1)
    inbox, _ = await desk.start(1, 2, round=1)
    assert inbox.missing == (2,)
    desk.arrive(2, round=2)
    assert desk.waits.suspects.nodes() == frozenset()


async def test_a_wait_without_one_that_was_given_up_ends_as_the_others_come_and_tells_of_no_loss() -> None:
    desk = Desk()
    task = desk.start(1, 2)
    desk.arrive(1)
    await settle()
    desk.move_on(60 * NS_PER_S)
    assert (await task)[1].ended is WaitEnd.DEADLINE
    task = desk.start(1, 2, round=1)
    await settle()
    desk.arrive(1, round=1)
    assert (await task)[1].ended is WaitEnd.CAME
    assert (await desk.start(2, round=2))[1].ended is WaitEnd.GONE
    task = desk.start(1, 2, 3, round=3)
    desk.arrive(1, round=3)
    await settle()
    desk.move_on(NS_PER_S)
    for query in desk.questions():
        if query.dst == 3 and query.round == 3:
            desk.say(query, True)
    assert (await task)[1].ended is WaitEnd.LOST


async def test_where_links_keep_no_order_one_word_is_not_enough() -> None:
    desk = Desk()
    task = desk.start(1, ordered=False)
    await settle()
    desk.move_on(FIRST_NS)
    (query,) = desk.questions()
    desk.say(query, True)
    await settle()
    assert not task.done()
    desk.move_on(NS_PER_S)
    for query in desk.questions():
        desk.say(query, True)
    inbox, _ = await task
    assert inbox.missing == (1,)


async def test_a_question_in_vain_comes_later_the_next_time_and_a_loss_brings_it_forward() -> None:
    desk = Desk()
    waits = [(0, False), (1, False), (2, True), (3, True)]
    first = []
    for round, past in waits:
        task = desk.start(1, round=round)
        await settle()
        began = desk.clock.now_ns()
        while not desk.sent:
            desk.move_on(10 * MS)
        first.append((desk.clock.now_ns() - began) // MS)
        desk.say(desk.sent.pop(), past)
        if not past:
            desk.arrive(1, round=round)
        await task
    assert first == [500, 750, 1130, 50]


@pytest.mark.parametrize("past", [None, 1, "yes", {"past": True}])
async def test_a_malformed_answer_is_refused_and_changes_nothing(past: object) -> None:
    desk = Desk()
    task = desk.start(1)
    await settle()
    desk.move_on(FIRST_NS)
    (query,) = desk.questions()
    assert desk.say(query, past) is Fate.REFUSED
    await settle()
    assert not task.done()
    task.cancel()


async def test_an_answer_that_nobody_asked_for_changes_nothing() -> None:
    desk = Desk()
    task = desk.start(1)
    await settle()
    assert desk.say(Message(9, 1, Kind.QUERY, 0, 0, 0, 7, Payload()), True) is Fate.DUPLICATE
    await settle()
    assert not task.done()
    task.cancel()


@pytest.mark.parametrize(
    ("now", "due_ns", "tries", "answer_ns", "silent"),
    [
        (SILENT_NS, 0, TRIES, 0, True),
        (SILENT_NS - 1, 0, TRIES, 0, False),
        (SILENT_NS, SILENT_NS, TRIES, 0, True),
        (SILENT_NS, SILENT_NS + 1, TRIES, 0, False),
        (SILENT_NS, 0, TRIES - 1, 0, False),
        (4 * NS_PER_S, 0, TRIES, NS_PER_S, True),
        (4 * NS_PER_S - 1, 0, TRIES, NS_PER_S, False),
    ],
)
def test_who_is_silent_has_let_pass_its_questions_its_time_and_what_answers_take(
    now: int, due_ns: int, tries: int, answer_ns: int, silent: bool
) -> None:
    missing = QueriedWait((0, 0), 0, 1, SILENT_NS, lambda: [1], {})
    assert missing.is_silent(PeerQuery(heard_ns=0, due_ns=due_ns, tries=tries), now, answer_ns) == silent
    assert not missing.is_silent(None, now, answer_ns)


async def test_of_very_many_questions_the_latest_are_remembered() -> None:
    desk = Desk()
    task = desk.start(*range(10, 10 + MOST_OPEN + 3))
    await settle()
    desk.move_on(FIRST_NS)
    asked = list(desk.questions())
    assert len(asked) == MOST_OPEN + 3
    assert [desk.say(query, False) for query in asked] == [Fate.DUPLICATE] * 3 + [Fate.DELIVERED] * MOST_OPEN
    task.cancel()


def test_a_query_is_answered_with_where_this_node_stands() -> None:
    desk = Desk()
    desk.queries.is_step_done = lambda peer, slot: slot < (4, 1)
    for round, step in ((4, 0), (4, 1), (5, 0)):
        deliver_one(desk.mailbox, Message(3, 9, Kind.QUERY, 0, round, step, 2, Payload()))
    assert [message.payload.meta for message in desk.sent] == [{"past": True}, {"past": False}, {"past": False}]
    assert {(m.kind, m.dst, m.attempt) for m in desk.sent} == {(Kind.STATUS, 3, 2)}


async def test_a_fixed_deadline_asks_nobody() -> None:
    desk = Desk()
    task = desk.start(1, deadline_ns=5 * NS_PER_S)
    await settle()
    desk.move_on(5 * NS_PER_S)
    assert (await task)[0].missing == (1,)
    assert desk.sent == []


def test_the_time_of_answers_is_smoothed_with_a_margin_for_its_deviation() -> None:
    time = AnswerTime()
    assert time.timeout_ns() == FIRST_NS
    for _ in range(60):
        time.took(100 * MS)
    assert time.timeout_ns() == pytest.approx(120 * MS, rel=0.01)
    time.took(1100 * MS)
    assert time.timeout_ns() > 1100 * MS


async def test_one_answer_that_took_long_does_not_put_off_the_questions_of_the_next_wait() -> None:
    desk = Desk()
    task = desk.start(1)
    await settle()
    desk.move_on(FIRST_NS)
    first = next(desk.questions())
    desk.move_on(9 * NS_PER_S)
    desk.say(first, past=True)
    await settle()
    assert (await task)[1].ended is WaitEnd.LOST
    assert desk.queries.answers.longest_ns() > 5 * LATEST_FIRST_NS
    desk.sent.clear()
    task = desk.start(1, round=1)
    await settle()
    desk.move_on(LATEST_NS - 1)
    assert desk.sent == []
    desk.move_on(1)
    assert [query.round for query in desk.questions()] == [1]
    desk.arrive(1, round=1)
    assert (await task)[0].missing == ()


async def test_waits_that_always_last_long_come_to_need_no_questions() -> None:
    desk = Desk()
    asked: list[int] = []
    for round in range(30):
        task = desk.start(1, round=round)
        await settle()
        desk.move_on(6 * NS_PER_S)
        desk.arrive(1, round=round)
        await task
        asked.append(len(desk.sent))
        for query in desk.questions():
            desk.say(query, past=False)
    assert asked[0] > 0
    assert asked[10:] == [0] * 20
    task = desk.start(1, round=30)
    await settle()
    desk.move_on(12 * NS_PER_S)
    assert {query.round for query in desk.questions()} == {30}
    task.cancel()


async def test_one_wait_that_lasted_long_is_not_taken_for_the_usual() -> None:
    desk = Desk()
    for round in range(3):
        task = desk.start(1, round=round)
        await settle()
        if round == 2:
            desk.move_on(FIRST_NS)
            first = next(desk.questions())
            desk.move_on(9 * NS_PER_S)
            desk.say(first, past=False)
        desk.arrive(1, round=round)
        assert (await task)[0].missing == ()
    assert desk.queries.answers.longest_ns() > 5 * LATEST_FIRST_NS
    desk.sent.clear()
    task = desk.start(1, round=3)
    await settle()
    desk.move_on(LATEST_NS)
    assert [query.round for query in desk.questions()] == [3]
    task.cancel()


def busy_start(desk: Desk, took_ns: int) -> None:
    """Answers took very long, as on a machine where everybody starts at once."""
    for _ in range(20):
        desk.queries.answers.took(took_ns)


async def test_after_a_busy_start_a_question_that_is_lost_is_asked_again_soon() -> None:
    desk = Desk()
    busy_start(desk, 8 * NS_PER_S)
    task = desk.start(1)
    await settle()
    while not desk.sent:
        desk.move_on(10 * MS)
    desk.move_on(LATEST_NS)
    assert [query.attempt for query in desk.questions()] == [0, 1]
    task.cancel()


async def test_where_answers_take_a_minute_nobody_is_silent_before_they_can_have_come() -> None:
    desk = Desk()
    busy_start(desk, 60 * NS_PER_S)
    task = desk.start(1)
    await settle()
    desk.move_on(200 * NS_PER_S)
    assert len(desk.sent) > TRIES
    assert not task.done()
    desk.move_on(200 * NS_PER_S)
    assert (await task)[1].ended is WaitEnd.DEADLINE


async def test_a_node_that_stands_still_asks_nobody_and_gives_nobody_up() -> None:
    """It hears no answer; once it goes on it asks, and goes by that."""
    desk, still = Desk(), [True]
    desk.queries.still = lambda: still[0]
    task = desk.start(1, deadline_ns="auto")
    await settle()
    desk.move_on(100 * NS_PER_S)
    assert (desk.sent, task.done()) == ([], False)
    still.clear()
    still.append(False)
    desk.move_on(FIRST_NS)
    (query,) = desk.questions()
    assert query.dst == 1
    desk.say(query, False)
    desk.move_on(FIRST_NS)
    assert not task.done()
    desk.arrive(1)
    assert list((await task)[0].missing) == []
