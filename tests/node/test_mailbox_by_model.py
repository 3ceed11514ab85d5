"""The mailbox does what a plain one does that is written anew from its text, whatever comes, in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Any

import pytest

from netdfl.core.types import Kind, Message, NodeId, Payload, StepId
from netdfl.node.mailbox import Mailbox
from netdfl.transport.base import Fate, deliver_one

ME, BOUND, NOTHING = 7, 4, Payload()
PEERS = (0, 3, 5)
SLOTS = [(round, step) for round in range(6) for step in (0, 1)]


def data(src: NodeId, slot: StepId, attempt: int = 0, dst: NodeId = ME) -> Message:
    return Message(src, dst, Kind.DATA, 0, *slot, attempt, NOTHING)


class Plain:
    """A mailbox as its text says it, with lists and sets. `told` is what it has said to who awaits something."""

    def __init__(self, *, keep_late: bool, stale: int) -> None:
        self.keep_late, self.stale = keep_late, stale
        self.kept: list[Message] = []
        self.late: list[Message] = []
        self.seen: set[tuple[StepId, NodeId]] = set()
        self.early: set[tuple[StepId, NodeId]] = set()
        self.heard: Counter[NodeId] = Counter()
        self.asked: set[NodeId] = set()
        self.closed: StepId = (-1, 0)
        self.awaited: StepId | None = None
        self.shut = False
        self.told: list[tuple[StepId, list[NodeId]]] = []
        self.told_late: list[Message] = []

    def deliver(self, message: Message) -> Fate | None:
        slot, src = (message.round, message.step), message.src
        new, over = (slot, src) not in self.seen, slot <= self.closed
        if self.shut and new:
            return Fate.REFUSED
        if not over and slot != (self.awaited or (-1, 0)) and len(self.kept) >= BOUND:
            return None
        if not new:
            return Fate.DUPLICATE
        self.seen.add((slot, src))
        self.heard[src] += src in self.asked
        if over:
            self.told_late.append(message)
            return Fate.DELIVERED if self.keep_where_late(message) else Fate.LATE
        self.kept.append(message)
        if self.awaited is not None and slot >= self.awaited:
            self.told.append((slot, [src]))
        return Fate.DELIVERED

    def keep_where_late(self, message: Message) -> bool:
        next_round = self.closed[0] + 1 if self.awaited is None else self.awaited[0]
        taken = self.keep_late or (self.stale > 0 and message.round >= next_round - self.stale)
        if taken:
            self.late.append(message)
        return taken

    def of(self, slot: StepId) -> list[Message]:
        return [m for m in self.kept if (m.round, m.step) == slot]

    def close(self, slot: StepId) -> list[Message]:
        taken, self.awaited, self.closed = self.of(slot), None, max(self.closed, slot)
        over = [m for m in self.kept if (m.round, m.step) <= self.closed and m not in taken]
        self.kept = [m for m in self.kept if m not in taken and m not in over]
        for message in over:
            self.keep_where_late(message)
        self.early = {(s, src) for s, src in self.early if s > self.closed}
        return taken

    def take_early(self, last: StepId) -> list[Message]:
        taken = [m for m in self.kept if (m.round, m.step) <= last]
        self.kept = [m for m in self.kept if m not in taken]
        self.early |= {((m.round, m.step), m.src) for m in taken}
        return taken


class Both:
    """A mailbox and a plain one, which are told the same and must say the same."""

    def __init__(self, *, keep_late: bool, stale: int) -> None:
        self.box = Mailbox(keep_late=keep_late, stale=stale, bound=BOUND)
        self.plain = Plain(keep_late=keep_late, stale=stale)
        self.told: list[tuple[StepId, list[NodeId]]] = []
        self.told_late: list[Message] = []
        self.rooms = [0, 0]
        self.box.on_late(self.told_late.append)

    def came(self, slot: StepId, whose: Collection[NodeId]) -> None:
        self.told.append((slot, list(whose)))

    def made_room(self) -> None:
        self.rooms[0] += 1

    def do(self, what: str, slot: StepId, srcs: list[NodeId]) -> None:
        getattr(self, what)(slot, srcs)
        self.check()

    def deliver(self, slot: StepId, srcs: list[NodeId]) -> None:
        for number, src in enumerate(srcs):
            message = data(src, slot, number)
            assert deliver_one(self.box, message) == self.plain.deliver(message)

    def together(self, slot: StepId, srcs: list[NodeId]) -> None:
        """At once: as one by one, but that who awaits them all is told of them at once."""
        messages = [data(src, slot) for src in srcs]
        plain = self.plain
        fits = plain.awaited == slot and plain.closed < slot and not plain.shut
        first = len(set(srcs)) == len(srcs) and all((slot, src) not in plain.seen for src in srcs)
        assert self.box.deliver(messages) == [plain.deliver(message) for message in messages]
        if fits and first and len(srcs) > 1:
            plain.told[-len(srcs) :] = [(slot, srcs)]

    def open(self, slot: StepId, srcs: list[NodeId]) -> None:
        self.plain.awaited = slot
        there = self.box.open(slot, self.came)
        self.rooms[1] = 0
        assert sorted(there) == sorted(m.src for m in self.plain.of(slot))

    def close(self, slot: StepId, srcs: list[NodeId]) -> None:
        slot = self.plain.awaited or slot
        assert self.box.close(slot) == self.plain.close(slot)

    def take_early(self, slot: StepId, srcs: list[NodeId]) -> None:
        by_slot = sorted(self.plain.take_early(slot), key=lambda m: (m.round, m.step))
        assert self.box.take_early(slot) == by_slot

    def take_late(self, slot: StepId, srcs: list[NodeId]) -> None:
        assert sorted(self.box.take_late()) == sorted(self.plain.late)
        self.plain.late = []

    def ask(self, slot: StepId, srcs: list[NodeId]) -> None:
        for src in srcs:
            self.plain.asked.add(src)
            assert self.box.num_from(src) == self.plain.heard[src]

    def wait_for_room(self, slot: StepId, srcs: list[NodeId]) -> None:
        """Whoever waits for room is told at the next opening, closing or taking, once."""
        self.box.when_room(self.made_room)
        before = self.rooms[0]
        self.close(slot, srcs)
        assert self.rooms[0] == before + 1
        self.box.when_room(self.made_room)
        self.take_early((-1, 0), srcs)
        assert self.rooms[0] == before + 2
        self.box.when_room(self.made_room)
        self.open(slot, srcs)
        assert self.rooms[0] == before + 3
        self.close(slot, srcs)
        assert self.rooms[0] == before + 3

    def restart(self, slot: StepId, srcs: list[NodeId]) -> None:
        """A later life that remembers what was read takes none of it again; what was not read may come again."""
        unread = {((m.round, m.step), m.src) for m in [*self.plain.kept, *self.plain.late]}
        memory = self.box.memory()
        read = [(slot, src) for slot, src in self.plain.seen if (slot, src) not in unread]
        slots = {slot for slot, _ in read}
        assert memory == {f"{r} {s}": sum(1 << src for slot, src in read if slot == (r, s)) for r, s in slots}
        self.__init__(keep_late=self.plain.keep_late, stale=self.plain.stale)  # type: ignore[misc]
        earlier, self.plain.seen = self.plain.seen, self.seen_before - unread
        assert not earlier
        self.box.remember(memory)
        self.plain.early = set(self.plain.seen)

    def check(self) -> None:
        box, plain = self.box, self.plain
        self.seen_before = set(plain.seen)
        assert (self.told, self.told_late) == (plain.told, plain.told_late)
        assert box.num_kept == len(plain.kept)
        assert sorted(box.unread()) == sorted([*plain.kept, *plain.late])
        for slot in SLOTS:
            assert box.is_over(slot) == (slot <= plain.closed)
            assert box.taken(slot) == {src for s, src in plain.early if s == slot}
            assert box.ahead(slot) == {m.src for m in plain.kept if (m.round, m.step) > slot}
            for src in PEERS:
                here = any(m.src == src for m in plain.of(slot)) or (slot, src) in plain.early
                assert box.has(src, slot) == here


ACTIONS = [*["deliver"] * 5, *["together"] * 3, *["open"] * 3, *["close"] * 2]
RARE = ["take_early", "take_late", "ask", "wait_for_room", "restart"]


@pytest.mark.parametrize(("keep_late", "stale"), [(False, 0), (False, 1), (False, 2), (True, 0)])
def test_a_mailbox_does_as_a_plain_one(keep_late: bool, stale: int) -> None:
    draw = Random(stale)
    for _ in range(20):
        both = Both(keep_late=keep_late, stale=stale)
        both.check()
        for _ in range(60):
            slot = both.plain.awaited if both.plain.awaited and draw.random() < 0.5 else draw.choice(SLOTS)
            srcs = draw.choices(PEERS, k=draw.randint(1, 3))
            both.do(draw.choice(ACTIONS * 2 + RARE), slot, srcs)


@pytest.mark.parametrize("opened", [False, True])
def test_a_mailbox_that_is_shut_takes_nothing_new(opened: bool) -> None:
    box = Mailbox(keep_late=True)
    told: list[Any] = []
    assert deliver_one(box, data(1, (2, 0))) is Fate.DELIVERED
    if opened:
        box.open((2, 0), lambda slot, whose: told.append(slot))
    box.shut()
    assert deliver_one(box, data(1, (2, 0))) is Fate.DUPLICATE
    assert deliver_one(box, data(2, (2, 0))) is Fate.REFUSED
    assert deliver_one(box, data(1, (3, 0))) is Fate.REFUSED
    assert box.deliver([data(2, (2, 0)), data(3, (2, 0))]) == [Fate.REFUSED] * 2
    assert (box.num_kept, told) == (1, [])


def test_what_comes_at_once_fares_as_one_by_one_where_a_handler_takes_some_of_it() -> None:
    box, told = Mailbox(keep_late=False), list[list[NodeId]]()
    box.on(Kind.REQUEST, lambda message: Fate.LATE)
    box.open((2, 0), lambda slot, whose: told.append(list(whose)))
    asked = data(2, (2, 0))._replace(kind=Kind.REQUEST)
    assert box.deliver([asked, asked]) == [Fate.LATE] * 2
    assert box.deliver([data(1, (2, 0)), asked]) == [Fate.DELIVERED, Fate.LATE]
    assert box.deliver([data(2, (2, 0)), data(3, (2, 0))]) == [Fate.DELIVERED] * 2
    assert box.deliver([data(3, (2, 0)), data(4, (2, 0))]) == [Fate.DUPLICATE, Fate.DELIVERED]
    assert box.deliver([data(5, (2, 0))] * 2) == [Fate.DELIVERED, Fate.DUPLICATE]
    assert box.deliver([data(1, (2, 1)), data(2, (3, 0))]) == [Fate.DELIVERED] * 2
    assert told == [[1], [2, 3], [4], [5], [1], [2]]
    assert box.num_kept == 7


@pytest.mark.parametrize("opened", [False, True])
def test_a_full_mailbox_that_awaits_nothing_takes_nothing(opened: bool) -> None:
    box, far = Mailbox(keep_late=True, bound=1), (9, 0)
    if opened:
        box.open((0, 0), lambda slot, whose: None)
        assert box.close((0, 0)) == []
    assert deliver_one(box, data(1, far)) is Fate.DELIVERED
    slots = [(round, step) for round in range(4) for step in (0, 1, 2) if not opened or (round, step) > (0, 0)]
    assert [slot for slot in slots if deliver_one(box, data(2, slot)) is not None] == []
