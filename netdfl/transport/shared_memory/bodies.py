"""Bodies by reference: between processes of one machine a message's body lies in memory that all of them share.

Its header and everything else go through gRPC as always; the frame says where the body lies. It is written once,
however many neighbors it goes to, and read where it lies, for as long as anything of it is in use. The memory is mapped
before the processes of a run are forked and has no name: nobody else can open it, and it ends with the last of them,
however they end. Each node writes to a part of its own.

    part  = places, each a page of cells, one for each reader that is told of it, and then the body
    cell  = token u64 (what the reader has to say; 0: nobody may begin) | process id of who reads u64
          | receipt u64 (`answers.py`; 0: none yet)

A reader that may answer in its cell does so while it holds the place, so that the cell can't be another's by then.
What a reference says is checked as what comes over a wire is: where it may point, its token, and the body's checksum.
"""

from __future__ import annotations

import mmap
import os
import secrets
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, Self

import numpy as np

from netdfl.core.errors import MalformedMessage, OversizedMessage
from netdfl.core.types import NodeId, Payload
from netdfl.transport import wire
from netdfl.transport.shared_memory.shelf import CELL_WORDS, CELLS, PAGE, Place, Shelf, Ticket

_REFERENCE = Struct("<QQQHB")
_WORD = 8
_TOKEN, _HOLDER, _RECEIPT = range(CELL_WORDS)


@dataclass(frozen=True, slots=True, eq=False)
class Borrowed:
    """A body of somebody else's. `cell`: where to answer; None: nobody looks there."""

    body: memoryview
    cell: int | None


_TOKEN_STEP = 0x61C8864680B583EB
"""Odd, so that tokens come again after 2^63 of them."""


class _Hold(weakref.ref["np.ndarray[Any, Any]"]):
    """That a body is in use; `done` is told when it is not any more."""

    __slots__ = ("cell",)

    def __new__(cls, body: np.ndarray[Any, Any], cell: int, done: Callable[[_Hold], None]) -> Self:
        return super().__new__(cls, body, done)

    def __init__(self, body: np.ndarray[Any, Any], cell: int, done: Callable[[_Hold], None]) -> None:
        super().__init__(body, done)  # type: ignore[call-arg]
        self.cell = cell


