"""The `processes` world: real gRPC nodes in local processes, forked from one that has loaded torch and the data."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from netdfl.core.clock import RealClock
from netdfl.core.control import EVALUATOR, LOST, Exit, Hello, Life, Order, Report
from netdfl.core.errors import RunError
from netdfl.core.fates import MALFORMED
from netdfl.core.process import freed_kept
from netdfl.core.types import NodeId
from netdfl.host.plan import Command, RunPlan, spread
from netdfl.record.base import Store
from netdfl.scenario.loading.identity import scenario_hash
from netdfl.transport.control.attendance import Attendee, ControlServer
from netdfl.transport.security.credentials import SUPERVISOR, Credentials
from netdfl.transport.security.secret import FleetSecret
from netdfl.worlds.base import BackgroundTasks, Figures, OpenResult, WorldConfig, WorldListener, run_in_real_time
from netdfl.worlds.fork_client import ForkServer

if TYPE_CHECKING:
    from netdfl.packets.network import SupervisedNetwork
    from netdfl.transport.security.authority import Authority

T = TypeVar("T")
LEAD_NS = 20_000_000
"""Nanoseconds from the choice of the fleet's start time to that time, so that all nodes learn of it before."""


@dataclass(frozen=True)
class NodePlacement:
    """The place of a node's process: network namespace (None: this process's), and the address at which it listens."""

    namespace: str | None = None
    address: str = "127.0.0.1"


def _authority(run_id: str) -> Authority:
    from netdfl.transport.security.authority import Authority

    return Authority.make(run_id)


