"""An open stream of frames to one destination, and the messages that are under way on it, in order.

    write ──▶ under way ──answered over the stream, or quietly in memory──▶ `on_answer`
                  └── the stream ended: the first message has failed (`on_answer`), the others go back (`on_end`)

A receiver answers each message over the stream, which wakes the sender, or *quietly*, in the lease of a body in shared
memory. A quiet answer wakes no process. The sender polls for it when it sends the next message, or a little later if it
sends none. Answers come in the order of the messages. If a stream ends, a message without an answer may or may not have
been begun by the receiver; the opener of the next stream finds out which (`sending.py`).

Relies on: leases whose answer is one word, written once, and the order of answers.

Why: A call for each message costs about twice as much, and each operation of gRPC wakes the loop through a thread. A
quiet answer saves two of four operations; it is polled for at the next send, when the sender is awake anyhow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from netdfl.core.fates import FateReason
from netdfl.core.types import Message
from netdfl.transport.base import Fate, wake
from netdfl.transport.grpc.receipts import HELLO_FIRST, LEFT, of_receipt
from netdfl.transport.shared_memory.base import BROKEN_CALL, Answer, Lease
from netdfl.transport.v1.data_pb2 import Receipt

DEADLINE = Fate.failed(FateReason("deadline"))
LOOK_S = 0.05
"""Seconds after which the sender looks in shared memory for an answer if it sends no other message before. Until it
looks, the buffer of the answered message stays occupied."""
SOON_S = 0.001
"""Seconds until the sender first looks for an answer for which a caller waits; doubled at each look, up to `LOOK_S`."""
_FATES = {
    grpc.StatusCode.DEADLINE_EXCEEDED: DEADLINE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Fate.refused(FateReason("oversized")),
    grpc.StatusCode.INTERNAL: Fate.failed(FateReason("unavailable")),  # a write into a connection that just broke
}


def fate_of(code: grpc.StatusCode, details: str | None) -> Fate:
    """Return the fate of a message whose gRPC call failed with `code`; `details` may give a more exact reason."""
    if code is grpc.StatusCode.CANCELLED and details == LEFT:
        return Fate.IN_FLIGHT
    return _FATES.get(code) or Fate.failed(FateReason(code.name.lower()))


class QueuedMessage(NamedTuple):
    """A message to a peer, with the header of its frame and the lease (loan of shared memory) of its body.

    `was_referenced`: the peer was sent a reference to the body in shared memory.
    """

    message: Message
    header: bytes
    nbytes: int
    sent_ns: int
    link_header: bytes | None
    lease: Lease | None
    was_referenced: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class WrittenFrame:
    """A message's frame that was written to a stream and that the receiver has not answered yet.

    `quiet`: the answer comes in shared memory. `since_s`: when it was written, or when the receiver last said that the
    message still waits for its mailbox.
    """

    entry: QueuedMessage
    quiet: bool
    since_s: float


AnswerCallback = Callable[[QueuedMessage, Answer], None]
"""A function that gets each written message once, with the receiver's answer to it."""
EndCallback = Callable[[Sequence[QueuedMessage]], None]
"""A function called once when a stream ends, with the messages to send over another one."""


