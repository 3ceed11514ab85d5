"""Bodies lent through shared memory, to readers that are killed and stopped at every step: `--count` exchanges.

    python -m tests.soak.shared_buffers --count 2000000 --seed 1

A lender and its readers are processes that share a few pages, so that each buffer is soon lent again. Frames go over
one socket, renewals over another, which overtakes it; the next life of a reader finds the frames of the earlier one. A
fault comes every few hundred exchanges: a signal at a moment like any other, or, as a frame says, at the n-th access to
a word of the memory; or the lender gives up whatever it has sent and renews. Every number of every body is checked when
it is read and again when it is dropped, every answer against its message, and at the end every buffer must be free.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from struct import Struct
from struct import error as StructError

import numpy as np

from netdfl.core.errors import MalformedMessage
from netdfl.core.fates import Fate
from netdfl.core.types import Array, NodeId, Payload
from netdfl.transport import wire
from netdfl.transport.shared_memory.base import Answer, Lease
from netdfl.transport.shared_memory.buffers import SharedBuffers
from netdfl.transport.shared_memory.memory import PAGE, SharedMemory
from tests.soak.tally import Count, append

LENDER, READERS = 0, (1, 2)
PART = 24 * PAGE
WINDOW = 4
MOST_NUMBERS = 1500
EVERY = 150
"""So many exchanges from one fault to the next, on average."""
MOST_ACCESSES = 12
PATIENCE_S = 60.0
FRAME = Struct("<QBB")
"""Number of the message, access to the memory at which to act (0: at none), and the signal for that."""
RENEWAL = Struct("<Q")
LIMITS = wire.Limits()


class ActingWords:
    """The words of a memory; at a chosen access the process sends itself a signal."""

    def __init__(self, words: memoryview) -> None:
        self._words, self.left, self.signal = words, 0, 0

    def _count(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), self.signal)

    def __getitem__(self, at: int) -> int:
        self._count()
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        self._count()
        self._words[at] = value
        self._count()


class Reader:
    """One life of a reader, in a process of its own."""

    def __init__(self, memory: SharedMemory, node: NodeId, life: int, frames: socket.socket, control: socket.socket):
        self.words = ActingWords(memory.words)
        memory.words = self.words  # type: ignore[assignment]
        self.buffers = SharedBuffers(memory, node, life)
        self.frames, self.control, self.rng = frames, control, Random(f"{node}-{life}")
        self.mailbox: deque[tuple[int, Array]] = deque()
        self.taken: set[int] = set()

    def run(self) -> None:
        """Read frames and renewals until the process is killed or told to end."""
        self.control.send(b"here")
        self.control.setblocking(False)
        self.frames.settimeout(0.002)
        while True:
            with suppress(BlockingIOError):
                (number,) = RENEWAL.unpack(self.control.recv(64))
                self.buffers.renew(LENDER, number)
                self.drop(self.rng.randrange(len(self.mailbox) + 1))
                self.control.send(RENEWAL.pack(number))
            with suppress(TimeoutError):
                self.take(self.frames.recv(256))

    def take(self, frame: bytes) -> None:
        """Borrow, check, keep, answer."""
        number, self.words.left, self.words.signal = FRAME.unpack_from(frame)
        try:
            body = self.buffers.borrow(LENDER, frame[FRAME.size :], LIMITS)
        except MalformedMessage:
            return  # of an earlier life, or of before a renewal
        array = wire.FrameReader(LIMITS).body(body).arrays["x"]
        check(number, array)
        if number in self.taken:
            raise AssertionError(f"message {number} came twice")
        self.taken.add(number)
        self.mailbox.append((number, array))
        self.buffers.answer(frame[FRAME.size :], Answer(Fate.DELIVERED, number))
        del body
        self.drop(self.rng.randrange(len(self.mailbox) + 1))
        self.words.left = 0

    def drop(self, count: int) -> None:
        """Mix: read bodies a last time, and let go of them."""
        for _ in range(count):
            check(*self.mailbox.popleft())


def check(number: int, array: Array) -> None:
    """Compare every number of a body with its message's."""
    numbers = np.frombuffer(array.data, np.int64)
    if not (numbers == number).all():
        raise AssertionError(f"message {number} is read as {set(numbers.tolist())}")


