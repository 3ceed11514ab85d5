"""Temporary stalls: slow nodes, outages that heal, full mailboxes, blocked event loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.causes import make_finding
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.reasons import awaited_of, cause_of, edge_of, grounds_of, reasons_of, wait_of, why_of
from netdfl.diagnosis.snapshot import SILENT, AwaitedFate, Snapshot
from netdfl.diagnosis.why import IS_DOWN, Grounds, ReasonKind


def find_slow(snapshot: Snapshot, stuck: Collection[NodeId], patience_ns: int) -> list[Finding]:
    """Return the temporary stalls: waits that have lasted `patience_ns` but will end, grouped by their cause.

    `stuck` are the nodes that wait permanently.
    """
    slow = [n for n, w in snapshot.waiting if n not in stuck and snapshot.at_ns - w.since_ns >= patience_ns]
    ends: defaultdict[tuple[Cause, Hashable], dict[Edge, None]] = defaultdict(dict)
    behind: defaultdict[tuple[Cause, Hashable], set[NodeId]] = defaultdict(set)
    for node in slow:
        for cause, pair in _ends(snapshot, node, stuck):
            if _is_young(snapshot, pair, patience_ns):
                continue
            key = cause, _together(snapshot, pair)
            ends[key][pair] = None
            behind[key].add(node)
    found = [_say(snapshot, key[0], sorted(pairs), behind[key]) for key, pairs in ends.items()]
    return [*found, *_blocked_alone(snapshot, patience_ns, found)]


def _together(snapshot: Snapshot, pair: Edge) -> Hashable:
    """Return a key of the wait `pair` that is equal for waits that count as one stall.

    `pair` is (waiting node, awaited node). Waits of one stall have the same cause: a message, an outage of links, or
    the awaited node.
    """
    if why_of(snapshot, *pair) is ReasonKind.CUT:
        edge = edge_of(snapshot, pair)
        return "cut", edge.event, edge.heals_ns
    by_message = awaited_of(snapshot, pair).fate in (AwaitedFate.IN_FLIGHT, AwaitedFate.LOST)
    return pair if by_message else pair[1]


def _is_young(snapshot: Snapshot, pair: Edge, patience_ns: int) -> bool:
    """Return whether the awaited message of `pair` was sent less than `patience_ns` ago.

    `pair` is (waiting node, awaited node). If the sender is still at work, the time since that work began counts.
    """
    since_ns = awaited_of(snapshot, pair).since_ns
    if why_of(snapshot, *pair) is ReasonKind.AT_WORK:
        since_ns = snapshot.nodes[pair[1]].since_ns
    return snapshot.at_ns - since_ns < patience_ns


def _ends(snapshot: Snapshot, start: NodeId, stuck: Collection[NodeId]) -> Iterator[tuple[Cause, Edge]]:
    """Follow waits from the node `start` to waits that other waits do not cause.

    Yield each of these as (cause, (waiting node, awaited node)). Nodes in `stuck`, which wait permanently, are not
    followed.
    """
    seen, todo = {start}, [start]
    while todo:
        node = todo.pop()
        wait = wait_of(snapshot, node)
        for source in sorted(wait.missing):
            cause = cause_of(snapshot, node, source)
            if cause not in (None, Cause.DEADLOCK):
                yield cause, (node, source)
            elif snapshot.nodes[source].wait is not None and source not in seen and source not in stuck:
                seen.add(source)
                todo.append(source)


def _say(snapshot: Snapshot, cause: Cause, pairs: Sequence[Edge], reached: Collection[NodeId]) -> Finding:
    behind = tuple(sorted(set(reached) - {root for root, _ in pairs}))
    grounds = grounds_of(snapshot, reasons_of(snapshot, pairs))
    until_ns = _until(snapshot, pairs)
    return make_finding(snapshot, cause, pairs, grounds, behind, permanent=False, until_ns=until_ns)


def _until(snapshot: Snapshot, pairs: Sequence[Edge]) -> int | None:
    """Return when the last of the waits `pairs` ends; None if that is unknown for any of them.

    `pairs` are (waiting node, awaited node). A wait ends when the scenario ends an outage, or at its deadline. A node
    that is down behind a link that is down sends nothing before both outages are over.
    """
    ends: list[int | None] = []
    for pair in pairs:
        edge, giver = edge_of(snapshot, pair), snapshot.nodes[pair[1]]
        back_ns = giver.back_ns if why_of(snapshot, *pair) in IS_DOWN else None
        outages = [ns for ns in (back_ns, edge.heals_ns) if ns is not None]
        own = (max(outages, default=None), wait_of(snapshot, pair[0]).deadline_ns)
        ends.append(min((ns for ns in own if ns is not None), default=None))
    known = [ns for ns in ends if ns is not None]
    return max(known) if len(known) == len(ends) else None


def _blocked_alone(snapshot: Snapshot, patience_ns: int, found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings about nodes whose event loop does not answer and that no stall in `found` names as awaited."""
    told = {culprit for finding in found if finding.cause is Cause.BLOCKED_LOOP for culprit in finding.culprits}
    for node, now in sorted(snapshot.nodes.items()):
        silent_ns = snapshot.at_ns - now.since_ns
        if now.state in SILENT and silent_ns >= patience_ns and node not in told:
            yield Finding(
                cause=Cause.BLOCKED_LOOP,
                roots=(node,),
                culprits=(node,),
                grounds=Grounds(at_ns=snapshot.at_ns, alone=ReasonKind.SILENT, since_ns=now.since_ns),
                round=now.round,
                began_ns=now.since_ns,
                found_ns=snapshot.at_ns,
            )
