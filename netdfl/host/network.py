"""A real node's end of the network: gRPC, with netdfl's links above it if the scenario has any.

Relies on: its caller being in the node's own process: a process must not fork after gRPC was used, so gRPC is imported
at the call.

Why: Emulated links are a layer around the gRPC transport and not in it, so that the scenario's `loss_layer` decides in
one place whether netdfl's rules act on messages or on packets. `PausableSink` comes before the mailbox because a paused
node must read nothing and lose nothing: its senders must wait and retry, as with a full mailbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from netdfl.core.clock import Clock
from netdfl.core.control import CoreFlows
from netdfl.core.types import Kind, Message, NodeId, Scalar
from netdfl.diagnosis.fidelity import Meter
from netdfl.host.blueprint import Blueprint
from netdfl.host.comparison import NO_COMPARISON, ModelComparison
from netdfl.links.channel import Links
from netdfl.node.admission import Admission
from netdfl.node.delivery import NOT_ADMITTED
from netdfl.node.mailbox import Mailbox
from netdfl.scenario.build import build_underlay
from netdfl.transport.base import Fate, Ledger, Transport, deliver_one
from netdfl.transport.emulated.transport import EmulatedTransport
from netdfl.transport.grpc.options import GrpcOptions
from netdfl.transport.security.credentials import Credentials
from netdfl.transport.shared_memory.memory import SharedMemory
from netdfl.transport.wire import FrameWriter
from netdfl.underlay.told import ToldCore

if TYPE_CHECKING:
    from netdfl.transport.grpc.connections import SharedNetwork
    from netdfl.transport.grpc.transport import GrpcTransport, Service
    from netdfl.transport.security.secret import FleetSecret


class NodeTransport(Transport, Protocol):
    """A transport with the additional methods that the host of a node in real time needs."""

    async def start(self) -> str:
        """Start to listen for messages; return this node's address. Raises MachineError."""
        ...

    def begin(self) -> None:
        """Inform the transport that the fleet's time has begun."""
        ...

    def set_peer(self, node: NodeId, address: str, epoch: int = 0) -> None:
        """Send messages for `node` to `address` from now on; `epoch` is the number of its restarts."""
        ...

    def set_gone(self, node: NodeId) -> None:
        """Mark `node` as gone (nothing is sent to it) until the next `set_peer`."""
        ...

    async def hand_over(self) -> None:
        """Let sent messages leave the node, record those neither delivered nor lost as `in_flight`, and send no more.

        Called when the node crashes by the schedule.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The address of a node in real time, and the identity of the run whose messages the node accepts.

    Attributes:
        listen: the address, `host:port`; port 0 is any free one.
        run_id: the id of the run.
        scenario_hash: the hash of the scenario.
        credentials: keys and certificate for mutual TLS; None: no TLS.
        memory: the memory for large message bodies that processes share; None: they share none.
        shared: the server and connections that the nodes of one process have in common; None: the node has its own.
        secret: the fleet's secret, by which calls prove that they come from the fleet; None: it has none.
    """

    listen: str
    run_id: bytes
    scenario_hash: str
    credentials: Credentials | None = None
    memory: SharedMemory | None = None
    shared: SharedNetwork | None = None
    secret: FleetSecret | None = None


def make_transport(
    blueprint: Blueprint,
    endpoint: Endpoint,
    node: NodeId,
    epoch: int,
    clock: Clock,
    ledger: Ledger,
    services: Sequence[Service] = (),
    report: Callable[[CoreFlows], None] = lambda _: None,
) -> tuple[NodeTransport, Meter]:
    """Return the transport of `node`, which restarted `epoch` times, and the delay meter of its emulated links.

    The node's server offers the gRPC `services` too. `ledger` records sent messages. `report` sends the supervisor
    the messages that now cross core links, which are links that several paths of an emulated underlay share.
    """

    from netdfl.transport.grpc.transport import GrpcTransport  # simulated nodes need no gRPC
    from netdfl.transport.security.identity import Identity
    from netdfl.transport.security.secret import OPEN

    me = Identity(node, epoch, endpoint.run_id, endpoint.scenario_hash)

    def grpc(ledger: Ledger) -> GrpcTransport:
        return GrpcTransport(
            me,
            endpoint.listen,
            clock=clock,
            ledger=ledger,
            options=message_options(blueprint),
            services=services,
            credentials=endpoint.credentials,
            memory=endpoint.memory,
            shared=endpoint.shared,
            secret=endpoint.secret or OPEN,
        )

    meter = Meter()
    if not blueprint.emulates_messages:
        return grpc(ledger), meter
    underlay, streams = build_underlay(blueprint.scenario), blueprint.streams
    core = None if underlay is None else ToldCore(underlay, streams)
    links, seed = Links(blueprint.links, streams, blueprint.schedule, halves=True, core=core), streams.integer("ties")
    real = partial(EmulatedTransport, clock=clock, ledger=ledger, seed=seed, epoch=epoch, measure=meter.arrived)
    peer_bytes = blueprint.bounds.peer_bytes
    return real(node, grpc, links, blueprint.schedule, report=report, peer_bytes=peer_bytes), meter


