"""Which places of a node's shared memory are taken, and until when: numbers alone, no memory and no clock.

A place is free again when nothing queued needs it and every reader that was told of it has answered, or is gone, and
holds it no more. A reader says in the memory itself that it holds a place (`Holds`), before it reads and until it has
done. Where the answer of one got lost it may yet come to read what it was told: it is not allowed to any more from then
on, and has `DOUBT_NS` to say that it had begun.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias

from netdfl.core.types import NodeId

PAGE = 4096
CELL_WORDS = 3
CELLS = PAGE // (8 * CELL_WORDS)
"""How many readers may be told of a place at a time: each has a cell of its own, in the page before the body."""
DOUBT_NS = 1_000_000_000

Holds: TypeAlias = Callable[[int, int], bool]
"""Whether somebody who lives holds the place at an offset, by the word of a cell."""


@dataclass(slots=True, eq=False)
class Ticket:
    """That `reader` was told of a place. `until_ns`: from when its cell tells the truth; None: it has not answered."""

    reader: NodeId
    cell: int
    until_ns: int | None = None


@dataclass(slots=True, eq=False)
class Place:
    """Some pages at `offset`: one of cells, and a body of `nbytes`. `needed`: how many queued messages it is for."""

    offset: int
    nbytes: int
    needed: int = 0
    tickets: list[Ticket] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Where the next place may begin."""
        return self.offset + PAGE + -(-self.nbytes // PAGE) * PAGE


_offset = attrgetter("offset")


class Shelf:
    """The places of one writer, first fit: pages that were written before cost less than fresh ones."""

    def __init__(self, first: int, end: int, holds: Holds) -> None:
        """Hand out places from `first` up to `end`, both at a page's border."""
        self._first, self._end, self._holds = first, end, holds
        self.places: list[Place] = []

    def take(self, nbytes: int, now_ns: int) -> Place | None:
        """A place for a body of `nbytes`; None: there is no room now."""
        self._clear(now_ns)
        place = Place(self._first, nbytes)
        for other in self.places:
            if place.end <= other.offset:
                break
            place.offset = other.end
        if place.end > self._end:
            return None
        insort(self.places, place, key=_offset)
        return place

    def tell(self, place: Place, reader: NodeId) -> Ticket | None:
        """Expect `reader` to read a place; None: too many were told of it."""
        cell, taken = 0, {ticket.cell for ticket in place.tickets}
        while cell in taken:
            cell += 1
        if cell == CELLS:
            return None
        place.tickets.append(Ticket(reader, cell))
        return place.tickets[-1]

    def answered(self, ticket: Ticket, now_ns: int, sure: bool) -> None:
        """Whoever has the ticket has answered; not `sure`: its answer is lost, and it may still be about to read."""
        if ticket.until_ns is None:
            ticket.until_ns = now_ns if sure else now_ns + DOUBT_NS

    def _clear(self, now_ns: int) -> None:
        for place in self.places:
            place.tickets = [ticket for ticket in place.tickets if not self._over(place, ticket, now_ns)]
        self.places = [place for place in self.places if place.needed or place.tickets]

    def _over(self, place: Place, ticket: Ticket, now_ns: int) -> bool:
        return ticket.until_ns is not None and ticket.until_ns <= now_ns and not self._holds(place.offset, ticket.cell)
