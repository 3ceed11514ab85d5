"""A node in real time: it starts a server, runs its rounds, and leaves the network in good order or by a crash."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from netdfl.core.clock import NS_PER_S, RealClock
from netdfl.core.control import ClockReading, CoreRates, Crashed, Life, Order, Start, Stop
from netdfl.core.errors import NetdflError, RunError
from netdfl.core.noticed import noticed_timeout
from netdfl.core.rng import seed_streams
from netdfl.core.types import NodeId
from netdfl.diagnosis.fidelity import EVENT
from netdfl.diagnosis.outgoing import OutgoingMessages
from netdfl.host.apart import ClockOffset, FileUpload, ReportStream
from netdfl.host.blueprint import Blueprint
from netdfl.host.kept import CheckpointFile
from netdfl.host.models import ModelFiles
from netdfl.host.network import Endpoint, make_transport
from netdfl.host.node import NodeHost, NodeParts, most_kept
from netdfl.host.workers import SlowWorker
from netdfl.node.ledger import NodeLedger
from netdfl.node.worker import Worker
from netdfl.record.resources import ResourceLog, process_name
from netdfl.record.store import StoreWriter
from netdfl.transport.emulated.transport import EmulatedTransport
from netdfl.transport.grpc.transport import Service

FLUSH_S = 0.25
STOPPED_S = 1.0
"""Seconds of standstill of the process from which on it is reported: other nodes can't tell it from a slow link."""
MOST_REPORTS = 400
"""The most progress reports per second of all nodes together, not counting the reports that a round has begun.

A thousand per second took a tenth of a processor.
"""


class Controller(ReportStream, Protocol):
    """The party to which a running node reports, and which decides when the node may end.

    It is a supervisor at the other end of a stream. A node that runs without a supervisor writes its reports into a
    journal. `launched`: whether it is a supervisor.
    """

    launched: bool

    async def dismissed(self) -> None:
        """Return when the node is no longer needed."""
        ...

    async def part(self, code: int, crash: Crashed | None) -> None:
        """Report that the node has ended with exit code `code`, or crashed, and close the stream."""
        ...


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """The configuration of one life of a node in real time: from a start of the node to its end or crash.

    Attributes:
        node: the node.
        life: the number of restarts before, and how the node rejoins after a crash.
        device: the device for the node's computing.
        directory: the directory of the node's files.
        worker: runs the node's computing.
        endpoint: the node's address, and the identity of its run.
        services: services that the node's server offers besides messages.
        hosted: all nodes of its process, if this node records the memory and CPU use of the process; else empty.
        shares_disk: whether the node shares a disk with the controller; if not, the node's files are uploaded.
        shares_clock: whether the node shares a clock with the controller; if not, it asks for the controller's time.
        monotonic_ns: returns the time of this machine in ns.
    """

    node: NodeId
    life: Life
    device: str
    directory: Path
    worker: Worker
    endpoint: Endpoint
    services: Sequence[Service] = ()
    hosted: Sequence[NodeId] = ()
    shares_disk: bool = True
    shares_clock: bool = True
    monotonic_ns: Callable[[], int] = time.monotonic_ns


def record_name(node: NodeId, epoch: int, shares_disk: bool) -> str:
    """Return the name of a node's record files after `epoch` restarts.

    Without a disk that it shares with the supervisor, files after each restart need a different name.
    """
    return f"{node:03d}" if shares_disk or not epoch else f"{node:03d}-{epoch}"


