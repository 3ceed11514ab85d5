"""A snapshot: the state of a fleet at one moment, with each node's wait and the state of each awaited message.

It is plain data. The simulated world makes it from its own state, a supervisor from the answers of nodes to its probes.
The diagnosis reads nothing else, so it is the same for every world.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from netdfl.core.fates import NO_REASON, Fate, FateKind, FateReason
from netdfl.core.types import Edge, NodeId
from netdfl.record.plain_json import shallow


class State(StrEnum):
    """The state of a node.

    `SENDING`: its send waits for room in a full mailbox. `BLOCKED`: its event loop does not answer. `STOPPED`: its
    event loop has not answered for so long that the run waits for it no more. `STANDING`: it does nothing, waits for
    nothing, and nothing can wake it. `FETCHING`: it returned without its state, and asks its neighbors for a model.
    `ABSENT`: it has yet to join.
    """

    RUNNING = "running"
    WAITING = "waiting"
    SENDING = "sending"
    FINISHED = "finished"
    CRASHED = "crashed"
    PAUSED = "paused"
    BLOCKED = "blocked"
    STOPPED = "stopped"
    STANDING = "standing"
    FETCHING = "fetching"
    ABSENT = "absent"


AWAY = frozenset({State.CRASHED, State.ABSENT})
"""States in which a node has no process."""
DOWN = frozenset({*AWAY, State.PAUSED, State.STOPPED, State.STANDING})
"""States in which a node sends nothing, whatever other nodes do."""
SILENT = frozenset({State.BLOCKED, State.STOPPED})
"""States of a node whose event loop does not answer."""


class WaitKind(StrEnum):
    """The kind of a wait: for a message of a round, for a reply, or for room in a peer's mailbox."""

    MESSAGE = "message"
    REPLY = "reply"
    ROOM = "room"


class AwaitedFate(StrEnum):
    """The state of a message that a node awaits: not sent yet, on its way, lost, ...

    `UNSENT`: its sender has not reached its step yet. `HELD`: a full mailbox or a link that is down keeps it. `MISSED`:
    its sender crashed, and is past its step since its return. `NEVER`: its sender is past its step without sending it.
    """

    UNSENT = "unsent"
    IN_FLIGHT = "in_flight"
    HELD = "held"
    LOST = "lost"
    MISSED = "missed"
    NEVER = "never"


def reason_of_loss(fate: Fate) -> FateReason:
    """Return why a message was lost: the reason alone if a link dropped it, else the text of `fate` in full."""
    return fate.reason if fate.kind is FateKind.DROPPED else FateReason(fate.text)


LOST_BY_GONE = reason_of_loss(Fate.GONE)
"""The reason of a loss: the receiver of the message was down."""
LOST_BY_RESTART = FateReason("before a restart of its receiver")
"""The reason of a loss: the receiver got the message before it crashed, and restarted without it."""
TAKEN_FOR_GONE = FateReason("taken for gone")
"""The reason why a message was never sent: the failure detector of its sender had called the receiver gone."""

MOST_RESENDS = 10
"""The most times that a message is sent again to end a stall."""


