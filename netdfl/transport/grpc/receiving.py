"""The receiving half of the gRPC transport: it identifies callers, decodes messages, and delivers them to the sink.

    hello ──▶ greeted ──frame, or chunks──▶ admitted ──body read, inline or borrowed──▶ offered ──taken──▶ answered
                                               └ refused, counted, answered               └ no room: waits, goes again

One event loop serves all calls. There is no `await` between the admission of a message and its first offer, nor between
the moment when the sink takes it and its answer in memory. A hello may have a *renewal*, a number by which its sender
ends all earlier loans of shared memory. When it comes, each earlier message of the sender is in one of three states:
answered, not begun, or waiting for room. The renewal ends the calls of the last kind, and later their messages are not
taken any more.

Relies on: the one event loop of the node, which runs between two `await`s without interruption.

Why: Anybody may connect, so the sender is checked before the body of a message is read, and whatever is wrong with it
becomes a count and an answer. An answer waits while the mailbox is full, so flow control needs no message of its own;
it is given before the sender's deadline, so that a full mailbox is not taken for a dead peer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from netdfl.core.bounds import STREAMS_A_PAIR, STREAMS_BESIDE
from netdfl.core.clock import NS_PER_S, Clock
from netdfl.core.errors import ForeignMessage, MalformedMessage, MessageError
from netdfl.core.fates import FOREIGN, MALFORMED, OVERLOADED, Fate, FateReason
from netdfl.core.types import Edge, Message, NodeId, Payload
from netdfl.transport import wire
from netdfl.transport.base import Ledger, Sink, deliver_one, wake
from netdfl.transport.grpc.chunks import Assembly
from netdfl.transport.grpc.options import GrpcOptions
from netdfl.transport.grpc.receipts import HELLO_FIRST, LEFT, as_receipt
from netdfl.transport.grpc.sending import GO_ON, SERVICE
from netdfl.transport.link_header import LINK_HEADER, LinkHeaderSink
from netdfl.transport.security.callers import caller
from netdfl.transport.security.credentials import CertificateSubject
from netdfl.transport.security.identity import Identity
from netdfl.transport.security.secret import NOT_OF_THIS_FLEET
from netdfl.transport.security.tls import Guard
from netdfl.transport.shared_memory.base import Answer, BufferStore
from netdfl.transport.v1.data_pb2 import HelloReply, HelloRequest, Receipt

MOST_ASSEMBLED = 2
NO_ROUND = -1
"""The round number that stands for messages of no round."""
_T = TypeVar("_T")


def most_open(num_peers: int) -> int:
    """Return the most gRPC calls from others that a node keeps open, given its number of peers."""
    return 4 * (STREAMS_A_PAIR * num_peers + STREAMS_BESIDE)


class DataServicer:
    """The gRPC service of a node to which other nodes send their messages.

    A message is answered when the sink has accepted it. While the mailbox is full the answer waits, and with it the
    sender. Before the sender's deadline, the answer says that the sender must offer the message again.
    """

    def __init__(
        self,
        me: Identity,
        clock: Clock,
        ledger: Ledger,
        options: GrpcOptions,
        guard: Guard | None = None,
        buffers: BufferStore | None = None,
        proved: Callable[[str], None] = lambda peer: None,
    ) -> None:
        """Start without known peers.

        With a `guard`, the caller's certificate must match the node in each message. With `buffers`, messages may refer
        to shared memory. `proved` is called with the other end of each connection over which a call comes.
        """
        self._buffers, self._proved = buffers, proved
        self.sink: Sink | None = None
        self._header_sink: LinkHeaderSink | None = None
        self._me = me
        self._guard = guard
        self._clock = clock
        self._ledger = ledger
        self._limits = wire.Limits(max_bytes=options.max_message)
        self._frames = wire.FrameReader(self._limits)
        self._most_waiting = options.waiting_calls
        self._known: dict[NodeId, int] = {}  # the peers, and the most restarts that each was introduced with
        self._introduced = asyncio.Event()
        self._epochs: dict[NodeId, int] = {}  # the restarts of each peer, by its last hello
        self._waiting: defaultdict[NodeId, dict[asyncio.Task[Any], bool]] = defaultdict(dict)
        self._attached: list[asyncio.Future[None]] = []
        self._calls: dict[asyncio.Task[Any], bool] = {}  # the calls not ended here, whether anything came over each
        self._assembling: defaultdict[NodeId, list[asyncio.Task[Any]]] = defaultdict(list)
        self._deadline_s = options.call_deadline / NS_PER_S
        self._left = False

    def attach(self, sink: Sink) -> None:
        """Deliver messages into `sink`, first the messages that came before there was a sink."""
        self.sink = sink
        self._header_sink = sink if isinstance(sink, LinkHeaderSink) else None
        wake(self._attached)

    def introduce(self, node: NodeId, epoch: int = 0) -> None:
        """Accept calls from `node` if it has restarted at least `epoch` times.

        Hello calls that come before any node is introduced wait for the first introduction.
        """
        self._known[node] = max(epoch, self._known.get(node, 0))
        self._introduced.set()

    def methods(self) -> grpc.GenericRpcHandler:
        """Return the gRPC handlers of the service; frames and chunks stay raw bytes to avoid copies by protobuf."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Hello": grpc.unary_unary_rpc_method_handler(
                    self._while_here(self.hello), None, HelloReply.SerializeToString
                ),
                "Push": grpc.stream_stream_rpc_method_handler(
                    self._while_here(self.push), None, Receipt.SerializeToString
                ),
                "PushChunks": grpc.stream_unary_rpc_method_handler(
                    self._while_here(self.push_chunks), None, Receipt.SerializeToString
                ),
            },
        )

    @property
    def num_open(self) -> int:
        """The number of calls from other nodes that are open now."""
        return len(self._calls)

    def leave(self) -> None:
        """End the open calls as if the server had stopped; later calls fail as if there were no server."""
        self._left = True
        for call in self._calls:
            call.cancel()

    def _while_here(self, answer: Callable[[Any, Any], Awaitable[_T]]) -> Callable[[Any, Any], Awaitable[_T]]:
        async def serve(asked: Any, context: Any) -> _T:
            if self._left:
                await context.abort(grpc.StatusCode.UNAVAILABLE, LEFT)
            self._proved(str(context.peer()))
            call = asyncio.current_task()
            assert call is not None
            self._make_room()
            self._calls[call] = False
            try:
                return await answer(asked, context)
            except asyncio.CancelledError:
                if self._left:
                    await context.abort(grpc.StatusCode.CANCELLED, LEFT)
                if call not in self._calls:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "too many calls over which nothing came")
                raise
            finally:
                self._calls.pop(call, None)

        return serve

    def _make_room(self) -> None:
        """End the oldest call without any data, if there are more calls than the peers need."""
        if len(self._calls) < most_open(len(self._known)):
            return
        silent = next((call for call, heard in self._calls.items() if not heard), None)
        if silent is not None:
            self._end(silent)

    def _end(self, call: asyncio.Task[Any]) -> None:
        self._calls.pop(call, None)
        call.cancel()

    def _heard(self) -> None:
        """Note that data came over the current call, so that it is not ended as a silent one."""
        call = asyncio.current_task()
        if call is not None and call in self._calls:
            self._calls[call] = True

    async def hello(self, data: bytes, context: object) -> HelloReply:
        """Accept a hello call from a node of this fleet, or refuse it and record the reason."""
        certified = self._caller(context)
        self._heard()
        await self._introduced.wait()
        try:
            caller = HelloRequest.FromString(data)
        except DecodeError:
            self._ledger.refused(None, MALFORMED, f"{len(data)} bytes came that are no hello{_whence(context)}")
            return HelloReply(reason=NOT_OF_THIS_FLEET)
        if reason := self._objection(caller, certified):
            self._ledger.refused(self._edge(caller.node, certified), FOREIGN, reason + _whence(context))
            return HelloReply(reason=NOT_OF_THIS_FLEET)
        self._epochs[caller.node] = caller.epoch
        await self._renew(caller.node, caller.renewal)
        return HelloReply(accepted=True)

    async def _renew(self, src: NodeId, number: int) -> None:
        """Accept renewal `number` of `src`: end its earlier loans of shared memory, and waiting calls that use them."""
        if self._buffers is None or not self._buffers.renew(src, number):
            return
        borrowing = [call for call, borrows in self._waiting[src].items() if borrows]
        for call in borrowing:
            call.cancel()
        if borrowing:
            await asyncio.wait(borrowing)

    def _objection(self, caller: HelloRequest, certified: CertificateSubject | None) -> str:
        if certified is not None and (reason := certified.objection(caller.node, caller.epoch)):
            return reason
        if reason := self._me.objection(caller):
            return reason
        if caller.node not in self._known:
            return f"node {caller.node} is not a peer of node {self._me.node}"
        newest = max(self._epochs.get(caller.node, 0), self._known[caller.node])
        if caller.epoch < newest:
            return f"node {caller.node} was restarted {newest} times, not {caller.epoch}"
        return ""

    async def push(self, frames: object, context: Any) -> None:
        """Deliver the messages of a stream in turn; answer over the stream or, as the sender asks, in shared memory."""
        caller, heard = self._caller(context), False
        while (data := await context.read()) is not grpc.aio.EOF:
            if not heard:
                self._heard()
                heard = True
            if (receipt := await self.take(data, caller)) is not None:
                await context.write(receipt)

    def _caller(self, context: Any) -> CertificateSubject | None:
        """Return the identity in the caller's TLS certificate; None without TLS."""
        return None if self._guard is None else self._guard.caller(context)

    async def take(self, data: bytes, caller: CertificateSubject | None = None) -> Receipt | None:
        """Deliver the message in frame `data`; return the receipt, None if the answer was written to shared memory."""
        header: wire.Header | None = None
        reference: bytes | None = None
        try:
            frame, link_header = self._frames.split_link_header(data)
            if (referred := self._frames.split_reference(frame)) is not None:
                header, reference = referred
                self._admit(header, caller)
                body = self._borrow(header.src, reference)
                payload = self._frames.body(body)
            else:
                header, payload = self._frames.decode(frame)
                self._admit(header, caller)
            passed = None if link_header is None else bytes(link_header)
            answer = await self._deliver(header, payload, passed, reference)
        except MessageError as error:
            return self._refuse(error, header, caller)
        return None if self._answered_quietly(reference, answer) else as_receipt(answer)

    def _answered_quietly(self, reference: bytes | None, answer: Answer) -> bool:
        return reference is not None and self._buffers is not None and self._buffers.answer(reference, answer)

    def _borrow(self, src: NodeId, reference: bytes) -> memoryview:
        if self._buffers is None:
            raise MalformedMessage(f"node {src} refers to shared memory, node {self._me.node} shares none")
        return self._buffers.borrow(src, reference, self._limits)

    async def push_chunks(self, chunks: Any, context: Any) -> Receipt:
        """Assemble and deliver a message that comes in chunks; check its size and sender before storing anything."""
        header: wire.Header | None = None
        caller = self._caller(context)
        try:
            stream = aiter(chunks)
            assembly = Assembly(await anext(stream, b""), self._limits)
            header = assembly.header
            self._admit(header, caller)
            with self._one_of_few(header.src):
                assembly.begin()
                await context.send_initial_metadata(((GO_ON, "1"),))
                await self._assemble(assembly, stream)
            return as_receipt(await self._deliver(header, assembly.finish(), _link_header_of(context)))
        except MessageError as error:
            return self._refuse(error, header, caller)

    async def _assemble(self, assembly: Assembly, chunks: AsyncIterator[bytes]) -> None:
        """Add the chunks of a message, within the sender's deadline. Raises MalformedMessage."""
        try:
            async with asyncio.timeout(self._deadline_s):
                async for chunk in chunks:
                    assembly.add(chunk)
        except TimeoutError as error:
            raise MalformedMessage(f"a message stopped before its end, and had {self._deadline_s:g} s") from error

    @contextmanager
    def _one_of_few(self, src: NodeId) -> Iterator[None]:
        """Occupy one of a sender's few places for messages in chunks; if none is free, end its oldest such call.

        A sender has one message in chunks on its way, and at most another that broke off.
        """
        places, call = self._assembling[src], asyncio.current_task()
        assert call is not None
        self._heard()
        places.append(call)
        if len(places) > MOST_ASSEMBLED:
            self._end(places.pop(0))
        try:
            yield
        finally:
            if call in places:
                places.remove(call)

    def _admit(self, header: wire.Header, caller: CertificateSubject | None) -> None:
        if caller is not None and (reason := caller.objection(header.src, header.epoch)):
            raise ForeignMessage(reason)
        if header.round < NO_ROUND or header.step < 0:
            raise MalformedMessage(f"a message is of round {header.round}, step {header.step}; both count from 0")
        newest = self._epochs.get(header.src)
        if header.run_id != self._me.run_id:
            raise ForeignMessage(f"a message of run {header.run_id.hex()} came to run {self._me.run_id.hex()}")
        if newest is None or header.epoch > newest:
            what = f"node {header.src}, epoch {header.epoch}, sent a message before its hello"
            raise ForeignMessage(what, reason=HELLO_FIRST.reason)
        if header.epoch < newest:
            what = f"node {header.src} sent a message of epoch {header.epoch} and is in epoch {newest}"
            raise ForeignMessage(what, reason=FateReason("stale_epoch"))
        if len(self._waiting[header.src]) >= self._most_waiting:  # flow control keeps honest senders below this
            raise MessageError(f"node {header.src} has {self._most_waiting} calls waiting already", reason=OVERLOADED)

    async def _deliver(
        self, header: wire.Header, payload: Payload, link_header: bytes | None, reference: bytes | None = None
    ) -> Answer:
        """Offer a message to the mailbox for at most half of the sender's deadline; return the answer to the sender.

        There is no limit if the sender can see in shared memory, by `reference`, that the message still waits.
        """
        message = Message(
            header.src, self._me.node, header.kind, header.epoch, header.round, header.step, header.attempt, payload
        )
        fate = self._offer(message, link_header)
        if fate is None:
            waiting, call = self._waiting[header.src], asyncio.current_task()
            assert call is not None
            waiting[call] = reference is not None
            try:
                fate = await self._offer_again(message, link_header)
                while fate is None and self._answered_quietly(reference, Answer(None, self._clock.now_ns())):
                    fate = await self._offer_again(message, link_header)
            finally:
                del waiting[call]
        return Answer(fate, self._clock.now_ns())

    def _offer(self, message: Message, link_header: bytes | None) -> Fate | None:
        if link_header is None or self.sink is None:
            return None if self.sink is None else deliver_one(self.sink, message)
        if self._header_sink is None:
            raise ForeignMessage(f"node {message.src} emulates links, node {self._me.node} does not")
        return self._header_sink.deliver_with_header(message, link_header)

    async def _offer_again(self, message: Message, link_header: bytes | None) -> Fate | None:
        """Offer a message to the full mailbox again whenever it has room; return the message's fate.

        Return None if the mailbox did not accept it for half of the sender's deadline.
        """
        try:
            async with asyncio.timeout(self._deadline_s / 2):
                while True:
                    waiter = asyncio.get_running_loop().create_future()
                    if self.sink is None:
                        self._attached.append(waiter)
                    elif (fate := self._offer(message, link_header)) is not None:
                        return fate
                    else:
                        self.sink.when_room(partial(wake, [waiter]))
                    await waiter
        except TimeoutError:
            return None

    def _edge(self, said: int | None, caller: CertificateSubject | None) -> Edge | None:
        """Return the edge on which a caller sends to this node; None if the caller is no peer.

        The caller is the node in its certificate or, without TLS, the node `said` in the frame.
        """
        src = said if caller is None else caller.node
        return None if src is None or src not in self._known else (src, self._me.node)

    def _refuse(self, error: MessageError, header: wire.Header | None, caller: CertificateSubject | None) -> Receipt:
        self._ledger.refused(self._edge(header and header.src, caller), error.reason, str(error))
        told = NOT_OF_THIS_FLEET if isinstance(error, ForeignMessage) else str(error)
        return Receipt(fate=Fate.refused(error.reason).text, arrived_ns=self._clock.now_ns(), reason=told)


def _whence(context: Any) -> str:
    """Return a caller's network address in the form that error messages use."""
    return f" (from {caller(str(context.peer()))})"


def _link_header_of(context: Any) -> bytes | None:
    return next((value for key, value in context.invocation_metadata() or () if key == LINK_HEADER), None)
