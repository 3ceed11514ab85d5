"""A whole fleet in one event loop over perfect links: the shortest way to run an algorithm in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from netdfl.algorithms.base import Algorithm, NodeState
from netdfl.core.clock import RealClock
from netdfl.core.types import Message, NodeId, View
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Node
from netdfl.training.base import Task
from netdfl.transport.base import Sink

T = TypeVar("T")
ViewOf = Callable[[NodeId, int], View]


class SilentRecorder:
    """Keeps nothing. See `Store`."""

    def event(self, *said: object, **details: object) -> None:
        """Keep nothing."""

    message = row = rows = metric = metrics = wait = flush = close = event


class InlineWorker:
    """Runs everything at once, on the loop."""

    async def run(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """Run now."""
        return function(*args)

    def spare(self, numel: int) -> bool:
        """Always inline."""
        return True


class Loopback:
    """Perfect links: a message arrives the moment it is sent, unless its edge is in `lost`."""

    def __init__(self, sinks: dict[NodeId, Sink], node: NodeId, lost: Callable[[Message], bool]) -> None:
        """Join `node` to the fleet whose mailboxes are `sinks`."""
        self.sinks, self.node, self.lost = sinks, node, lost

    def attach(self, sink: Sink) -> None:
        """Become reachable."""
        self.sinks[self.node] = sink

    async def send(self, messages: Sequence[Message]) -> None:
        """Deliver at once."""
        for message in messages:
            if not self.lost(message) and self.sinks[message.dst].deliver(message) is None:
                raise AssertionError(f"mailbox of node {message.dst} is full")
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Nothing is in flight."""


class LastState:
    """Keeps the node's state at the end of every round."""

    def __init__(self) -> None:
        """Start empty."""
        self.states: list[NodeState] = []
        self.weights: list[float] = []

    async def begin_round(self, round: int) -> None:
        """Nothing."""

    async def end_round(self, state: NodeState, view: View, weight: float) -> None:
        """Keep the state."""
        self.states.append(state)
        self.weights.append(weight)


def nothing_lost(message: Message) -> bool:
    """Perfect links."""
    return False


def run_fleet(
    algorithm: Algorithm,
    view_of: ViewOf,
    tasks: Mapping[NodeId, Task],
    num_rounds: int,
    *,
    lost: Callable[[Message], bool] = nothing_lost,
) -> dict[NodeId, LastState]:
    """Run `algorithm` on all nodes of `tasks`; return every node's states, one per round."""
    return asyncio.run(_run(algorithm, view_of, tasks, num_rounds, lost))


async def _run(
    algorithm: Algorithm,
    view_of: ViewOf,
    tasks: Mapping[NodeId, Task],
    num_rounds: int,
    lost: Callable[[Message], bool],
) -> dict[NodeId, LastState]:
    sinks: dict[NodeId, Sink] = {}
    kept = {i: LastState() for i in tasks}
    nodes = [
        _node(i, algorithm, view_of, task, num_rounds, Loopback(sinks, i, lost), kept[i]) for i, task in tasks.items()
    ]
    async with asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(node.run())
    return kept


def _node(
    i: NodeId,
    algorithm: Algorithm,
    view_of: ViewOf,
    task: Task,
    num_rounds: int,
    transport: Loopback,
    kept: LastState,
) -> Node:
    clock, recorder = RealClock(), SilentRecorder()
    push = algorithm.family != "server" and algorithm.mixing.push
    return Node(
        id=i,
        algorithm=algorithm,
        task=task,
        view_of=lambda round, gone: view_of(i, round),
        num_rounds=num_rounds,
        transport=transport,
        clock=clock,
        worker=InlineWorker(),
        recorder=recorder,
        ledger=NodeLedger(i, clock, recorder),
        mailbox=Mailbox(keep_late=push, stale=algorithm.wait.stale, bound=2**31),
        hooks=kept,
    )
