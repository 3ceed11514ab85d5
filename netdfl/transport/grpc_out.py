"""The sending half of the gRPC transport: one outlet per destination, in order, one message at a time.

Messages that fit into a frame follow one another on one stream, which stays open: that costs half of
what a call for each would. A larger message is a call of its own, in chunks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from netdfl.core.clock import NS_PER_S, Clock
from netdfl.core.types import Message, NodeId
from netdfl.transport import wire
from netdfl.transport.base import Ledger, may_be_told
from netdfl.transport.bodies import Bodies
from netdfl.transport.chunks import split
from netdfl.transport.identity import Identity, plainly
from netdfl.transport.link_header import LINK_HEADER
from netdfl.transport.options import GrpcOptions
from netdfl.transport.sharing import Channels, Trunk, for_node
from netdfl.transport.shelf import Place, Ticket
from netdfl.transport.tls import why_not
from netdfl.transport.v1.data_pb2 import HelloReply, Receipt

SERVICE = "netdfl.v1.Node"
FULL = "full"
HELLO_FIRST = "refused:hello_first"
BROKEN_CALL = "failed:broken_call"
GO_ON = "go-on"

_FATES = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "failed:deadline",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "refused:oversized",
    grpc.StatusCode.INTERNAL: "failed:unavailable",  # a write into a connection that just broke
    grpc.StatusCode.CANCELLED: "in_flight",  # the receiver left in good order
}


class _Queued(NamedTuple):
    message: Message
    header: bytes
    nbytes: int
    sent_ns: int
    link_header: bytes | None
    place: Place | None

    @property
    def metadata(self) -> tuple[tuple[str, bytes], ...]:
        """What goes beside the frame."""
        return () if self.link_header is None else ((LINK_HEADER, self.link_header),)


class Outlet:
    """One destination's queue, and the calls that empty it, on a channel that others may share.

    The first message in the queue is the one under way. Whatever happens to a message is told to
    the ledger, once; nothing is raised.
    """

    def __init__(
        self,
        me: Identity,
        peer: NodeId,
        address: str,
        epoch: int,
        clock: Clock,
        ledger: Ledger,
        options: GrpcOptions,
        channels: Channels,
        bodies: Bodies | None = None,
    ) -> None:
        """Open nothing yet: the first message takes the channel to `address` of `channels`.

        With `bodies`, large ones lie in shared memory, as far as there is room.
        """
        self._bodies = bodies
        self._channels = channels
        self._probed = False
        self.address = address
        self.epoch = epoch
        self._me = me
        self._peer = peer
        self._callee: tuple[tuple[str, str | bytes], ...] = (for_node(peer),)
        self._clock = clock
        self._ledger = ledger
        self._options = options
        self._deadline_s = options.call_deadline / NS_PER_S
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._used_ns = 0
        self._worker: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._shutting: asyncio.Task[None] | None = None
        self._trunk: Trunk | None = None
        self._push: Any = None
        self._stream: Any = None
        self._push_chunks: Any = None
        self._greeted = False
        self._closed_as = ""

    @property
    def busy(self) -> bool:
        """Whether anything is queued or under way."""
        return bool(self._queue)

    @property
    def shutting(self) -> bool:
        """Whether it is closed, and its calls have not ended yet."""
        return self._shutting is not None and not self._shutting.done()

    def idle_since(self, at_ns: int) -> bool:
        """Whether nothing is queued, nor was any message since `at_ns`."""
        return not self._queue and self._used_ns < at_ns

    def has_room(self, nbytes: int) -> bool:
        """Whether a message of `nbytes` may be queued; always so where nothing else is."""
        return not self._queue or (
            len(self._queue) < self._options.queue_messages and self._queued_bytes + nbytes <= self._options.queue_bytes
        )

    async def settled_one(self) -> None:
        """Return when a message has left the queue."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def drained(self, grace_s: float) -> None:
        """Return when nothing is queued or under way, or after `grace_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._queue:
                    await self.settled_one()

    def put(self, message: Message, nbytes: int, link_header: bytes | None = None) -> None:
        """Queue a message and its link header. Raises ValueError for a number that the frame's header can't hold."""
        now = self._clock.now_ns()
        header = wire.encode_header(message, self._me.run_id, now)
        self._ledger.sent(message, nbytes, now)
        self._used_ns = now
        if self._closed_as:
            self._ledger.settled(message, nbytes, now, None, self._closed_as)
            return
        place = None if self._bodies is None else self._bodies.keep(message.payload, nbytes - wire.BODY_AT)
        self._queue.append(_Queued(message, header, nbytes, now, link_header, place))
        self._queued_bytes += nbytes
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._empty())

    def close(self, fate: str) -> None:
        """Settle all that is queued as `fate`, and so all that comes; cancel the call under way."""
        opened = self._trunk if not self._closed_as else None
        self._closed_as = fate
        while self._queue:
            self._settle(fate, None)
        if opened is not None:
            unused = opened.channel if opened.release() else None
            self._shutting = asyncio.get_running_loop().create_task(self._shut(unused))

    async def wait_closed(self) -> None:
        """Return when its calls have ended, and the channel is closed that nobody else uses; `close` comes first."""
        if self._shutting is not None:
            await self._shutting

    async def _shut(self, unused: grpc.aio.Channel | None) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        if self._stream is not None:
            self._stream.cancel()
        self._stream = self._push = self._push_chunks = None  # a call that is kept keeps its connection open
        if unused is not None:
            await unused.close()

    async def _empty(self) -> None:
        while self._queue:
            try:
                fate, arrived_ns = await self._hand_over(self._queue[0])
            except grpc.aio.AioRpcError as error:
                fate, arrived_ns = _FATES.get(error.code(), f"failed:{error.code().name.lower()}"), None
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    await self._ask_why()
            except TimeoutError:
                fate, arrived_ns = "failed:deadline", None
            except (grpc.aio.BaseError, asyncio.InvalidStateError, DecodeError):
                fate, arrived_ns = BROKEN_CALL, None
            if self._closed_as:
                return
            self._settle(fate, arrived_ns)
        self._worker = None

    async def _ask_why(self) -> None:
        """Record why TLS fails with whoever is at the address, once, if it is that: it looks like a dead peer."""
        credentials = self._channels.credentials
        if credentials is None or self._greeted or self._probed:
            return
        self._probed = True
        if reason := await why_not(self.address, self._peer, credentials):
            self._ledger.refused((self._me.node, self._peer), "foreign", reason)

    def _settle(self, fate: str, arrived_ns: int | None) -> None:
        entry = self._queue.popleft()
        self._queued_bytes -= entry.nbytes
        if self._bodies is not None and entry.place is not None:
            self._bodies.drop(entry.message.payload, entry.place)
        self._ledger.settled(entry.message, entry.nbytes, entry.sent_ns, arrived_ns, fate)
        wake(self._waiters)

    async def _hand_over(self, entry: _Queued) -> tuple[str, int | None]:
        while True:
            just_greeted = not self._greeted
            if just_greeted and (refusal := await self._greet()):
                self._ledger.refused((self._me.node, self._peer), "foreign", refusal)
                return "refused:foreign", None
            receipt = Receipt.FromString(await self._call(entry))
            if receipt.fate == HELLO_FIRST and not just_greeted:
                self._greeted = False  # the peer was restarted behind the same address
            elif receipt.fate != FULL:
                told = receipt.fate, receipt.arrived_ns
                return told if may_be_told(*told) else (BROKEN_CALL, None)

    async def _call(self, entry: _Queued) -> bytes:
        payload = entry.message.payload
        if self._bodies is not None and entry.place is not None:
            told = self._bodies.tell(entry.place, self._peer)
            if told is not None:
                return await self._refer(self._bodies, entry, entry.place, *told)
        if entry.nbytes > self._options.frame_max:
            pieces = split(entry.header, wire.body_parts(payload), self._options.chunk)
            return await self._send_chunks(pieces, entry.metadata)
        return await self._send_frame(wire.join(entry.header, payload), entry.link_header)

    async def _refer(self, bodies: Bodies, entry: _Queued, place: Place, ticket: Ticket, reference: bytes) -> bytes:
        """Say where the body lies."""
        sure = False
        try:
            answer = await self._send_frame(wire.referring(entry.header, reference), entry.link_header)
            sure = True
            return answer
        finally:
            bodies.answered(place, ticket, sure)

    async def _send_frame(self, frame: bytes, link_header: bytes | None) -> bytes:
        """Write a frame to the stream, a new one if the last has ended, and read its receipt."""
        if link_header is not None:
            frame = wire.with_link_header(frame, link_header)
        if self._stream is None or self._stream.done():
            self._stream = self._push(metadata=self._callee)
        stream = self._stream
        with suppress(asyncio.InvalidStateError):  # it ended under our hands: its status says why
            async with asyncio.timeout(self._deadline_s):
                await stream.write(frame)
                answer = await stream.read()
            if answer is not grpc.aio.EOF:
                return bytes(answer)
        raise grpc.aio.AioRpcError(await stream.code(), grpc.aio.Metadata(), grpc.aio.Metadata())

    async def _send_chunks(self, pieces: Iterator[bytes], metadata: tuple[tuple[str, bytes], ...]) -> bytes:
        """Announce the message, and send the rest only if the receiver says so."""
        call = self._push_chunks(timeout=self._deadline_s, metadata=self._callee + metadata)
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
        """Take the channel and say hello. Returns why the peer refuses this node, or nothing."""
        if self._trunk is None:
            self._trunk = self._channels.to(self.address, self._peer)
            self._push = self._trunk.channel.stream_stream(f"/{SERVICE}/Push")
            self._push_chunks = self._trunk.channel.stream_unary(f"/{SERVICE}/PushChunks")
        hello = self._trunk.channel.unary_unary(f"/{SERVICE}/Hello")
        greeting = self._me.greeting(self._peer).SerializeToString()
        reply = HelloReply.FromString(await hello(greeting, timeout=self._deadline_s, metadata=self._callee))
        self._greeted = reply.accepted
        return "" if reply.accepted else plainly(reply.reason, 500)


def wake(waiters: list[asyncio.Future[None]]) -> None:
    """Let all go on that wait."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
