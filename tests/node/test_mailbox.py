"""The mailbox: each message once, to the slot that awaits it; early, late, doubled and too many."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.types import Kind, Message, NodeId, Payload, StepId
from netdfl.node.mailbox import Mailbox
from netdfl.transport.base import Fate, deliver_one


def message(
    src: NodeId, round: int, step: int = 0, *, kind: Kind = Kind.DATA, epoch: int = 0, attempt: int = 0
) -> Message:
    return Message(src, 9, kind, epoch, round, step, attempt, Payload())


def box(*, keep_late: bool = False, bound: int = 3) -> Mailbox:
    return Mailbox(keep_late=keep_late, bound=bound)


def take(mailbox: Mailbox, slot: StepId) -> list[NodeId]:
    """Await a slot and leave it at once."""
    mailbox.open(slot, lambda slot, srcs: None)
    return sorted(m.src for m in mailbox.close(slot))


def test_early_messages_wait_for_their_slot() -> None:
    mailbox = box()
    assert deliver_one(mailbox, message(1, 1)) is Fate.DELIVERED
    assert deliver_one(mailbox, message(2, 0)) is Fate.DELIVERED
    assert deliver_one(mailbox, message(2, 0, step=1)) is Fate.DELIVERED
    assert mailbox.num_kept == 3
    assert [take(mailbox, slot) for slot in ((0, 0), (0, 1), (1, 0))] == [[2], [2], [1]]
    assert mailbox.num_kept == 0


def test_awaited_and_later_messages_are_told_of_once_each() -> None:
    mailbox, told = box(), list[NodeId]()
    deliver_one(mailbox, message(4, 0))
    early = mailbox.open((0, 0), lambda slot, srcs: told.extend(srcs))
    assert list(early) == [4]
    deliver_one(mailbox, message(5, 0))
    deliver_one(mailbox, message(5, 0))
    deliver_one(mailbox, message(6, 1))
    assert told == [5, 6]
    assert mailbox.ahead((0, 0)) == {6}
    assert {m.src for m in mailbox.close((0, 0))} == {4, 5}


@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("keep_late", [False, True])
def test_a_message_sent_again_is_taken_once(when: str, keep_late: bool) -> None:
    """A restarted sender sends the same round in a new epoch, a resend has another attempt."""
    mailbox = box(keep_late=keep_late)
    again = message(1, 0, epoch=1, attempt=2)
    deliver_one(mailbox, message(1, 0))
    if when == "before":
        assert deliver_one(mailbox, again) is Fate.DUPLICATE
    mailbox.open((0, 0), lambda slot, srcs: None)
    if when == "during":
        assert deliver_one(mailbox, again) is Fate.DUPLICATE
    assert len(mailbox.close((0, 0))) == 1
    if when == "after":
        assert deliver_one(mailbox, again) is Fate.DUPLICATE
    assert mailbox.take_late() == []


def test_late_messages_are_dropped_and_told() -> None:
    mailbox, told = box(), list[Message]()
    mailbox.on_late(told.append)
    take(mailbox, (2, 0))
    late, later = message(1, 2), message(2, 1, step=7)
    assert deliver_one(mailbox, late) is Fate.LATE
    assert deliver_one(mailbox, later) is Fate.LATE
    assert (mailbox.take_late(), told) == ([], [late, later])


def test_late_mass_is_kept_and_given_once() -> None:
    mailbox = box(keep_late=True)
    deliver_one(mailbox, message(3, 0))
    take(mailbox, (1, 0))
    assert deliver_one(mailbox, message(1, 0)) is Fate.DELIVERED
    assert deliver_one(mailbox, message(1, 0)) is Fate.DUPLICATE
    assert sorted(m.src for m in mailbox.take_late()) == [1, 3], (
        "what came for a slot that was never opened is mass too"
    )
    assert mailbox.take_late() == []


def test_late_messages_are_kept_while_the_next_exchange_may_mix_them() -> None:
    """What is awaited, or else the next round's exchange, says how old a message is."""
    mailbox = Mailbox(keep_late=False, stale=2)
    take(mailbox, (4, 0))
    assert [deliver_one(mailbox, message(1, round)) for round in (2, 3, 4)] == [
        Fate.LATE,
        Fate.DELIVERED,
        Fate.DELIVERED,
    ]
    mailbox.open((6, 0), lambda slot, srcs: None)
    assert [deliver_one(mailbox, message(2, round)) for round in (3, 4)] == [Fate.LATE, Fate.DELIVERED]
    mailbox.close((6, 0))
    assert [(m.src, m.round) for m in mailbox.take_late()] == [(1, 3), (1, 4), (2, 4)]


def test_an_earlier_step_of_a_round_is_not_too_old_for_a_later_one() -> None:
    mailbox = Mailbox(keep_late=False, stale=1)
    take(mailbox, (4, 0))
    mailbox.open((4, 1), lambda slot, srcs: None)
    assert [deliver_one(mailbox, message(1, round)) for round in (2, 3, 4)] == [
        Fate.LATE,
        Fate.DELIVERED,
        Fate.DELIVERED,
    ]


