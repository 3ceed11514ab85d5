"""What a fabric is made of: the links under it, a node's end, and the queue of one directed edge."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Protocol, TypeAlias, TypeVar

from netdfl.core.types import Kind, Message, NodeId
from netdfl.links.path import Fused, Path
from netdfl.links.rules.base import Departure, Stage, StageOutcome, Transit
from netdfl.links.rules.disorder import Duplicate
from netdfl.links.rules.latency import Latency
from netdfl.links.schedule.events import CompiledEvent
from netdfl.transport.base import Fate, Sink

FEW_QUEUES = 16
NOBODY: tuple[tuple[NodeId, ...], Sequence[EdgeQueue], int] = ((), (), -1)


class FabricLinks(Protocol):
    """The links of a fleet, as `netdfl.links.channel.Links`."""

    @property
    def common(self) -> Path | None:
        """The path of every edge, where all are alike and none remembers what passed; None: ask for each."""

    def path(self, src: NodeId, dst: NodeId) -> Path:
        """The stages from `src` to `dst`."""

    def forget(self, src: NodeId, dst: NodeId) -> None:
        """Nobody uses the path from `src` to `dst` any more."""

    def apply(self, event: CompiledEvent, now_ns: int) -> Sequence[tuple[Path, int, StageOutcome]]:
        """Make a scheduled change; what becomes of what the stages hold."""


class PerfectLinks:
    """Nothing is lost and nothing takes time."""

    common = Path((0, 0), ())

    def path(self, src: NodeId, dst: NodeId) -> Path:
        """No stages."""
        return Path((src, dst), ())

    def forget(self, src: NodeId, dst: NodeId) -> None:
        """None is kept."""

    def apply(self, event: CompiledEvent, now_ns: int) -> Sequence[tuple[Path, int, StageOutcome]]:
        """There is nothing to change."""
        return ()


class End:
    """One node's end: its sink, what its full mailbox left waiting, its queues to others.

    `waiting` is the sum of its queues'. `last` is to whom it sent last, with the queues, and the delay of all or -1.
    """

    __slots__ = ("held", "last", "most_queues", "node", "queues", "sink", "waiting")

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.sink: Sink | None = None
        self.queues: dict[NodeId, EdgeQueue] = {}
        self.held: list[Parcel] = []
        self.waiting = 0
        self.most_queues = FEW_QUEUES
        self.last: tuple[tuple[NodeId, ...], Sequence[EdgeQueue], int] = NOBODY

    def forget(self, sending: int, now_ns: int) -> list[NodeId]:
        """Keep no queues that can be made again; where a graph is redrawn, most are used once.

        Next when there are more than those that are left and a node that sends `sending` messages at once can fill.
        Returns to whom queues with stages of their own went.
        """
        before = self.queues
        busy = [(d, each) for d, each in before.items() if each.fixed_ns < 0 or each.waiting or each.waiters]
        self.queues = {dst: queue for dst, queue in busy if not queue.rests(now_ns)}
        self.most_queues = max(FEW_QUEUES, 2 * sending, 2 * len(self.queues))
        self.last = NOBODY
        return [dst for dst, _ in busy if dst not in self.queues]

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Hand over messages in this order and return each one's fate; None: there is no room, or nobody."""
        return [None] * len(messages) if self.sink is None else self.sink.deliver(messages)

    def close(self) -> None:
        """The node has left for good. Freed here, its queues need no garbage collector, which takes far longer."""
        self.sink = None
        self.queues.clear()
        self.last = NOBODY


