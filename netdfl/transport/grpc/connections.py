"""Shared connections: the nodes of one process share a server, and one connection to each other process.

Relies on: metadata that name the called node in each call; TLS, if used, has an end for each node.

Why: A large fleet puts many nodes into one process, and a connection for each pair of nodes would be too many. A node
that is alone in its process has a server and connections of its own. So has each node under mutual TLS, as a server and
a connection then prove the identity of the one node at their end.
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
from netdfl.transport.security.guarded_port import GuardedPort
from netdfl.transport.security.secret import NOT_OF_THIS_FLEET, OPEN, FleetSecret, Metadata
from netdfl.transport.security.tls import Guard, Options, open_channel

CALLEE = "netdfl-callee"
"""The metadata key of the node that a call is for."""


def for_node(node: NodeId) -> tuple[str, str]:
    """Return the gRPC metadata that directs a call to `node` among the nodes of a shared port."""
    return CALLEE, str(node)


@dataclass(frozen=True, eq=False)
class ServedNode:
    """A node that answers gRPC calls at a server port, which several nodes of a process may share.

    Attributes:
        node: the node.
        handlers: the handlers of its calls.
        refused: called with a text about each stranger that came to the port.
        leave: ends the open calls to the node, and makes later ones fail as if no server were there.
    """

    node: NodeId
    handlers: Sequence[grpc.GenericRpcHandler]
    refused: Callable[[str], None]
    leave: Callable[[], None]


class Port(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A server port that several nodes of a process may share, and the gRPC handler that directs calls to them.

    Each call names its node in the metadata, and proves the fleet's secret. A refused call is counted at the first node
    of the port. With a `guard`, the port speaks TLS and serves one node.
    """

    def __init__(self, options: GrpcOptions, guard: Guard | None = None, secret: FleetSecret = OPEN) -> None:
        """Prepare a port, opened by the first node; calls must prove `secret`, and with a `guard` they use TLS."""
        self._options, self._secret = options, secret
        self._here: dict[NodeId, ServedNode] = {}
        self._known: dict[str, ServedNode] = {}  # also nodes that have left, whose calls fail by their names
        self._gate = GuardedPort(self, self._objection, self._refused, guard)
        self.proved = self._gate.proved
        self._opening = asyncio.Lock()

    async def enter(self, node: ServedNode, address: str) -> str:
        """Add `node` to the port; the first node opens it at `address`.

        Returns the address with the actual port number.

        Raises:
            RuntimeError: the address can't be listened on.
        """
        async with self._opening:
            self._here[node.node] = self._known[str(node.node)] = node
            return self._gate.address or await self._gate.open(address, self._options.server())

    async def leave(self, node: ServedNode) -> None:
        """Remove `node`. The last node to leave stops the server, and with it all calls."""
        self._here.pop(node.node, None)
        if self._here:
            node.leave()
        else:
            await self._gate.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a call, from the node that the call names; None if nobody answers such calls."""
        node = self._asked(dict(handler_call_details.invocation_metadata or ()))
        found = (each.service(handler_call_details) for each in (node.handlers if node else ()))
        return next((handler for handler in found if handler is not None), None)

    def _objection(self, metadata: Mapping[str, str | bytes]) -> str:
        callee = self._asked(metadata)
        node = next(iter(self._known.values())).node if callee is None else callee.node
        if reason := self._secret.objection(metadata, node, self._gate.address):
            return reason
        return NOT_OF_THIS_FLEET if callee is None else ""

    def _asked(self, metadata: Mapping[str, str | bytes]) -> ServedNode | None:
        """Return the node that a call's metadata names; None if this port does not serve it."""
        return self._known.get(str(metadata.get(CALLEE, "")))

    def _refused(self, what: str) -> None:
        if (first := next(iter(self._here.values()), None)) is not None:
            first.refused(what)


class SharedChannel:
    """A gRPC channel to an address, closed when its last user leaves it."""

    def __init__(self, channel: grpc.aio.Channel, let_go: Callable[[], object]) -> None:
        """Share `channel`, at first without users; call `let_go` after the last user has left."""
        self.channel, self._let_go, self._users = channel, let_go, 0

    def use(self) -> Self:
        """Count one more user of the channel, and return the channel itself."""
        self._users += 1
        return self

    def release(self) -> bool:
        """Remove one user of the channel; return whether it was the last, so that the caller must close the channel."""
        self._users -= 1
        if not self._users:
            self._let_go()
        return not self._users

    async def leave(self) -> None:
        """Remove one user of the channel; the last one closes it."""
        if self.release():
            await self.channel.close()


class Channels:
    """The gRPC channels of a process, one for each address.

    With credentials there is one for each node, whose certificate must name this node. The calls over them prove the
    fleet's `secret`.
    """

    def __init__(self, options: Options, credentials: Credentials | None = None, secret: FleetSecret = OPEN) -> None:
        """Start without channels; they will have these gRPC `options`, and mutual TLS with `credentials`."""
        self.credentials, self._options, self._secret = credentials, options, secret
        self._open: dict[tuple[str, NodeId | None], SharedChannel] = {}

    def to(self, address: str, callee: NodeId) -> SharedChannel:
        """Return the channel for calls to node `callee` at `address`; the user must leave it afterwards."""
        key = address, None if self.credentials is None else callee
        shared = self._open.get(key)
        if shared is None:
            channel = open_channel(address, callee, self._options, self.credentials)
            shared = self._open[key] = SharedChannel(channel, lambda: self._open.pop(key))
        return shared.use()

    def metadata(self, address: str, callee: NodeId) -> Metadata:
        """Return the gRPC metadata of each call to node `callee` at `address`: its number, a proof of the secret."""
        return for_node(callee), *self._secret.proof(callee, address)


class SharedNetwork:
    """The network of a process: a server port, and channels to other processes, with separate ones for heartbeats."""

    def __init__(
        self,
        options: GrpcOptions,
        credentials: Credentials | None = None,
        guard: Guard | None = None,
        secret: FleetSecret = OPEN,
    ) -> None:
        """Prepare the network of a process in plain text; with `credentials` and `guard`, the TLS network of a node."""
        self.port = Port(options, guard, secret)
        self.messages = Channels(options.channel(), credentials, secret)
        self.heartbeats = Channels(options.channel(), credentials, secret)
