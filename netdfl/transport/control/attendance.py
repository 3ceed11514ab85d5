"""The control plane: one stream between the supervisor and each node, apart from the data plane.

Reports go up and orders come down, both in order. To *attend* is to open this stream. Nothing reconnects: the end of a
stream means that the process at its other end is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from netdfl.core.bounds import CALLS_BESIDE, STREAMS_BESIDE, connections_for
from netdfl.core.control import EVALUATOR, Hello, Order, Report
from netdfl.core.errors import MachineError, TransportError
from netdfl.core.types import NodeId
from netdfl.transport.control.codec import decode_order, decode_report, encode
from netdfl.transport.grpc.connections import Channels, SharedChannel
from netdfl.transport.grpc.options import patient
from netdfl.transport.security.callers import caller
from netdfl.transport.security.credentials import SUPERVISOR, Credentials, who
from netdfl.transport.security.guarded_port import GuardedPort
from netdfl.transport.security.identity import plainly
from netdfl.transport.security.secret import NOT_OF_THIS_FLEET, VERSION, FleetSecret
from netdfl.transport.security.tls import Guard, why_not
from netdfl.transport.security.visitors import FULL, ROOM_AFTER_S
from netdfl.transport.wire import PROTOCOL_VERSION

_SERVICE = "netdfl.v1.Control"
LOOKAHEAD_IN_PLAIN_TEXT = 64 * 1024
"""Bytes that are read ahead on a stream before the identity of its node has been checked."""
MOST_UNREAD = 16 * 1024
"""The most orders that may be queued for one node and not sent yet; a fleet allows four more for each of its nodes.

