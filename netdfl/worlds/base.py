"""What a world is: it places hosts, keeps time, and carries orders down and reports up. Policy is the supervisor's.

A new world is a class like `World` here, and a `WorldEntry`: a row of `netdfl.worlds.catalog`, or an object of a
module of one's own that the scenario names, `world: {kind: "package.module:ENTRY"}`.
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
from netdfl.core.interrupts import Patience, ending_signals, outside_loops
from netdfl.core.types import Json, NodeId, PeerMessage
from netdfl.record.base import Recorder, Store
from netdfl.record.directory import RunDirectory
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.fork_client import ForkServer

if TYPE_CHECKING:
    from netdfl.diagnosis.account import Account, WaitInBrief
    from netdfl.host.blueprint import Blueprint

T = TypeVar("T")


class News(Protocol):
    """Who is told what happens in a world: the supervisor. Called on the world's event loop; never waits."""

    def report(self, node: NodeId, report: Report) -> None:
        """A node, or the evaluator, says something; its `Hello` first, or else what time it is that it asks."""

    def exited(self, node: NodeId, how: Exit) -> None:
        """A life of a node has ended. One that had said that it crashes is no news."""

    def came_back(self, node: NodeId, keeps: bool) -> None:
        """Somebody else started a dead node again: it wants a life. `keeps`: the state of its last one is there."""

    def refused(self, what: str) -> None:
        """Somebody who is not of this run would attend, and may not."""

    def broke(self, error: Exception) -> None:
        """The world can't go on, and the run with it."""


@dataclass(frozen=True)
class Found:
    """What a world found when it was opened: who holds which labels, as `partition.json` has it; None: no labels.

    `notes` are sentences on the data.
    """

    partition: Json | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Figures:
    """What a world says of itself at the end.

    `links` is what carried out the links and what it counted, `missed` what it did not keep of them (empty: nothing).
    A world in virtual time says how much of it passed, and the hash of its event log.
    """

    links: Json = field(default_factory=dict)
    missed: str = ""
    virtual_duration_s: float | None = None
    event_log_hash: str | None = None


class World(Protocol):
    """One fleet's world. Whatever befell it before, `aclose` leaves nothing behind."""

    @property
    def clock(self) -> Clock:
        """The fleet's time."""

    def recorder(self, store: Store) -> Recorder:
        """Through what the fleet's figures go into `store`: by itself, or past an event log."""

    def run(self, course: Callable[[], Coroutine[Any, Any, T]], interrupt: Callable[[], None]) -> T:
        """Run a supervisor's `course` on this world's event loop; the first Ctrl-C calls `interrupt`."""

    async def open(self, news: News) -> Found:
        """Make ready. Raises InputError for what can't be (MachineError: here), RunError."""

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        """Begin a life of each of `nodes`: it will attend, or exit, or the world break."""

    def begin(self, at_ns: int) -> int:
        """The fleet's time is about to be `at_ns`; the reading of this machine's monotonic clock at which it was 0."""

    def order(self, node: NodeId, order: Order) -> None:
        """Hand an order to a node, or to the evaluator; lost without a word where that is gone."""

    async def aclose(self, grace_s: float) -> Figures:
        """All were told to stop: give them the grace, end what is left, take everything down."""


class Looker(Protocol):
    """What looks for stalls in a world whose time is virtual. `due_ns` is when it wants to look next.

    `over`: it has seen that nothing is worth waiting for any more, and the run ends.
    """

    due_ns: int
    over: bool

    def look(self, now_ns: int) -> None:
        """It is time."""

    def idle(self) -> None:
        """Nothing can run and nothing is due: end something that a node waits for, or the run.

        It is called again while nothing can run all the same.
        """


@runtime_checkable
class VirtualWorld(Protocol):
    """What a world in virtual time is beside a `World`: all of it is known at any moment.

    Set `begins` before it opens: it is told of each round that a node begins, and the node's last train loss.
    """

    begins: Callable[[NodeId, int, float | None], None]

    def watched_by(self, looker: Looker) -> None:
        """Let `looker` look from now on."""

    def accounts(self) -> dict[NodeId, Account]:
        """What every node does at this moment, its last life's where it is down."""

    def sent(self) -> tuple[int, MessageCounts]:
        """The bytes that all nodes have sent so far, and what became of their messages."""

    def waits(self) -> dict[NodeId, WaitInBrief]:
        """What the nodes wait for that wait for messages now."""

    def stack(self, node: NodeId) -> str:
        """Where the coroutine of `node` stands."""

    def can_send_again(self, node: NodeId, sent: PeerMessage) -> bool:
        """Whether `node` still has a message that it sent."""


@dataclass(frozen=True)
class Setting:
    """What a world is made from. `forkserver` was opened earlier; `keep_log` gets the lines of an event log.

    `blueprint` is that of a scenario that differs in events, rounds by the clock and luck alone: it saves making one.
    """

    scenario: Scenario
    directory: RunDirectory
    note: Callable[[str], None]
    forkserver: ForkServer | None = None
    keep_log: Path | None = None
    blueprint: Blueprint | None = None


class Beside:
    """What a world does beside all else. An error in it is the world's."""

    def __init__(self, broke: Callable[[Exception], None]) -> None:
        """Tell `broke` of errors."""
        self._broke = broke
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin `work`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Leave off."""
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """Return once nothing of it goes on."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broke(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def run_in_real_time(course: Callable[[], Coroutine[Any, Any, T]], interrupt: Callable[[], None]) -> T:
    """`World.run` of every world on the real clock."""

    async def run() -> T:
        if threading.current_thread() is threading.main_thread():
            patience, loop = Patience(interrupt), asyncio.get_running_loop()
            for number in ending_signals():
                loop.add_signal_handler(number, patience)
        return await course()

    return outside_loops(lambda: asyncio.run(run()))