@dataclass(frozen=True, slots=True)
class AwaitedMessage:
    """A message that a node waits for, and what became of it so far.

    Attributes:
        fate: its state, such as unsent or lost.
        reason: the reason of its loss, or for which it was never sent.
        edge: the edge on which it is or was lost; None: not known.
        resent: whether its sender sends it again by itself.
        replaced: whether it is lost, but the next message of its sender also ends the wait.
        notice: whether it is a notice, by which its sender says that it sends nothing in that step.
        kept: whether its sender still has it.
        in_vain: whether each copy of it would be lost too.
        passes_ns: when a copy would pass again; None: not known, or never.
        passes_for_good: whether each later copy would pass, too.
        outage_ns: how long after it was sent all copies would have been lost.
        event: the entry of the scenario's events that lost it.
        since_ns: when it was sent, or when the link that held it came up.
    """

    fate: AwaitedFate = AwaitedFate.UNSENT
    reason: FateReason = NO_REASON
    edge: Edge | None = None
    resent: bool = False
    replaced: bool = False
    notice: bool = False
    kept: bool = True
    in_vain: bool = False
    passes_ns: int | None = None
    passes_for_good: bool = False
    outage_ns: int = 0
    event: int | None = None
    since_ns: int = 0

    @property
    def may_come_again(self) -> bool:
        """Whether its sender sends it again by itself, and some copy may arrive."""
        return self.resent and not (self.in_vain and self.passes_ns is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitNow:
    """The wait of a node at the moment of a snapshot.

    Attributes:
        round: the round of the awaited messages.
        step: the step of that round.
        need: how many messages of nodes in `have` and `awaited` suffice.
        awaited: the messages that have not come, by sender.
        have: the nodes whose messages have come.
        gone: the nodes that the failure detector calls gone, which are not waited for.
        undecided: the nodes that the failure detector may still call gone.
        essential: whether the wait lasts even for nodes that are called gone.
        from_anybody: whether the node does not know its senders, so that it leaves out no node for being gone.
        cumulative: whether a later message of a node also ends the wait for it.
        since_ns: when the wait began.
        deadline_ns: when the wait ends by itself; None: it has no deadline.
        what: the kind of the wait.
    """

    round: int
    step: int = 0
    need: int
    awaited: Mapping[NodeId, AwaitedMessage]
    have: frozenset[NodeId] = frozenset()
    gone: frozenset[NodeId] = frozenset()
    undecided: frozenset[NodeId] = frozenset()
    essential: bool = False
    from_anybody: bool = False
    cumulative: bool = False
    since_ns: int = 0
    deadline_ns: int | None = None
    what: WaitKind = WaitKind.MESSAGE

    @property
    def short(self) -> int:
        """Number of messages that must still come before the node may continue."""
        return self.need - len(self.have)

    @property
    def missing(self) -> frozenset[NodeId]:
        """The awaited nodes that are not gone. If there are none, the wait is over."""
        return frozenset(self.awaited) - self.gone


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNow:
    """A node at the moment of the snapshot.

    Attributes:
        node: the node.
        state: its state.
        round: its round.
        finished: the last round that it finished; -1: none.
        since_ns: when its state began.
        wait: its wait, or None.
        back_ns: when the scenario lets a crashed or paused node return; None: never.
        hoped: whether its return, at `back_ns` at the latest, is uncertain, because it died with its machine.
        joins_in: the round in which it joins; None: at `back_ns`, or it has joined.
        keeps: whether it returns with its state, so that it repeats its round.
        returned: whether it was down once.
        joined: whether it was absent once, and not down since.
        ends_ns: when the scenario will crash it, by the clock.
        step: its step of the round.
        steps: number of steps of the round.
        early: number of messages that it keeps for later steps.
        stack: the stacks of its tasks, if asked for.
    """

    node: NodeId
    state: State
    round: int = 0
    finished: int = -1
    since_ns: int = 0
    wait: WaitNow | None = None
    back_ns: int | None = None
    hoped: bool = False
    joins_in: int | None = None
    keeps: bool = True
    returned: bool = False
    joined: bool = False
    ends_ns: int | None = None
    step: int = 0
    steps: int = 1
    early: int = 0
    stack: str = ""

    @property
    def is_down_for_good(self) -> bool:
        """Whether the node is down and never returns, so that it sends nothing more."""
        return self.state in DOWN and self.back_ns is None


@dataclass(frozen=True, slots=True)
class MessageNow:
    """A sent message and how it ended, or that it is in flight; `arrived_ns` is None if it did not arrive."""

    src: NodeId
    dst: NodeId
    kind: str
    round: int
    step: int
    attempt: int
    sent_ns: int
    arrived_ns: int | None
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeNow:
    """A directed edge at the moment of the snapshot: the counts of its messages, the last few, and its outage.

    Attributes:
        sent: number of messages handed to the transport.
        delivered: number of messages that arrived.
        dropped: the messages that did not arrive, counted by how they ended.
        in_flight: number of messages under way.
        held: number of messages that a full mailbox or a link that is down keeps.
        up: whether the edge carries messages.
        heals_ns: when the scenario ends the outage; None: never.
        event: the entry of the scenario's events that took the edge down; None: the scenario's `links`.
        last: the latest messages.
    """

    sent: int = 0
    delivered: int = 0
    dropped: Mapping[Fate, int] = field(default_factory=dict)
    in_flight: int = 0
    held: int = 0
    up: bool = True
    heals_ns: int | None = None
    event: int | None = None
    last: tuple[MessageNow, ...] = ()

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of messages sent, delivered, dropped, in flight; equal in two snapshots if nothing moved."""
        return self.sent, self.delivered, sum(self.dropped.values()), self.in_flight + self.held

    def to_json(self) -> dict[str, object]:
        """Return the edge's fields as JSON can hold them, with text for how messages ended."""
        last = [shallow(message) | {"fate": message.fate.text} for message in self.last]
        return shallow(self) | {"dropped": {fate.text: count for fate, count in self.dropped.items()}, "last": last}


_UNUSED = EdgeNow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a fleet at one moment.

    Attributes:
        at_ns: the time of the snapshot.
        nodes: the nodes, by number.
        edges: the edges that are known.
        detector: the kind of the failure detector: `none`, `heartbeat` or `oracle`.
        scripted: whether events of the scenario act on links or drop messages.
        core_links: the names of the core links that events cut, by the entry of the scenario's events.
    """

    at_ns: int
    nodes: Mapping[NodeId, NodeNow]
    edges: Mapping[Edge, EdgeNow] = field(default_factory=dict)
    detector: str = "none"
    scripted: bool = False
    core_links: Mapping[int, str] = field(default_factory=dict)

    def edge(self, src: NodeId, dst: NodeId) -> EdgeNow:
        """Return the edge from `src` to `dst`; if unknown, an unused edge that is up."""
        return self.edges.get((src, dst), _UNUSED)

    @property
    def waiting(self) -> Iterator[tuple[NodeId, WaitNow]]:
        """The nodes that wait, each with its wait."""
        return ((node, now.wait) for node, now in sorted(self.nodes.items()) if now.wait is not None)
