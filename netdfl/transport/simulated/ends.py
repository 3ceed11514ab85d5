"""The ends of a fabric: for each node its sink, its edges to others, and the senders that wait for room.

Relies on: `EdgeState`, of which `FabricEdge` is one: the engine drives it, and the fabric adds the backlog.

Why: A fleet has millions of edges and uses few of them at a time: edges are made at their first message, and idle ones
are dropped where a new one would behave the same. The route to the same receivers is kept, since most nodes send to
them again. A backlog belongs to an edge, so that one full mailbox holds up its senders and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from netdfl.core.types import Kind, Message, MessageId, NodeId, StepId
from netdfl.links.edge_state import UNKNOWN, EdgeState, PathPlan
from netdfl.links.engine import Route
from netdfl.links.path import Path
from netdfl.transport.base import Fate, Sink, wake

FEW_EDGES = 16
MOST_WAITING = 64
"""Bound of an edge's backlog: the most messages on the edge that its receiver has not taken yet."""


class SendRecord(NamedTuple):
    """The fields of a row in the run's record that all messages of one multicast share."""

    id: MessageId
    nbytes: int
    sent_ns: int


NOTHING_SENT = SendRecord(MessageId(Kind.DATA, 0, StepId(0, 0), 0, 0), 0, -1)
Content: TypeAlias = tuple[Message, SendRecord]
"""The item that the fabric's link engine moves: a message, and the record fields that its whole multicast shares."""


class FabricEdge(EdgeState):
    """An edge of the fabric with its backlog: how many of its messages the receiver's mailbox has not taken yet."""

    __slots__ = ("backlog", "source", "target", "waiters")

    def __init__(self, source: FabricEnd, target: FabricEnd, path: Path, plan: PathPlan, order_key: int) -> None:
        """Make the edge from `source` to `target` over the link stages of `path`, with an empty backlog.

        `plan` says how far arrivals are computed in advance; `order_key` orders messages that arrive at one instant.
        """
        super().__init__((source.node, target.node), path, plan, order_key)
        self.source, self.target = source, target
        self.backlog = 0
        self.waiters: list[asyncio.Future[None]] | None = None

    def rests(self, now_ns: int) -> bool:
        """Return whether the edge can be discarded at `now_ns`: no message waits on it, no stage of it has a state."""
        return not (self.backlog or self.waiters) and super().rests(now_ns)

    def add_to_backlog(self) -> None:
        """Count one message more in the backlog: the receiver's mailbox has not accepted it yet."""
        self.backlog += 1
        self.source.backlog += 1

    async def room(self) -> None:
        """Wait until the backlog is below its limit, `MOST_WAITING`."""
        while self.backlog >= MOST_WAITING:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters = [*(self.waiters or ()), waiter]
            await waiter

    def take_off_backlog(self) -> None:
        """Count one message less in the backlog, and wake the senders that wait because it was full."""
        self.backlog -= 1
        self.source.backlog -= 1
        if self.waiters:
            waiters, self.waiters = self.waiters, None
            wake(waiters)


HeldMessage: TypeAlias = tuple[FabricEdge, Content]
"""A message for which the receiver's mailbox has no room, with its edge."""
NOWHERE: tuple[tuple[NodeId, ...], Route[FabricEdge]] = ((), Route((), UNKNOWN))


class FabricEnd:
    """One node in the simulated network: its sink, its edges to others, and messages waiting for its full mailbox.

    Attributes:
        node: the node.
        sink: takes the messages that arrive for the node; None before its first start and after a crash.
        edges: the edges over which the node has sent, by receiver.
        held: the messages for which the mailbox had no room, in their order.
        backlog: the sum of the backlogs of the edges.
        most_edges: the number of edges beyond which idle ones are dropped.
        last: the receivers of the node's latest multicast, and the edges to them.
    """

    __slots__ = ("backlog", "edges", "held", "last", "most_edges", "node", "sink")

    def __init__(self, node: NodeId) -> None:
        """Start without a sink: nothing can be delivered yet."""
        self.node = node
        self.sink: Sink | None = None
        self.edges: dict[NodeId, FabricEdge] = {}
        self.held: list[HeldMessage] = []
        self.backlog = 0
        self.most_edges = FEW_EDGES
        self.last = NOWHERE

    def attach(self, sink: Sink | None) -> None:
        """Deliver to `sink` from now on; None: the node has crashed."""
        self.sink = sink

    def route(self, dsts: tuple[NodeId, ...], edge_to: Callable[[FabricEnd, NodeId], FabricEdge]) -> Route[FabricEdge]:
        """Return the edges to `dsts`, made by `edge_to` where missing.

        The result is cached, because most nodes send to the same receivers again.
        """
        if dsts != self.last[0]:
            self.last = dsts, Route.over([self.edges.get(dst) or edge_to(self, dst) for dst in dsts])
        return self.last[1]

    def take_held(self, is_wanted: Callable[[HeldMessage], bool] = lambda held: True) -> list[HeldMessage]:
        """Remove and return the messages held for this node's mailbox that `is_wanted` accepts, in their order."""
        taken = [each for each in self.held if is_wanted(each)]
        self.held = [each for each in self.held if not is_wanted(each)]
        return taken

    def forget(self, num_sent: int, now_ns: int) -> list[NodeId]:
        """Discard idle edges once there are too many; return the receivers whose edges had link stages of their own.

        On graphs that are redrawn most edges are used once. The next limit is twice the edges that are left plus twice
        `num_sent`, the messages that the node sends at once.
        """
        before = self.edges
        busy = [(dst, e) for dst, e in before.items() if e.plan.delay_ns < 0 or e.backlog or e.waiters]
        self.edges = {dst: edge for dst, edge in busy if not edge.rests(now_ns)}
        self.most_edges = max(FEW_EDGES, 2 * num_sent, 2 * len(self.edges))
        self.last = NOWHERE
        return [dst for dst, _ in busy if dst not in self.edges]

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Deliver messages in this order; return the fate of each, or None if the sink has no room or is missing."""
        return [None] * len(messages) if self.sink is None else self.sink.deliver(messages)

    def close(self) -> None:
        """Drop the node's sink and edges now, because the garbage collector would take far longer."""
        self.sink = None
        self.edges.clear()
        self.last = NOWHERE