def test_a_full_mailbox_pushes_back_until_there_is_room() -> None:
    mailbox, calls = box(bound=2), list[str]()
    deliver_one(mailbox, message(1, 1))
    deliver_one(mailbox, message(2, 1))
    held = message(1, 2)
    assert deliver_one(mailbox, held) is None
    mailbox.when_room(lambda: calls.append("room"))
    assert calls == []
    take(mailbox, (1, 0))
    assert calls == ["room"] or calls == ["room"] * 2
    assert deliver_one(mailbox, held) is Fate.DELIVERED, "a held message was taken for a duplicate of itself"
    assert take(mailbox, (2, 0)) == [1]


def test_what_is_awaited_is_taken_even_when_full() -> None:
    mailbox = box(bound=1)
    deliver_one(mailbox, message(1, 5))
    calls: list[str] = []
    mailbox.when_room(lambda: calls.append("offer again"))
    mailbox.open((0, 0), lambda slot, srcs: None)
    assert calls == ["offer again"], "held messages may be the awaited ones"
    assert deliver_one(mailbox, message(2, 0)) is Fate.DELIVERED
    assert deliver_one(mailbox, message(3, 0)) is Fate.DELIVERED
    assert deliver_one(mailbox, message(2, 1)) is None
    assert len(mailbox.close((0, 0))) == 2


def test_other_kinds_go_to_their_handlers() -> None:
    mailbox, seen = box(bound=0), list[Message]()

    def handle(m: Message) -> Fate:
        seen.append(m)
        return Fate.DELIVERED

    mailbox.on(Kind.HEARTBEAT, handle)
    beat = message(1, 0, kind=Kind.HEARTBEAT)
    assert deliver_one(mailbox, beat) is Fate.DELIVERED
    assert (seen, mailbox.num_kept) == ([beat], 0)


ARRIVALS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 1)), max_size=40)


@given(arrivals=ARRIVALS, closes=st.lists(st.integers(0, 40), max_size=6), keep_late=st.booleans())
def test_every_message_is_taken_at_most_once_and_mass_exactly_once(
    arrivals: list[tuple[int, int, int]], closes: list[int], keep_late: bool
) -> None:
    mailbox, taken = box(keep_late=keep_late, bound=1000), list[Message]()
    slots = [(r, s) for r in range(6) for s in range(2)]
    next_slot = 0
    for k, (src, round, step) in enumerate(arrivals):
        deliver_one(mailbox, message(src, round, step))
        if k in closes:
            mailbox.open(slots[next_slot], lambda slot, srcs: None)
            taken += mailbox.close(slots[next_slot]) + mailbox.take_late()
            next_slot += 1
    for slot in slots[next_slot:]:
        mailbox.open(slot, lambda slot, srcs: None)
        taken += mailbox.close(slot) + mailbox.take_late()
    keys = [(m.src, m.round, m.step) for m in taken]
    assert len(keys) == len(set(keys))
    if keep_late:
        assert set(keys) == set(arrivals)
    assert mailbox.num_kept == 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20),
    st.integers(0, 20),
    st.booleans(),
    st.booleans(),
)
def test_messages_of_one_instant_fare_together_as_one_by_one(
    names: list[tuple[int, int]], first: int, keep_late: bool, shut: bool
) -> None:
    """`first` messages come before the wait for round 1; rounds 0 and 2 are over or early then."""
    messages = [message(src, round) for src, round in names]

    def played(together: bool) -> tuple[object, ...]:
        mailbox, told = box(keep_late=keep_late, bound=5), list[tuple[StepId, NodeId]]()

        def tell(slot: StepId, srcs: Collection[NodeId]) -> None:
            told.extend((slot, src) for src in srcs)

        asked = [mailbox.num_from(src) for src in range(4)]
        assert asked == [0] * 4
        fates: list[Fate | None] = [deliver_one(mailbox, m) for m in messages[:first]]
        mailbox.open((0, 0), tell)
        mailbox.close((0, 0))
        mailbox.open((1, 0), tell)
        if shut:
            mailbox.shut()
        rest = messages[first:]
        fates += mailbox.deliver(rest) if together else [deliver_one(mailbox, m) for m in rest]
        counts = [mailbox.num_kept, *map(mailbox.num_from, range(4))]
        return fates, sorted(told), counts, [id(m) for m in mailbox.close((1, 0)) + mailbox.take_late()]

    assert played(True) == played(False)


def test_a_later_life_takes_nothing_that_was_read_and_everything_that_was_not() -> None:
    """What a node had got but not mixed when its state was saved is not in that state: it may come again."""
    first = Mailbox(keep_late=True)
    read, late, early = (Message(1, 0, Kind.DATA, 0, r, 0, 0, Payload()) for r in (0, 1, 9))
    for message in (read, early):
        assert deliver_one(first, message) is Fate.DELIVERED
    assert first.close((0, 0)) == [read]
    first.close((2, 0))
    assert deliver_one(first, late) is Fate.DELIVERED

    second = Mailbox(keep_late=True)
    second.remember(first.memory())
    assert deliver_one(second, read) is Fate.DUPLICATE
    assert deliver_one(second, late) is Fate.DELIVERED
    assert deliver_one(second, early) is Fate.DELIVERED
    assert deliver_one(second, early) is Fate.DUPLICATE
