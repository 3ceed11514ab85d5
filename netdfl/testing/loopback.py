"""A whole fleet in one event loop, over links without delay: the shortest way to run an algorithm in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from netdfl.algorithms.base import Algorithm, NodeState
from netdfl.core.clock import RealClock
from netdfl.core.types import Message, Multicast, NodeId, View, messages_of
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Node
from netdfl.training.base import Task
from netdfl.transport.base import Sink, deliver_one

T = TypeVar("T")
ViewOf = Callable[[NodeId, int], View]


class SilentRecorder:
    """A recorder of a node's metrics, waits and events that discards them."""

    def event(self, *said: object, **details: object) -> None:
        """Discard the event, metrics or other row that is passed."""

    outcome = metrics = wait = flush = close = event


class InlineWorker:
    """A worker that runs a node's computations at once, in the thread of the event loop."""

    async def run(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """Call `function` with `args` now, and return its result; `what` is ignored."""
        return function(*args)

    def is_short(self, numel: int) -> bool:
        """Return true: work on `numel` numbers may run inline, as all work of this worker does."""
        return True


@dataclass
class Loopback:
    """The perfect links from `node` to all nodes of a fleet, whose mailboxes are `sinks`.

    A message arrives at once, unless `lost` returns true for it.
    """

    sinks: dict[NodeId, Sink]
    node: NodeId
    lost: Callable[[Message], bool]

    def attach(self, sink: Sink) -> None:
        """Register the mailbox of this node, so that messages to it can be delivered."""
        self.sinks[self.node] = sink

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Deliver the messages to their receivers' mailboxes at once, except those for which `lost` is true."""
        for message in messages_of(multicasts):
            if not self.lost(message) and deliver_one(self.sinks[message.dst], message) is None:
                raise AssertionError(f"mailbox of node {message.dst} is full")
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Do nothing, because no message is in flight."""


@dataclass
class LastState:
    """The states and push-sum weights of one node after each round; the node's loop calls the methods as its hooks."""

    states: list[NodeState] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    async def begin_round(self, round: int) -> None:
        """Do nothing."""

    async def end_round(self, state: NodeState, view: View, weight: float) -> None:
        """Store the state and the push-sum weight."""
        self.states.append(state)
        self.weights.append(weight)


def run_fleet(
    algorithm: Algorithm,
    view_of: ViewOf,
    tasks: Mapping[NodeId, Task],
    num_rounds: int,
    *,
    lost: Callable[[Message], bool] = lambda message: False,
) -> dict[NodeId, LastState]:
    """Run `algorithm` on all nodes of `tasks`; return every node's states and push-sum weights after each round.

    `view_of` returns a node's neighbors and mixing weights in a round; messages for which `lost` is true get lost.
    """
    sinks: dict[NodeId, Sink] = {}
    kept = {i: LastState() for i in tasks}
    push = algorithm.family != "server" and algorithm.mixing.push

    def node(i: NodeId, task: Task) -> Node:
        clock, recorder = RealClock(), SilentRecorder()
        return Node(
            id=i,
            algorithm=algorithm,
            task=task,
            view_of=lambda round, gone: view_of(i, round),
            num_rounds=num_rounds,
            transport=Loopback(sinks, i, lost),
            clock=clock,
            worker=InlineWorker(),
            recorder=recorder,
            ledger=NodeLedger(i, clock, recorder),
            mailbox=Mailbox(keep_late=push, stale=algorithm.wait.stale, bound=2**31),
            hooks=kept[i],
        )

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for each in [node(i, task) for i, task in tasks.items()]:
                group.create_task(each.run())

    asyncio.run(run())
    return kept
