"""A world of one's own, made outside netdfl: each node lives in a thread, with an event loop of its own.

A scenario names it: `world: {kind: "tests.worlds.threads:THREADS"}`. Nothing crosses a wire but messages: orders and
reports are handed from loop to loop as they are.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import Field

from netdfl.core.clock import RealClock
from netdfl.core.control import EVALUATOR, Crashed, Evaluate, Evaluated, Exit, Hello, Life, Order, Report, Stop
from netdfl.core.errors import NetdflError
from netdfl.core.types import NodeId, Role
from netdfl.host.blueprint import Blueprint
from netdfl.host.judging import judge_files
from netdfl.host.living import LivingNode, NodeConfig
from netdfl.host.memory import shared_memory
from netdfl.host.models import snapshot_path
from netdfl.host.network import Endpoint
from netdfl.host.workers import make_worker
from netdfl.record.store import StoreWriter
from netdfl.scenario.loading.identity import scenario_hash
from netdfl.scenario.model.world import BodySize, RealOptions
from netdfl.worlds.base import Figures, OpenResult, WorldConfig, WorldListener, run_in_real_time
from netdfl.worlds.catalog import WorldEntry

T = TypeVar("T")
LEAD_NS = 20_000_000
HOUR_NS = 3600 * 10**9


class ThreadsWorld:
    """One fleet of threads. A `World`."""

    def __init__(self, setting: WorldConfig) -> None:
        self.scenario, self.directory = setting.scenario, setting.directory.path
        if setting.forkserver is not None:
            setting.forkserver.close()
        torch.set_num_threads(1)  # sums go by it, and whatever ran before in this process may have set it
        self.clock = RealClock()
        self.run_id = secrets.token_bytes(8)
        assert isinstance(self.scenario.world, ThreadsOptions)
        self.apart = self.scenario.world.apart
        self.elsewhere = Path(tempfile.mkdtemp()) if self.apart else None
        self._nodes: dict[NodeId, NodeThread] = {}
        self._threads: list[NodeThread] = []
        self._judging: set[asyncio.Task[None]] = set()

    def recorder(self, store: StoreWriter) -> StoreWriter:
        return store

    def run(self, course: Callable[[], Coroutine[object, object, T]], interrupt: Callable[[], None]) -> T:
        return run_in_real_time(course, interrupt)

    async def open(self, news: WorldListener) -> OpenResult:
        self.news, self.loop = news, asyncio.get_running_loop()
        self.blueprint = Blueprint.of(self.scenario)
        self.memory = shared_memory(self.blueprint, range(self.scenario.num_nodes))
        (self.directory / "snapshots").mkdir(exist_ok=True)
        news.report(EVALUATOR, Hello(node=EVALUATOR, role="evaluator"))
        return OpenResult(self.blueprint.problem.partition())

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        for node in nodes:
            self._nodes[node] = NodeThread(self, node, life)
            self._threads.append(self._nodes[node])
            self._nodes[node].start()

    def begin(self, at_ns: int) -> int:
        self.clock.start_ns = time.monotonic_ns() + LEAD_NS - at_ns
        return self.clock.start_ns

    def order(self, node: NodeId, order: Order) -> None:
        if node != EVALUATOR:
            self._nodes[node].order(order)
        elif isinstance(order, Evaluate):
            task = self.loop.create_task(self._judge(order))
            self._judging.add(task)
            task.add_done_callback(self._judging.discard)

    async def aclose(self, grace_s: float) -> Figures:
        for thread in self._threads:
            await asyncio.to_thread(thread.join, grace_s)
        await asyncio.gather(*self._judging, return_exceptions=True)
        if self.elsewhere is not None:
            shutil.rmtree(self.elsewhere)
        return Figures(links={"layer": self.scenario.world.loss_layer})

    async def _judge(self, order: Evaluate) -> None:
        paths = {node: snapshot_path(self.directory, order.round, node) for node in order.nodes}
        figures = await asyncio.to_thread(judge_files, self.blueprint, paths)
        self.news.report(EVALUATOR, Evaluated(order.round, figures))
        for path in paths.values():
            path.unlink(missing_ok=True)


class NodeThread(threading.Thread):
    """One life of one node. A `Superior`: what the node says goes to the supervisor's loop."""

    launched = True

    def __init__(self, world: ThreadsWorld, node: NodeId, life: Life) -> None:
        super().__init__(name=f"node {node}, life {life.epoch}")
        self.world, self.node, self.life = world, node, life
        self.loop: asyncio.AbstractEventLoop | None = None
        self.directory = world.directory
        if world.elsewhere is not None:
            self.directory = world.elsewhere / str(node)
            (self.directory / "snapshots").mkdir(parents=True, exist_ok=True)

    def _monotonic_ns(self) -> int:
        """Where machines are apart, each was started at a time of its own, hours from the others'."""
        return time.monotonic_ns() + (HOUR_NS * (5 - 3 * self.node) if self.world.apart else 0)

    # its own loop

    def run(self) -> None:
        code = 1
        try:
            code = asyncio.run(self._live())
        except NetdflError as error:
            self._tell(self.world.news.broke, error)
        finally:
            self._tell(self.world.news.exited, self.node, Exit(self.life.epoch, code))

    async def _live(self) -> int:
        self.loop, self.stopped = asyncio.get_running_loop(), asyncio.Event()
        blueprint = Blueprint.of(self.world.scenario)
        worker = make_worker(blueprint, 1)
        endpoint = Endpoint(
            listen="127.0.0.1:0",
            run_id=self.world.run_id,
            scenario_hash=scenario_hash(self.world.scenario),
            memory=self.world.memory,
        )
        birth = NodeConfig(
            node=self.node,
            life=self.life,
            device="cpu",
            directory=self.directory,
            worker=worker,
            endpoint=endpoint,
            shares_disk=not self.world.apart,
            shares_clock=not self.world.apart,
            monotonic_ns=self._monotonic_ns,
        )
        self.living = LivingNode(blueprint, birth, self)
        address = await self.living.transport.start()
        role = Role.SERVER if self.node == blueprint.network.server else Role.CLIENT
        self.report(Hello(node=self.node, role=role.value, address=address, epoch=self.life.epoch))
        self.living.attend()
        code = await self.living.run()
        await self.living.leave(code)
        await self.living.transport.aclose()
        worker.close()
        return code

    def _obey(self, order: Order) -> None:
        if isinstance(order, Stop):
            self.stopped.set()
        else:
            self.living.obey(order)

    # a Superior

    def report(self, report: Report) -> None:
        self._tell(self.world.news.report, self.node, report)

    async def dismissed(self) -> None:
        await self.stopped.wait()

    async def flushed(self) -> None:
        pass

    async def part(self, code: int, crash: Crashed | None) -> None:
        if crash is not None:
            self.report(crash)

    # between the loops

    def order(self, order: Order) -> None:
        """From the supervisor's loop."""
        if self.loop is not None and not self.loop.is_closed():
            try:
                self.loop.call_soon_threadsafe(self._obey, order)
            except RuntimeError:  # it has closed since: the node is gone
                return

    def _tell(self, tell: Callable[..., None], *what: object) -> None:
        try:
            self.world.loop.call_soon_threadsafe(tell, *what)
        except RuntimeError:  # the run is over
            return


class ThreadsOptions(RealOptions):
    """What a scenario may say of this world."""

    apart: bool = Field(
        False, description="Whether nodes have folders and clocks of their own, as other machines have."
    )

    shared_from: BodySize | None = Field(None, description="From which size bodies lie in memory that threads share.")


THREADS = WorldEntry(options=ThreadsOptions, make=ThreadsWorld, resumable=True)
