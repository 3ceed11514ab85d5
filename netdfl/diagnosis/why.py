"""The data for the sentence about a stall, as typed values: the reason for each wait, and further contents.

There is no text for people here. `sentences.py` makes the sentence from these values when a finding (diagnosed stall)
is shown, so that findings are compared and grouped by values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from netdfl.core.types import Edge, Json, NodeId


class ReasonKind(StrEnum):
    """The kind of reason why a node does not send a message that another node awaits.

    - The node is down: `ABSENT` (it has yet to join), `CRASHED`, `PAUSED`, `STOPPED`, `STANDING` (nothing can wake it),
      or `SILENT` (its event loop does not answer). `CUT`: its link is down.
    - The message was sent and did not come: `LOST` by a link, `RECEIVER_DOWN`, or received before its receiver
      restarted without it (`RECEIVER_RESTARTED`). Nodes that only ask each other can't tell these apart from a late
      message: `LOST_OR_LATE`.
    - The node never sent it: it is past the round after a crash (`RETURNED_PAST`) or without one (`PAST`), it has
      `FINISHED`, or it had called the waiter gone (`TAKEN_FOR_GONE`). `UNKNOWN_SENDERS`: the senders are not known.
    - The message will come: the node is `AT_WORK`, `FETCHING` a model for its lost one, or the message is `ON_ITS_WAY`.
    - `WAITING`: the node waits itself. `FULL`: its mailbox has no room. `NO_PROGRESS`: messages pass, no round ends.
    """

    ABSENT = "absent"
    CRASHED = "crashed"
    PAUSED = "paused"
    STANDING = "standing"
    STOPPED = "stopped"
    CUT = "cut"
    RETURNED_PAST = "returned_past"
    LOST = "lost"
    RECEIVER_DOWN = "receiver_down"
    RECEIVER_RESTARTED = "receiver_restarted"
    LOST_OR_LATE = "lost_or_late"
    SILENT = "silent"
    FULL = "full"
    PAST = "past"
    FINISHED = "finished"
    TAKEN_FOR_GONE = "taken_for_gone"
    UNKNOWN_SENDERS = "unknown_senders"
    WAITING = "waiting"
    AT_WORK = "at_work"
    FETCHING = "fetching"
    ON_ITS_WAY = "on_its_way"
    NO_PROGRESS = "no_progress"


NOT_COME = frozenset({ReasonKind.LOST, ReasonKind.RECEIVER_DOWN, ReasonKind.RECEIVER_RESTARTED})
"""The kinds of reasons in which the message was sent and does not come."""
IS_DOWN = frozenset({ReasonKind.ABSENT, ReasonKind.CRASHED, ReasonKind.PAUSED, ReasonKind.STANDING, ReasonKind.STOPPED})
NEVER_SENT = frozenset({ReasonKind.PAST, ReasonKind.FINISHED, ReasonKind.TAKEN_FOR_GONE, ReasonKind.UNKNOWN_SENDERS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The reason why the message of `source` for which `waiter` waits does not come.

    Attributes:
        waiter: the node that waits.
        source: the node that `waiter` waits for.
        round: the round of the awaited message.
        why: the kind of the reason.
        edge: the edge on which the message is, was lost, or would come. If it begins at `waiter`, the message is a
            request.
        loss: the reason of the loss as in the run's record, such as `down`.
        notice: whether the message is a notice, by which `source` says that it sends nothing in a step.
        resent: whether the message will be sent again.
        event: the entry of the scenario's events that is the reason.
        core: the core link that the event took down, by its name; empty for any other event.
        until_ns: when the scenario ends the outage.
        hoped: whether that end is uncertain.
        joins_in: the round in which `source` joins; None: at `until_ns`, or it has joined.
        joined: whether `source` joined late.
        source_round: the round of `source`.
        since_ns: since when `source` is in its state.
    """

    waiter: NodeId
    source: NodeId
    round: int
    why: ReasonKind
    edge: Edge
    loss: str = ""
    notice: bool = False
    resent: bool = False
    event: int | None = None
    core: str = ""
    until_ns: int | None = None
    hoped: bool = False
    joins_in: int | None = None
    joined: bool = False
    source_round: int = 0
    since_ns: int = 0

    @property
    def is_request(self) -> bool:
        """Whether the message is the waiter's own request, and not the reply to it."""
        return self.edge[0] == self.waiter

    def to_json(self) -> Json:
        """Return plain data for `result.json`, without empty values."""
        said = {"loss": self.loss, "event": self.event, "core": self.core, "notice": self.notice, "resent": self.resent}
        known = {key: value for key, value in said.items() if value or (key == "event" and value is not None)}
        return {"waiter": self.waiter, "source": self.source, "why": self.why.value, "edge": list(self.edge), **known}


