"""Shared connections: nodes of one process share a server, and one connection to each other process.

Relies on: metadata that name the callee of each call, and TLS, where there is any, with an end for each node.

Why: A large fleet puts many nodes into one process, and a connection for each pair of nodes would be too many. A node
that is alone in its process has server and connections to itself. So has each node under mutual TLS, for there a server
and a connection prove the identity of the one node at their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import grpc
import grpc.aio

from netdfl.core.types import NodeId
from netdfl.transport.grpc.options import GrpcOptions
from netdfl.transport.security.credentials import Credentials
from netdfl.transport.security.departures import DepartureMonitor, watched
from netdfl.transport.security.gatekeeper import Gatekeeper
from netdfl.transport.security.secret import NOT_OF_THIS_FLEET, OPEN, FleetSecret, Metadata
from netdfl.transport.security.tls import Guard, Options, open_channel, open_port

CALLEE = "netdfl-callee"
"""The metadata key of the node that a call is for."""


def for_node(node: NodeId) -> tuple[str, str]:
    """Return the metadata that directs a call to `node`."""
    return CALLEE, str(node)


@dataclass(frozen=True, eq=False)
class ServedNode:
    """A node behind a port.

    Attributes:
        node: the node.
        handlers: the handlers of its calls.
        refused: called with each stranger that came to the port.
        leave: ends the open calls to the node, and lets later ones fail as if no server were there.
    """

    node: NodeId
    handlers: Sequence[grpc.GenericRpcHandler]
    refused: Callable[[str], None]
    leave: Callable[[], None]


class Port:
    """A server and the nodes behind it. Each call names its node in the metadata, and proves the fleet's secret.

    Strangers are counted at the first node. With a `guard` the port speaks TLS, for one node.
    """

    def __init__(self, options: GrpcOptions, guard: Guard | None = None, secret: FleetSecret = OPEN) -> None:
        """Prepare a port; the first node opens it."""
        self._options, self._guard, self._secret = options, guard, secret
        self._here: dict[NodeId, ServedNode] = {}
        self._known: dict[str, ServedNode] = {}  # also nodes that have left, whose calls fail by their names
        self._server: grpc.aio.Server | None = None
        self._departures: DepartureMonitor | None = None
        self._address = ""
        self._opening = asyncio.Lock()

    async def enter(self, node: ServedNode, address: str) -> str:
        """Add `node`; the first one opens the port at `address`. Returns the address with the port that was drawn.

        Raises:
            RuntimeError: the address can't be listened on.
        """
        async with self._opening:
            self._here[node.node] = self._known[str(node.node)] = node
            if self._server is None:
                await self._open(address)
        return self._address

    async def _open(self, address: str) -> None:
        gatekeeper = Gatekeeper(self._objection, self._refused, self._guard)
        server = self._server = grpc.aio.server(options=self._options.server(), interceptors=[gatekeeper])
        server.add_generic_rpc_handlers((_Reception(self._asked),))
        port = open_port(server, address, self._guard)
        self._address = f"{address.rpartition(':')[0]}:{port}"
        await server.start()
        if self._guard is None:
            self._departures = await watched(self._address, self._refused)

    async def leave(self, node: ServedNode) -> None:
        """Remove `node`. The last node to leave stops the server, and with it all calls."""
        self._here.pop(node.node, None)
        if self._here:
            node.leave()
            return
        for monitor in (self._guard, self._departures):
            if monitor is not None:
                monitor.close()
        if self._server is not None:
            await self._server.stop(None)

    def _objection(self, metadata: Mapping[str, str | bytes]) -> str:
        callee = self._asked(metadata)
        node = next(iter(self._known.values())).node if callee is None else callee.node
        if reason := self._secret.objection(metadata, node, self._address):
            return reason
        return NOT_OF_THIS_FLEET if callee is None else ""

    def _asked(self, metadata: Mapping[str, str | bytes]) -> ServedNode | None:
        """Return the node that a call is for; None if it is not behind this port."""
        return self._known.get(str(metadata.get(CALLEE, "")))

    def _refused(self, what: str) -> None:
        if (first := next(iter(self._here.values()), None)) is not None:
            first.refused(what)


class _Reception(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A gRPC handler that directs each call to its node."""

    def __init__(self, asked: Callable[[Mapping[str, str | bytes]], ServedNode | None]) -> None:
        self._asked = asked

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        node = self._asked(dict(handler_call_details.invocation_metadata or ()))
        found = (each.service(handler_call_details) for each in (node.handlers if node else ()))
        return next((handler for handler in found if handler is not None), None)


class SharedChannel:
    """A channel to an address, and the count of its users."""

    def __init__(self, channel: grpc.aio.Channel, let_go: Callable[[], object]) -> None:
        """Begin without users; `let_go` is called after the last one."""
        self.channel, self._let_go, self._users = channel, let_go, 0

    def use(self) -> Self:
        """Add one user."""
        self._users += 1
        return self

    def release(self) -> bool:
        """Remove one user; return whether it was the last one, which must close the channel."""
        self._users -= 1
        if not self._users:
            self._let_go()
        return not self._users

    async def leave(self) -> None:
        """Remove one user; the last one closes the channel."""
        if self.release():
            await self.channel.close()


class Channels:
    """Channels, one for each address; with credentials one for each node, which the certificate at the end names.

    The calls over them prove the fleet's `secret`.
    """

    def __init__(self, options: Options, credentials: Credentials | None = None, secret: FleetSecret = OPEN) -> None:
        """Begin without channels."""
        self.credentials, self._options, self._secret = credentials, options, secret
        self._open: dict[tuple[str, NodeId | None], SharedChannel] = {}

    def to(self, address: str, callee: NodeId) -> SharedChannel:
        """Return the channel for calls of `callee` at `address`; its user must release it."""
        key = address, None if self.credentials is None else callee
        shared = self._open.get(key)
        if shared is None:
            channel = open_channel(address, callee, self._options, self.credentials)
            shared = self._open[key] = SharedChannel(channel, lambda: self._open.pop(key))
        return shared.use()

    def metadata(self, address: str, callee: NodeId) -> Metadata:
        """Return the metadata of each call of `callee` at `address`."""
        return for_node(callee), *self._secret.proof(callee, address)


class SharedNetwork:
    """A port, and separate channels for messages and heartbeats: a heartbeat must not wait behind a model."""

    def __init__(
        self,
        options: GrpcOptions,
        credentials: Credentials | None = None,
        guard: Guard | None = None,
        secret: FleetSecret = OPEN,
    ) -> None:
        """Prepare the network of one process in plain text; with `credentials` and `guard`, the network of one node."""
        self.port = Port(options, guard, secret)
        self.messages = Channels(options.channel(), credentials, secret)
        self.heartbeats = Channels(options.channel(), credentials, secret)
