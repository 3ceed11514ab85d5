"""A process of the fleet: one node (or a few), or the evaluator, connected to the supervisor.

This is the first module that imports grpc, and it is imported in forked children only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from netdfl.core.control import EVALUATOR, Broke, Bye, Crashed, Evaluate, Evaluated, Hello, Order, Report, Stop
from netdfl.core.errors import InputError, NetdflError, OwnCodeError, TransportError
from netdfl.core.process import keep_freed
from netdfl.core.types import NodeId, Role
from netdfl.core.whose import telling_theirs
from netdfl.host.blueprint import Blueprint
from netdfl.host.judging import judge_files
from netdfl.host.living import LivingNode, NodeConfig
from netdfl.host.models import snapshot_path
from netdfl.host.network import Endpoint, message_options
from netdfl.host.plan import Command, RunPlan
from netdfl.host.workers import make_worker
from netdfl.node.worker import Worker
from netdfl.transport.control.attendance import ControlClient, control_channels
from netdfl.transport.grpc.connections import Channels, SharedNetwork
from netdfl.transport.security.secret import FleetSecret
from netdfl.transport.shared_memory.memory import SharedMemory
from netdfl.transport.wire import PROTOCOL_VERSION

EXIT_LOST = 6


def run_process(blueprint: Blueprint, plan: RunPlan, command: Command, memory: SharedMemory | None = None) -> int:
    """Run the nodes of `command`, or the evaluator, to the end; return the exit code.

    `memory`, shared by all processes of the fleet, holds large message bodies.
    """
    if not blueprint.plain:
        import torch

        torch.set_num_threads(1)
    keep_freed()
    worker = make_worker(blueprint, len(command.nodes))
    common = ProcessResources.of(blueprint, plan, command, worker, memory)
    try:
        members = [
            Evaluator(blueprint, plan, command)
            if node == EVALUATOR
            else HostedNode(blueprint, plan, command, node, common)
            for node in command.nodes
        ]
    except InputError as error:  # such as a file of a client's own, which nobody could look at before
        print(error, file=sys.stderr)
        return EXIT_LOST

    async def everyone() -> int:
        return max(await asyncio.gather(*(member.main() for member in members)))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        code = runner.run(everyone())
    worker.close()
    return code


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of a faster event loop if one is installed; None for asyncio's own."""
    with suppress(ModuleNotFoundError):
        import uvloop

        return uvloop.new_event_loop
    return None


@dataclass(frozen=True, kw_only=True)
class ProcessResources:
    """The resources that the nodes of one process share.

    Attributes:
        worker: runs their computing.
        memory: shared memory for large message bodies; None: there is none.
        secret: the fleet's secret, by which calls prove that they come from the fleet.
        control: their common channels to the supervisor; None: each node has its own.
        shared: their common server and connections to other nodes; None: each node has its own.
    """

    worker: Worker
    memory: SharedMemory | None
    secret: FleetSecret
    control: Channels | None = None
    shared: SharedNetwork | None = None

    @classmethod
    def of(
        cls, blueprint: Blueprint, plan: RunPlan, command: Command, worker: Worker, memory: SharedMemory | None
    ) -> ProcessResources:
        """Create the resources for the nodes of `command`. With mutual TLS each node has separate connections."""
        secret = FleetSecret(text=plan.secret)
        if len(command.nodes) == 1 or command.credentials:
            return cls(worker=worker, memory=memory, secret=secret)
        shared = SharedNetwork(message_options(blueprint), secret=secret)
        return cls(worker=worker, memory=memory, secret=secret, control=control_channels(secret), shared=shared)


class SupervisorStream:
    """A node's stream to the supervisor: it sends reports and receives orders. It is the node's `Controller`."""

    launched = True

    def __init__(self, plan: RunPlan, channels: Channels, blueprint: Blueprint) -> None:
        """Prepare a stream to the supervisor of `plan`, on one of `channels`."""
        self.plan, self.channels, self.blueprint = plan, channels, blueprint
        self.stopped = asyncio.Event()
        self.control: ControlClient | None = None

    async def attend(
        self,
        node: NodeId,
        role: str,
        obey: Callable[[Order], None],
        address: str = "",
        epoch: int = 0,
    ) -> None:
        """Open the stream and pass its orders to `obey`. Raises TransportError.

        The other arguments introduce the node: `role` is client, server or evaluator, `address` is where it listens,
        `epoch` counts its restarts.
        """
        hello = Hello(
            node=node,
            role=role,
            pid=os.getpid(),
            address=address,
            scenario_hash=self.plan.scenario_hash,
            protocol_version=PROTOCOL_VERSION,
            epoch=epoch,
            versions=self.blueprint.versions if self.plan.tells_versions else {},
        )

        def heed(order: Order) -> None:
            if isinstance(order, Stop):
                self.stopped.set()
            else:
                obey(order)

        self.control = await ControlClient.connect(
            self.plan.control, hello, heed, lambda reason: self.stopped.set(), self.channels
        )

    def report(self, report: Report) -> None:
        """Send a report to the supervisor."""
        if self.control is not None:
            self.control.report(report)

    async def flushed(self) -> None:
        """Return once all reports have been sent."""
        if self.control is not None:
            await self.control.flushed()

    async def dismissed(self) -> None:
        """Return when the supervisor orders this node to stop, or is gone."""
        await self.stopped.wait()

    async def part(self, code: int, crash: Crashed | None) -> None:
        """Report the end of the node, or its scheduled crash, and close the stream."""
        if self.control is not None:
            self.report(Bye("done" if code == 0 else f"exit code {code}") if crash is None else crash)
            with suppress(TransportError):
                await self.control.aclose()


