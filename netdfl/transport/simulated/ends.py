"""What a fabric knows of its nodes: the end of each, its edges to others, and the senders that wait for room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from netdfl.core.types import Kind, Message, MessageId, NodeId, StepId
from netdfl.links.edge_state import UNKNOWN, EdgeState, PathPlan
from netdfl.links.engine import Route
from netdfl.links.path import Path
from netdfl.links.rules.base import StageOutcome
from netdfl.links.schedule.events import CompiledEvent
from netdfl.transport.base import Fate, Sink

FEW_EDGES = 16
MOST_WAITING = 64
"""Messages that an edge takes though its receiver does not."""


class FabricLinks(Protocol):
    """The links of a fleet, as `netdfl.links.channel.Links`."""

    @property
    def common(self) -> Path | None:
        """The path of every edge, where all are alike and none remembers what passed; None: ask for each."""

    def path(self, src: NodeId, dst: NodeId) -> Path:
        """The stages from `src` to `dst`."""

    def forget(self, src: NodeId, dst: NodeId) -> None:
        """Nobody uses the path from `src` to `dst` any more."""

    def apply(self, event: CompiledEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Make a scheduled change; the outcomes of the units that the stages hold."""


class PerfectLinks:
    """Links that lose nothing and take no time."""

    common = Path((0, 0), ())

    def path(self, src: NodeId, dst: NodeId) -> Path:
        """No stages."""
        return Path((src, dst), ())

    def forget(self, src: NodeId, dst: NodeId) -> None:
        """Do nothing: no path is kept."""

    def apply(self, event: CompiledEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Change nothing."""
        return ()


class Sending(NamedTuple):
    """What a node's messages of one instant have in common, as far as their rows in the record go."""

    id: MessageId
    nbytes: int
    sent_ns: int


NOTHING_SENT = Sending(MessageId(Kind.DATA, 0, StepId(0, 0), 0, 0), 0, -1)
Content: TypeAlias = tuple[Message, Sending]
"""What the fabric's engine carries."""


class FabricEdge(EdgeState):
    """An edge, and its backlog: messages that the receiver has not taken though nothing delays them."""

    __slots__ = ("backlog", "source", "target", "waiters")

    def __init__(self, source: FabricEnd, target: FabricEnd, path: Path, plan: PathPlan, order_key: int) -> None:
        """Begin without backlog."""
        super().__init__((source.node, target.node), path, plan, order_key)
        self.source, self.target = source, target
        self.backlog = 0
        self.waiters: list[asyncio.Future[None]] | None = None

    def rests(self, now_ns: int) -> bool:
        """Whether an edge made anew would do as this one does: no message waits, and the stages remember nothing."""
        return not (self.backlog or self.waiters) and super().rests(now_ns)

    def add_to_backlog(self) -> None:
        """Count a message that its receiver has not taken yet."""
        self.backlog += 1
        self.source.backlog += 1

    async def room(self) -> None:
        """Wait until the edge takes messages again."""
        while self.backlog >= MOST_WAITING:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters = [*(self.waiters or ()), waiter]
            await waiter

    def take_off_backlog(self) -> None:
        """Count a message less, and let senders that wait for room look again."""
        self.backlog -= 1
        self.source.backlog -= 1
        if self.waiters:
            waiters, self.waiters = self.waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


HeldMessage: TypeAlias = tuple[FabricEdge, Content]
"""A message for which its receiver's mailbox has no room."""
NOWHERE: tuple[tuple[NodeId, ...], Route[FabricEdge]] = ((), Route((), UNKNOWN))


class FabricEnd:
    """A node's end of the fabric: its sink, its edges to others, and the messages that its full mailbox left waiting.

    `backlog` is the sum of its edges'. `last` are the receivers to which it sent last, and the route to them.
    """

    __slots__ = ("backlog", "edges", "held", "last", "most_edges", "node", "sink")

    def __init__(self, node: NodeId) -> None:
        """Begin without a sink: nothing is delivered yet."""
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
        """Return the edges to `dsts`, made by `edge_to` where there are none; most nodes send to the same again."""
        if dsts != self.last[0]:
            self.last = dsts, Route.over([self.edges.get(dst) or edge_to(self, dst) for dst in dsts])
        return self.last[1]

    def take_held(self, is_wanted: Callable[[HeldMessage], bool] = lambda held: True) -> list[HeldMessage]:
        """Take out messages that the full mailbox left waiting, in their order."""
        taken = [each for each in self.held if is_wanted(each)]
        self.held = [each for each in self.held if not is_wanted(each)]
        return taken

    def forget(self, sending: int, now_ns: int) -> list[NodeId]:
        """Drop the edges that can be made again; where a graph is redrawn, most are used once.

        The next time is when there are more than those that are left and a node that sends `sending` messages at once
        can fill. Returns the receivers whose dropped edges had stages of their own.
        """
        before = self.edges
        busy = [(dst, e) for dst, e in before.items() if e.plan.delay_ns < 0 or e.backlog or e.waiters]
        self.edges = {dst: edge for dst, edge in busy if not edge.rests(now_ns)}
        self.most_edges = max(FEW_EDGES, 2 * sending, 2 * len(self.edges))
        self.last = NOWHERE
        return [dst for dst, _ in busy if dst not in self.edges]

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Hand over messages in this order and return each one's fate; None: there is no room, or nobody."""
        return [None] * len(messages) if self.sink is None else self.sink.deliver(messages)

    def close(self) -> None:
        """Leave for good. Edges that are dropped here need no garbage collector, which takes far longer."""
        self.sink = None
        self.edges.clear()
        self.last = NOWHERE
