"""Stalls that something can still end: stragglers, what heals by itself, full mailboxes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.causes import make_finding
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.reasons import awaited_of, edge_of, path_of, reason, sentence, wait_of
from netdfl.diagnosis.snapshot import SILENT, AwaitedFate, Snapshot


def find_slow(snapshot: Snapshot, stuck: Collection[NodeId], patience_ns: int) -> list[Finding]:
    """Why waits that are not `stuck` have lasted longer than `patience_ns`, one finding per culprit."""
    slow = [n for n, w in snapshot.waiting if n not in stuck and snapshot.at_ns - w.since_ns >= patience_ns]
    ends: defaultdict[tuple[Cause, Hashable], dict[Edge, None]] = defaultdict(dict)
    behind: defaultdict[tuple[Cause, Hashable], set[NodeId]] = defaultdict(set)
    for node in slow:
        for cause, pair in _ends(snapshot, node, stuck):
            key = cause, _together(snapshot, cause, pair)
            ends[key][pair] = None
            behind[key].add(node)
    found = [_say(snapshot, key[0], sorted(pairs), behind[key]) for key, pairs in ends.items()]
    return [*found, *_blocked_alone(snapshot, patience_ns, found)]


def _together(snapshot: Snapshot, cause: Cause, pair: Edge) -> Hashable:
    """What makes waits one stall: the message, the outage that ends at one time, or else the culprit."""
    edge = edge_of(snapshot, pair)
    if cause is Cause.UNREACHABLE and not edge.up:
        return "cut", edge.event, edge.heals_ns
    return pair if _by_message(snapshot, pair) else pair[1]


def _by_message(snapshot: Snapshot, pair: Edge) -> bool:
    return awaited_of(snapshot, pair).fate in (AwaitedFate.IN_FLIGHT, AwaitedFate.LOST)


def _ends(snapshot: Snapshot, start: NodeId, stuck: Collection[NodeId]) -> Iterator[tuple[Cause, Edge]]:
    """Follow the waits from `start` to where they end: (cause, (who waits, for whom))."""
    seen, todo = {start}, [start]
    while todo:
        node = todo.pop()
        wait = wait_of(snapshot, node)
        for source in sorted(wait.missing):
            cause = reason(snapshot, node, source)
            if cause not in (None, Cause.DEADLOCK):
                yield cause, (node, source)
            elif snapshot.nodes[source].wait is not None and source not in seen and source not in stuck:
                seen.add(source)
                todo.append(source)


def _say(snapshot: Snapshot, cause: Cause, pairs: Sequence[Edge], reached: Collection[NodeId]) -> Finding:
    roots = sorted({root for root, _ in pairs})
    behind = tuple(sorted(set(reached) - set(roots)))
    until_ns = _until(snapshot, pairs)
    what = _sentence(snapshot, cause, pairs, roots) + words.behind(behind, roots)
    return make_finding(snapshot, cause, pairs, what, behind, permanent=False, until_ns=until_ns)


def _until(snapshot: Snapshot, pairs: Sequence[Edge]) -> int | None:
    """When the scenario or a deadline ends the last of these waits, where that is known of all."""
    ends: list[int | None] = []
    for root, culprit in pairs:
        wait = wait_of(snapshot, root)
        edge = edge_of(snapshot, (root, culprit))
        own = [wait.deadline_ns, snapshot.nodes[culprit].back_ns, None if edge.up else edge.heals_ns]
        ends.append(min((ns for ns in own if ns is not None), default=None))
    known = [ns for ns in ends if ns is not None]
    return max(known) if known and len(known) == len(ends) else None


def _sentence(snapshot: Snapshot, cause: Cause, pairs: Sequence[Edge], roots: Sequence[NodeId]) -> str:
    where = words.rounds([wait_of(snapshot, root).round for root in roots])
    who = f"{words.nodes(roots)} {'waits' if len(roots) == 1 else 'wait'} in {where}"
    culprits = sorted({culprit for _, culprit in pairs})
    first = snapshot.nodes[culprits[0]]
    for_ = words.seconds(snapshot.at_ns - first.since_ns)
    if cause is Cause.STRAGGLER and _by_message(snapshot, pairs[0]):
        root, culprit = pairs[0]
        if path_of(snapshot, pairs[0]) == (root, culprit):
            return f"{who} for node {culprit}, to which its request is still on its way over {root}->{culprit}"
        return f"{who} for the message of node {culprit}, which is still on its way over {culprit}->{root}"
    if cause is Cause.STRAGGLER:
        return f"node {culprits[0]} has been at work in round {first.round} for {for_}; {who} for it"
    if cause is Cause.BLOCKED_LOOP:
        return f"the event loop of node {culprits[0]} has not answered for {for_}; {who} for it"
    if cause is Cause.FLOW_CONTROL:
        return f"{who} for room in the mailbox of {words.nodes(culprits)}, which is full"
    return sentence(snapshot, pairs)


def _blocked_alone(snapshot: Snapshot, patience_ns: int, found: Sequence[Finding]) -> Iterator[Finding]:
    """Event loops that do not answer, and for which nobody waits yet."""
    told = {culprit for finding in found if finding.cause is Cause.BLOCKED_LOOP for culprit in finding.culprits}
    for node, now in sorted(snapshot.nodes.items()):
        silent_ns = snapshot.at_ns - now.since_ns
        if now.state in SILENT and silent_ns >= patience_ns and node not in told:
            yield Finding(
                cause=Cause.BLOCKED_LOOP,
                roots=(node,),
                culprits=(node,),
                what=f"the event loop of node {node} has not answered for {words.seconds(silent_ns)}",
                round=now.round,
                began_ns=now.since_ns,
                found_ns=snapshot.at_ns,
            )
