"""The sending half of the gRPC transport: a queue for each destination, emptied in order.

    put ──▶ queued ──greet if needed, lend──▶ frame on the stream ──answer──▶ settled in the ledger
              ▲                       └─ or a call of its own, in chunks ──┘        │
              └───── mailbox full, hello needed, or not begun when a stream ended ──┘

Messages that fit into a frame follow each other on one open stream, at half the cost of a call for each. A larger
message is a call of its own, in chunks. One message is under way at a time, unless the receiver answers quietly, in
shared memory (`stream.py`).

When a stream ends, it hands the messages without an answer back. The receiver may still begin to read such a message,
for its body stays lent. So the next hello is a *renewal*: a receiver that accepts it will begin no earlier message, and
for each earlier message that it had begun there is an answer in memory. After the renewal a message without an answer
is sent again. So each message is taken once, though neither side can recall what it has sent.

Relies on: gRPC keeping the order of frames on a stream, and a receiver that answers each frame in that order.

Why: A queue of its own for each peer keeps a dead or full peer from holding up the others. Every end is a fate in the
ledger and no exception, because no algorithm may learn of the state of a connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from netdfl.core.clock import NS_PER_S, Clock
from netdfl.core.fates import FOREIGN, Fate
from netdfl.core.outcome import outcome_of
from netdfl.core.types import Message, Multicast, NodeId
from netdfl.transport import wire
from netdfl.transport.base import Ledger, wake
from netdfl.transport.grpc.chunks import split
from netdfl.transport.grpc.connections import Channels, SharedChannel
from netdfl.transport.grpc.options import GrpcOptions
from netdfl.transport.grpc.receipts import HELLO_FIRST, of_receipt
from netdfl.transport.grpc.stream import QueuedMessage, Stream, fate_of
from netdfl.transport.link_header import LINK_HEADER
from netdfl.transport.security.identity import Identity, plainly
from netdfl.transport.security.tls import why_not
from netdfl.transport.security.visitors import FULL, ROOM_AFTER_S
from netdfl.transport.shared_memory.base import BROKEN_CALL, Answer, BufferStore, Lease
from netdfl.transport.v1.data_pb2 import HelloReply, Receipt

SERVICE = "netdfl.v1.Node"
GO_ON = "go-on"
MOST_UNDER_WAY = 4
"""Most messages under way to a peer. The last of them is answered over the stream, and the sender waits for this
answer."""
MOST_QUIET_BYTES = 4 << 20
"""Largest message in bytes that a receiver answers in shared memory. For a larger one an answer over the stream costs
little, and frees the buffer of the message at once."""


class PeerSender:
    """The queue of messages to one peer, and the gRPC calls that send them.

    Each message gets a fate in the ledger once, whatever happens to it. Failures show there, never as exceptions. The
    channel may be shared with other nodes.
    """

    def __init__(
        self,
        me: Identity,
        peer: NodeId,
        address: str,
        clock: Clock,
        ledger: Ledger,
        options: GrpcOptions,
        channels: Channels,
        buffers: BufferStore | None = None,
    ) -> None:
        """Start with an empty queue. The first message opens the channel to `address`, or shares one of `channels`.

        `me` is the sending node. With `buffers`, large bodies are put into shared memory, as far as it has space.
        """
        self._buffers = buffers
        self._channels = channels
        self._probed = False
        self._waited_for_room = False
        self.address = address
        self._me = me
        self._peer = peer
        self._writer = wire.FrameWriter(me.run_id)
        self._metadata: tuple[tuple[str, str | bytes], ...] = channels.metadata(address, peer)
        self._clock = clock
        self._ledger = ledger
        self._options = options
        self._deadline_s = options.call_deadline / NS_PER_S
        self._queue: deque[QueuedMessage] = deque()
        self._num_open = self._open_bytes = 0
        self._used_ns = 0
        self._worker: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._shutting: asyncio.Task[None] | None = None
        self._shared_channel: SharedChannel | None = None
        self._push: Any = None
        self._stream: Stream | None = None
        self._push_chunks: Any = None
        self._greeted = self._just_greeted = False
        self._closed_as: Fate | None = None

    @property
    def busy(self) -> bool:
        """Whether any message is queued or under way."""
        return self._num_open > 0

    @property
    def shutting(self) -> bool:
        """Whether the sender is closed but some of its calls have not ended yet."""
        return self._shutting is not None and not self._shutting.done()

    def idle_since(self, at_ns: int) -> bool:
        """Return whether no message has been queued or under way since the time `at_ns`."""
        return not self._num_open and self._used_ns < at_ns

    def look(self) -> None:
        """Check shared memory for the peer's answers, and record the fates of the messages that have one."""
        if self._stream is not None:
            self._stream.look()

    def has_room(self, nbytes: int) -> bool:
        """Return whether a message of `nbytes` may be queued; an empty queue takes any message."""
        if not self._room_for(nbytes):
            self.look()
        return self._room_for(nbytes)

    def _room_for(self, nbytes: int) -> bool:
        return not self._num_open or (
            self._num_open < self._options.queue_messages and self._open_bytes + nbytes <= self._options.queue_bytes
        )

    async def settled_one(self) -> None:
        """Wait until some message of this queue has its fate."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._stream is not None:
            self._stream.hurry()
        await waiter

    async def drained(self, grace_s: float) -> None:
        """Wait until no message is queued or under way, but at most `grace_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._num_open:
                    await self.settled_one()

    def put(self, message: Message, nbytes: int, link_header: bytes | None = None) -> None:
        """Queue a message and its link header. Raises ValueError if a number does not fit into the frame's header."""
        now = self._clock.now_ns()
        header = self._writer.header(message, now)
        self._ledger.sent(Multicast.of(message), nbytes, now)
        self._used_ns = now
        if self._closed_as:
            self._ledger.settled(outcome_of(message, nbytes, now, None, self._closed_as), (message.payload,))
            return
        self._queue.append(QueuedMessage(message, header, nbytes, now, link_header, self._lend(message, nbytes)))
        self._num_open += 1
        self._open_bytes += nbytes
        self._go_on()

    def _go_on(self) -> None:
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._empty())

    def close(self, fate: Fate) -> None:
        """Record `fate` for all messages of this queue, and for any put later; cancel the gRPC call under way."""
        opened = self._shared_channel if not self._closed_as else None
        self._closed_as = fate
        if self._stream is not None:
            self._stream.close(fate)
        while self._queue:
            entry = self._queue.popleft()
            self._told(entry, _answered_before(entry) or Answer(fate, None))
        if opened is not None:
            unused = opened.channel if opened.release() else None
            self._shutting = asyncio.get_running_loop().create_task(self._shut(unused))

    async def wait_closed(self) -> None:
        """Wait after `close` until the calls have ended and the channel is closed or left to its other users."""
        if self._shutting is not None:
            await self._shutting

    async def _shut(self, unused: grpc.aio.Channel | None) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        if self._stream is not None:
            await self._stream.wait_closed()
        self._stream = self._push = self._push_chunks = None  # a call that is kept keeps its connection open
        if unused is not None:
            await unused.close()

    async def _empty(self) -> None:
        while self._queue:
            try:
                answer = await self._hand_over(self._queue[0])
            except grpc.aio.AioRpcError as error:
                answer = Answer(fate_of(error.code(), error.details()), None)
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    await self._ask_why()
            except (grpc.aio.BaseError, asyncio.InvalidStateError, DecodeError):
                answer = Answer(BROKEN_CALL, None)
            if self._closed_as:
                return
            if answer is not None:
                entry = self._queue.popleft()
                self._told(entry, _answered_before(entry) or answer)
        self._worker = None

    async def _ask_why(self) -> None:
        """Find out whether a failure of TLS makes the peer look dead; if so, record the reason, once."""
        credentials = self._channels.credentials
        if credentials is None or self._greeted or self._probed:
            return
        self._probed = True
        if reason := await why_not(self.address, self._peer, credentials):
            self._ledger.refused((self._me.node, self._peer), FOREIGN, reason)

    def _told(self, entry: QueuedMessage, answer: Answer) -> None:
        """Record the fate in the receiver's answer to a message, or queue the message again if the answer says so."""
        if again := answer.fate == HELLO_FIRST and not self._just_greeted:
            self._greeted = False  # the peer was restarted behind the same address
        if again or answer.fate is None:
            self._queue.appendleft(entry)
        else:
            self._settle(entry, answer.fate, answer.arrived_ns)

    def _settle(self, entry: QueuedMessage, fate: Fate, arrived_ns: int | None) -> None:
        self._num_open -= 1
        self._open_bytes -= entry.nbytes
        if entry.lease is not None:
            entry.lease.release()
        outcome = outcome_of(entry.message, entry.nbytes, entry.sent_ns, arrived_ns, fate)
        self._ledger.settled(outcome, (entry.message.payload,))
        wake(self._waiters)

    async def _hand_over(self, entry: QueuedMessage) -> Answer | None:
        """Send the first message of the queue; return the receiver's answer if it is already known.

        If the message goes over the open stream, it leaves the queue, and None is returned: its answer comes later.
        """
        self._just_greeted = not self._greeted
        if self._just_greeted and (refusal := await self._greet()):
            self._ledger.refused((self._me.node, self._peer), FOREIGN, refusal)
            return Answer(Fate.refused(FOREIGN), None)
        if entry.was_referenced and entry.lease is not None:
            if (answer := _answered_before(entry)) is not None:
                return answer
            again = entry._replace(lease=self._lend(entry.message, entry.nbytes), was_referenced=False)
            entry.lease.release()  # the reader may still read the body
            entry = self._queue[0] = again
        stream = self._stream or self._open()
        quiet = self._is_quiet(stream, entry)
        reference = None if entry.lease is None else entry.lease.reference(quiet)
        if reference is None and entry.nbytes > self._options.frame_max:
            await stream.answered()
            if self._queue[0] is not entry:  # earlier messages must go again first
                return None
            pieces = split(entry.header, self._writer.body(entry.message.payload), self._options.chunk)
            return of_receipt(Receipt.FromString(await self._send_chunks(pieces, entry.link_header)))
        if reference is None:
            frame, quiet = self._writer.join(entry.header, entry.message.payload), False
        else:
            frame, entry = self._writer.referring(entry.header, reference), entry._replace(was_referenced=True)
        if entry.link_header is not None:
            frame = self._writer.with_link_header(frame, entry.link_header)
        self._queue.popleft()
        await stream.write(entry, frame, quiet)
        if not quiet:
            await stream.answered()
        return None

    def _is_quiet(self, stream: Stream, entry: QueuedMessage) -> bool:
        """Return whether the receiver should answer a message in shared memory instead of over the stream.

        The first message of a stream is answered over the stream, because its server may not belong to the fleet.
        """
        known = entry.lease is not None and stream.heard and not self._just_greeted
        return known and entry.nbytes <= MOST_QUIET_BYTES and stream.num_under_way < MOST_UNDER_WAY - 1

    def _lend(self, message: Message, nbytes: int) -> Lease | None:
        if self._buffers is None:
            return None
        return self._buffers.lend(message.payload, nbytes - wire.BODY_AT, self._peer)

    def _open(self) -> Stream:
        call = self._push(metadata=self._metadata)
        self._stream = Stream(call, self._deadline_s, self._told, self._ended)
        return self._stream

    def _ended(self, again: Sequence[QueuedMessage]) -> None:
        """Queue the messages `again` once more, which got no answer over a stream that has ended.

        The next renewal of leases (loans of shared memory) shows whether the receiver had begun to read any of them.
        """
        self._stream = None
        self._greeted = self._greeted and self._buffers is None
        self._queue.extendleft(reversed(again))
        if self._queue:
            self._go_on()

    async def _send_chunks(self, pieces: Iterator[bytes], link_header: bytes | None) -> bytes:
        """Announce a large message, and send its chunks `pieces` only if the receiver accepts its size.

        Return the receiver's receipt, encoded.
        """
        metadata = () if link_header is None else ((LINK_HEADER, link_header),)
        call = self._push_chunks(timeout=self._deadline_s, metadata=self._metadata + metadata)
        try:
            with suppress(asyncio.InvalidStateError):  # it ended under our hands: its result says why
                await call.write(next(pieces))
                if GO_ON in await call.initial_metadata():
                    for piece in pieces:
                        await call.write(piece)
                await call.done_writing()
            answer: bytes = await call
            return answer
        finally:
            call.cancel()

    async def _greet(self) -> str:
        """Open the channel and say hello to the peer; return the reason if it refuses this node, else an empty text."""
        if self._shared_channel is None:
            self._shared_channel = self._channels.to(self.address, self._peer)
            self._push = self._shared_channel.channel.stream_stream(f"/{SERVICE}/Push")
            self._push_chunks = self._shared_channel.channel.stream_unary(f"/{SERVICE}/PushChunks")
        renewal = 0 if self._buffers is None else self._buffers.renewal()
        greeting = self._me.greeting(self._peer, renewal).SerializeToString()
        reply = HelloReply.FromString(await self._say_hello(self._shared_channel.channel, greeting))
        self._greeted = reply.accepted
        if reply.accepted and self._buffers is not None:
            self._buffers.renewed(self._peer, renewal)
        return "" if reply.accepted else f"{self.address} refuses node {self._me.node}: {plainly(reply.reason)}"

    async def _say_hello(self, channel: grpc.aio.Channel, greeting: bytes) -> bytes:
        """Say hello over `channel`, and return the encoded reply.

        The first hello is repeated if strangers occupy all connections of the peer's port.
        """
        hello = channel.unary_unary(f"/{SERVICE}/Hello")
        pauses, self._waited_for_room = () if self._waited_for_room else ROOM_AFTER_S, True
        for pause_s in pauses:
            try:
                answer: bytes = await hello(greeting, timeout=self._deadline_s, metadata=self._metadata)
                return answer
            except grpc.aio.AioRpcError as error:
                if FULL not in (error.details() or ""):
                    raise
            await asyncio.sleep(pause_s)
        answer = await hello(greeting, timeout=self._deadline_s, metadata=self._metadata)
        return answer


def _answered_before(entry: QueuedMessage) -> Answer | None:
    """Return the receiver's answer to `entry`, left in shared memory although its stream has ended; None: no answer."""
    answer = entry.lease.poll() if entry.was_referenced and entry.lease is not None else None
    return None if answer is None or answer.fate is None else answer
