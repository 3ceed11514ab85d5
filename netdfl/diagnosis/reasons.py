"""The reasons for waits: why an awaited node does not send its message, read from a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.finding import Cause
from netdfl.diagnosis.outages import divides
from netdfl.diagnosis.snapshot import (
    DOWN,
    LOST_BY_GONE,
    LOST_BY_RESTART,
    TAKEN_FOR_GONE,
    AwaitedFate,
    AwaitedMessage,
    EdgeNow,
    NodeNow,
    Snapshot,
    State,
    WaitKind,
    WaitNow,
)
from netdfl.diagnosis.why import FEW_LINKS, IS_DOWN, NEVER_SENT, NOT_COME, Divide, Grounds, Reason, ReasonKind, clauses

FIRST = (
    Cause.UNREACHABLE,
    Cause.LOST_MESSAGE,
    Cause.BLOCKED_LOOP,
    Cause.FLOW_CONTROL,
    Cause.DEADLOCK,
    Cause.STRAGGLER,
    Cause.LIVELOCK,
)
"""The order of causes: a stall with several causes is named after the first of them in this list."""
CAUSES: Mapping[ReasonKind, Cause] = {
    **dict.fromkeys((*IS_DOWN, ReasonKind.CUT, ReasonKind.RETURNED_PAST), Cause.UNREACHABLE),
    **dict.fromkeys((*NOT_COME, ReasonKind.LOST_OR_LATE), Cause.LOST_MESSAGE),
    **dict.fromkeys((*NEVER_SENT, ReasonKind.WAITING), Cause.DEADLOCK),
    **dict.fromkeys((ReasonKind.AT_WORK, ReasonKind.FETCHING, ReasonKind.ON_ITS_WAY), Cause.STRAGGLER),
    ReasonKind.SILENT: Cause.BLOCKED_LOOP,
    ReasonKind.FULL: Cause.FLOW_CONTROL,
    ReasonKind.NO_PROGRESS: Cause.LIVELOCK,
}
_OUTAGE = ("down", "reset")
_STATES = {
    State.ABSENT: ReasonKind.ABSENT,
    State.CRASHED: ReasonKind.CRASHED,
    State.PAUSED: ReasonKind.PAUSED,
    State.STANDING: ReasonKind.STANDING,
    State.STOPPED: ReasonKind.SILENT,
    State.BLOCKED: ReasonKind.SILENT,
}
_BUSY = {State.RUNNING: ReasonKind.AT_WORK, State.FETCHING: ReasonKind.FETCHING}
_LOST = {LOST_BY_GONE: ReasonKind.RECEIVER_DOWN, LOST_BY_RESTART: ReasonKind.RECEIVER_RESTARTED}


def wait_of(snapshot: Snapshot, node: NodeId) -> WaitNow:
    """Return the wait of `node`, which must be waiting."""
    wait = snapshot.nodes[node].wait
    assert wait is not None, f"node {node} does not wait"
    return wait


def awaited_of(snapshot: Snapshot, pair: Edge) -> AwaitedMessage:
    """Return the message that a node awaits from another; `pair` is (waiting node, awaited node)."""
    return wait_of(snapshot, pair[0]).awaited[pair[1]]


def path_of(snapshot: Snapshot, pair: Edge) -> Edge:
    """Return the edge on which an awaited message is, was lost, or would come.

    `pair` is (waiting node, awaited node).
    """
    return awaited_of(snapshot, pair).edge or (pair[1], pair[0])


def edge_of(snapshot: Snapshot, pair: Edge) -> EdgeNow:
    """Return the state of the edge on which an awaited message is, was lost, or would come.

    `pair` is (waiting node, awaited node).
    """
    return snapshot.edge(*path_of(snapshot, pair))


def cause_of(snapshot: Snapshot, waiter: NodeId, source: NodeId) -> Cause | None:
    """Return the cause by which `source` keeps `waiter` waiting; None if `source` only waits itself."""
    why = why_of(snapshot, waiter, source)
    return None if why is ReasonKind.WAITING else CAUSES[why]


def why_of(snapshot: Snapshot, waiter: NodeId, source: NodeId) -> ReasonKind:
    """Return the reason why `source` keeps `waiter` waiting.

    A message that was lost in an outage, of its link or of the asked node, counts as lost, with two exceptions: the
    outage never ends, or the message will be sent again. Then the outage is the reason. If the sender that will send
    the message again is down, the sender's outage is the reason; of two outages, the longer one is.
    """
    giver, pair, wait = snapshot.nodes[source], (waiter, source), wait_of(snapshot, waiter)
    awaited, edge = awaited_of(snapshot, pair), edge_of(snapshot, pair)
    if wait.what is WaitKind.ROOM:
        return _STATES.get(giver.state, ReasonKind.FULL)
    if awaited.fate is AwaitedFate.LOST:
        asked = awaited.edge == pair
        by_sender = awaited.resent and not asked and _is_for_longer(giver, edge)
        if awaited.reason in _OUTAGE and not edge.up and (awaited.resent or edge.heals_ns is None) and not by_sender:
            return ReasonKind.CUT
        if giver.state in DOWN and _is_by_outage(giver, awaited, asked=asked):
            return ReasonKind.STOPPED if giver.state is State.STOPPED else _STATES[giver.state]
        return _LOST.get(awaited.reason, ReasonKind.LOST)
    if awaited.fate is AwaitedFate.MISSED:
        return ReasonKind.RETURNED_PAST
    if awaited.fate is AwaitedFate.NEVER:  # regardless of its link
        return _never(snapshot, wait, awaited, giver.state)
    if not edge.up and (awaited.fate is AwaitedFate.HELD or not _is_for_longer(giver, edge)):
        return ReasonKind.CUT
    known = {AwaitedFate.HELD: ReasonKind.FULL, AwaitedFate.IN_FLIGHT: ReasonKind.ON_ITS_WAY}
    if awaited.fate in known:
        return known[awaited.fate]
    if giver.state is State.FINISHED:
        return _never(snapshot, wait, awaited, giver.state)
    return (_STATES | _BUSY).get(giver.state, ReasonKind.WAITING)


def _is_by_outage(giver: NodeNow, awaited: AwaitedMessage, *, asked: bool) -> bool:
    """Return whether a lost message does not come because `giver`, the awaited node, is down.

    `asked`: the lost message is the waiting node's request to `giver`, and not a message of `giver`.
    """
    if asked:
        return awaited.reason == LOST_BY_GONE and (awaited.resent or giver.back_ns is None)
    return awaited.resent


def _is_for_longer(giver: NodeNow, edge: EdgeNow) -> bool:
    """Return whether `giver`, the awaited node, is down at least as long as its link, which then does not matter."""
    if giver.state not in DOWN:
        return False
    return giver.back_ns is None or (edge.heals_ns is not None and giver.back_ns > edge.heals_ns)


def _never(snapshot: Snapshot, wait: WaitNow, awaited: AwaitedMessage, state: State) -> ReasonKind:
    """Return the reason why an awaited message was never sent; `state` is the state of its sender."""
    if wait.need > len(snapshot.nodes):
        return ReasonKind.UNKNOWN_SENDERS
    if awaited.reason == TAKEN_FOR_GONE:
        return ReasonKind.TAKEN_FOR_GONE
    return ReasonKind.FINISHED if state is State.FINISHED else ReasonKind.PAST


# the grounds of a sentence


def reasons_of(snapshot: Snapshot, pairs: Iterable[Edge]) -> tuple[Reason, ...]:
    """Return the reason for each wait in `pairs`, which are (waiting node, awaited node)."""
    return tuple(_reason(snapshot, pair) for pair in pairs)


def _reason(snapshot: Snapshot, pair: Edge) -> Reason:
    awaited, edge, giver = awaited_of(snapshot, pair), edge_of(snapshot, pair), snapshot.nodes[pair[1]]
    why = why_of(snapshot, *pair)
    event = edge.event if why is ReasonKind.CUT else awaited.event
    return Reason(
        waiter=pair[0],
        source=pair[1],
        round=wait_of(snapshot, pair[0]).round,
        why=why,
        edge=path_of(snapshot, pair),
        loss=awaited.reason if why in NOT_COME else "",
        notice=awaited.notice,
        resent=awaited.may_come_again,
        event=event,
        core="" if event is None else snapshot.core_links.get(event, ""),
        until_ns=giver.back_ns if why in IS_DOWN else edge.heals_ns if why is ReasonKind.CUT else None,
        hoped=giver.hoped,
        joins_in=giver.joins_in,
        joined=giver.joined,
        source_round=giver.round,
        since_ns=giver.since_ns,
    )


def grounds_of(snapshot: Snapshot, reasons: Sequence[Reason]) -> Grounds:
    """Return the data from which a stall's sentence is made, for waits with these `reasons`."""
    room = all(wait_of(snapshot, each.waiter).what is WaitKind.ROOM for each in reasons)
    return Grounds(at_ns=snapshot.at_ns, reasons=tuple(reasons), room=room, divides=tuple(_divides(snapshot, reasons)))


def _divides(snapshot: Snapshot, reasons: Sequence[Reason]) -> Iterator[Divide]:
    """Yield how links that are down, or were when they lost messages, divide the fleet into groups of nodes."""
    for group in clauses(reasons):
        cut = group[0].why is ReasonKind.CUT or (
            group[0].why in NOT_COME and all(each.event is not None for each in group)
        )
        edges = [each.edge for each in group]
        found = divides(snapshot, edges) if cut and len(edges) > FEW_LINKS else None
        if found is not None:
            yield found