def message_options(blueprint: Blueprint) -> GrpcOptions:
    """Return the scenario's gRPC options, with the limits that follow from the fleet.

    By default `max_message` allows a model vector and three more vectors of its size. Where all nodes are on one
    machine, without TLS, a receiver reads only a little ahead, as a stranger could make it store that much for each
    call. This is not done for nodes that share a connection.
    """
    asked, bounds = blueprint.scenario.transport, blueprint.bounds
    options = replace(
        asked,
        streams=asked.streams or bounds.streams,
        calls=asked.calls or bounds.calls,
        connections=asked.connections or bounds.connections,
    )
    alone = blueprint.scenario.world.kind == "processes" and bounds.together == 1
    if asked.lookahead == GrpcOptions.lookahead and alone:
        options = replace(options, lookahead=LOOKAHEAD_AT_HOME)
    if asked.max_message != GrpcOptions.max_message:
        return options
    return replace(options, max_message=4 * 8 * blueprint.problem.dim + 1024 * 1024)


LOOKAHEAD_AT_HOME = 64 * 1024
"""Bytes that a receiver may read ahead if all nodes are on one machine, where more would not be faster."""

_NEW = (Fate.DELIVERED, Fate.LATE)


class PausableSink:
    """A gate in front of a node's mailbox. While it is closed it takes no messages, and they wait at their senders."""

    def __init__(
        self,
        mailbox: Mailbox,
        admission: Admission | None = None,
        refused: Callable[[Message, str], None] = lambda message, why: None,
        compared: ModelComparison = NO_COMPARISON,
    ) -> None:
        """Deliver into `mailbox` while open; begin open. `refused` gets each message that `admission` rejects, and why.

        Digests are stored for the messages that `compared` chooses, if the mailbox did not have them before.
        """
        self._mailbox, self._admission, self._refused = mailbox, admission, refused
        self._compared_rounds, self._every = compared
        self._came: dict[tuple[int, NodeId, int], str] = {}
        self._waiters: list[Callable[[], None]] = []
        self.closed = False

    def prepare(self, round: int) -> None:
        """Look up the nodes that may send to this node in `round` and the next one."""
        if self._admission is not None:
            self._admission.prepare(round)

    def close(self) -> None:
        """Close this gate: take no messages until it is opened; senders keep theirs and wait."""
        self.closed = True

    def open(self) -> None:
        """Open this gate: take messages again, and call back the senders that wait."""
        self.closed = False
        waiters, self._waiters = self._waiters, []
        for callback in waiters:
            callback()

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Pass the messages to the mailbox, and return the fate of each: accepted, refused, or None if it must wait."""
        if self.closed:
            return [None] * len(messages)
        if self._admission is None or not any(map(self._admission.objection, messages)):
            fates = self._mailbox.deliver(messages)
        else:
            fates = [self.refusal(message) or deliver_one(self._mailbox, message) for message in messages]
        for message, fate in zip(messages, fates, strict=True) if self._compared_rounds else ():
            if message.round in self._compared_rounds and not (message.round + message.src) % self._every:
                self._note(message, fate)
        return fates

    @property
    def digests(self) -> list[Scalar]:
        """The received messages to compare, each as its round, sender, sender's number of restarts, and digest."""
        return [[*which, digest] for which, digest in self._came.items()]

    def _note(self, message: Message, fate: Fate | None) -> None:
        which = message.round, message.src, message.epoch
        if message.kind is Kind.DATA and not message.step and fate in _NEW and which not in self._came:
            self._came[which] = f"{FrameWriter.checksum(message.payload):016x}"

    def refusal(self, message: Message) -> Fate | None:
        """Return the fate of a message that is not admitted, and report its refusal; None if it may be delivered."""
        if self._admission is None or not (why := self._admission.objection(message)):
            return None
        self._refused(message, why)
        return NOT_ADMITTED

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the mailbox has room for a message, or, if this gate is closed, once it opens."""
        if self.closed:
            self._waiters.append(callback)
        else:
            self._mailbox.when_room(callback)