class ProcessesWorld:
    """The world of one fleet whose nodes run in processes of this machine."""

    def __init__(
        self,
        setting: WorldConfig,
        *,
        listen: str = "127.0.0.1",
        place: Callable[[NodeId], NodePlacement] | None = None,
        gpus: bool = True,
        elsewhere: bool = False,
    ) -> None:
        """Prepare the world without starting any node.

        Args:
            setting: the settings of the world.
            listen: the address of the supervisor, to which nodes connect.
            place: returns the placement of a node; with it, each node has a process of its own.
            gpus: let nodes use this machine's GPUs.
            elsewhere: whether nodes run outside this installation (in a container, on another machine), whose package
                versions may differ, so that nodes report theirs.
        """
        self.setting, self.scenario, self.directory = setting, setting.scenario, setting.directory
        self.clock = RealClock()
        self.forks = setting.forkserver or ForkServer.open()
        self._place, self._gpus, self._elsewhere = place, gpus, elsewhere
        self._secret, self._run_id = secrets.token_hex(32), secrets.token_hex(8)
        self._authority = _authority(self._run_id) if getattr(self.scenario.world, "tls", False) else None
        mine = None if self._authority is None else self._authority.issue(SUPERVISOR, 0)
        proof = FleetSecret(text=self._secret)
        size = self.scenario.num_nodes
        self._control = ControlServer(
            proof,
            self._on_report,
            listen,
            mine,
            lambda what: self.news.refused(what),
            on_malformed=lambda node, what: self.news.refused(what, MALFORMED, node),
            on_behind=self._on_behind,
            num_nodes=size,
            together=getattr(self.scenario.world, "nodes_per_process", size),
        )
        self._attendees: dict[NodeId, Attendee] = {}
        self._beside = BackgroundTasks(lambda error: self.news.broke(error))
        self.devices: list[str] = []
        self._evaluates_on = "cpu"
        self._closing = False

    def recorder(self, store: Store) -> Store:
        """Return `store` itself, because this world has no event log."""
        return store

    def run(self, course: Callable[[], Coroutine[object, object, T]], interrupt: Callable[[], None]) -> T:
        """Run `course` in real time, and end the fork server afterwards.

        Freed memory is kept for reuse by this process in the meantime. Otherwise each thread of gRPC would fragment a
        memory arena of its own, and calls by strangers would make these grow.
        """
        try:
            with freed_kept():
                return run_in_real_time(course, interrupt)
        finally:
            self.forks.close()

    async def open(self, news: WorldListener) -> OpenResult:
        """Load what all nodes share (data, models and so on) in the fork server, and start the evaluator's process."""
        self.news = news
        plan = self.plan = await self._make_plan()
        (self.directory.path / "snapshots").mkdir(exist_ok=True)
        loaded = await self.forks.plan(plan, news.exited)
        self._beside.do(self._watch())
        gpus = loaded.gpus if self._gpus else 0
        self.devices = spread(self.scenario.device, gpus, self.scenario.num_nodes)
        self._evaluates_on = self.devices[0] if gpus else "cpu"
        await self._spawn([EVALUATOR], Life())
        return OpenResult(loaded.partition, loaded.notes)

    async def _make_plan(self) -> RunPlan:
        return RunPlan(
            directory=str(self.directory.path),
            scenario_directory=str(self.scenario.folder),
            control=await self._control.start(),
            secret=self._secret,
            run_id=self._run_id,
            scenario_hash=scenario_hash(self.scenario),
            share_memory=tuple(range(self.scenario.num_nodes)),
            tells_versions=self._elsewhere,
        )

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        """Start each of `nodes` in a forked process; `life` has the number of their restarts before."""
        size = getattr(self.scenario.world, "nodes_per_process", 1)
        groups: dict[int, list[NodeId]] = {}
        for node in nodes:
            groups.setdefault(node // size, []).append(node)
        self._beside.do(self._spawn_all(list(groups.values()), life))

    def begin(self, at_ns: int) -> int:
        """Set the fleet's time to `at_ns`, with a short delay; return the clock's reading at the fleet's time 0."""
        self.clock.start_ns = time.monotonic_ns() + LEAD_NS - at_ns
        return self.clock.start_ns

    def order(self, node: NodeId, order: Order) -> None:
        """Send an order to a connected node, or to the evaluator."""
        if node in self._attendees:
            self._attendees[node].order(order)

    async def aclose(self, grace_s: float) -> Figures:
        """Wait up to `grace_s` seconds for the processes, then end them and the fork server."""
        self._closing = True
        await self.forks.left_alone(grace_s)
        self._beside.cancel()
        self.forks.close()
        await self._control.aclose()
        return Figures(links={"layer": self.scenario.world.loss_layer})

    def certify(self, nodes: Sequence[NodeId], life: Life) -> Mapping[NodeId, Credentials]:
        """Let the control server admit `nodes` with the number of restarts in `life`, and with no other number.

        Return the nodes' TLS credentials; none without TLS.
        """
        for node in nodes:
            self._control.expect(node, life.epoch)
        return {node: self._authority.issue(node, life.epoch) for node in nodes} if self._authority else {}

    def dismiss(self, node: NodeId, epoch: int) -> None:
        """Let the control server refuse the process of `node` that was restarted `epoch` times: it has ended."""
        self._control.dismiss(node, epoch)

    # processes

    async def _spawn_all(self, groups: Sequence[list[NodeId]], life: Life) -> None:
        for nodes in groups:
            await self._spawn(nodes, life)

    async def _spawn(self, nodes: list[NodeId], life: Life) -> None:
        place = self._place(nodes[0]) if self._place is not None and nodes != [EVALUATOR] else NodePlacement()
        command = Command(
            nodes=tuple(nodes),
            device=self._evaluates_on if nodes == [EVALUATOR] else self.devices[nodes[0]],
            life=life,
            address=place.address,
            namespace=place.namespace,
            credentials=self.certify(nodes, life),
        )
        await self.forks.spawn(command)

    async def _watch(self) -> None:
        await self.forks.ended.wait()
        if not self._closing:
            self.news.broke(RunError("the process that started the nodes died, and the nodes with it"))

    # the control plane

    def _on_report(self, attendee: Attendee, report: Report) -> None:
        node = attendee.hello.node
        if isinstance(report, Hello):
            self._attendees[node] = attendee
        self.news.report(node, report)

    def _on_behind(self, attendee: Attendee, why: str) -> None:
        """Report a node that reads none of its orders as lost, whatever its process does from now on."""
        self.news.exited(attendee.hello.node, Exit(attendee.hello.epoch, LOST, lost=why))


class ProcessesBasedWorld:
    """A base of worlds that leave the control plane, the clock and the evaluator to a `ProcessesWorld`."""

    _processes: ProcessesWorld
    _packets: SupervisedNetwork | None = None

    @property
    def clock(self) -> RealClock:
        """The fleet's clock."""
        return self._processes.clock

    def recorder(self, store: Store) -> Store:
        """Return `store` itself, because this world has no event log."""
        return store

    def run(self, course: Callable[[], Coroutine[object, object, T]], interrupt: Callable[[], None]) -> T:
        """Run the supervisor's coroutine `course` in real time; the first Ctrl-C calls `interrupt`."""
        return self._processes.run(course, interrupt)

    def begin(self, at_ns: int) -> int:
        """Set the fleet's time to `at_ns`, and let packets flow if links act on packets.

        Return the reading of this machine's clock at the fleet's time 0.
        """
        start_ns = self._processes.begin(at_ns)
        if self._packets is not None:
            self._packets.begin(start_ns)
        return start_ns

    def order(self, node: NodeId, order: Order) -> None:
        """Send an order to a node, or to the evaluator."""
        self._processes.order(node, order)