class SharedMemory:
    """The memory of a run's processes on one machine; make it before they are forked."""

    def __init__(self, nodes: Sequence[NodeId], nbytes: int, least_bytes: int) -> None:
        """`nbytes` for each of `nodes`, for bodies from `least_bytes` on. Raises OSError where it can't be.

        Only what is written to takes memory. A small body goes inline at less cost than a place has.
        """
        self.part = -(-nbytes // PAGE) * PAGE
        self.least_bytes = least_bytes
        self.starts = {node: self.part * number for number, node in enumerate(nodes)}
        self._map = mmap.mmap(-1, self.part * len(nodes))
        self.bytes = memoryview(self._map)
        self.words = self.bytes.cast("Q")


class Bodies:
    """One life of a node at the shared memory: what it lends to others, and what it has borrowed of them."""

    def __init__(self, memory: SharedMemory, node: NodeId, epoch: int) -> None:
        """Write to the part of `node`; a later life does not, for readers may still hold what an earlier one wrote."""
        self._memory, self._words = memory, memory.words
        start = memory.starts[node]
        self._shelf = Shelf(start, start if epoch else start + memory.part, self._is_held)
        self._lent: dict[int, Place] = {}
        self._borrowed: dict[int, _Hold] = {}
        self._token = secrets.randbits(63)

    def reach(self, node: NodeId) -> bool:
        """Whether `node` has the memory too."""
        return node in self._memory.starts

    # lending

    def keep(self, payload: Payload, nbytes: int) -> Place | None:
        """Write a payload's body of `nbytes`, unless it is there, for one message more; None: send it inline."""
        if nbytes < self._memory.least_bytes:
            return None
        place = self._lent.get(id(payload))
        if place is None:
            place = self._shelf.take(nbytes, time.monotonic_ns())
            if place is None:
                return None
            wire.write_body(payload, self._body(place.offset, nbytes))
            self._lent[id(payload)] = place
        place.needed += 1
        return place

    def drop(self, payload: Payload, place: Place) -> None:
        """One message less needs it."""
        place.needed -= 1
        if not place.needed:
            del self._lent[id(payload)]

    def tell(self, place: Place, reader: NodeId, in_cell: bool = False) -> tuple[Ticket, bytes] | None:
        """Let `reader` read a place, and answer `in_cell`: what to say to it. None: too many read it already."""
        ticket = self._shelf.tell(place, reader)
        if ticket is None:
            return None
        cell, token = _cell(place.offset, ticket.cell), self._next_token()
        self._words[cell + _HOLDER] = self._words[cell + _RECEIPT] = 0
        self._words[cell + _TOKEN] = token
        return ticket, _REFERENCE.pack(place.offset, place.nbytes, token, ticket.cell, in_cell)

    def _next_token(self) -> int:
        """Another one than this life, or by all odds any other, has given before; never 0."""
        self._token = (self._token + _TOKEN_STEP) % (1 << 63)
        return self._token + 1

    def receipt(self, place: Place, ticket: Ticket) -> int:
        """What the reader has said in its cell; 0: nothing yet."""
        return self._words[_cell(place.offset, ticket.cell) + _RECEIPT]

    def answered(self, place: Place, ticket: Ticket, sure: bool) -> None:
        """The reader has answered, or, where that is not `sure`, is not heard of any more: it may not begin to read."""
        self._words[_cell(place.offset, ticket.cell) + _TOKEN] = 0
        self._shelf.answered(ticket, time.monotonic_ns(), sure)

    # borrowing

    def borrow(self, src: NodeId, reference: bytes, limits: wire.Limits) -> Borrowed:
        """The body that node `src` refers to, held until nothing of it is in use. Raises MessageErrors only."""
        offset, nbytes, token, index, in_cell = self._checked(src, reference, limits)
        cell = _cell(offset, index)
        if self._words[cell + _TOKEN] == token:
            self._words[cell + _HOLDER] = os.getpid()  # before the second look: who takes it back meanwhile sees this
            if self._words[cell + _TOKEN] == token:
                body = np.frombuffer(self._body(offset, nbytes), np.uint8)
                self._borrowed[cell] = _Hold(body, cell, self._done)
                return Borrowed(body.data.toreadonly(), cell if in_cell else None)
            self._words[cell + _HOLDER] = 0
        raise MalformedMessage(f"node {src} refers to a body at {offset} of shared memory that it does not lend here")

    def answer(self, borrowed: Borrowed | None, receipt: int) -> bool:
        """Answer in the cell of what was borrowed, if that is looked at, and the place is held; whether that was so."""
        if borrowed is None or borrowed.cell not in self._borrowed:
            return False
        self._words[borrowed.cell + _RECEIPT] = receipt
        return True

    def _checked(self, src: NodeId, reference: bytes, limits: wire.Limits) -> tuple[int, int, int, int, bool]:
        try:
            offset, nbytes, token, cell, in_cell = _REFERENCE.unpack(reference)
        except StructError as error:
            raise MalformedMessage(f"node {src} refers to a body by {len(reference)} bytes: {error}") from error
        if nbytes > limits.max_bytes:
            raise OversizedMessage(f"a body of {nbytes} bytes is referred to, the limit is {limits.max_bytes}")
        first = self._memory.starts.get(src, 0)
        end = first + self._memory.part if self.reach(src) else first
        inside = first <= offset and offset + PAGE + nbytes <= end
        if not inside or offset % PAGE or cell >= CELLS or in_cell > 1 or not token:
            raise MalformedMessage(
                f"node {src} refers to {nbytes} bytes at {offset} of the shared memory, cell {cell}; "
                f"its part goes from {first} to {end}"
            )
        return offset, nbytes, token, cell, bool(in_cell)

    def _done(self, hold: _Hold) -> None:
        """Nothing of a body is in use any more."""
        self._give_back(hold.cell)

    def _give_back(self, cell: int) -> None:
        if self._borrowed.pop(cell, None) is not None:
            self._words[cell + _HOLDER] = 0

    def give_all_back(self) -> None:
        """This life is over: nothing that it has borrowed is read any more."""
        for cell in list(self._borrowed):
            self._give_back(cell)

    # the memory

    def _body(self, offset: int, nbytes: int) -> memoryview:
        return self._memory.bytes[offset + PAGE : offset + PAGE + nbytes]

    def _is_held(self, offset: int, cell: int) -> bool:
        holder = self._words[_cell(offset, cell) + _HOLDER]
        return holder != 0 and _lives(holder)


@dataclass(frozen=True, slots=True, eq=False)
class Lent:
    """That a reader was told of a place. `in_cell`: it answers there, as far as its answer has a word."""

    bodies: Bodies
    place: Place
    ticket: Ticket
    in_cell: bool

    def receipt(self) -> int:
        """What the reader has said in its cell; 0: nothing yet."""
        return self.bodies.receipt(self.place, self.ticket)

    def answered(self, sure: bool) -> None:
        """The reader has answered, or, where that is not `sure`, may not begin any more."""
        self.bodies.answered(self.place, self.ticket, sure)


def _cell(offset: int, index: int) -> int:
    """The word at which a place's cell begins."""
    return offset // _WORD + CELL_WORDS * index


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
