"""A real node's end of the network: gRPC, with netdfl's links above it where the scenario has any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from netdfl.core.clock import Clock
from netdfl.core.types import Message, NodeId
from netdfl.diagnosis.fidelity import Meter
from netdfl.fleet.build import Blueprint
from netdfl.links.channel import Links
from netdfl.transport.base import Fate, Ledger, Sink, Transport
from netdfl.transport.emulated import Emulated
from netdfl.transport.grpc import GrpcTransport
from netdfl.transport.options import GrpcOptions


class NodeTransport(Transport, Protocol):
    """A transport as a real node needs it, beside what its algorithm does."""

    async def start(self) -> str:
        """Listen; return the address. Raises MachineError."""
        ...

    def begin(self) -> None:
        """The fleet's time has begun."""
        ...

    def set_peer(self, node: NodeId, address: str, epoch: int = 0) -> None:
        """Reach `node` at `address` from now on."""
        ...

    def set_gone(self, node: NodeId) -> None:
        """Give `node` up, until `set_peer`."""
        ...

    async def hand_over(self) -> None:
        """Let go what was sent, settle the rest as `in_flight`, send nothing more: this node is about to crash."""
        ...


def make_transport(
    blueprint: Blueprint,
    plan: dict[str, Any],
    command: dict[str, Any],
    node: NodeId,
    clock: Clock,
    ledger: Ledger,
    services: Sequence[Any] = (),
) -> tuple[NodeTransport, Meter]:
    """The transport of `node`, and the meter of its emulated links; its server answers `services` too."""

    def grpc(ledger: Ledger) -> GrpcTransport:
        return GrpcTransport(
            node,
            f"{command.get('address', '127.0.0.1')}:{command.get('port', 0)}",
            {},
            run_id=bytes.fromhex(plan["run_id"]),
            scenario_hash=plan["scenario_hash"],
            clock=clock,
            ledger=ledger,
            options=message_options(blueprint),
            epoch=command["epoch"],
            services=services,
        )

    meter = Meter()
    if not blueprint.emulates_messages:
        return grpc(ledger), meter
    emulated = Emulated(
        node,
        grpc,
        Links(blueprint.links, blueprint.streams, blueprint.schedule),
        blueprint.schedule,
        clock=clock,
        ledger=ledger,
        seed=blueprint.streams.integer("ties"),
        epoch=command["epoch"],
        measure=meter.arrived,
    )
    return emulated, meter


def message_options(blueprint: Blueprint) -> GrpcOptions:
    """The scenario's gRPC options; where it names no `max_message`, its model's vector and three extras have room."""
    asked = blueprint.scenario.transport
    if asked.max_message != GrpcOptions.max_message:
        return asked
    return replace(asked, max_message=4 * 8 * blueprint.problem.dim + 1024 * 1024)


class Door:
    """In front of a mailbox: while it is closed, nothing is taken and senders keep what they have. A `Sink`."""

    def __init__(self, sink: Sink) -> None:
        """Deliver into `sink` while open; begin open."""
        self._sink = sink
        self._waiters: list[Callable[[], None]] = []
        self.closed = False

    def close(self) -> None:
        """Take nothing from now on."""
        self.closed = True

    def open(self) -> None:
        """Take messages again."""
        self.closed = False
        waiters, self._waiters = self._waiters, []
        for callback in waiters:
            callback()

    def deliver(self, message: Message) -> Fate | None:
        """Take the message, or none while closed."""
        return None if self.closed else self._sink.deliver(message)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back when the mailbox has room, or the door opens."""
        if self.closed:
            self._waiters.append(callback)
        else:
            self._sink.when_room(callback)
