"""Why an awaited node does not give what is awaited of it, read from a snapshot as typed values."""

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
    Awaited,
    AwaitedFate,
    EdgeNow,
    NodeNow,
    Snapshot,
    State,
    WaitNow,
    What,
)
from netdfl.diagnosis.why import FEW_LINKS, IS_DOWN, NEVER_SENT, NOT_COME, Divide, Grounds, Reason, Why, clauses

FIRST = (
    Cause.UNREACHABLE,
    Cause.LOST_MESSAGE,
    Cause.BLOCKED_LOOP,
    Cause.FLOW_CONTROL,
    Cause.DEADLOCK,
    Cause.STRAGGLER,
    Cause.LIVELOCK,
)
"""Which cause names a stall that has several."""
CAUSES: Mapping[Why, Cause] = {
    **dict.fromkeys((*IS_DOWN, Why.CUT, Why.RETURNED_PAST), Cause.UNREACHABLE),
    **dict.fromkeys((*NOT_COME, Why.LOST_OR_LATE), Cause.LOST_MESSAGE),
    **dict.fromkeys((*NEVER_SENT, Why.WAITING), Cause.DEADLOCK),
    **dict.fromkeys((Why.AT_WORK, Why.FETCHING, Why.ON_ITS_WAY), Cause.STRAGGLER),
    Why.SILENT: Cause.BLOCKED_LOOP,
    Why.FULL: Cause.FLOW_CONTROL,
    Why.NO_PROGRESS: Cause.LIVELOCK,
}
_OUTAGE = ("down", "reset")
_STATES = {
    State.CRASHED: Why.CRASHED,
    State.PAUSED: Why.PAUSED,
    State.STANDING: Why.STANDING,
    State.STOPPED: Why.SILENT,
    State.BLOCKED: Why.SILENT,
}
_BUSY = {State.RUNNING: Why.AT_WORK, State.FETCHING: Why.FETCHING}
_LOST = {LOST_BY_GONE: Why.RECEIVER_DOWN, LOST_BY_RESTART: Why.RECEIVER_RESTARTED}


def wait_of(snapshot: Snapshot, node: NodeId) -> WaitNow:
    """The wait of a node that waits."""
    wait = snapshot.nodes[node].wait
    assert wait is not None, f"node {node} does not wait"
    return wait


def awaited_of(snapshot: Snapshot, pair: Edge) -> Awaited:
    """What became of the message for which the first of `pair` waits, from the second."""
    return wait_of(snapshot, pair[0]).awaited[pair[1]]


def path_of(snapshot: Snapshot, pair: Edge) -> Edge:
    """The edge on which that message is, was lost, or would come."""
    return awaited_of(snapshot, pair).edge or (pair[1], pair[0])


def edge_of(snapshot: Snapshot, pair: Edge) -> EdgeNow:
    """That edge now."""
    return snapshot.edge(*path_of(snapshot, pair))


def cause_of(snapshot: Snapshot, waiter: NodeId, source: NodeId) -> Cause | None:
    """The cause for which `source` keeps `waiter` waiting; None where it waits itself."""
    why = why_of(snapshot, waiter, source)
    return None if why is Why.WAITING else CAUSES[why]


