"""The interface of a world: where and how the nodes of a fleet run, such as simulated, in processes or in containers.

A world starts nodes, keeps the fleet's time, and carries orders to nodes and their reports back. The supervisor, which
uses the world, has the policies.

A new world is a class like `World` here, and a `WorldEntry`: a row of `netdfl.worlds.catalog`, or an object of a
user's module that the scenario names, `world: {kind: "package.module:ENTRY"}`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from netdfl.core.clock import Clock
from netdfl.core.control import Exit, Life, Order, Report
from netdfl.core.fates import FOREIGN, FateReason, MessageCounts
from netdfl.core.interrupts import InterruptHandler, ending_signals, outside_loops
from netdfl.core.process import few_collections
from netdfl.core.renamed import renamed
from netdfl.core.types import Json, NodeId, PeerMessage
from netdfl.core.whose import theirs
from netdfl.record.base import Recorder, Store
from netdfl.record.directory import RunDirectory
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.fork_client import ForkServer

if TYPE_CHECKING:
    from netdfl.diagnosis.account import Account, WaitInBrief
    from netdfl.host.blueprint import Blueprint

T = TypeVar("T")


class WorldListener(Protocol):
    """The receiver of a world's events: the supervisor. Calls come from the world's event loop and must not block."""

    def report(self, node: NodeId, report: Report) -> None:
        """Handle a report of a node, or of the evaluator, the process that judges models.

        The first report of each is its `Hello`, or a request for the reading of the supervisor's clock.
        """

    def exited(self, node: NodeId, how: Exit) -> None:
        """Handle the end of a running node; `how` describes it. After a crash that was reported, it is expected."""

    def came_back(self, node: NodeId, keeps: bool) -> None:
        """Handle that a dead node can run again without the supervisor's doing, such as when its machine is back.

        `keeps`: whether the node's last checkpoint still exists.
        """

    def refused(self, what: str, reason: FateReason = FOREIGN, src: NodeId | None = None) -> None:
        """Handle the refusal of a process that does not belong to this run, or of a report of node `src`.

        `what` says in words what was refused.
        """

    def broke(self, error: Exception) -> None:
        """Handle an error that stops the world, and with it the run."""


@dataclass(frozen=True)
class OpenResult:
    """The result of opening a world.

    Attributes:
        partition: the number of examples of each label at each client, as in `partition.json`; None: no labels.
        notes: remarks on the data, a sentence each.
    """

    partition: Json | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Figures:
    """A world's final report.

    Attributes:
        links: the layer on which link rules acted (messages or packets), the engine that applied them, and its counts.
        missed: in words, what that engine failed to apply; empty: nothing.
        virtual_duration_s: the time that passed in a world in virtual time, in seconds; else None.
        event_log_hash: the hash of the event log of a world in virtual time; else None.
    """

    links: Json = field(default_factory=dict)
    missed: str = ""
    virtual_duration_s: float | None = None
    event_log_hash: str | None = None


class World(Protocol):
    """The world of one fleet: where and how its nodes run (simulated, in processes, in containers, ...), and its clock.

    `aclose` removes all that the world created, whatever happened before.
    """

    @property
    def clock(self) -> Clock:
        """The fleet's clock."""

    def recorder(self, store: Store) -> Recorder:
        """Return the recorder of the run's metrics and messages: `store`, or one that also writes an event log."""

    def run(self, course: Callable[[], Coroutine[Any, Any, T]], interrupt: Callable[[], None]) -> T:
        """Run the supervisor's coroutine `course` on this world's event loop; the first Ctrl-C calls `interrupt`."""

    async def open(self, news: WorldListener) -> OpenResult:
        """Prepare the world, and report its events to `news` from now on; no node runs yet.

        Raises InputError for an impossible scenario, MachineError if this machine can't run it, or RunError.
        """

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        """Start each of `nodes`; `life` has the number of their restarts before, and how they rejoin.

        Each node connects, or exits, or the world reports an error.
        """

    def begin(self, at_ns: int) -> int:
        """Set the fleet's time to `at_ns`; return the reading that this machine's clock has at the fleet's time 0."""

    def order(self, node: NodeId, order: Order) -> None:
        """Send an order to a node or to the evaluator (which judges models); lost silently if the receiver is gone."""

    async def aclose(self, grace_s: float) -> Figures:
        """Wait up to `grace_s` seconds for the processes, which were ordered to stop; kill the rest and clean up."""


