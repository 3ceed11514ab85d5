"""The grounds of a finding, as typed values: why each awaited node gives nothing, and what else its sentence needs.

Nothing here is a word for people: `netdfl.diagnosis.sentences` makes the sentence, once, where a finding is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from netdfl.core.types import Edge, Json, NodeId


class Why(StrEnum):
    """Why a node does not give what another awaits of it.

    It is down: `CRASHED`, `PAUSED`, `STOPPED`, `STANDING` (still, where nothing can wake it), `SILENT` (its event loop
    does not answer). `CUT`: nothing passes from it. Its message was sent and did not come: `LOST` by a link,
    `RECEIVER_DOWN`, or taken by a life of its receiver that has ended (`RECEIVER_RESTARTED`); `LOST_OR_LATE` is what
    nodes know that only ask each other. It never sent it: `RETURNED_PAST` that round after a crash, `PAST` it,
    `FINISHED`, or `TAKEN_FOR_GONE` was who waits; `UNKNOWN_SENDERS`: nobody knows who would. `FULL` is its mailbox.
    `WAITING`: it waits itself. `AT_WORK`, `FETCHING` (a model, for the one that it lost), `ON_ITS_WAY`: it will come.
    `NO_PROGRESS`: messages pass, and no round ends.
    """

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


NOT_COME = frozenset({Why.LOST, Why.RECEIVER_DOWN, Why.RECEIVER_RESTARTED})
"""The message was sent, and does not come."""
IS_DOWN = frozenset({Why.CRASHED, Why.PAUSED, Why.STANDING, Why.STOPPED})
NEVER_SENT = frozenset({Why.PAST, Why.FINISHED, Why.TAKEN_FOR_GONE, Why.UNKNOWN_SENDERS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why `source` keeps `waiter` waiting in `round`.

    `edge` is where the message is, was lost or would come: from `waiter` itself, it is a request. `loss` is the
    record's reason of a loss, `notice` says that the message was one, `resent` that it will be sent again. `event` is
    the entry of the scenario's events that did it. `until_ns` is when it ends, where the scenario says so, `hoped`: if
    at all. `source` is in `source_round`, and in its state since `since_ns`.
    """

    waiter: NodeId
    source: NodeId
    round: int
    why: Why
    edge: Edge
    loss: str = ""
    notice: bool = False
    resent: bool = False
    event: int | None = None
    until_ns: int | None = None
    hoped: bool = False
    source_round: int = 0
    since_ns: int = 0

    @property
    def is_request(self) -> bool:
        """Whether it is about what the waiter asked, and not about what it is to get."""
        return self.edge[0] == self.waiter

    def to_json(self) -> Json:
        """Plain data for `result.json`, without what says nothing."""
        said = {"loss": self.loss, "event": self.event, "notice": self.notice, "resent": self.resent}
        known = {key: value for key, value in said.items() if value or (key == "event" and value is not None)}
        return {"waiter": self.waiter, "source": self.source, "why": self.why.value, "edge": list(self.edge), **known}


@dataclass(frozen=True, slots=True)
class Need:
    """The need of a node of a knot: `short` of those it awaits, or `room` at them. `awaited` none: not said."""

    node: NodeId
    round: int
    awaited: tuple[NodeId, ...] = ()
    short: int = 0
    room: bool = False


FEW_LINKS = 2
"""So many links are named by themselves; of more it is said what they divide."""


@dataclass(frozen=True, slots=True)
class Divide:
    """The sides that links divide which are down: two or more, or `one_way` from the first side to the second."""

    edges: tuple[Edge, ...]
    sides: tuple[tuple[NodeId, ...], ...]
    one_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """All that a sentence is made of, seen at `at_ns`.

    `knot`: nodes that wait for each other. `room`: everybody waits for room. `alone`: why nodes are named for whom
    nobody waits, so since `since_ns`. `passed`: so many messages in `window_ns`, while no node ended its round of
    `rounds`.
    """

    at_ns: int = 0
    reasons: tuple[Reason, ...] = ()
    knot: tuple[Need, ...] = ()
    divides: tuple[Divide, ...] = ()
    room: bool = False
    passed: int = 0
    window_ns: int = 0
    alone: Why | None = None
    since_ns: int = 0
    rounds: tuple[int, ...] = ()


_PLACES = (
    IS_DOWN,
    frozenset({Why.CUT}),
    frozenset({Why.RETURNED_PAST}),
    NOT_COME,
    frozenset({Why.SILENT}),
    NEVER_SENT,
)
"""The order of clauses."""


def clause_of(reason: Reason) -> tuple[int, Hashable]:
    """The key by which reasons make one clause: its place in a sentence, and one kind of outage with one end."""
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
    """The reasons that make one clause each, in the order of a sentence."""
    groups: defaultdict[tuple[int, Hashable], list[Reason]] = defaultdict(list)
    for each in reasons:
        groups[clause_of(each)].append(each)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], item[1][0].waiter, item[1][0].source))
    return [group for _, group in ordered]
