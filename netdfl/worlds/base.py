"""The interface of a world: it places hosts, keeps time, and carries orders and reports.

The supervisor has the policies.

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
from netdfl.core.fates import MessageCounts
from netdfl.core.interrupts import InterruptHandler, ending_signals, outside_loops
from netdfl.core.renamed import renamed
from netdfl.core.types import Json, NodeId, PeerMessage
from netdfl.record.base import Recorder, Store
from netdfl.record.directory import RunDirectory
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.fork_client import ForkServer

if TYPE_CHECKING:
    from netdfl.diagnosis.account import Account, WaitInBrief
    from netdfl.host.blueprint import Blueprint

T = TypeVar("T")


class WorldListener(Protocol):
    """A listener to a world's events: the supervisor. Calls come from the world's event loop and must not wait."""

    def report(self, node: NodeId, report: Report) -> None:
        """Take a report of a node or of the evaluator. The first is its `Hello`, or a question for the clock."""

    def exited(self, node: NodeId, how: Exit) -> None:
        """Take the end of a node's life. The end after a reported crash is expected."""

    def came_back(self, node: NodeId, keeps: bool) -> None:
        """Take the return of a dead node that somebody else started. `keeps`: its last state exists."""

    def refused(self, what: str) -> None:
        """Take the refusal of a process that does not belong to this run."""

    def broke(self, error: Exception) -> None:
        """Take an error by which the world, and the run with it, can't go on."""


@dataclass(frozen=True)
class OpenResult:
    """The result of opening a world: the labels of each client, as in `partition.json`; None: no labels.

    `notes` are sentences on the data.
    """

    partition: Json | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Figures:
    """A world's report at its end.

    `links` names the device that applied the links and its counts, `missed` what it failed to apply (empty: nothing).
    A world in virtual time reports the time that passed, and the hash of its event log.
    """

    links: Json = field(default_factory=dict)
    missed: str = ""
    virtual_duration_s: float | None = None
    event_log_hash: str | None = None


class World(Protocol):
    """One fleet's world. Whatever happened before, `aclose` leaves nothing behind."""

    @property
    def clock(self) -> Clock:
        """The fleet's clock."""

    def recorder(self, store: Store) -> Recorder:
        """Return the recorder of the fleet's figures: `store` itself, or one that also writes an event log."""

    def run(self, course: Callable[[], Coroutine[Any, Any, T]], interrupt: Callable[[], None]) -> T:
        """Run a supervisor's `course` on this world's event loop; the first Ctrl-C calls `interrupt`."""

    async def open(self, news: WorldListener) -> OpenResult:
        """Prepare the world. Raises InputError for an impossible scenario (MachineError: impossible here), RunError."""

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        """Begin a life of each of `nodes`: each connects, or exits, or the world breaks."""

    def begin(self, at_ns: int) -> int:
        """Set the fleet's time to `at_ns`; return the reading of this machine's monotonic clock at its time 0."""

    def order(self, node: NodeId, order: Order) -> None:
        """Send an order to a node, or to the evaluator; it is lost silently if the receiver is gone."""

    async def aclose(self, grace_s: float) -> Figures:
        """Give the processes, which all have the order to stop, the grace; then end the rest and clean up."""


class StallMonitor(Protocol):
    """A monitor for stalls in a world of virtual time. `due_ns` is the time of its next look.

    `over`: nothing is worth waiting for any more, and the run ends.
    """

    due_ns: int
    over: bool

    def look(self, now_ns: int) -> None:
        """Look for stalls."""

    def idle(self) -> None:
        """End a wait of some node, or the run, as nothing can run and nothing is due.

        The call is repeated while nothing can run all the same.
        """


@runtime_checkable
class VirtualWorld(Protocol):
    """The further interface of a world in virtual time: all of its state is known at any moment.

    Set `begins` before it opens: it is called with each round that a node begins, and the node's last train loss.
    """

    begins: Callable[[NodeId, int, float | None], None]

    def watched_by(self, monitor: StallMonitor) -> None:
        """Let `monitor` look from now on."""

    def accounts(self) -> dict[NodeId, Account]:
        """Return the present account of every node; of a node that is down, the last one."""

    def sent(self) -> tuple[int, MessageCounts]:
        """Return the bytes that all nodes have sent so far, and the counts of their messages."""

    def waits(self) -> dict[NodeId, WaitInBrief]:
        """Return the present waits of all nodes that wait for messages."""

    def stack(self, node: NodeId) -> str:
        """Return the stack of a node's coroutine."""

    def can_send_again(self, node: NodeId, sent: PeerMessage) -> bool:
        """Return whether `node` still keeps a message that it sent."""


@dataclass(frozen=True)
class WorldConfig:
    """The configuration of a world. `forkserver` was opened earlier; `keep_log` gets the lines of an event log.

    `blueprint` may come from a scenario that differs only in events, rounds by the clock and luck: it saves making one.
    """

    scenario: Scenario
    directory: RunDirectory
    note: Callable[[str], None]
    forkserver: ForkServer | None = None
    keep_log: Path | None = None
    blueprint: Blueprint | None = None


class BackgroundTasks:
    """A set of background tasks of a world. An error in a task is an error of the world."""

    def __init__(self, broke: Callable[[Exception], None]) -> None:
        """Report errors to `broke`."""
        self._broke = broke
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Start `work` as a task."""
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
            self._broke(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def run_in_real_time(course: Callable[[], Coroutine[Any, Any, T]], interrupt: Callable[[], None]) -> T:
    """Run `course` on a real event loop; the implementation of `World.run` for real time."""

    async def run() -> T:
        if threading.current_thread() is threading.main_thread():
            patience, loop = InterruptHandler(interrupt), asyncio.get_running_loop()
            for number in ending_signals():
                loop.add_signal_handler(number, patience)
        return await course()

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
