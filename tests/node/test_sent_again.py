"""One node's acknowledged delivery by hand: when a message is sent again, what ends that, what is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hand import HandClock, settle

from netdfl.core.types import Kind, LogicalId, Message, Multicast, Payload, StepId, messages_of, unicasts
from netdfl.node.delivery import DOUBLINGS, FIRST_NS, LEAST_NS, AcknowledgingTransport, ResendPolicy
from netdfl.transport.base import Fate, Sink, deliver_one

MS = 1_000_000


class Inner:
    """Keeps what is sent and when; `fate` is what the node's sink makes of what comes."""

    def __init__(self, clock: HandClock) -> None:
        self.clock, self.sent, self.closed = clock, list[tuple[int, Message]](), False
        self.fate: Fate | None = Fate.DELIVERED
        self.waiting: list[Callable[[], None]] = []

    def attach(self, sink: Sink) -> None: ...

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        self.sent += [(self.clock.ns, message) for message in messages_of(multicasts)]

    async def aclose(self) -> None:
        self.closed = True

    # as a sink

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        return [self.fate] * len(messages)

    def when_room(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)


class Node:
    """Node 0, which sends to node 1, with a hand on the clock and on what comes back."""

    def __init__(self, **how: Any) -> None:
        self.clock = HandClock()
        self.inner = Inner(self.clock)
        self.delivery = AcknowledgingTransport(0, 2, self.inner, self.clock, ResendPolicy(**how))
        self.delivery.attach(self.inner)
        self.gave_up: list[Message] = []
        self.delivery.gave_up = self.gave_up.append

    async def send(self, round: int = 0, kind: Kind = Kind.DATA) -> None:
        await self.delivery.send(unicasts([Message(0, 1, kind, 2, round, 0, 0, Payload())]))

    async def until(self, ns: int, step: int = MS) -> None:
        while self.clock.ns < ns:
            self.clock.move_to(self.clock.ns + step)
            await settle()

    def sent(self) -> list[tuple[int, int]]:
        """When what was sent, by its attempt."""
        return [(at_ns // MS, message.attempt) for at_ns, message in self.inner.sent]

    def say(self, attempt: int = 0, round: int = 0, kind: Kind = Kind.ACK, **meta: object) -> Fate | None:
        said = Payload(meta={"taken": True, "epoch": 2} | meta)
        return deliver_one(self.delivery, Message(1, 0, kind, 0, round, 0, attempt, said))


async def test_a_message_is_sent_again_after_twice_as_long_each_time_up_to_a_bound_and_then_given_up() -> None:
    node = Node(timeout_ns=2 * MS, attempts=DOUBLINGS + 2)
    await node.send()
    await node.until(1000 * MS)
    waits = [2 * 2 ** min(attempt, DOUBLINGS) for attempt in range(DOUBLINGS + 2)]
    assert node.sent() == [(sum(waits[:attempt]), attempt) for attempt in range(DOUBLINGS + 3)]
    assert [message.attempt for message in node.gave_up] == [DOUBLINGS + 2]
    assert node.delivery.due_again == ()
    assert node.delivery.left == ((1, LogicalId(Kind.DATA, StepId(0, 0))),)


@pytest.mark.parametrize(("attempt", "next_ms"), [(0, 300), (1, 500), (7, 500)])
async def test_only_an_acknowledgement_of_what_was_sent_tells_how_long_it_takes(attempt: int, next_ms: int) -> None:
    node = Node()
    await node.send()
    await node.until(100 * MS)
    assert node.say(attempt) is Fate.DELIVERED
    await node.send(round=1)
    assert node.clock.timers[-1].at_ns == (100 + next_ms) * MS


@pytest.mark.parametrize(("times", "next_ms"), [(1, 300), (2, 500)])
async def test_only_a_reply_to_what_was_sent_once_tells_how_long_it_takes(times: int, next_ms: int) -> None:
    node = Node()
    await node.send(kind=Kind.REQUEST)
    await node.until((100 if times == 1 else 600) * MS)
    assert len(node.inner.sent) == times
    node.say(kind=Kind.REPLY)
    await node.send(round=1)
    assert node.clock.timers[-1].at_ns - node.clock.ns == next_ms * MS


@pytest.mark.parametrize(("attempt", "next_ms"), [(2, 500), (3, 300), (4, 500)])
async def test_of_what_a_later_life_goes_on_with_the_attempts_of_this_life_tell_it(attempt: int, next_ms: int) -> None:
    node = Node()
    node.delivery.adopt([Message(0, 1, Kind.DATA, 1, 0, 0, 3, Payload())])
    await node.until(100 * MS)
    assert node.say(attempt) is Fate.DELIVERED
    await node.send(round=1)
    assert node.clock.timers[-1].at_ns == (100 + next_ms) * MS


@pytest.mark.parametrize("meanwhile", ["acknowledged", "closed"])
async def test_what_has_ended_while_it_was_sent_is_not_sent_again(meanwhile: str) -> None:
    node = Node()

    async def sends(messages: Sequence[Message]) -> None:
        node.say() if meanwhile == "acknowledged" else node.delivery.close()

    node.inner.send = sends  # type: ignore[method-assign]
    await node.send()
    assert node.clock.timers == []


async def test_who_is_closed_has_no_timer_left() -> None:
    node = Node()
    await node.send()
    node.delivery.close()
    assert [timer.live for timer in node.clock.timers] == [False]


@pytest.mark.parametrize(("kind", "ends"), [(Kind.DATA, Kind.ACK), (Kind.REQUEST, Kind.REPLY)])
async def test_an_answer_ends_it_once(kind: Kind, ends: Kind) -> None:
    node = Node(timeout_ns=2 * MS)
    await node.send(kind=kind)
    assert node.delivery.due_again == ((1, LogicalId(kind, StepId(0, 0))),)
    assert node.delivery.asks(1) == (kind is Kind.REQUEST)
    deliver_one(
        node.delivery, Message(1, 0, ends, 0, 5, 0, 0, Payload(meta={"taken": True, "epoch": 2}))
    )  # of another round
    await node.until(3 * MS)
    assert node.sent() == [(0, 0), (2, 1)]
    node.say(kind=ends)
    await node.until(100 * MS)
    assert node.sent() == [(0, 0), (2, 1)]
    assert node.delivery.unacknowledged() == []
    assert len(node.delivery.take_acknowledged()) == (kind is Kind.DATA)
    if kind is Kind.DATA:
        assert node.say(kind=ends) is Fate.DUPLICATE


@pytest.mark.parametrize("wrong", [{"taken": 1}, {"taken": None}, {"epoch": "2"}, {"epoch": True}, {"epoch": None}])
async def test_a_malformed_answer_is_refused_and_ends_nothing(wrong: dict[str, object]) -> None:
    node = Node(timeout_ns=2 * MS)
    await node.send()
    assert node.say(**wrong) is Fate.REFUSED
    await node.until(3 * MS)
    assert node.sent() == [(0, 0), (2, 1)]
    assert node.say(epoch=1) is Fate.DUPLICATE, "of an earlier life"
    assert node.say() is Fate.DELIVERED


async def test_a_paused_node_sends_nothing_again_until_it_goes_on() -> None:
    node = Node(timeout_ns=2 * MS)
    node.delivery.still = lambda: node.clock.ns < 9 * MS
    await node.send()
    await node.until(11 * MS)
    assert node.sent() == [(0, 0), (10, 1)]


async def test_by_itself_it_waits_three_times_as_long_as_answers_take_by_their_median() -> None:
    node = Node()
    for round, took_ms in enumerate((40, 10, 90, 30)):  # each answered before its time is over
        began = node.clock.ns
        await node.send(round=round)
        expected = [FIRST_NS, 120 * MS, 75 * MS, 120 * MS][round]
        assert [t.at_ns - began for t in node.clock.timers if t.live] == [expected]
        if round != 2:
            await node.until(began + took_ms * MS)
            assert node.say(round=round) is Fate.DELIVERED
        else:  # the answer to the second attempt
            await node.until(began + 75 * MS)
            node.clock.ns = began + 75 * MS + 90 * MS
            assert node.say(round=round, attempt=1) is Fate.DELIVERED
    await node.send(round=9)
    assert [t.at_ns - node.clock.ns for t in node.clock.timers if t.live] == [3 * 35 * MS]


async def test_it_waits_a_while_however_fast_answers_are() -> None:
    node = Node()
    await node.send()
    assert node.say() is Fate.DELIVERED
    await node.send(round=1)
    assert [t.at_ns - node.clock.ns for t in node.clock.timers if t.live] == [LEAST_NS]


@pytest.mark.parametrize("fate", [Fate.DELIVERED, Fate.DUPLICATE, Fate.LATE, Fate.REFUSED])
async def test_data_is_answered_with_what_became_of_it_whatever_its_copy_meets(fate: Fate) -> None:
    node = Node()
    for attempt, node.inner.fate in enumerate((fate, Fate.DUPLICATE)):
        came = deliver_one(node.delivery, Message(1, 0, Kind.DATA, 7, 3, 1, attempt, Payload()))
        assert came is node.inner.fate
        await settle()
    heads = [message[:7] for _, message in node.inner.sent]
    assert heads == [(0, 1, Kind.ACK, 2, 3, 1, attempt) for attempt in range(2)]
    taken = fate not in (Fate.LATE, Fate.REFUSED)
    assert [m.payload.meta for _, m in node.inner.sent] == [{"taken": taken, "epoch": 7}] * 2


@pytest.mark.parametrize(("kind", "fate"), [(Kind.DATA, None), (Kind.NOTICE, None), (Kind.QUERY, Fate.DELIVERED)])
async def test_what_has_no_room_and_what_is_no_data_is_not_answered(kind: Kind, fate: Fate | None) -> None:
    node = Node()
    node.inner.fate = fate
    assert deliver_one(node.delivery, Message(1, 0, kind, 0, 0, 0, 0, Payload())) is fate
    await settle()
    assert node.inner.sent == []
    node.delivery.when_room(lambda: None)
    assert len(node.inner.waiting) == 1


@pytest.mark.parametrize("fate", [Fate.DELIVERED, Fate.DUPLICATE, Fate.LATE])
async def test_every_copy_of_a_notice_is_acknowledged_at_once(fate: Fate) -> None:
    node = Node()
    node.delivery.keeps = True
    node.inner.fate = fate
    assert deliver_one(node.delivery, Message(1, 0, Kind.NOTICE, 7, 3, 1, 2, Payload())) is fate
    await settle()
    assert [m[:7] for _, m in node.inner.sent] == [(0, 1, Kind.ACK, 2, 3, 1, 2)]
    assert [m.payload.meta for _, m in node.inner.sent] == [{"taken": True, "notice": True, "epoch": 7}]


async def test_a_notice_is_sent_again_until_it_is_acknowledged_and_no_acknowledgement_of_data_ends_that() -> None:
    node = Node(timeout_ns=2 * MS, attempts=4)
    await node.send(kind=Kind.NOTICE)
    assert node.say() is Fate.DUPLICATE
    await node.until(4 * MS)
    assert node.sent() == [(0, 0), (2, 1)]
    assert node.delivery.sends_again(1, StepId(0, 0))
    assert node.say(notice=True) is Fate.DELIVERED
    await node.until(100 * MS)
    assert len(node.inner.sent) == 2
    assert node.delivery.take_acknowledged() == []


async def test_a_notice_that_nobody_acknowledges_ends_and_has_nothing_to_give_back_or_to_keep() -> None:
    node = Node(timeout_ns=2 * MS, attempts=2)
    await node.send(kind=Kind.NOTICE)
    assert node.delivery.unsettled() == []
    await node.until(100 * MS)
    assert [attempt for _, attempt in node.sent()] == [0, 1, 2]
    assert (node.gave_up, node.delivery.left, node.delivery.due_again) == ([], (), ())


async def test_what_is_closed_sends_nothing_more() -> None:
    node = Node(timeout_ns=2 * MS)
    await node.send()
    await node.delivery.aclose()
    assert node.inner.closed
    deliver_one(node.delivery, Message(1, 0, Kind.DATA, 0, 0, 0, 0, Payload()))
    await node.until(50 * MS)
    assert node.sent() == [(0, 0)]
    assert not any(timer.live for timer in node.clock.timers)
    assert node.delivery.due_again == ()


async def test_what_is_sent_again_is_for_its_peer_and_its_step_alone() -> None:
    node = Node(timeout_ns=2 * MS)
    await node.send(round=3)
    asked = [(peer, step) for peer in (1, 2) for step in ((3, 0), (3, 1), (2, 0))]
    assert [each for each in asked if node.delivery.sends_again(each[0], StepId(*each[1]))] == [(1, (3, 0))]
    node.delivery.close()
    assert not node.delivery.sends_again(1, StepId(3, 0))


async def test_a_life_whose_state_is_lost_gives_up_what_nobody_took_each_once() -> None:
    """Of five messages one was taken, one refused, one not answered and one given up; a request is no share."""
    node = Node(timeout_ns=2 * MS, attempts=0)
    await node.send(round=0)
    await node.until(3 * MS)
    assert [message.round for message in node.gave_up] == [0]
    for round in (1, 2, 3):
        await node.send(round=round)
    await node.send(round=4, kind=Kind.REQUEST)
    node.say(round=1)
    node.say(round=2, taken=False)
    assert [message.round for message in node.delivery.untaken()] == [3, 2]
    node.delivery.abandon()
    assert [message.round for message in node.gave_up] == [0, 3, 2]
    assert [each.taken for each in node.delivery.take_acknowledged()] == [True, False]
    assert [message.round for message in node.delivery.untaken()] == [3], "what was taken back is the node's own"


async def test_what_may_have_been_taken_by_a_life_before_is_told_once() -> None:
    """Of rounds before the first one, whatever becomes of it; a copy of it is nothing new."""
    node = Node()
    told: list[int] = []
    node.delivery.came_again = lambda message: told.append(message.round)
    for first, round, fate in ((0, 2, Fate.DELIVERED), (3, 2, Fate.DELIVERED), (3, 1, Fate.REFUSED)):
        node.delivery.join_at(first)
        node.inner.fate = fate
        deliver_one(node.delivery, Message(1, 0, Kind.DATA, 0, round, 0, 0, Payload()))
    for round, fate in ((2, Fate.DUPLICATE), (3, Fate.DELIVERED), (0, None)):
        node.inner.fate = fate
        deliver_one(node.delivery, Message(1, 0, Kind.DATA, 0, round, 0, 0, Payload()))
    await settle()
    assert told == [2, 1]


async def test_what_was_taken_is_unsaved_until_it_is_stored() -> None:
    clock = HandClock()
    inner = Inner(clock)
    delivery = AcknowledgingTransport(0, 2, inner, clock, ResendPolicy(), keeps=True)
    delivery.attach(inner)
    for round, fate in enumerate((Fate.DELIVERED, Fate.DELIVERED, Fate.LATE, Fate.REFUSED)):
        inner.fate = fate
        deliver_one(delivery, Message(1, 0, Kind.DATA, 0, round, 0, 0, Payload()))
    assert delivery.unsaved() == [(1, LogicalId(Kind.DATA, StepId(round, 0))) for round in (0, 1)]
    delivery.saved({"0 0": 1 << 1})
    await settle()
    assert delivery.unsaved() == [(1, LogicalId(Kind.DATA, StepId(1, 0)))]