class HostedNode:
    """One node of a process, which may host several."""

    def __init__(
        self,
        blueprint: Blueprint,
        plan: RunPlan,
        command: Command,
        node: NodeId,
        common: ProcessResources,
    ) -> None:
        """Prepare `node` without starting it; `common` holds the resources that all nodes of the process share."""
        self.alone = command.nodes == (node,)
        credentials = command.credentials.get(node)
        channels = common.control or control_channels(common.secret, credentials)
        self.attendance = SupervisorStream(plan, channels, blueprint)
        self.role = Role.SERVER if node == blueprint.network.server else Role.CLIENT
        endpoint = Endpoint(
            listen=f"{command.address}:{command.port}",
            run_id=bytes.fromhex(plan.run_id),
            scenario_hash=plan.scenario_hash,
            credentials=credentials,
            memory=common.memory,
            shared=common.shared,
            secret=common.secret,
        )
        birth = NodeConfig(
            node=node,
            life=command.life,
            device=command.device,
            directory=Path(plan.directory),
            worker=common.worker,
            endpoint=endpoint,
            hosted=command.nodes if node == command.nodes[0] else (),
            shares_disk=plan.shares_disk,
            shares_clock=plan.shares_clock,
        )
        self.node, self.epoch = LivingNode(blueprint, birth, self.attendance), command.life.epoch

    async def main(self) -> int:
        """Run the node, answer others until the supervisor orders a stop, and leave; return the exit code."""
        node = self.node
        try:
            address = await node.transport.start()
            await self.attendance.attend(node.id, self.role.value, node.obey, address, self.epoch)
            node.attend()
        except NetdflError as error:
            print(error, file=sys.stderr)
            return EXIT_LOST
        code = await node.run()
        await node.leave(code)
        if node.host.crash is not None:
            if self.alone:
                os.kill(os.getpid(), signal.SIGKILL)
            await node.transport.aclose()
        return code


class Evaluator:
    """The process that evaluates each round's average model: it reads the nodes' snapshots and deletes them."""

    def __init__(self, blueprint: Blueprint, plan: RunPlan, command: Command) -> None:
        """Prepare to evaluate models by the problem of `blueprint`, without connecting to the supervisor yet."""
        self.blueprint, self.directory = blueprint, Path(plan.directory)
        blueprint.problem.move_to(command.device)
        channels = control_channels(FleetSecret(text=plan.secret), command.credentials.get(EVALUATOR))
        self.attendance = SupervisorStream(plan, channels, blueprint)
        self.queue: asyncio.Queue[Evaluate] = asyncio.Queue()

    async def main(self) -> int:
        """Evaluate the ordered rounds in turn until stopped; return the exit code."""
        try:
            await self.attendance.attend(EVALUATOR, "evaluator", self.obey)
        except NetdflError as error:
            print(error, file=sys.stderr)
            return EXIT_LOST
        work = asyncio.create_task(self.work())
        stopped = asyncio.create_task(self.attendance.dismissed())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if work.done() and (failed := work.exception()) is not None:
            if not isinstance(failed, OwnCodeError):
                raise failed
            self.attendance.report(Broke(0, 0, str(failed)))
        assert self.attendance.control is not None
        await self.attendance.control.aclose()
        work.cancel()
        return 0

    def obey(self, order: Order) -> None:
        """Queue the round that an order names, to be evaluated."""
        if isinstance(order, Evaluate):
            self.queue.put_nowait(order)

    async def work(self) -> None:
        """Evaluate queued rounds, report their metrics, and delete the nodes' model files of these rounds."""
        while True:
            order = await self.queue.get()
            paths = {node: snapshot_path(self.directory, order.round, node) for node in order.nodes}
            with telling_theirs(str):
                figures = await asyncio.to_thread(judge_files, self.blueprint, paths)
            self.attendance.report(Evaluated(order.round, figures))
            for path in paths.values():
                path.unlink(missing_ok=True)
