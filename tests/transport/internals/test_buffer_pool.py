"""The buffers of a lender: never two at one spot while anybody may read, and all free again in the end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from netdfl.transport.shared_memory.memory import BEGUN, GIVEN_BACK, PAGE, SLOTS, STATE, SharedMemory
from netdfl.transport.shared_memory.pool import Buffer, BufferPool, ReaderLease

FIRST, END = 3 * PAGE, 15 * PAGE
INDEX = st.integers(0, 99)
READERS = range(1, 4)


class Lending(RuleBasedStateMachine):
    """One lender and its readers, which begin, end, answer, accept renewals, leave and return, at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = SharedMemory(range(4), END, least_bytes=0)
        self.marks = {reader: self.memory.enter(reader, 0) for reader in READERS}
        self.pool = BufferPool(self.memory, FIRST, END)
        self.key = 0
        self.renewals = dict.fromkeys(READERS, 0)
        self.needed: list[tuple[Buffer, ReaderLease]] = []
        self.may_begin: list[tuple[Buffer, ReaderLease]] = []
        self.reading: list[tuple[Buffer, ReaderLease]] = []

    @rule(nbytes=st.integers(1, 6 * PAGE), reader=st.sampled_from(READERS))
    def lend(self, nbytes: int, reader: int) -> None:
        self.key += 1
        buffer = self.pool.take(self.key, nbytes)
        if buffer is not None:
            assert FIRST <= buffer.offset <= buffer.end <= END
            assert buffer.end - buffer.offset >= PAGE + nbytes
            assert not buffer.offset % PAGE
            self.lend_too(buffer, reader)

    @rule(index=INDEX, reader=st.sampled_from(READERS))
    def lend_to_another(self, index: int, reader: int) -> None:
        if self.needed:
            self.lend_too(self.needed[index % len(self.needed)][0], reader)

    def lend_too(self, buffer: Buffer, reader: int) -> None:
        lease = self.pool.lend(buffer, reader)
        assert lease is not None
        self.needed.append((buffer, lease))

    @rule(index=INDEX)
    def tell(self, index: int) -> None:
        untold = [each for each in self.needed if not each[1].token]
        if untold:
            buffer, lease = untold[index % len(untold)]
            assert (lease.reference(quiet=True) is None) == (not self.memory.mark(lease.reader))
            if lease.token:
                self.may_begin.append((buffer, lease))

    @rule(index=INDEX)
    def begin(self, index: int) -> None:
        if self.may_begin:
            buffer, lease = self.may_begin.pop(index % len(self.may_begin))
            self.memory.words[lease._slot + STATE] = BEGUN
            self.reading.append((buffer, lease))

    @rule(index=INDEX)
    def end(self, index: int) -> None:
        if self.reading:
            _, lease = self.reading.pop(index % len(self.reading))
            self.memory.words[lease._slot + STATE] = GIVEN_BACK

    @rule(index=INDEX)
    def refuse(self, index: int) -> None:
        """A reader answers that it does not take a message, over the stream."""
        if self.may_begin:
            self.may_begin.pop(index % len(self.may_begin))[1].answered()

    @rule(reader=st.sampled_from(READERS))
    def renew(self, reader: int) -> None:
        number = self.pool.token_to_come
        self.may_begin = [each for each in self.may_begin if each[1].reader != reader]
        self.pool.close_before(reader, number)

    @rule(reader=st.sampled_from(READERS), returns=st.booleans())
    def leave(self, reader: int, returns: bool) -> None:
        """A reader's life ends; what was said to it is for no other."""
        self.memory.leave(reader, self.memory.mark(reader))
        if returns:
            self.memory.enter(reader, self.key + 1)
        self.may_begin = [each for each in self.may_begin if each[1].reader != reader]
        self.reading = [each for each in self.reading if each[1].reader != reader]

    @rule(index=INDEX)
    def release(self, index: int) -> None:
        if self.needed:
            self.needed.pop(index % len(self.needed))[1].release()

    @invariant()
    def nothing_overlaps(self) -> None:
        for buffer, after in zip(self.pool.buffers, self.pool.buffers[1:], strict=False):
            assert buffer.end <= after.offset

    @invariant()
    def whatever_may_be_read_stands(self) -> None:
        used = [*self.needed, *self.may_begin, *self.reading]
        assert all(any(buffer is kept for kept in self.pool.buffers) for buffer, _ in used)
        assert not any(buffer.is_free for buffer, _ in used)
        slots = [lease._slot for _, lease in {id(lease): (buffer, lease) for buffer, lease in used}.values()]
        assert len(slots) == len(set(slots))

    def teardown(self) -> None:
        """Once all have been given back or are gone there is room for a body as large as the whole."""
        for _, lease in self.needed:
            lease.release()
        while self.reading:
            self.end(0)
        for reader in READERS:
            self.renew(reader)
        assert self.pool.take(0, END - FIRST - PAGE) is not None
        assert list(self.pool.needed) == [0]


Lending.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_lending = Lending.TestCase


def test_a_body_is_lent_to_as_many_readers_as_it_has_slots() -> None:
    memory = SharedMemory(range(2), 2 * PAGE, least_bytes=0)
    pool = BufferPool(memory, 0, 2 * PAGE)
    buffer = pool.take(1, PAGE)
    assert buffer is not None
    leases = [pool.lend(buffer, 1) for _ in range(SLOTS + 1)]
    assert leases.pop() is None
    assert max(lease._slot for lease in leases if lease is not None) * 8 + 24 <= PAGE
