"""The causes of permanent stalls: for each stall its root nodes, and the nodes that wait for these in turn.

The reduction (`reduce.py`) gives the nodes that can never continue. Most of them merely wait for others, so a
diagnosis names the roots. A root is a node that would stay stuck even if all other nodes continued: its message was
lost, say, or the node that it awaits crashed. If there is no such node, the roots are a knot: nodes that wait for each
other and for no node outside.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from netdfl.core.tables import lazy_module
from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.reasons import (
    CAUSES,
    FIRST,
    awaited_of,
    edge_of,
    grounds_of,
    reasons_of,
    wait_of,
    why_of,
)
from netdfl.diagnosis.reduce import Supply, hopeless, reduce, supplies, surely_gone
from netdfl.diagnosis.snapshot import Snapshot, WaitKind
from netdfl.diagnosis.why import NOT_COME, Grounds, Need, Reason

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_module("networkx")

Blocking = Mapping[NodeId, Sequence[NodeId]]


def find_stuck(snapshot: Snapshot) -> list[Finding]:
    """Return the permanent stalls, one finding per group of root nodes, which stay stuck whatever other nodes do."""
    stuck = reduce(snapshot)
    blocking = {node: _blockers(snapshot, node) for node in stuck}
    groups = _group([node for node in sorted(stuck) if hopeless(snapshot, node)], snapshot)
    found = [_by_fate(snapshot, group, _behind(group, blocking)) for group in groups]
    freed = {node for group in groups for node in group}
    while left := reduce(snapshot, freed):
        for knot in _knots(snapshot, left, blocking):
            freed |= knot
            core = _smallest(snapshot, knot)
            found.append(_by_each_other(snapshot, core, _behind(core, blocking)))
    return found


def find_doubtful(snapshot: Snapshot, behind: Collection[NodeId], patience_ns: int) -> list[Finding]:
    """Return stalls of nodes in `behind` that have lasted `patience_ns` and would last even if all others continued.

    They are not permanent: a failure detector may still end them, by calling a node gone.
    """
    waits = ((node, wait_of(snapshot, node)) for node in sorted(behind))
    slow = (node for node, wait in waits if snapshot.at_ns - wait.since_ns >= patience_ns)
    held = (node for node in slow if hopeless(snapshot, node, by_chance=False))
    return [replace(_by_fate(snapshot, [node], ()), permanent=False) for node in held]


def _blockers(snapshot: Snapshot, node: NodeId) -> list[NodeId]:
    may_send = _may_send(snapshot, node)
    return sorted(may_send & _needed(snapshot, node) or may_send)


def _needed(snapshot: Snapshot, node: NodeId) -> frozenset[NodeId]:
    """Return the nodes that `node` waits for, except those that its failure detector surely calls gone."""
    wait = wait_of(snapshot, node)
    return frozenset(wait.awaited) - surely_gone(snapshot, node, wait)


def _holding(snapshot: Snapshot, node: NodeId, among: Collection[NodeId]) -> list[NodeId]:
    """Return the nodes of `among` for which `node` waits and which its failure detector will not call gone for certain.

    If there are none, return the nodes of `among` that would send an awaited message if they could continue.
    """
    needed = _needed(snapshot, node).intersection(among)
    return sorted(needed or _may_send(snapshot, node).intersection(among))


def _may_send(snapshot: Snapshot, node: NodeId) -> set[NodeId]:
    """Return the nodes that would send a message awaited by `node`, if their own waits ended."""
    given = supplies(snapshot, node, wait_of(snapshot, node))
    return {source for source, how in given.items() if how is Supply.IF_RELEASED}


def _behind(roots: Collection[NodeId], blocking: Blocking) -> tuple[NodeId, ...]:
    """Return the nodes that wait for one of `roots`, directly or through others.

    `blocking` has, for each waiting node, the nodes that it waits for.
    """
    waits = nx.DiGraph([(node, source) for node, sources in blocking.items() for source in sources])
    waits.add_nodes_from(roots)
    return tuple(sorted(set().union(*(nx.ancestors(waits, root) for root in roots)) - set(roots)))


# roots that wait for what never comes


def blamed(snapshot: Snapshot, waiter: NodeId) -> tuple[Reason, ...]:
    """Return the reasons why nodes that a permanently stuck `waiter` awaits will never send their messages."""
    wait = wait_of(snapshot, waiter)
    gone = surely_gone(snapshot, waiter, wait)
    never = {s for s, how in supplies(snapshot, waiter, wait).items() if how is Supply.NEVER}
    return reasons_of(snapshot, [(waiter, source) for source in sorted(never - gone)])


def _group(roots: Sequence[NodeId], snapshot: Snapshot) -> list[list[NodeId]]:
    """Group the stuck nodes `roots` by the cause that they share: a node that is down, or an event that cuts links."""
    if not roots:
        return []  # before networkx is imported, which takes half a second
    graph: nx.Graph[Hashable] = nx.Graph()
    for root in roots:
        graph.add_node(root)
        for reason in blamed(snapshot, root):
            graph.add_edges_from((root, outage) for outage in _outages(snapshot, reason))
    groups = [sorted(node for node in part if isinstance(node, int)) for part in nx.connected_components(graph)]
    return sorted(groups)


def _outages(snapshot: Snapshot, reason: Reason) -> Iterator[tuple[str, int]]:
    """Yield the causes of a wait, given its `reason`, that other waits may share: an unreachable node, or an event."""
    pair, cause = (reason.waiter, reason.source), CAUSES[reason.why]
    if cause in (Cause.UNREACHABLE, Cause.BLOCKED_LOOP):
        yield "culprit", pair[1]
    event = (awaited_of if cause is Cause.LOST_MESSAGE else edge_of)(snapshot, pair).event
    if event is not None:
        yield "event", event


def _by_fate(snapshot: Snapshot, group: Sequence[NodeId], behind: tuple[NodeId, ...]) -> Finding:
    reasons = [reason for root in group for reason in blamed(snapshot, root)]
    if not reasons:
        return _without_senders(snapshot, group, behind)
    first = min((CAUSES[reason.why] for reason in reasons), key=FIRST.index)
    pairs = [(reason.waiter, reason.source) for reason in reasons]
    return make_finding(snapshot, first, pairs, grounds_of(snapshot, reasons), behind, permanent=True)


def _without_senders(snapshot: Snapshot, group: Sequence[NodeId], behind: tuple[NodeId, ...]) -> Finding:
    """Return the finding about the nodes `group`, which need messages of more nodes than could still send one."""
    waits = [wait_of(snapshot, root) for root in group]
    return Finding(
        cause=Cause.DEADLOCK,
        roots=tuple(group),
        grounds=Grounds(at_ns=snapshot.at_ns, knot=tuple(_need(snapshot, root) for root in group)),
        round=min(wait.round for wait in waits),
        behind=behind,
        began_ns=min(wait.since_ns for wait in waits),
        found_ns=snapshot.at_ns,
        permanent=True,
    )


# knots


def _knots(snapshot: Snapshot, left: Collection[NodeId], blocking: Blocking) -> list[set[NodeId]]:
    """Return the knots of waits among the nodes `left`: strongly connected groups that wait for no node outside."""
    graph: nx.DiGraph[NodeId] = nx.DiGraph()
    for node in sorted(left):
        sources = [source for source in blocking[node] if source in left]
        graph.add_edges_from((node, source) for source in sources or sorted(_may_send(snapshot, node) & set(left)))
    components = [set(component) for component in nx.strongly_connected_components(graph)]
    return sorted((c for c in components if all(set(graph[node]) <= c for node in c)), key=min)


def _smallest(snapshot: Snapshot, knot: Collection[NodeId]) -> list[NodeId]:
    """Return a minimal part of `knot` (nodes that wait for each other) whose nodes keep each other waiting."""
    within = {node: _holding(snapshot, node, knot) for node in sorted(knot)}
    core = set(knot)
    if all(wait_of(snapshot, node).short >= len(_needed(snapshot, node)) for node in within):
        core = set(_short_cycle(within))
    if sum(len(core.intersection(within[node])) for node in core) > len(core):
        for node in sorted(core):
            if node in core:
                core = _hold_each_other(snapshot, core - {node}) or core
    return _in_order(snapshot, core)


def _short_cycle(graph: Blocking) -> list[NodeId]:
    """Return a shortest cycle of waits through the node with the lowest id."""
    start = min(graph)
    paths: Mapping[NodeId, list[NodeId]] = nx.single_source_shortest_path(nx.DiGraph(graph), start)
    return next((path for node, path in paths.items() if start in graph[node]), list(graph))  # breadth first


def _hold_each_other(snapshot: Snapshot, members: set[NodeId]) -> set[NodeId]:
    """Return the nodes of `members` that stay stuck if all nodes outside `members` continue.

    The set is empty unless each of them waits for another one.
    """
    others = set(snapshot.nodes) - members
    held = set(reduce(snapshot, others)) & members
    return held if all(_holding(snapshot, node, held) for node in held) else set()


def _in_order(snapshot: Snapshot, core: set[NodeId]) -> list[NodeId]:
    """Return the nodes `core` of a deadlock in an order in which each is followed, if possible, by one it waits for."""
    order = [min(core)]
    while len(order) < len(core):
        rest = core - set(order)
        following = rest & _needed(snapshot, order[-1])
        order.append(min(following or rest))
    return order


def _by_each_other(snapshot: Snapshot, core: Sequence[NodeId], behind: tuple[NodeId, ...]) -> Finding:
    held = set(core)
    pairs = [(node, source) for node in core for source in _holding(snapshot, node, held)]
    full = any(wait_of(snapshot, node).what is WaitKind.ROOM for node in core)
    cause = Cause.FLOW_CONTROL if full else Cause.DEADLOCK
    knot = tuple(_need(snapshot, node) for node in core)
    grounds = Grounds(at_ns=snapshot.at_ns, reasons=reasons_of(snapshot, pairs), knot=knot)
    lost = [pair for pair in pairs if why_of(snapshot, *pair) in NOT_COME]
    if lost:  # a later message of the same sender would do as well, and there is none without them
        grounds, cause = grounds_of(snapshot, reasons_of(snapshot, lost)), Cause.LOST_MESSAGE
    return replace(
        make_finding(snapshot, cause, pairs, grounds, behind, permanent=True),
        began_ns=max(wait_of(snapshot, node).since_ns for node in core),
    )


def _need(snapshot: Snapshot, node: NodeId) -> Need:
    wait = wait_of(snapshot, node)
    return Need(node, wait.round, tuple(sorted(wait.awaited)), wait.short, wait.what is WaitKind.ROOM)


def make_finding(
    snapshot: Snapshot,
    cause: Cause,
    pairs: Sequence[Edge],
    grounds: Grounds,
    behind: tuple[NodeId, ...],
    *,
    permanent: bool,
    until_ns: int | None = None,
) -> Finding:
    """Return a finding (a diagnosed stall) about the waits `pairs`, each (waiting node, awaited node).

    The finding's round is the lowest of these waits, and its beginning the earliest. `behind` are the nodes that wait
    for these waiting nodes in turn; `until_ns` is when the stall ends, if known.
    """
    roots = tuple(dict.fromkeys(root for root, _ in pairs))
    waits = [wait_of(snapshot, root) for root in roots]
    return Finding(
        cause=cause,
        roots=roots,
        grounds=grounds,
        round=min(wait.round for wait in waits),
        culprits=tuple(sorted({culprit for _, culprit in pairs})),
        behind=behind,
        witness=tuple(pairs),
        began_ns=min(wait.since_ns for wait in waits),
        found_ns=snapshot.at_ns,
        until_ns=until_ns,
        permanent=permanent,
    )
