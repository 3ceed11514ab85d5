"""The transport of real worlds: a gRPC server per node and a channel per destination."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

import grpc.aio

from netdfl.core.clock import NS_PER_S, Clock
from netdfl.core.errors import MachineError
from netdfl.core.types import Kind, Message, NodeId
from netdfl.transport import wire
from netdfl.transport.base import Fate, Ledger, Sink
from netdfl.transport.bodies import Bodies, SharedMemory
from netdfl.transport.credentials import Credentials
from netdfl.transport.departures import Watch, watched
from netdfl.transport.grpc_in import Inlet
from netdfl.transport.grpc_out import Outlet
from netdfl.transport.identity import Identity
from netdfl.transport.options import GrpcOptions
from netdfl.transport.tls import Guard, open_port

__all__ = ["GrpcOptions", "GrpcTransport"]

GONE = "failed:gone"
Service: TypeAlias = Callable[[Guard | None], grpc.GenericRpcHandler]
"""What a server answers, made with the guard of its port."""


class GrpcTransport:
    """One node's end of a network of gRPC servers.

    `start` binds the server and gives its address; `set_peer` says where others listen. Heartbeats
    have an outlet and a connection of their own: one that waits behind a model says nothing. Import
    this module only in the process that uses it: a process forked after grpc was used hangs.
    """

    def __init__(
        self,
        me: Identity,
        address: str,
        *,
        clock: Clock,
        ledger: Ledger,
        options: GrpcOptions | None = None,
        services: Sequence[Service] = (),
        credentials: Credentials | None = None,
        memory: SharedMemory | None = None,
    ) -> None:
        """Listen on `address` (`127.0.0.1:0` draws a port) once started.

        Args:
            me: this node, in this life of it; peers of another run, or with another scenario, are refused.
            address: host and port to listen on.
            clock: the fleet's time.
            ledger: told of every message sent and of its fate.
            options: gRPC's timers, windows and limits.
            services: what its server answers beside messages.
            credentials: what this life of the node proves itself with, by mutual TLS; None: plain text.
            memory: where large bodies lie for the nodes that share it; to others they go inline, as all do with None.
        """
        self.address = address
        self._services = services
        self._me = me
        self._clock = clock
        self._ledger = ledger
        self._options = options or GrpcOptions()
        self._credentials = credentials
        self._guard = None if credentials is None else Guard(credentials, self._refuse)
        self._bodies = None if memory is None else Bodies(memory, me.node, me.epoch)
        self._inlet = Inlet(self._me, clock, ledger, self._options, self._guard, self._bodies)
        self._outlets: dict[NodeId, tuple[Outlet, Outlet]] = {}
        self._retired: list[Outlet] = []
        self._server: grpc.aio.Server | None = None
        self._watch: Watch | None = None

    async def start(self) -> str:
        """Listen. Returns the address with the port that was drawn. Raises MachineError."""
        self._server = grpc.aio.server(options=self._options.server())
        services = [service(self._guard) for service in self._services]
        self._server.add_generic_rpc_handlers((self._inlet.methods(), *services))
        try:
            port = open_port(self._server, self.address, self._guard)
        except RuntimeError as error:
            raise MachineError(
                f"node {self._me.node} can't listen on {self.address}: is the port in use? Choose another"
            ) from error
        await self._server.start()
        self.address = f"{self.address.rpartition(':')[0]}:{port}"
        if self._credentials is None:
            self._watch = await watched(self.address, self._refuse)
        return self.address

    def _refuse(self, what: str) -> None:
        self._ledger.refused(None, "foreign", what)

    def attach(self, sink: Sink) -> None:
        """Deliver what arrives into `sink`."""
        self._inlet.attach(sink)

    def set_peer(self, node: NodeId, address: str, epoch: int = 0) -> None:
        """Reach `node` at `address` from now on; what was queued for an earlier address or epoch fails."""
        data, _ = self._outlets.get(node, (None, None))
        if data is not None and (data.address, data.epoch) == (address, epoch) and not data.closed:
            return
        if data is not None:
            self.set_gone(node)
        self._inlet.introduce(node, epoch)
        self._outlets[node] = self._open(node, address, epoch)

    def _open(self, node: NodeId, address: str, epoch: int) -> tuple[Outlet, Outlet]:
        shared = self._bodies if self._bodies is not None and self._bodies.reach(node) else None
        data, beats = (
            Outlet(self._me, node, address, epoch, self._clock, self._ledger, self._options, self._credentials, bodies)
            for bodies in (shared, None)
        )
        return data, beats

    def set_gone(self, node: NodeId) -> None:
        """Give `node` up, known or not: what is queued or sent to it fails as `failed:gone`, until `set_peer`."""
        if node not in self._outlets:
            self._outlets[node] = self._open(node, "", 0)
        for outlet in self._outlets[node]:
            if not outlet.closed:
                outlet.close(GONE)
                self._retired.append(outlet)

    async def send(self, messages: Sequence[Message]) -> None:
        """Queue messages for their destinations; wait only for those whose queue is full.

        Raises:
            KeyError: a destination was never given an address.
            ValueError, TypeError: a message whose numbers or metadata can't travel.
        """
        held: list[Message] = []
        full: set[Outlet] = set()
        for message in messages:
            outlet = self._outlet(message)
            nbytes = wire.frame_size(message)
            if outlet in full or not outlet.has_room(nbytes):
                full.add(outlet)
                held.append(message)
            else:
                outlet.put(message, nbytes)
        for message in held:
            nbytes = wire.frame_size(message)
            while not (outlet := self._outlet(message)).has_room(nbytes):
                await outlet.settled_one()
            outlet.put(message, nbytes)

    def carry(self, message: Message, link_header: bytes) -> None:
        """Queue one message with a link header, whether there is room or not. Raises as `send` does."""
        self._outlet(message).put(message, wire.frame_size(message), link_header)

    def has_room(self, message: Message) -> bool:
        """Whether the queue to the message's destination takes it now."""
        return self._outlet(message).has_room(wire.frame_size(message))

    async def room(self, message: Message) -> None:
        """Return when the queue to the message's destination takes it."""
        while not self.has_room(message):
            await self._outlet(message).settled_one()

    def begin(self) -> None:
        """The fleet's time has begun; nothing here depends on it."""

    async def hand_over(self) -> None:
        """Let what is queued leave within the grace, settle the rest as `in_flight`, and send nothing more."""
        outlets = [outlet for pair in self._outlets.values() for outlet in pair if not outlet.closed]
        grace_s = self._options.close_grace / NS_PER_S
        await asyncio.gather(*(outlet.drained(grace_s) for outlet in outlets))
        for outlet in outlets:
            outlet.close(Fate.IN_FLIGHT)
        self._retired += outlets

    async def aclose(self) -> None:
        """Let what is queued leave within the grace, then settle the rest as `in_flight` and stop."""
        await self.hand_over()
        for looker in (self._guard, self._watch):
            if looker is not None:
                looker.close()
        if self._server is not None:
            await self._server.stop(None)
        await asyncio.gather(*(outlet.wait_closed() for outlet in self._retired))
        if self._bodies is not None:
            self._bodies.give_all_back()

    def _outlet(self, message: Message) -> Outlet:
        return self._outlets[message.dst][message.kind in (Kind.HEARTBEAT, Kind.PROBE)]