A node that is stopped for minutes while others change their rates of shared links leaves thousands unread.
"""
_WELCOME = "welcome"
_OPTIONS = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.min_reconnect_backoff_ms", 60_000),  # so long a supervisor may be too busy to greet a node
    ("grpc.so_reuseport", 0),
]
_T = TypeVar("_T")


def control_channels(secret: FleetSecret, credentials: Credentials | None = None) -> Channels:
    """Return gRPC channels to supervisors, which nodes of one process may share; calls prove the fleet's `secret`.

    With `credentials`, they use mutual TLS.
    """
    return Channels(_OPTIONS, credentials, secret)


@dataclass(eq=False)
class Attendee:
    """A node with an open control stream, as the supervisor sees it.

    `hello` is the node's first report; `orders` is the queue of orders that are not sent yet. `fell_behind` is set when
    an order comes while `most_unread` others wait. The evaluator never falls behind: it gets one order for each round,
    even if it gets all of them at once because the nodes end together.
    """

    hello: Hello
    most_unread: int = MOST_UNREAD
    orders: asyncio.Queue[Order] = field(default_factory=asyncio.Queue)
    fell_behind: asyncio.Event = field(default_factory=asyncio.Event)

    def order(self, order: Order) -> None:
        """Queue an order to this node without waiting; it is lost silently if the node is gone or fell behind."""
        if self.orders.qsize() >= self.most_unread and self.hello.node != EVALUATOR:
            self.fell_behind.set()
        if not self.fell_behind.is_set():
            self.orders.put_nowait(order)


class ControlServer:
    """The supervisor's end of the control plane.

    `on_report` gets each report of a node, its hello first. It runs on the event loop and must not block.
    """

    def __init__(
        self,
        secret: FleetSecret,
        on_report: Callable[[Attendee, Report], None],
        host: str = "127.0.0.1",
        credentials: Credentials | None = None,
        on_refused: Callable[[str], None] = lambda what: None,
        *,
        on_malformed: Callable[[NodeId, str], None] = lambda node, what: None,
        on_behind: Callable[[Attendee, str], None] = lambda attendee, why: None,
        num_nodes: int = 1000,
        together: int = 1000,
    ) -> None:
        """Prepare a server for nodes that know `secret`.

        Args:
            secret: the secret of the fleet.
            on_report: gets each report of a node; runs on the event loop and must not block.
            host: an address of this machine, at which a free port is used, or a Unix socket, `unix:PATH`, which can be
                reached from all network namespaces.
            credentials: with them all connections are mutual TLS, and its certificate proves which node a caller is.
            on_refused: called with a text about each refused caller.
            on_malformed: called with a node and a text about each of its reports that `on_report` does not get.
            on_behind: called with a node and the reason when its stream is ended because it does not read its orders.
            num_nodes: the number of nodes, each of which has a stream.
            together: the most nodes that share a connection.
        """
        self._refused, self._malformed, self._on_behind = on_refused, on_malformed, on_behind
        self._most_unread = MOST_UNREAD + 4 * num_nodes
        self._guard = None if credentials is None else Guard(credentials, on_refused)
        self._epochs: dict[NodeId, int] = {}
        self._attended: dict[NodeId, int] = {}
        self._hearing: dict[NodeId, tuple[int, asyncio.Task[None]]] = {}
        self._secret = secret
        self._on_report = on_report
        self._host = host
        self._options = [
            *_OPTIONS,
            *patient(3600, together + STREAMS_BESIDE, num_nodes + CALLS_BESIDE, connections_for(num_nodes)),
        ]
        if credentials is None:
            self._options += (("grpc.http2.lookahead_bytes", LOOKAHEAD_IN_PLAIN_TEXT), ("grpc.http2.bdp_probe", 0))
        attend = grpc.stream_stream_rpc_method_handler(self._attend, _readable, encode)
        handler = grpc.method_handlers_generic_handler(_SERVICE, {"Attend": attend})
        self._gate = GuardedPort(handler, self._stranger, on_refused, self._guard)

    async def start(self) -> str:
        """Listen for nodes, and return the address. Raises MachineError if `host` is no address of this machine."""
        address = self._host if self._host.startswith("unix:") else f"{self._host}:0"
        try:
            return await self._gate.open(address, self._options)
        except RuntimeError as error:
            raise MachineError(
                f"the supervisor can't listen on {self._host}; is that an address of this machine?"
            ) from error

    async def aclose(self) -> None:
        """Stop the server and end all streams."""
        await self._gate.close(0.5)

    def expect(self, node: NodeId, epoch: int) -> None:
        """Accept one control stream from the process of `node` that runs after `epoch` restarts of the node.

        Processes of the node with another number of restarts are refused, as are nodes that were never expected.
        """
        self._epochs[node] = epoch

    def dismiss(self, node: NodeId, epoch: int) -> None:
        """Treat the process of `node` that ran after `epoch` restarts as ended, even if only its connection failed.

        Its control stream is closed, and it can't open another one.
        """
        self.expect(node, epoch + 1)
        heard, hearing = self._hearing.get(node, (epoch + 1, None))
        if hearing is not None and heard <= epoch:
            hearing.cancel()

    async def _attend(self, reports: AsyncIterator[Report | None], context: Any) -> None:
        self._gate.proved(str(context.peer()))
        attendee = Attendee(await self._welcome(reports, context), self._most_unread)
        sender = asyncio.create_task(_send_all(attendee.orders, context.write))
        hearing = asyncio.create_task(self._hear(attendee, reports))
        behind = asyncio.create_task(attendee.fell_behind.wait())
        self._hearing[attendee.hello.node] = attendee.hello.epoch, hearing
        if self._epochs[attendee.hello.node] != attendee.hello.epoch:  # dismissed while it was welcomed
            hearing.cancel()
        try:
            await asyncio.wait([hearing, behind], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (hearing, sender, behind):
                task.cancel()
        if behind.done():
            why = f"it left {attendee.most_unread} orders of the supervisor unread"
            self._on_behind(attendee, why)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        if not hearing.cancelled():
            hearing.result()

    async def _hear(self, attendee: Attendee, reports: AsyncIterator[Report | None]) -> None:
        self._on_report(attendee, attendee.hello)
        node = attendee.hello.node
        async for report in reports:
            if report is None:
                self._malformed(node, f"{who(node)} sent bytes that are no report")
            elif isinstance(report, Hello):  # a stream is of one node, whatever is said on it
                self._malformed(node, f"{who(node)} introduced itself once more, as {who(report.node)}")
            else:
                self._on_report(attendee, report)

    async def _welcome(self, reports: AsyncIterator[Report | None], context: Any) -> Hello:
        first = await anext(aiter(reports), None)  # read first: a client that still writes hears no reason
        if not isinstance(first, Hello) or first.protocol_version != PROTOCOL_VERSION:
            words = f"the first report must be a hello of protocol version {PROTOCOL_VERSION}, got {first}"
            await self._refuse(context, VERSION, words)
        assert isinstance(first, Hello)
        if reason := self._objection(first, context):
            await self._refuse(context, NOT_OF_THIS_FLEET, reason)
        self._attended[first.node] = first.epoch
        await context.send_initial_metadata(((_WELCOME, "1"),))
        return first

    def _stranger(self, metadata: Mapping[str, str | bytes]) -> str:
        return self._secret.objection(metadata, SUPERVISOR, "")

    def _objection(self, hello: Hello, context: Any) -> str:
        if self._guard is not None and (reason := self._guard.caller(context).objection(hello.node, hello.epoch)):
            return reason
        if (newest := self._epochs.get(hello.node)) is None:
            return f"{who(hello.node)} was never started"
        if hello.epoch != newest:
            return f"{who(hello.node)} was restarted {newest} times, not {hello.epoch}"
        if self._attended.get(hello.node) == newest:  # nothing reconnects, so it is somebody else
            return f"{who(hello.node)} of epoch {newest} attended before"
        return ""

    async def _refuse(self, context: Any, told: str, reason: str) -> None:
        """Abort the call `context` from outside this fleet: its caller gets the text `told`, the record gets `reason`.

        Always raises gRPC's abort error.
        """
        self._refused(f"{plainly(reason, 500)} (from {caller(str(context.peer()))})")
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, told)


class ControlClient:
    """A node's end of the control plane; `connect` makes it."""

    def __init__(
        self, shared: SharedChannel, call: Any, on_order: Callable[[Order], None], on_lost: Callable[[str], None]
    ) -> None:
        """Read orders from `call`, a control stream on the channel `shared` that the supervisor has accepted.

        `on_order` gets each order; `on_lost` is called with the reason if the stream ends before `aclose`.
        """
        self._shared = shared
        self._call = call
        self._on_lost = on_lost
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._writer = asyncio.create_task(_send_all(self._reports, call.write))
        self._reader = asyncio.create_task(self._read(on_order))

    @classmethod
    async def connect(
        cls,
        address: str,
        hello: Hello,
        on_order: Callable[[Order], None],
        on_lost: Callable[[str], None],
        channels: Channels,
    ) -> ControlClient:
        """Open the control stream to the supervisor at `address`, on one of `channels`.

        `on_order` gets each order; `on_lost` is called once, with the reason, if the stream ends before `aclose`. Both
        run on the event loop and must not block.

        Raises:
            TransportError: no program listens there, or the supervisor refuses this node; the error message says which
                of the two.
        """
        credentials = channels.credentials
        shared = channels.to(address, SUPERVISOR)
        attend = shared.channel.stream_stream(f"/{_SERVICE}/Attend", encode, decode_order)
        for pause_s in (*ROOM_AFTER_S, None):
            call = attend(metadata=channels.metadata(address, SUPERVISOR))
            welcomed = False
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                await call.write(hello)
                welcomed = _WELCOME in await call.initial_metadata()
            if welcomed or pause_s is None or FULL not in (await call.details() or ""):
                break
            await asyncio.sleep(pause_s)
        if not welcomed:
            details = await _refusal(call) or await _refusal(attend(metadata=channels.metadata(address, SUPERVISOR)))
            await shared.leave()
            refused = credentials is not None and await call.code() is grpc.StatusCode.UNAVAILABLE
            reason = await why_not(address, SUPERVISOR, credentials) if refused else ""
            why = reason or details or "the connection ended without a reason"
            raise TransportError(f"node {hello.node} can't attend at the supervisor {address}: {why}")
        return cls(shared, call, on_order, on_lost)

    def report(self, report: Report) -> None:
        """Queue a report to the supervisor without waiting."""
        self._reports.put_nowait(report)

    async def flushed(self) -> None:
        """Wait until all reports queued so far are handed to the network, or the stream has ended."""
        await self._reports.join()

    async def aclose(self) -> None:
        """Send the queued reports, then close the stream once the supervisor has read them or is gone.

        Otherwise the supervisor would learn that this process has ended before it learns why.
        """
        self._on_lost = lambda reason: None  # leaving on purpose is no loss
        await self._reports.join()
        await self._call.done_writing()
        await asyncio.wait([self._reader])
        self._writer.cancel()
        self._reader.cancel()
        await asyncio.wait([self._writer, self._reader])
        self._call.cancel()
        await self._shared.leave()

    async def _read(self, on_order: Callable[[Order], None]) -> None:
        reason = "the supervisor ended the stream"
        try:
            async for order in self._call:
                on_order(order)
        except grpc.aio.AioRpcError as error:
            reason = f"the supervisor is gone: {error.details()}"
        finally:
            self._on_lost(reason)


async def _send_all(queue: asyncio.Queue[_T], write: Callable[[_T], Awaitable[None]]) -> None:
    """Write the items of `queue` in order; skip writes to a stream that has ended, as its reader reports the end."""
    while True:
        item = await queue.get()
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            await write(item)
        queue.task_done()


def _readable(data: bytes) -> Report | None:
    """Return the report in `data`, or None if there is none: gRPC would end the stream, and nobody would be named."""
    try:
        return decode_report(data)
    except (DecodeError, RecursionError, TypeError, ValueError):
        return None


async def _refusal(call: Any) -> str:
    """Return the supervisor's reason for refusing the gRPC call `call`; empty if gRPC lost the reason.

    This first ends the writing side of the call.
    """
    with suppress(grpc.RpcError, asyncio.InvalidStateError):
        await call.done_writing()
    return "" if await call.code() is grpc.StatusCode.INTERNAL else str(await call.details())