@dataclass
class Peer:
    """A reader as its lender sees it."""

    node: NodeId
    memory: SharedMemory
    life: int = -1
    pid: int = 0
    stopped: bool = False
    open: deque[tuple[int, Payload, Lease]] = field(default_factory=deque)
    again: deque[tuple[int, Payload]] = field(default_factory=deque)
    in_doubt: list[tuple[int, Payload, Lease]] = field(default_factory=list)
    broken: bool = False

    def __post_init__(self) -> None:
        self.frames, self.its_frames = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.begin()

    def begin(self) -> None:
        """Fork the next life, which finds the frames of the earlier one."""
        self.life += 1
        self.control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                Reader(self.memory, self.node, self.life, self.its_frames, its).run()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        its.close()
        self.control.settimeout(PATIENCE_S)
        assert self.control.recv(8) == b"here"
        self.stopped = False

    def signal(self, number: int) -> None:
        """Stop, continue or kill it."""
        os.kill(self.pid, number)
        self.stopped = number == signal.SIGSTOP

    def reap(self) -> str | None:
        """Notice that it was stopped, or is dead and begins anew. Returns the reason where it died of itself."""
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return None
        if os.WIFSTOPPED(status):
            self.stopped = True
            return None
        self.control.close()
        code = os.waitstatus_to_exitcode(status)
        self.begin()
        return None if code == -signal.SIGKILL else f"reader {self.node} ended with {code}"

    def end(self) -> None:
        """Kill it for good."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Lending:
    """A lender and what became of its messages."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.memory = SharedMemory([LENDER, *READERS], PART, least_bytes=0)
        self.buffers = SharedBuffers(self.memory, LENDER, 0)
        self.peers = [Peer(node, self.memory) for node in READERS]
        self.num_sent = self.num_answered = self.faults = self.inline = 0
        self.wrong: list[str] = []

    def run(self, count: int) -> None:
        """Exchange messages until `count` were answered."""
        at_s, at = time.monotonic(), 0
        while self.num_answered < count and not self.wrong:
            self.step()
            if self.num_answered > at:
                at_s, at = time.monotonic(), self.num_answered
            elif time.monotonic() - at_s > PATIENCE_S:
                self.wrong.append(f"nothing was answered for {PATIENCE_S:g} s after {at} messages")

    def step(self) -> None:
        """Send one message, hear what there is, and now and then do harm."""
        payload, self.num_sent = self.new_payload(self.num_sent + 1), self.num_sent + 1
        everybody = self.rng.random() < 0.3
        for peer in self.peers if everybody else self.rng.sample(self.peers, 1):
            if peer.again and not peer.broken:
                self.send(peer, *peer.again.popleft())
            self.send(peer, self.num_sent, payload)
        for peer in self.peers:
            self.hear(peer)
            if self.rng.random() < 1 / EVERY:
                self.harm(peer)

    def new_payload(self, number: int) -> Payload:
        """A body full of its message's number."""
        numbers = np.full(self.rng.randrange(1, MOST_NUMBERS), number, np.int64)
        return Payload({"x": Array("int64", numbers.shape, memoryview(numbers).cast("B"))})

    def send(self, peer: Peer, number: int, payload: Payload) -> None:
        """Lend a body and send its frame; a reader that is behind gets none."""
        if len(peer.open) >= WINDOW or peer.broken:
            return
        lease = self.buffers.lend(payload, wire.frame_size(payload) - wire.BODY_AT, peer.node)
        if lease is None:
            self.inline += 1
            return
        reference = lease.reference(quiet=True)
        assert reference is not None
        act = self.rng.random() < 1 / EVERY
        at, by = (self.rng.randrange(1, MOST_ACCESSES), self.rng.choice(HARM)) if act else (0, 0)
        self.faults += act
        try:
            peer.frames.send(FRAME.pack(number, at, by) + reference, socket.MSG_DONTWAIT)
        except BlockingIOError:
            lease.release()
            peer.broken = True
            return
        peer.open.append((number, payload, lease))

    def hear(self, peer: Peer) -> None:
        """Take the answers that lie in memory; see whether the reader lives."""
        while peer.open and (answer := peer.open[0][2].poll()) is not None:
            self.answered(*peer.open.popleft(), answer)
        life = peer.life
        if (peer.open or peer.broken) and (wrong := peer.reap()):
            self.wrong.append(wrong)
        if peer.life != life:
            self.give_up(peer)
        if peer.stopped and self.rng.random() < 0.02:
            self.give_up(peer)
            peer.signal(self.rng.choice([signal.SIGCONT, signal.SIGCONT, signal.SIGKILL]))
        elif peer.broken and not peer.stopped:
            self.renew(peer)
        elif len(peer.open) == WINDOW:
            os.sched_yield()

    def answered(self, number: int, _: Payload, lease: Lease, answer: Answer) -> None:
        """Check an answer against its message."""
        if answer != (Fate.DELIVERED, number):
            self.wrong.append(f"message {number} is answered by {answer}")
        lease.release()
        self.num_answered += 1

    def harm(self, peer: Peer) -> None:
        """Kill or stop a reader, or break its stream."""
        self.faults += 1
        what = self.rng.choice([*HARM, 0])
        if what and not peer.stopped:
            peer.signal(what)
        if what == signal.SIGKILL or not what:
            self.give_up(peer)

    def give_up(self, peer: Peer) -> None:
        """Break the stream: the first message has failed, the others are in doubt."""
        peer.broken = True
        if peer.open:
            peer.open.popleft()[2].release()
        peer.in_doubt += peer.open
        peer.open.clear()

    def renew(self, peer: Peer) -> None:
        """Have a renewal accepted, then send again whatever was not begun."""
        number = self.buffers.renewal()
        try:
            peer.control.send(RENEWAL.pack(number))
            peer.control.settimeout(0.2)
            while RENEWAL.unpack(peer.control.recv(64))[0] != number:
                pass
        except (OSError, StructError):
            return  # it was stopped, or ended: once it lives, again
        self.buffers.renewed(peer.node, number)
        peer.broken = False
        for said, payload, lease in peer.in_doubt:
            if (answer := lease.poll()) is not None:
                self.answered(said, payload, lease, answer)
            else:
                lease.release()
                peer.again.append((said, payload))
        peer.in_doubt.clear()

    def end(self) -> None:
        """Settle everything; each buffer must be free by its readers' words, and by their deaths."""
        for peer in self.peers:
            if peer.stopped:
                peer.signal(signal.SIGCONT)
            self.give_up(peer)
            for _, _, lease in peer.in_doubt:
                lease.release()
            peer.in_doubt.clear()
        for free in self.all_free():
            if free:
                break
        else:
            self.wrong.append("buffers are not free though their readers live and were asked")
        for peer in self.peers:
            peer.end()
        if not all(buffer.is_free for buffer in self.buffers.pool.buffers):
            self.wrong.append("buffers are not free though their readers are dead")

    def all_free(self) -> Iterator[bool]:
        """Ask all readers again and again, for a while."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s and not self.wrong:
            for peer in self.peers:
                if wrong := peer.reap():
                    self.wrong.append(wrong)
                if peer.stopped:
                    peer.signal(signal.SIGCONT)
                self.renew(peer)
            yield all(buffer.is_free for buffer in self.buffers.pool.buffers)


HARM: Sequence[int] = (signal.SIGKILL, signal.SIGSTOP)


def exchange(count: int, seed: int) -> tuple[Lending, Count]:
    """Exchange `count` messages among a lender and its readers."""
    lending = Lending(seed)
    try:
        lending.run(count)
        lending.end()
    finally:
        for peer in lending.peers:
            peer.end()
    return lending, Count(lending.num_answered, lending.wrong)


def main() -> None:
    """The command line; exits 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", action="store_true", help="append no line to docs/soak.jsonl")
    args = parser.parse_args()
    lending, counted = exchange(args.count, args.seed)
    lives = sum(peer.life for peer in lending.peers)
    print(f"{counted.count} answered, {lending.faults} faults, {lives} deaths, {lending.inline} without room")
    print("; ".join(counted.failures) or "nothing was wrong")
    if not args.sample:
        append("shared buffers, readers killed and stopped", counted, args.seed)
    sys.exit(bool(counted.failures))


if __name__ == "__main__":
    main()