def why_of(snapshot: Snapshot, waiter: NodeId, source: NodeId) -> Why:
    """Why `source` keeps `waiter` waiting.

    What was lost while a link or the asked node was down is lost, unless that never ends or it is sent again: then
    the outage is what holds it up, as is one of its sender where that sends it again; the longer one where both are.
    """
    giver, pair, wait = snapshot.nodes[source], (waiter, source), wait_of(snapshot, waiter)
    awaited, edge = awaited_of(snapshot, pair), edge_of(snapshot, pair)
    if wait.what is What.ROOM:
        return _STATES.get(giver.state, Why.FULL)
    if awaited.fate is AwaitedFate.LOST:
        asked = awaited.edge == pair
        by_sender = awaited.resent and not asked and _is_for_longer(giver, edge)
        if awaited.reason in _OUTAGE and not edge.up and (awaited.resent or edge.heals_ns is None) and not by_sender:
            return Why.CUT
        if giver.state in DOWN and _is_by_outage(giver, awaited, asked=asked):
            return Why.STOPPED if giver.state is State.STOPPED else _STATES[giver.state]
        return _LOST.get(awaited.reason, Why.LOST)
    if awaited.fate is AwaitedFate.MISSED:
        return Why.RETURNED_PAST
    if awaited.fate is AwaitedFate.NEVER:  # whatever becomes of its link
        return _never(snapshot, wait, awaited, giver.state)
    if not edge.up and (awaited.fate is AwaitedFate.HELD or not _is_for_longer(giver, edge)):
        return Why.CUT
    known = {AwaitedFate.HELD: Why.FULL, AwaitedFate.IN_FLIGHT: Why.ON_ITS_WAY}
    if awaited.fate in known:
        return known[awaited.fate]
    if giver.state is State.FINISHED:
        return _never(snapshot, wait, awaited, giver.state)
    return (_STATES | _BUSY).get(giver.state, Why.WAITING)


def _is_by_outage(giver: NodeNow, awaited: Awaited, *, asked: bool) -> bool:
    """Whether an outage of `giver` keeps a lost message away: it was `asked` and is down still, or sends it again."""
    if asked:
        return awaited.reason == LOST_BY_GONE and (awaited.resent or giver.back_ns is None)
    return awaited.resent


def _is_for_longer(giver: NodeNow, edge: EdgeNow) -> bool:
    """Whether `giver` is down, and not for less long than its link: who sends nothing needs none."""
    if giver.state not in DOWN:
        return False
    return giver.back_ns is None or (edge.heals_ns is not None and giver.back_ns > edge.heals_ns)


def _never(snapshot: Snapshot, wait: WaitNow, awaited: Awaited, state: State) -> Why:
    """Why it was never sent."""
    if wait.need > len(snapshot.nodes):
        return Why.UNKNOWN_SENDERS
    if awaited.reason == TAKEN_FOR_GONE:
        return Why.TAKEN_FOR_GONE
    return Why.FINISHED if state is State.FINISHED else Why.PAST


# what a sentence is made of


def reasons_of(snapshot: Snapshot, pairs: Iterable[Edge]) -> tuple[Reason, ...]:
    """The reason of each of the waits `pairs` (who, for whom)."""
    return tuple(_reason(snapshot, pair) for pair in pairs)


def _reason(snapshot: Snapshot, pair: Edge) -> Reason:
    awaited, edge, giver = awaited_of(snapshot, pair), edge_of(snapshot, pair), snapshot.nodes[pair[1]]
    why = why_of(snapshot, *pair)
    return Reason(
        waiter=pair[0],
        source=pair[1],
        round=wait_of(snapshot, pair[0]).round,
        why=why,
        edge=path_of(snapshot, pair),
        loss=awaited.reason if why in NOT_COME else "",
        notice=awaited.notice,
        resent=awaited.resent,
        event=edge.event if why is Why.CUT else awaited.event,
        until_ns=giver.back_ns if why in IS_DOWN else edge.heals_ns if why is Why.CUT else None,
        hoped=giver.hoped,
        source_round=giver.round,
        since_ns=giver.since_ns,
    )


def grounds_of(snapshot: Snapshot, reasons: Sequence[Reason]) -> Grounds:
    """All that the sentence about these waits is made of."""
    room = all(wait_of(snapshot, each.waiter).what is What.ROOM for each in reasons)
    return Grounds(at_ns=snapshot.at_ns, reasons=tuple(reasons), room=room, divides=tuple(_divides(snapshot, reasons)))


def _divides(snapshot: Snapshot, reasons: Sequence[Reason]) -> Iterator[Divide]:
    """The sides between which the links of a clause are down, or were when messages were lost on them."""
    for group in clauses(reasons):
        cut = group[0].why is Why.CUT or (group[0].why in NOT_COME and all(each.event is not None for each in group))
        edges = [each.edge for each in group]
        found = divides(snapshot, edges) if cut and len(edges) > FEW_LINKS else None
        if found is not None:
            yield found
