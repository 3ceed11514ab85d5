"""The places of shared memory: never two at one spot while anybody may read, and all free again in the end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from netdfl.transport.shared_memory.shelf import DOUBT_NS, PAGE, Place, Shelf, Ticket

FIRST, END = 3 * PAGE, 15 * PAGE
INDEX = st.integers(0, 99)


class Borrowing(RuleBasedStateMachine):
    """One writer and its readers, which begin to read, end, answer, lose their answer or die, at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.held: set[tuple[int, int]] = set()
        self.shelf = Shelf(FIRST, END, lambda offset, cell: (offset, cell) in self.held)
        self.needed: list[Place] = []
        self.told: list[tuple[Place, Ticket]] = []
        self.reading: list[tuple[Place, Ticket]] = []

    @rule(nbytes=st.integers(1, 6 * PAGE))
    def take(self, nbytes: int) -> None:
        place = self.shelf.take(nbytes, self.now)
        if place is not None:
            assert FIRST <= place.offset <= place.end <= END
            assert place.end - place.offset >= PAGE + nbytes
            assert not place.offset % PAGE
            place.needed += 1
            self.needed.append(place)

    @rule(index=INDEX, reader=st.integers(0, 3))
    def tell(self, index: int, reader: int) -> None:
        if self.needed:
            place = self.needed[index % len(self.needed)]
            if (ticket := self.shelf.tell(place, reader)) is not None:
                self.told.append((place, ticket))

    @rule(index=INDEX)
    def begin(self, index: int) -> None:
        """A reader begins: allowed until its answer, or the lack of it, is known."""
        if self.told:
            place, ticket = self.told[index % len(self.told)]
            self.held.add((place.offset, ticket.cell))
            self.reading.append((place, ticket))

    @rule(index=INDEX)
    def end(self, index: int) -> None:
        """A reader has done, or has died."""
        if self.reading:
            place, ticket = self.reading.pop(index % len(self.reading))
            if (place, ticket) not in self.reading:
                self.held.discard((place.offset, ticket.cell))

    @rule(index=INDEX, sure=st.booleans())
    def answer(self, index: int, sure: bool) -> None:
        if self.told:
            _, ticket = self.told.pop(index % len(self.told))
            self.shelf.answered(ticket, self.now, sure)

    @rule(index=INDEX)
    def drop(self, index: int) -> None:
        if self.needed:
            self.needed.pop(index % len(self.needed)).needed -= 1

    @rule(passes=st.sampled_from((1, DOUBT_NS // 2, DOUBT_NS)))
    def wait(self, passes: int) -> None:
        self.now += passes

    @invariant()
    def nothing_overlaps(self) -> None:
        for place, after in zip(self.shelf.places, self.shelf.places[1:], strict=False):
            assert place.end <= after.offset

    @invariant()
    def what_is_in_use_stands(self) -> None:
        used = [*self.needed, *(place for place, _ in (*self.told, *self.reading))]
        assert all(any(place is kept for kept in self.shelf.places) for place in used)
        told = [(place.offset, ticket.cell) for place, ticket in self.told]
        assert len(told) == len(set(told))

    def teardown(self) -> None:
        """Once all have answered or are gone there is room for a body as large as the whole."""
        for _, ticket in self.told:
            self.shelf.answered(ticket, self.now, sure=False)
        for place in self.needed:
            place.needed -= 1
        self.held.clear()
        assert self.shelf.take(END - FIRST - PAGE, self.now + DOUBT_NS) is not None


Borrowing.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_borrowing = Borrowing.TestCase


def test_a_reader_whose_answer_is_lost_may_have_begun() -> None:
    held = {0: False}
    shelf = Shelf(0, 2 * PAGE, lambda offset, cell: held[cell])
    place = shelf.take(PAGE, 0)
    assert place is not None
    ticket = shelf.tell(place, 1)
    assert ticket is not None
    shelf.answered(ticket, 0, sure=False)
    assert shelf.take(1, DOUBT_NS - 1) is None
    held[0] = True
    assert shelf.take(1, DOUBT_NS) is None
    held[0] = False
    assert shelf.take(1, DOUBT_NS) is not None
