"""Why an awaited node does not give what is awaited of it, and how that is said: one clause for each reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.finding import Cause
from netdfl.diagnosis.outages import FEW_LINKS, describe_cut, divides
from netdfl.diagnosis.snapshot import (
    DOWN,
    LOST_BY_GONE,
    LOST_BY_RESTART,
    SILENT,
    TAKEN_FOR_GONE,
    Awaited,
    AwaitedFate,
    EdgeNow,
    Snapshot,
    State,
    WaitNow,
    What,
)

FIRST = (Cause.UNREACHABLE, Cause.LOST_MESSAGE, Cause.BLOCKED_LOOP, Cause.FLOW_CONTROL, Cause.DEADLOCK)
"""Which cause names a stall that has several."""
_OUTAGE = ("down", "reset")


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


def reason(snapshot: Snapshot, waiter: NodeId, source: NodeId) -> Cause | None:
    """Why `source` keeps `waiter` waiting; None where it waits itself.

    What was lost while a link or the asked node was down is lost, unless that never ends or it is sent again: then
    the outage is what holds it up.
    """
    giver, pair = snapshot.nodes[source], (waiter, source)
    awaited, edge = awaited_of(snapshot, pair), edge_of(snapshot, pair)
    by_state = dict.fromkeys(DOWN, Cause.UNREACHABLE) | dict.fromkeys(SILENT, Cause.BLOCKED_LOOP)
    if wait_of(snapshot, waiter).what is What.ROOM:
        return by_state.get(giver.state, Cause.FLOW_CONTROL)
    if awaited.fate is AwaitedFate.LOST:
        out = awaited.reason in _OUTAGE and not edge.up and (awaited.resent or edge.heals_ns is None)
        unheard = awaited.reason == LOST_BY_GONE and giver.state in DOWN and (awaited.resent or giver.back_ns is None)
        return Cause.UNREACHABLE if out or unheard else Cause.LOST_MESSAGE
    if not edge.up:
        return Cause.UNREACHABLE
    known = {
        AwaitedFate.HELD: Cause.FLOW_CONTROL,
        AwaitedFate.IN_FLIGHT: Cause.STRAGGLER,
        AwaitedFate.MISSED: Cause.UNREACHABLE,
        AwaitedFate.NEVER: Cause.DEADLOCK,
    }
    return known.get(awaited.fate) or (by_state | {State.RUNNING: Cause.STRAGGLER}).get(giver.state)


# clauses


def describe(snapshot: Snapshot, pairs: Sequence[Edge]) -> list[str]:
    """A clause for each reason of the waits `pairs` (who, for whom), as a list."""
    groups: defaultdict[tuple[int, Hashable], list[Edge]] = defaultdict(list)
    for pair in pairs:
        groups[_kind(snapshot, pair)].append(pair)
    told: set[NodeId] = set()
    clauses = []
    for _, group in sorted(groups.items(), key=lambda item: (item[0][0], item[1])):
        clauses.append(_clause(snapshot, group, told))
        told |= {waiter for waiter, _ in group}
    return clauses


def _what_of(snapshot: Snapshot, pairs: Sequence[Edge]) -> str:
    """The reason of waits that have one: `whose message was lost on 2->3`, after the name of who is waited for."""
    cause = reason(snapshot, *pairs[0])
    culprits = sorted({culprit for _, culprit in pairs})
    if cause is Cause.LOST_MESSAGE:
        return _lost_words(snapshot, pairs)
    if cause is Cause.UNREACHABLE:
        return _unreachable_words(snapshot, culprits, pairs)
    if cause is Cause.BLOCKED_LOOP:
        silent_ns = snapshot.at_ns - min(snapshot.nodes[culprit].since_ns for culprit in culprits)
        loops = "loops have" if len(culprits) > 1 else "loop has"
        return f"whose event {loops} not answered for {words.seconds(silent_ns)}"
    if any(wait_of(snapshot, root).need > len(snapshot.nodes) for root, _ in pairs):
        return "and does not know which of them will send"
    if all(awaited_of(snapshot, pair).reason == TAKEN_FOR_GONE for pair in pairs):
        return f"which took {words.nodes({root for root, _ in pairs})} for gone and did not send it"
    many, done = len(culprits) > 1, all(snapshot.nodes[c].state is State.FINISHED for c in culprits)
    if done:
        return f"which {'have' if many else 'has'} finished and {'send' if many else 'sends'} nothing any more"
    return f"which {'are' if many else 'is'} past that round and did not send it"


def sentence(snapshot: Snapshot, pairs: Sequence[Edge]) -> str:
    """Who waits where and for whom, and each reason for it."""
    roots, culprits = {root for root, _ in pairs}, {culprit for _, culprit in pairs}
    where = words.rounds([wait_of(snapshot, root).round for root in roots])
    waiting = f"{'waits' if len(roots) == 1 else 'wait'} in {where}"
    one = len({_kind(snapshot, pair) for pair in pairs}) == 1
    if one and len(pairs) > FEW_LINKS and _is_cut(snapshot, pairs):
        return f"{words.span(roots)} {waiting}: {describe_cut(snapshot, _paths(snapshot, pairs))}"
    if one and (divided := _lost_in_cut(snapshot, pairs)):
        return f"{words.span(roots)} {waiting} for messages that were lost while nothing passed {divided}"
    if one:
        return f"{words.nodes(roots)} {waiting} for {words.nodes(culprits)}, {_what_of(snapshot, pairs)}"
    return f"{words.nodes(roots)} {waiting}: {'; '.join(describe(snapshot, pairs))}"


def _kind(snapshot: Snapshot, pair: Edge) -> tuple[int, Hashable]:
    """What makes reasons one clause: one kind of outage, with one end; and its place in the sentence."""
    cause, giver, edge = reason(snapshot, *pair) or Cause.DEADLOCK, snapshot.nodes[pair[1]], edge_of(snapshot, pair)
    awaited = awaited_of(snapshot, pair)
    if cause is Cause.UNREACHABLE and awaited.fate is AwaitedFate.MISSED:
        return 2, "missed"
    if cause is Cause.UNREACHABLE and giver.state in DOWN and (edge.up or awaited.reason == LOST_BY_GONE):
        return 0, (giver.state.value, giver.back_ns is None, giver.back_ns or 0)
    if cause is Cause.UNREACHABLE:
        return 1, (edge.heals_ns is None, edge.heals_ns or 0)
    if cause is Cause.LOST_MESSAGE:
        return 3, (awaited.reason, awaited.notice, path_of(snapshot, pair)[0] == pair[0], awaited.resent)
    return 4 + FIRST.index(cause) if cause in FIRST else 9, cause.value


def _clause(snapshot: Snapshot, pairs: Sequence[Edge], told: Collection[NodeId]) -> str:
    """`node 1 crashed and does not return`, `node 0 also lacks node 2's message of round 4, lost on 2->0`."""
    cause = reason(snapshot, *pairs[0]) or Cause.DEADLOCK
    waiters, culprits = sorted({w for w, _ in pairs}), sorted({c for _, c in pairs})
    if cause is Cause.LOST_MESSAGE:
        return "; ".join(_lacks(snapshot, waiter, [p for p in pairs if p[0] == waiter], told) for waiter in waiters)
    if cause is Cause.UNREACHABLE and _is_cut(snapshot, pairs):
        return describe_cut(snapshot, _paths(snapshot, pairs))
    said = _what_of(snapshot, pairs).removeprefix("which ")
    return f"{words.nodes(culprits)} {said}"


def _lacks(snapshot: Snapshot, waiter: NodeId, pairs: Sequence[Edge], told: Collection[NodeId]) -> str:
    also = "also lacks" if waiter in told else "lacks"
    where = words.rounds([wait_of(snapshot, waiter).round])
    whose = words.listed(f"node {source}'s" for _, source in pairs)
    arrows, why, many = _arrows(snapshot, pairs), _why_lost(snapshot, pairs), len(pairs) > 1
    awaited = awaited_of(snapshot, pairs[0])
    if path_of(snapshot, pairs[0])[0] == waiter:
        return f"node {waiter} {also} {whose} answer: its request was lost on {arrows}{why}"
    what = "notice" if awaited.notice else "message"
    return f"node {waiter} {also} {whose} {what}{'s' * many} of {where}, lost on {arrows}{why}"


def _lost_words(snapshot: Snapshot, pairs: Sequence[Edge]) -> str:
    arrows, many = _arrows(snapshot, pairs), len(pairs) > 1
    awaited = awaited_of(snapshot, pairs[0])
    why = _why_lost(snapshot, pairs)
    if path_of(snapshot, pairs[0])[0] == pairs[0][0]:
        return f"which its request never reached: it was lost on {arrows}{why}"
    what = "notice that nothing comes" if awaited.notice else f"message{'s' * many}"
    return f"whose {what} {'were' if many and not awaited.notice else 'was'} lost on {arrows}{why}"


def _arrows(snapshot: Snapshot, pairs: Iterable[Edge]) -> str:
    return words.arrows(_paths(snapshot, pairs))


def _lost_in_cut(snapshot: Snapshot, pairs: Sequence[Edge]) -> str:
    """Between whom nothing passed when these messages were lost, and by which event; empty for single links."""
    events = {awaited_of(snapshot, pair).event for pair in pairs}
    divided = "" if None in events else divides(snapshot, _paths(snapshot, pairs))
    return divided and divided + words.entry(events)


def _why_lost(snapshot: Snapshot, pairs: Sequence[Edge]) -> str:
    """` (events[2]: the link was down)`, nothing for plain loss; then whether it comes again."""
    events = {awaited_of(snapshot, pair).event for pair in pairs}
    said = sorted({_cause_of_loss(snapshot, pair, many=len(pairs) > 1) for pair in pairs} - {""})
    why = ": ".join(part for part in (words.entry(events).strip(" ()"), " and ".join(said)) if part)
    again = all(awaited_of(snapshot, pair).resent for pair in pairs)
    return (f" ({why})" if why else "") + (", and will be sent again" if again else "")


def _cause_of_loss(snapshot: Snapshot, pair: Edge, *, many: bool) -> str:
    why, receiver = awaited_of(snapshot, pair).reason, path_of(snapshot, pair)[1]
    known = {
        "loss": "",
        "down": "the links were down" if many else "the link was down",
        "reset": "the links were reset" if many else "the link was reset",
        "queue": "a queue was full",
        "corrupt": "damaged",
        LOST_BY_GONE: f"node {receiver} was down",
        LOST_BY_RESTART: f"node {receiver} took it before it crashed",
    }
    return known.get(why, why)


def _unreachable_words(snapshot: Snapshot, culprits: Sequence[NodeId], pairs: Sequence[Edge]) -> str:
    if awaited_of(snapshot, pairs[0]).fate is AwaitedFate.MISSED:
        return f"which crashed and, since {'their' if len(culprits) > 1 else 'its'} return, " + (
            "are past that round" if len(culprits) > 1 else "is past that round"
        )
    if _is_cut(snapshot, pairs):
        it, edges = "it is" if len(pairs) == 1 else "they are", _paths(snapshot, pairs)
        return f"from which {it} cut off: {describe_cut(snapshot, edges)}"
    giver, many = snapshot.nodes[culprits[0]], len(culprits) > 1
    ends = [snapshot.nodes[culprit].back_ns for culprit in culprits]
    if giver.state is State.CRASHED:
        return f"which {'died' if giver.hoped else 'crashed'} and {words.back(ends, many=many, hoped=giver.hoped)}"
    how = {State.PAUSED: "paused", State.STANDING: "standing still outside any wait"}.get(giver.state, "stopped")
    return f"which {'are' if many else 'is'} {how} {words.until(ends, 'and never resumed')}"


def _is_cut(snapshot: Snapshot, pairs: Sequence[Edge]) -> bool:
    return _kind(snapshot, pairs[0])[0] == 1


def _paths(snapshot: Snapshot, pairs: Iterable[Edge]) -> list[Edge]:
    return [path_of(snapshot, pair) for pair in pairs]