class EdgeQueue:
    """One directed edge. `waiting` counts messages that the receiver has not taken though nothing delays them.

    `at_once` are the stages that are computed through when a message enters, `unit` what stands for it
    there; `fixed_ns` is what they always come to, where that is so, else negative.
    """

    __slots__ = (
        "at_once",
        "dst",
        "fixed_ns",
        "path",
        "source",
        "src",
        "target",
        "tie",
        "unit_made",
        "waiters",
        "waiting",
    )

    def __init__(
        self, src: NodeId, dst: NodeId, path: Path, computed: Computed, source: End, target: End, tie: int
    ) -> None:
        self.src, self.dst, self.path, (self.at_once, self.fixed_ns) = src, dst, path, computed
        self.source, self.target, self.tie = source, target, tie
        self.unit_made: Transit | None = None
        self.waiting = 0
        self.waiters: list[asyncio.Future[None]] | None = None

    @property
    def unit(self) -> Transit:
        """What stands for a message in `at_once`; where each takes the same time, nobody asks."""
        if self.unit_made is None:
            self.unit_made = Transit(self.src, self.dst, Kind.DATA, 0, 0, 0, 0)
        return self.unit_made

    def rests(self, now_ns: int) -> bool:
        """Whether one made anew would do as it does: no message waits, and its stages remember nothing."""
        if self.waiting or self.waiters or self.at_once is None:
            return False
        return self.fixed_ns >= 0 or all([stage.rests(now_ns) for stage in self.at_once])

    def more(self) -> None:
        """One message more waits."""
        self.waiting += 1
        self.source.waiting += 1

    def fewer(self) -> None:
        """One message waits no more: let held senders look again."""
        self.waiting -= 1
        self.source.waiting -= 1
        if self.waiters:
            waiters, self.waiters = self.waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


Due: TypeAlias = tuple[int, EdgeQueue, Message, int, int, Departure | None, int]
"""(tie, *parcel, departure from a stage, its place)"""
Parcel: TypeAlias = tuple[EdgeQueue, Message, int, int]
"""(queue, message, nbytes, sent_ns)"""


Computed: TypeAlias = tuple[tuple[Stage, ...] | None, int]
"""(the stages of a path that are computed through when a message enters, what they always come to or -1)"""


def computed(path: Path, changing: bool) -> Computed:
    """What can be computed of `path` when a message enters."""
    at_once = stages_at_once(path, changing)
    return at_once, -1 if at_once is None else fixed_ns(at_once)


def stages_at_once(path: Path, changing: bool) -> tuple[Stage, ...] | None:
    """The stages of a path that can be computed through when a message enters; None: it can't."""
    if len(path.own) != len(path.stages):
        return None
    stages: list[Stage] = []
    for stage in path.stages:
        if isinstance(stage, Fused):
            stages += stage.stages
        elif isinstance(stage, Stage) and not changing:
            stages.append(stage)
        else:
            return None
    return None if any(isinstance(stage, Duplicate) for stage in stages) else tuple(stages)


def fixed_ns(stages: Sequence[Stage]) -> int:
    """The delay that `stages` always come to, or -1."""
    if not stages:
        return 0
    stage = stages[0]
    if len(stages) > 1 or not isinstance(stage, Latency) or stage.rounds is not None:
        return -1
    return stage.delay.constant_ns if stage.delay.quantile is None and stage.scale == 1.0 else -1


tie_of, _queue_of, departure_of = itemgetter(0), itemgetter(1), itemgetter(5)


Arrival = TypeVar("Arrival", bound=tuple[Any, ...])


def in_turn(come: dict[End, list[Arrival]]) -> list[tuple[End, list[Arrival]]]:
    """What comes for each node; nodes go in the order of the least tie of what comes."""
    return sorted(come.items(), key=lambda item: item[1][0][0])


def in_order(entries: list[Due]) -> list[Due]:
    """Edges by their ties; the entries of one edge keep the order in which they came, as links promise."""
    ordered = sorted(entries, key=tie_of)
    if len(set(map(_queue_of, entries))) == len(entries):
        return ordered
    of_queue: dict[EdgeQueue, deque[Due]] = {}
    for entry in entries:
        of_queue.setdefault(entry[1], deque()).append(entry)
    return [of_queue[entry[1]].popleft() for entry in ordered]
