"""A fleet at one moment, as the diagnosis sees it: who waits for what, and what became of each message.

Plain data, made by the simulated world from itself and by a supervisor from the nodes' answers to its
probes; the diagnosis reads nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from netdfl.core.fates import NO_REASON, Fate, FateKind, FateReason
from netdfl.core.types import Edge, NodeId
from netdfl.record.plain_json import shallow


class State(StrEnum):
    """What a node does now.

    `SENDING` is one held by a full mailbox, `BLOCKED` an event loop that does not answer, `STOPPED` one that has not
    answered for so long that nobody waits for it any more, `STANDING` a node that does nothing and waits for nothing,
    where nothing can wake it, `FETCHING` one that returned without its state and asks its neighbors for a model.
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


DOWN = frozenset({State.CRASHED, State.PAUSED, State.STOPPED, State.STANDING})
"""States in which a node gives nothing, whatever others do."""
SILENT = frozenset({State.BLOCKED, State.STOPPED})
"""States of an event loop that does not answer."""


class What(StrEnum):
    """What a node waits for: a round's message, a peer's answer, or room in a peer's mailbox."""

    MESSAGE = "message"
    REPLY = "reply"
    ROOM = "room"


class AwaitedFate(StrEnum):
    """What became of a message that somebody waits for.

    `UNSENT`: its sender has not come to it yet. `HELD`: a full mailbox or a link that is down keeps
    it. `MISSED`: its sender crashed and, since its return, is past it. `NEVER`: its sender is past it and did
    not send it.
    """

    UNSENT = "unsent"
    IN_FLIGHT = "in_flight"
    HELD = "held"
    LOST = "lost"
    MISSED = "missed"
    NEVER = "never"


def reason_of_loss(fate: Fate) -> FateReason:
    """Why a message was lost: a drop's reason alone, of any other fate all that there is to say."""
    return fate.reason if fate.kind is FateKind.DROPPED else FateReason(fate.text)


LOST_BY_GONE = reason_of_loss(Fate.GONE)
"""The reason of a loss: its receiver was down."""
LOST_BY_RESTART = FateReason("before a restart of its receiver")
"""The reason of a loss: its receiver had taken it in a life that has ended."""
TAKEN_FOR_GONE = FateReason("taken for gone")
"""Why a message was never sent: its sender's failure detector had called its receiver gone."""

MOST_RESENDS = 10
"""A message is sent again so often where that is to end a stall."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """One awaited message: its fate, why it was lost, on which edge, and whether its sender sends it again.

    `replaced`: it is lost, and the next message of its sender does as well. `notice`: it is the sender's word that it
    sends nothing in that step. `kept`: its sender still has it. `in_vain`: each copy would be lost, too, until
    `passes_ns`, and so will one be that is not sent yet; so were all for `outage_ns` after it was sent. `event` is the
    entry of its events that lost it. `since_ns` is when it was sent, or its link came up with it.
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
    outage_ns: int = 0
    event: int | None = None
    since_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitNow:
    """What a node waits for: `need` of the nodes in `have` (which came) and `awaited` (which did not).

    A node in `gone` (so says the failure detector) is not waited for, and one that is `undecided` may yet be in it;
    who is `essential` is waited for in any case. `cumulative`: a later message of a node does as well, as where an
    algorithm itself says for whom it waits. `from_anybody`: nobody knows who will send, and nobody is left out for
    being gone. A wait with a deadline ends by itself.
    """

    round: int
    step: int = 0
    need: int
    awaited: Mapping[NodeId, Awaited]
    have: frozenset[NodeId] = frozenset()
    gone: frozenset[NodeId] = frozenset()
    undecided: frozenset[NodeId] = frozenset()
    essential: bool = False
    from_anybody: bool = False
    cumulative: bool = False
    since_ns: int = 0
    deadline_ns: int | None = None
    what: What = What.MESSAGE

    @property
    def short(self) -> int:
        """How many more must come."""
        return self.need - len(self.have)

    @property
    def missing(self) -> frozenset[NodeId]:
        """Nodes that have not come and are not gone; where none is left, the wait is over."""
        return frozenset(self.awaited) - self.gone


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNow:
    """One node. `finished` is the last round that it finished (-1: none); `since_ns` when its state began.

    `back_ns` is when the scenario lets a crashed or paused node return; None: never. `hoped`: until then, if at all, as
    it died with a machine that is waited for; `keeps`: with its state, so that it makes its round anew.
    `returned`: it was down once. `ends_ns` is when it will crash a
    node, by the clock. It is in step `step` of the `steps` of its round, and keeps `early` messages for later ones.
    `stack` is where its tasks stand, where that was asked for.
    """

    node: NodeId
    state: State
    round: int = 0
    finished: int = -1
    since_ns: int = 0
    wait: WaitNow | None = None
    back_ns: int | None = None
    hoped: bool = False
    keeps: bool = True
    returned: bool = False
    ends_ns: int | None = None
    step: int = 0
    steps: int = 1
    early: int = 0
    stack: str = ""

    @property
    def is_down_for_good(self) -> bool:
        """Whether it is down and nothing lets it return: whatever is still due of it, like a message again, is not."""
        return self.state in DOWN and self.back_ns is None


@dataclass(frozen=True, slots=True)
class MessageNow:
    """One message of one edge and its fate; `arrived_ns` is None where it did not arrive."""

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
    """Messages of one directed edge: counts, the last few, and whether it carries anything now.

    `dropped` counts by fate. `heals_ns` is when the scenario ends the outage of an edge that is not
    `up`; None: never. `event` is the entry of the scenario's events that took it down; None: `links` did.
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
        """Sent, delivered, dropped, in flight: equal in two snapshots where nothing moved between them."""
        return self.sent, self.delivered, sum(self.dropped.values()), self.in_flight + self.held

    def to_json(self) -> dict[str, object]:
        """Its fields, with fates as text."""
        last = [shallow(message) | {"fate": message.fate.text} for message in self.last]
        return shallow(self) | {"dropped": {fate.text: count for fate, count in self.dropped.items()}, "last": last}


_UNUSED = EdgeNow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A fleet at `at_ns`. `detector` is the kind of its failure detector: none, heartbeat or oracle.

    `scripted`: events of the scenario act on links, or drop messages.
    """

    at_ns: int
    nodes: Mapping[NodeId, NodeNow]
    edges: Mapping[Edge, EdgeNow] = field(default_factory=dict)
    detector: str = "none"
    scripted: bool = False

    def edge(self, src: NodeId, dst: NodeId) -> EdgeNow:
        """The edge from `src` to `dst`, unused and up where nothing is known of it."""
        return self.edges.get((src, dst), _UNUSED)

    @property
    def waiting(self) -> Iterator[tuple[NodeId, WaitNow]]:
        """Every node that waits, with its wait."""
        return ((node, now.wait) for node, now in sorted(self.nodes.items()) if now.wait is not None)