class Stream:
    """An open gRPC stream that writes frames, and reports the answer to each message in order."""

    def __init__(self, call: Any, deadline_s: float, on_answer: AnswerCallback, on_end: EndCallback) -> None:
        """Read the receiver's answers from `call` until it ends.

        A message without an answer for `deadline_s` seconds ends the stream. `on_answer` gets each answer, `on_end` the
        end of the stream.
        """
        self.heard = False
        """Whether the receiver has answered any message over the stream, and so knows its sender."""
        self._call, self._deadline_s = call, deadline_s
        self._on_answer, self._on_end = on_answer, on_end
        self._under_way: deque[WrittenFrame] = deque()
        self._loop = asyncio.get_running_loop()
        self._alive_s = self._due_s = 0.0
        self._pause_s = LOOK_S
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._reader = self._loop.create_task(self._read())

    @property
    def num_under_way(self) -> int:
        """Number of messages written to the stream whose answer from the receiver this sender has not read yet.

        An answer that lies in shared memory counts as read once `look` has found it there.
        """
        return len(self._under_way)

    async def write(self, entry: QueuedMessage, frame: bytes, quiet: bool) -> None:
        """Write the frame of a message; with `quiet`, expect the answer in shared memory."""
        self._under_way.append(WrittenFrame(entry, quiet, self._loop.time()))
        self._arm()
        try:
            await self._call.write(frame)
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            pass  # it ended under our hands: the reader hears why
        except asyncio.CancelledError:
            if not self._closed or _is_cancelled():
                raise

    async def answered(self) -> None:
        """Wait until no message is under way, or the stream has ended."""
        self.hurry()
        while self._under_way:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def hurry(self) -> None:
        """Check shared memory for the receiver's answers now and again soon, because a caller waits for one."""
        self.look()
        self._pause_s = SOON_S
        self._arm()

    def look(self) -> None:
        """Check shared memory for the receiver's answers to messages, and report the answers found."""
        while self._under_way and self._under_way[0].quiet:
            first = self._under_way[0]
            assert first.entry.lease is not None
            answer = first.entry.lease.poll()
            if answer is None:
                return
            if answer.fate is None:  # the message waits for room; the receiver says so again and again
                self._under_way[0] = replace(first, since_s=self._loop.time())
                return
            self._tell(answer)

    def _tell(self, answer: Answer) -> None:
        first = self._under_way.popleft()
        self._alive_s = self._loop.time()
        self._on_answer(first.entry, answer)
        if not self._under_way:
            self._pause_s = LOOK_S
            wake(self._waiters)

    # time

    def _arm(self) -> None:
        """Set the timer for the oldest message without an answer: to check for the answer, or for the deadline."""
        if not self._under_way:
            return
        now, first = self._loop.time(), self._under_way[0]
        due_s = max(first.since_s, self._alive_s) + self._deadline_s
        if first.quiet:
            due_s = min(due_s, now + self._pause_s)
        if self._timer is not None:
            if self._due_s <= due_s:
                return
            self._timer.cancel()
        self._due_s, self._timer = due_s, self._loop.call_at(due_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.look()
        self._pause_s = min(2 * self._pause_s, LOOK_S)
        if self._under_way:
            if self._loop.time() >= max(self._under_way[0].since_s, self._alive_s) + self._deadline_s:
                self._end(DEADLINE)
            else:
                self._arm()

    # the stream's answers and its end

    async def _read(self) -> None:
        try:
            while (data := await self._call.read()) is not grpc.aio.EOF:
                self._came(bytes(data))
            fate = fate_of(await self._call.code(), await self._call.details())
        except grpc.aio.AioRpcError as error:
            fate = fate_of(error.code(), error.details())
        except (grpc.aio.BaseError, asyncio.InvalidStateError):
            fate = BROKEN_CALL
        except asyncio.CancelledError:
            fate = BROKEN_CALL  # ended here, which is reported already
            if _is_cancelled():
                raise
        self._end(fate)

    def _came(self, data: bytes) -> None:
        """Handle an encoded answer of the receiver that came over the stream.

        It belongs to the oldest message without an answer, because answers come in order.
        """
        self.heard = True
        self.look()
        if not self._under_way:
            self._end(BROKEN_CALL)
            return
        first = self._under_way[0]
        try:
            answer = of_receipt(Receipt.FromString(data))
        except DecodeError:
            answer = Answer(BROKEN_CALL, None)
        if first.quiet and answer.fate in (None, HELLO_FIRST):  # the message can't be sent again, for others follow it
            answer = Answer(BROKEN_CALL, None)
        if first.entry.lease is not None:
            first.entry.lease.answered()
        self._tell(answer)

    def _end(self, fate: Fate) -> None:
        """End the stream: report `fate` for the oldest unanswered message, and hand back the others for resending."""
        if self._closed:
            return
        self._close()
        again = [each.entry for each in self._under_way][1:]
        if self._under_way:
            first = self._under_way[0].entry
            self._under_way.clear()
            self._on_answer(first, Answer(fate, None))
        self._on_end(again)

    def close(self, fate: Fate) -> None:
        """End the stream, and report `fate` for each message under way without an answer."""
        if self._closed:
            return
        self._close()
        while self._under_way:
            self._tell(Answer(fate, None))

    def _close(self) -> None:
        """Cancel the call, after a last look for answers in shared memory."""
        self.look()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        wake(self._waiters)
        self._call.cancel()

    async def wait_closed(self) -> None:
        """Wait until the gRPC call of this stream has ended."""
        await asyncio.wait([self._reader])


def _is_cancelled() -> bool:
    """Return whether the current task itself was cancelled, rather than a gRPC call that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