class LivingNode:
    """One node in real time, from a start to its end or crash.

    The node's `NodeHost` (`host`) does the part that is the same in virtual time.
    """

    def __init__(self, blueprint: Blueprint, birth: NodeConfig, superior: Controller) -> None:
        """Prepare the node with the configuration `birth`, without starting the node; it reports to `superior`."""
        seed_streams(blueprint.streams.integer("process", birth.node, birth.life.epoch))
        self.blueprint, self.id, self.superior = blueprint, birth.node, superior
        self.clock, self.crashing = RealClock(birth.monotonic_ns(), birth.monotonic_ns), asyncio.Event()
        self._offset = None if birth.shares_clock else ClockOffset(superior.report, birth.monotonic_ns)
        self._start: Start | None = None
        self._shipping = None if birth.shares_disk else FileUpload(birth.directory, birth.node, superior)
        name = record_name(birth.node, birth.life.epoch, birth.shares_disk)
        self.store = StoreWriter(birth.directory, name, blueprint.scenario.record.sampling)
        self._resources = self._resource_log(birth, name)
        ledger = NodeLedger(birth.node, self.clock, self.store)
        self.transport, self.meter = make_transport(
            blueprint,
            birth.endpoint,
            birth.node,
            birth.life.epoch,
            self.clock,
            ledger,
            birth.services,
            superior.report,
        )
        ship = None if self._shipping is None else self._shipping.whole
        self.models = ModelFiles(birth.directory, birth.node, superior.report, ship)
        kept = CheckpointFile(
            birth.directory,
            birth.node,
            returns=blueprint.keeps_state(birth.node),
            every=blueprint.scenario.checkpoint.every,
            ship=None if self._shipping is None else self._shipping.surely,
        )
        parts = NodeParts(
            clock=self.clock,
            device=birth.device,
            transport=self.transport,
            outgoing=OutgoingMessages(self.transport, self.clock, keep=most_kept(blueprint)),
            ledger=ledger,
            worker=SlowWorker(birth.worker),
            recorder=self.store,
            journal=self.store,
            kept=kept,
            models=self.models,
            report=superior.report,
            launched=superior.launched,
        )
        self.host = NodeHost(blueprint, birth.node, birth.life, parts, self.crashing.set)

    def obey(self, order: Order) -> None:
        """Carry out an order, except the order to stop, which the controller handles."""
        match order:
            case Stop():
                return
            case ClockReading():
                assert self._offset is not None
                self._offset.told(order)
                if self._shipping is not None:
                    self._shipping.told(order)
            case Start():
                self._start = order
            case CoreRates():
                if isinstance(self.transport, EmulatedTransport):
                    self.transport.take_rates(order)
            case _:
                self.host.obey(order)
        if self._start is not None and (self._offset is None or self._offset.known):
            start, self._start = self._start, None
            self.clock.start_ns = start.start_ns - (0 if self._offset is None else self._offset.ahead_ns)
            self.host.obey(start)

    def attend(self) -> None:
        """Begin to ask for the controller's time if the controller has another clock. Call this once connected."""
        if self._offset is not None:
            self._offset.begin()

    async def run(self) -> int:
        """Run until the node is dismissed, crashes or fails; return the exit code."""
        works = (self._live(), self._tick(), self.superior.dismissed(), self._crashed(), self.models.write())
        tasks = [asyncio.create_task(work) for work in (*works, *self._beside())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            errors = [task.exception() for task in done]
            return next((self._fail(error) for error in errors if error is not None), 0)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self, code: int) -> None:
        """Leave the network: close the transport and the record, and report the end with exit code `code`."""
        crash = self.host.crash
        self.host.fall_silent()
        with suppress(RunError):
            self.store.flush()
        await (self.transport.aclose() if crash is None else self.transport.hand_over())
        with suppress(RunError):
            if self.blueprint.emulates_messages:
                self.host.tell(EVENT, **self.meter.to_json())
            self.store.close()
        if self._resources is not None and self.host.started.is_set():
            self._resources.close()
        if self._shipping is not None:
            await self._shipping.grown()
        await self.superior.part(code, crash)

    def _resource_log(self, birth: NodeConfig, name: str) -> ResourceLog | None:
        if not birth.hosted:
            return None
        process = process_name(birth.hosted)
        return ResourceLog(birth.directory, name, process, lambda: self.clock.now_ns() / NS_PER_S, node=birth.node)

    def _beside(self) -> Iterator[Coroutine[Any, Any, None]]:
        if self.blueprint.emulates_messages:
            yield self.meter.watch_loop(self.clock)
        for work in self.host.beside():
            yield self._once_begun(work)

    async def _live(self) -> None:
        """Run from the fleet's start to the last round, then answer neighbors until the node is dismissed."""
        await self._once_begun(self.host.live)
        await asyncio.Event().wait()

    async def _once_begun(self, work: Callable[[], Awaitable[None]]) -> None:
        await self.host.started.wait()
        await self.clock.sleep_until(0)
        await work()

    async def _crashed(self) -> None:
        """Wait for a scheduled crash; return once the evaluator can find the models of the node's finished rounds."""
        await self.crashing.wait()
        grace_s = self.blueprint.scenario.transport.close_grace / NS_PER_S
        with suppress(TimeoutError):
            async with noticed_timeout(grace_s if self._shipping is None else None):  # a supervisor may be busy
                await self.models.delivered()

    async def _tick(self) -> None:
        """Write the record and report progress, a few times per second.

        A new round is reported at once, other progress less often in a large fleet.
        """
        apart_s = self.blueprint.scenario.num_nodes / MOST_REPORTS - FLUSH_S
        said, due_s = -1, 0.0
        while True:
            await self._nap()
            self.store.flush()
            if self._resources is not None and self.host.started.is_set():
                self._resources.sometimes()
            if self._shipping is not None:
                await self._shipping.grown()
            if self.host.round != said or time.monotonic() >= due_s:
                self.host.progress()
                said, due_s = self.host.round, time.monotonic() + apart_s

    async def _nap(self) -> None:
        """Sleep until the next write; record an event `stopped` if the process stood still for over a second."""
        began_s, cpu_s = time.monotonic(), time.process_time()  # the fleet's clock is set at the start
        await asyncio.sleep(FLUSH_S)
        late_s = time.monotonic() - began_s - FLUSH_S
        if late_s > STOPPED_S and time.process_time() - cpu_s < late_s / 2 and self.host.started.is_set():
            self.host.tell("stopped", seconds=late_s)

    def _fail(self, error: BaseException) -> int:
        code = self.host.fail(error)
        with suppress(OSError):  # the log may lie on the disk that is full
            print(f"node {self.id}: {error}", file=sys.stderr)
            if not isinstance(error, NetdflError):
                traceback.print_exception(error)
        return code
