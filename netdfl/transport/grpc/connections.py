"""The parts of the network that the nodes of one process share: a server, and a connection to each other process.

A node that is alone has these to itself; so has every node where all speak mutual TLS, for there a server and a
connection prove who the node at their end is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import grpc
import grpc.aio

from netdfl.core.types import NodeId
from netdfl.transport.grpc.options import GrpcOptions
from netdfl.transport.security.credentials import Credentials
from netdfl.transport.security.departures import Watch, watched
from netdfl.transport.security.tls import Guard, Options, open_channel, open_port

CALLEE = "netdfl-callee"
"""The metadata key that says which node a call is for."""


def for_node(node: NodeId) -> tuple[str, str]:
    """Return the metadata that directs a call to `node`."""
    return CALLEE, str(node)


@dataclass(frozen=True, eq=False)
class ServedNode:
    """A node behind a port: the handlers of its calls, who counts strangers for it, and how it leaves the others.

    `leave` ends the calls that are open to it, and has those that come later fail as if nobody listened.
    """

    node: NodeId
    handlers: Sequence[grpc.GenericRpcHandler]
    refused: Callable[[str], None]
    leave: Callable[[], None]


class Port:
    """A server, and the nodes that are reached there: each call says which of them it is for.

    A call that names none of them, as those of other clients may, goes to the first that is there, and so does the
    count of strangers. With a `guard` it speaks TLS, for one node.
    """

    def __init__(self, options: GrpcOptions, guard: Guard | None = None) -> None:
        """Listen when the first node comes."""
        self._options, self._guard = options, guard
        self._here: dict[NodeId, ServedNode] = {}
        self._known: dict[str, ServedNode] = {}  # those who have left, too: their calls fail by their names
        self._server: grpc.aio.Server | None = None
        self._watch: Watch | None = None
        self._address = ""
        self._opening = asyncio.Lock()

    async def enter(self, node: ServedNode, address: str) -> str:
        """Let `node` be reached; the first one's `address` is listened on. Returns it with the port that was drawn.

        Raises:
            RuntimeError: it can't be listened on.
        """
        async with self._opening:
            self._here[node.node] = self._known[str(node.node)] = node
            if self._server is None:
                await self._open(address)
        return self._address

    async def _open(self, address: str) -> None:
        server = self._server = grpc.aio.server(options=self._options.server())
        server.add_generic_rpc_handlers((_Reception(self._asked),))
        port = open_port(server, address, self._guard)
        await server.start()
        self._address = f"{address.rpartition(':')[0]}:{port}"
        if self._guard is None:
            self._watch = await watched(self._address, self._refused)

    async def leave(self, node: ServedNode) -> None:
        """Let `node` be reached no more. The last one to leave ends the server, and each call with it."""
        self._here.pop(node.node, None)
        if self._here:
            node.leave()
            return
        for looker in (self._guard, self._watch):
            if looker is not None:
                looker.close()
        if self._server is not None:
            await self._server.stop(None)

    def _asked(self, callee: str) -> ServedNode | None:
        """Return the node that answers a call for `callee`."""
        return self._known.get(callee) or next(iter(self._here.values()), None)

    def _refused(self, what: str) -> None:
        if (first := self._asked("")) is not None:
            first.refused(what)


class _Reception(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Directs each call to the node that it is for."""

    def __init__(self, asked: Callable[[str], ServedNode | None]) -> None:
        self._asked = asked

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        said = handler_call_details.invocation_metadata or ()
        node = self._asked(next((str(value) for key, value in said if key == CALLEE), ""))
        found = (each.service(handler_call_details) for each in (node.handlers if node else ()))
        return next((handler for handler in found if handler is not None), None)


class SharedChannel:
    """A channel to an address, for all who call there."""

    def __init__(self, channel: grpc.aio.Channel, let_go: Callable[[], object]) -> None:
        """Nobody uses it yet; `let_go` is called when nobody does any more."""
        self.channel, self._let_go, self._users = channel, let_go, 0

    def use(self) -> Self:
        """Count one user more."""
        self._users += 1
        return self

    def release(self) -> bool:
        """Count one user less; return whether it was the last one, who then closes the channel."""
        self._users -= 1
        if not self._users:
            self._let_go()
        return not self._users

    async def leave(self) -> None:
        """Count one user less; the last one closes the channel."""
        if self.release():
            await self.channel.close()


class Channels:
    """Channels, one for each address; with credentials one for each node, whom the certificate at its end names."""

    def __init__(self, options: Options, credentials: Credentials | None = None) -> None:
        """Open none yet."""
        self.credentials, self._options = credentials, options
        self._open: dict[tuple[str, NodeId | None], SharedChannel] = {}

    def to(self, address: str, callee: NodeId) -> SharedChannel:
        """Return the channel on which to call `callee` at `address`; to be released."""
        key = address, None if self.credentials is None else callee
        shared = self._open.get(key)
        if shared is None:
            channel = open_channel(address, callee, self._options, self.credentials)
            shared = self._open[key] = SharedChannel(channel, lambda: self._open.pop(key))
        return shared.use()


class SharedNetwork:
    """A port, and channels for messages and for heartbeats: a heartbeat that waits behind a model says nothing."""

    def __init__(
        self, options: GrpcOptions, credentials: Credentials | None = None, guard: Guard | None = None
    ) -> None:
        """For the nodes of one process, in plain text; with `credentials` and its `guard` for one node."""
        self.port = Port(options, guard)
        self.messages = Channels(options.channel(), credentials)
        self.heartbeats = Channels(options.channel(), credentials)
