"""The transport of real worlds: a gRPC server for each node, and a sender for each peer.

Relies on: addresses from `set_peer`, and a process that does not fork afterwards: gRPC hangs in a fork.

Why: Senders are made when they are first needed and closed when idle, because most pairs of a large fleet never speak,
and on a graph that is redrawn ever more calls would stay open. Heartbeats have senders of their own: behind a model of
megabytes they would be late, and a live node be called gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

import grpc

from netdfl.core.clock import NS_PER_S, Clock
from netdfl.core.errors import MachineError
from netdfl.core.fates import FOREIGN
from netdfl.core.types import Kind, Message, Multicast, NodeId, messages_of
from netdfl.transport import wire
from netdfl.transport.base import Fate, Ledger, Sink
from netdfl.transport.grpc.connections import ServedNode, SharedNetwork
from netdfl.transport.grpc.options import GrpcOptions
from netdfl.transport.grpc.receiving import DataServicer
from netdfl.transport.grpc.sending import PeerSender
from netdfl.transport.security.credentials import Credentials
from netdfl.transport.security.identity import Identity
from netdfl.transport.security.secret import OPEN, FleetSecret
from netdfl.transport.security.tls import Guard
from netdfl.transport.shared_memory.buffers import SharedBuffers
from netdfl.transport.shared_memory.memory import SharedMemory

__all__ = ["GrpcOptions", "GrpcTransport"]

IDLE_NS = 60 * NS_PER_S
"""Nanoseconds without messages after which the calls to a node end. On a graph that changes, ever more calls would stay
open otherwise."""
Service: TypeAlias = Callable[[Guard | None], grpc.GenericRpcHandler]
"""A function that makes a further gRPC service of the server, given the TLS guard of its port (None in plain text)."""


class GrpcTransport:
    """One node's end of a network of gRPC servers.

    `start` binds the server and returns its address; `set_peer` gives the addresses of others. Heartbeats have a sender
    and a connection of their own, because they must not wait behind a model. Nodes of one process may share servers and
    connections; with mutual TLS each node has its own. Import this module only in the process that uses it: a process
    forked after grpc was used hangs.
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
        shared: SharedNetwork | None = None,
        secret: FleetSecret = OPEN,
    ) -> None:
        """Prepare to listen on `address` (`127.0.0.1:0` picks a free port); `start` opens the port.

        Args:
            me: this node, with its number of restarts; peers of another run, or with another scenario, are refused.
            address: host and port to listen on.
            clock: the fleet's time.
            ledger: gets each message that is sent, and its fate.
            options: gRPC's timers, windows and limits.
            services: make the further services of the server, for calls that are no messages.
            credentials: prove the node's identity and number of restarts, by mutual TLS; None: plain text.
            memory: holds large bodies for nodes that share it; to other nodes, and with None, bodies go inline.
            shared: the network that nodes of this process share, without `credentials`; None: the node is alone.
            secret: the fleet's secret, which each call proves; `shared` has its own.
        """
        self.address = address
        self._me = me
        self._clock = clock
        self._ledger = ledger
        self._options = options or GrpcOptions()
        guard = None if credentials is None else Guard(credentials, self._refuse)
        self._shared = shared or SharedNetwork(self._options, credentials, guard, secret)
        self.buffers = None if memory is None else SharedBuffers(memory, me.node, me.epoch)
        self._servicer = DataServicer(
            self._me, clock, ledger, self._options, guard, self.buffers, self._shared.port.proved
        )
        handlers = self._servicer.methods(), *(service(guard) for service in services)
        self._served = ServedNode(me.node, handlers, self._refuse, self._servicer.leave)
        self._places: dict[NodeId, tuple[str, int] | None] = {}
        self._senders: dict[NodeId, tuple[PeerSender, PeerSender]] = {}
        self._retired: list[PeerSender] = []
        self._handed_over = False
        self._look_ns = IDLE_NS

    async def start(self) -> str:
        """Start to listen, and return the address with the actual port number. Raises MachineError."""
        try:
            self.address = await self._shared.port.enter(self._served, self.address)
        except RuntimeError as error:
            raise MachineError(
                f"node {self._me.node} can't listen on {self.address}: is the port in use? Choose another"
            ) from error
        return self.address

    def _refuse(self, what: str) -> None:
        self._ledger.refused(None, FOREIGN, what)

    def attach(self, sink: Sink) -> None:
        """Deliver arriving messages into `sink`."""
        self._servicer.attach(sink)

    def set_peer(self, node: NodeId, address: str, epoch: int = 0) -> None:
        """Send to `node` at `address` from now on; messages queued for an earlier address or before a restart fail."""
        if self._places.get(node) == (address, epoch):
            return
        self._close(node, Fate.GONE)
        self._servicer.introduce(node, epoch)
        self._places[node] = address, epoch

    def set_gone(self, node: NodeId) -> None:
        """Mark `node` as gone, known or not: messages to it fail as `failed:gone`, until `set_peer`."""
        self._places[node] = None
        self._close(node, Fate.GONE)

    def _close(self, node: NodeId, fate: Fate) -> None:
        pair = self._senders.pop(node, ())
        for sender in pair:
            sender.close(fate)
        self._retired += pair

    def _close_idle(self) -> None:
        """Close the senders that have been idle for long enough, and schedule the next check."""
        now = self._clock.now_ns()
        if now < self._look_ns:
            return
        self._look_ns = now + IDLE_NS // 2
        for node in [n for n, pair in self._senders.items() if all(each.idle_since(now - IDLE_NS) for each in pair)]:
            self._close(node, Fate.IN_FLIGHT)
        self._retired = [sender for sender in self._retired if sender.shutting]

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Queue messages to their receivers; wait only for receivers whose queue is full.

        Raises:
            KeyError: a destination was never given an address.
            ValueError, TypeError: a message whose numbers or metadata can't travel.
        """
        messages = messages_of(multicasts)
        held: list[Message] = []
        full: set[PeerSender] = set()
        for message in messages:  # first for all: messages that were read leave room for the next
            self._sender(message).look()
        for message in messages:
            sender = self._sender(message)
            nbytes = wire.frame_size(message.payload)
            if sender in full or not sender.has_room(nbytes):
                full.add(sender)
                held.append(message)
            else:
                sender.put(message, nbytes)
        for message in held:
            await self.room(message)
            self._sender(message).put(message, wire.frame_size(message.payload))

    def carry(self, message: Message, link_header: bytes) -> None:
        """Queue one message with a link header, even if the queue to its receiver is full.

        Raises KeyError without an address of the receiver, ValueError or TypeError for contents that can't travel.
        """
        sender = self._sender(message)
        sender.look()
        sender.put(message, wire.frame_size(message.payload), link_header)

    def has_room(self, message: Message) -> bool:
        """Whether the queue to the message's receiver has room for it."""
        return self._sender(message).has_room(wire.frame_size(message.payload))

    async def room(self, message: Message) -> None:
        """Wait until the queue to the message's receiver has room for it."""
        while not self.has_room(message):
            await self._sender(message).settled_one()

    def begin(self) -> None:
        """Do nothing: gRPC needs no signal that the fleet's time has begun."""

    async def hand_over(self) -> None:
        """Wait a grace period for queued messages to leave, give the others the fate `in_flight`, and stop sending."""
        grace_s = self._options.close_grace / NS_PER_S
        busy = [sender for pair in self._senders.values() for sender in pair if sender.busy]
        await asyncio.gather(*(sender.drained(grace_s) for sender in busy))
        self._handed_over = True
        for node in list(self._senders):
            self._close(node, Fate.IN_FLIGHT)

    async def aclose(self) -> None:
        """Wait a grace period for queued messages to leave, give the others the fate `in_flight`, and close."""
        await self.hand_over()
        await self._shared.port.leave(self._served)
        await asyncio.gather(*(sender.wait_closed() for sender in self._retired))
        if self.buffers is not None:
            self.buffers.close()

    def _sender(self, message: Message) -> PeerSender:
        pair = self._senders.get(message.dst)
        if pair is None:
            pair = self._senders[message.dst] = self._open(message.dst)
        return pair[message.kind in (Kind.HEARTBEAT, Kind.PROBE)]

    def _open(self, node: NodeId) -> tuple[PeerSender, PeerSender]:
        """Return the senders to `node` for messages and for heartbeats, made on first use."""
        self._close_idle()
        place = self._places[node]
        address, _ = place or ("", 0)
        data, beats = (
            PeerSender(self._me, node, address, self._clock, self._ledger, self._options, channels, buffers)
            for channels, buffers in ((self._shared.messages, self.buffers), (self._shared.heartbeats, None))
        )
        if place is None or self._handed_over:
            for sender in (data, beats):
                sender.close(Fate.GONE if place is None else Fate.IN_FLIGHT)
        return data, beats