@dataclass(frozen=True, slots=True)
class Need:
    """A node that waits in a deadlock, and how many messages, of which nodes, it lacks.

    Attributes:
        node: the node that waits.
        round: its round.
        awaited: the nodes whose messages it lacks; empty: unknown.
        short: how many of these messages it lacks.
        room: whether it lacks room in the mailboxes of `awaited` instead.
    """

    node: NodeId
    round: int
    awaited: tuple[NodeId, ...] = ()
    short: int = 0
    room: bool = False


FEW_LINKS = 2
"""The most links that a sentence names one by one; for more, it names the groups of nodes that they separate."""


@dataclass(frozen=True, slots=True)
class Divide:
    """A division of the fleet by the links `edges`, all down.

    `sides` are the groups of nodes between which no message passes. With `one_way`, it is only known that none passes
    from the first group to the second.
    """

    edges: tuple[Edge, ...]
    sides: tuple[tuple[NodeId, ...], ...]
    one_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """The data from which the sentence about a stall is made.

    Attributes:
        at_ns: the time of the snapshot in which the stall was seen.
        reasons: the reasons of the waits.
        knot: the nodes that wait for each other, with what each lacks.
        divides: the groups of nodes that links which are down separate.
        room: whether all waits are for room in a mailbox.
        passed: number of messages that passed in `window_ns` while no node finished a round.
        window_ns: the length of the time in which they passed.
        alone: the reason for nodes that stand still although no other node waits for them.
        since_ns: since when these nodes are in their state.
        rounds: the rounds of nodes in a livelock.
    """

    at_ns: int = 0
    reasons: tuple[Reason, ...] = ()
    knot: tuple[Need, ...] = ()
    divides: tuple[Divide, ...] = ()
    room: bool = False
    passed: int = 0
    window_ns: int = 0
    alone: ReasonKind | None = None
    since_ns: int = 0
    rounds: tuple[int, ...] = ()


_PLACES = (
    IS_DOWN,
    frozenset({ReasonKind.CUT}),
    frozenset({ReasonKind.RETURNED_PAST}),
    NOT_COME,
    frozenset({ReasonKind.SILENT}),
    NEVER_SENT,
)
"""The kinds of reasons for waits, in the order of their clauses in the sentence about a stall."""


def clause_of(reason: Reason) -> tuple[int, Hashable]:
    """Return a key of a reason for a wait; reasons with equal keys share a clause of the stall's sentence.

    The key has the place of the clause, and a value that is equal within the clause, such as the end of an outage.
    """
    place = next((number for number, whys in enumerate(_PLACES) if reason.why in whys), len(_PLACES))
    match place:
        case 0:
            return place, (reason.why.value, reason.until_ns)
        case 1:
            return place, reason.until_ns
        case 3:
            return place, (reason.loss, reason.notice, reason.is_request, reason.resent)
    return place, "" if place < len(_PLACES) else reason.why.value


def clauses(reasons: Iterable[Reason]) -> list[list[Reason]]:
    """Return the reasons for waits, grouped by the clause that names them, in the order of the stall's sentence."""
    groups: defaultdict[tuple[int, Hashable], list[Reason]] = defaultdict(list)
    for each in reasons:
        groups[clause_of(each)].append(each)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], item[1][0].waiter, item[1][0].source))
    return [group for _, group in ordered]