class StallMonitor(Protocol):
    """A monitor that looks for stalls (nodes that wait unusually long, or in vain) in a world of virtual time.

    `due_ns` is the time at which it looks next. `over`: whether the run should end, as nothing is worth waiting for.
    """

    due_ns: int
    over: bool

    def look(self, now_ns: int) -> None:
        """Look for stalls (nodes that wait unusually long, or in vain) at the virtual time `now_ns`."""

    def idle(self) -> None:
        """End a node's wait, or the run, because nothing can run and no timer is due.

        The world calls it again as long as nothing can run.
        """


@runtime_checkable
class VirtualWorld(Protocol):
    """The additional interface of a world in virtual time, whose complete state is known at any moment.

    `begins` is a callback, to be set before the world is opened. The world calls it whenever a node begins a round,
    with the node, the round and the node's last training loss.
    """

    begins: Callable[[NodeId, int, float | None], None]

    def watched_by(self, monitor: StallMonitor) -> None:
        """Let `monitor` look for stalls from now on: at its times `due_ns`, and whenever nothing can run."""

    def accounts(self) -> dict[NodeId, Account]:
        """Return what each node does, waits for and has sent; of a node that is down, its last such account."""

    def sent(self) -> tuple[int, MessageCounts]:
        """Return the bytes that all nodes have sent so far, and the counts of their messages."""

    def waits(self) -> dict[NodeId, WaitInBrief]:
        """Return the current waits of all nodes that wait for messages."""

    def stack(self, node: NodeId) -> str:
        """Return the call stack of a node's coroutine as text, to show where it waits."""

    def can_send_again(self, node: NodeId, sent: PeerMessage) -> bool:
        """Return whether `node` still keeps its message `sent`, so that it can send it again."""


@dataclass(frozen=True)
class WorldConfig:
    """The configuration of a world.

    Attributes:
        scenario: the scenario.
        directory: the run directory.
        note: shows a message to the user.
        forkserver: a fork server that was started earlier; None: the world starts one if it needs one.
        keep_log: the file for the lines of the event log; None: only its hash is kept.
        blueprint: data, tasks, algorithm and links of a fleet, built earlier from a scenario that may differ from
            `scenario` in events, rounds that end by the clock, and the seed of links. None: the world builds them.
    """

    scenario: Scenario
    directory: RunDirectory
    note: Callable[[str], None]
    forkserver: ForkServer | None = None
    keep_log: Path | None = None
    blueprint: Blueprint | None = None


class BackgroundTasks:
    """The asyncio tasks that a world runs in the background. An error in one is reported as an error of the world."""

    def __init__(self, broke: Callable[[Exception], None]) -> None:
        """Report errors of tasks by calling `broke`."""
        self._broke = broke
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Start `work` as a background task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """Return once all tasks have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broke(error if isinstance(error, Exception) else theirs(error) or RuntimeError(repr(error)))


_OBJECTS = 20_000
"""New objects before the next garbage collection in a real-time supervisor: 3 MB, if all are from refused calls."""


def run_in_real_time(course: Callable[[], Coroutine[Any, Any, T]], interrupt: Callable[[], None]) -> T:
    """Run the supervisor's coroutine `course` on a real event loop; the first Ctrl-C calls `interrupt`.

    Worlds in real time implement `World.run` by this.

    Garbage is collected more often than in other parts of a run. Each call that gRPC refuses leaves some 25 objects in
    reference cycles, so strangers who call decide how much garbage there is.
    """

    async def run() -> T:
        if threading.current_thread() is threading.main_thread():
            patience, loop = InterruptHandler(interrupt), asyncio.get_running_loop()
            for number in ending_signals():
                loop.add_signal_handler(number, patience)
        return await course()

    with few_collections(_OBJECTS):
        return outside_loops(lambda: asyncio.run(run()))


if not TYPE_CHECKING:
    __getattr__ = renamed(
        __name__,
        {
            "Beside": "BackgroundTasks",
            "Found": "OpenResult",
            "Looker": "StallMonitor",
            "News": "WorldListener",
            "Setting": "WorldConfig",
        },
    )
