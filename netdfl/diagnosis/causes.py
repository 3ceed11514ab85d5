"""Why nodes that are stuck are stuck: the roots first, then who waits behind them.

A root is a node that would stay stuck even if every other node went on (its message was lost, its
source crashed), or else the members of a knot: nodes that wait for each other and for nobody else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence

import networkx as nx

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.reduce import Supply, hopeless, reduce, supplies
from netdfl.diagnosis.snapshot import Fate, Snapshot, State, WaitNow, What

Blocking = Mapping[NodeId, Sequence[NodeId]]


def find_stuck(snapshot: Snapshot) -> list[Finding]:
    """Every stall that nothing ends any more, one finding per root."""
    stuck = reduce(snapshot)
    blocking = {node: _blockers(snapshot, node, stuck) for node in stuck}
    groups = _group([node for node in sorted(stuck) if hopeless(snapshot, node)], snapshot)
    found = [_by_fate(snapshot, group, _behind(group, blocking)) for group in groups]
    freed = {node for group in groups for node in group}
    while left := reduce(snapshot, freed):
        for knot in _knots(left, blocking):
            freed |= knot
            core = _smallest(snapshot, knot)
            found.append(_by_each_other(snapshot, core, _behind(core, blocking)))
    return found


def wait_of(snapshot: Snapshot, node: NodeId) -> WaitNow:
    """The wait of a node that waits."""
    wait = snapshot.nodes[node].wait
    assert wait is not None, f"node {node} does not wait"
    return wait


def _blockers(snapshot: Snapshot, node: NodeId, stuck: Collection[NodeId]) -> list[NodeId]:
    given = supplies(snapshot, node, wait_of(snapshot, node))
    return [source for source, how in given.items() if how is Supply.IF_RELEASED and source in stuck]


def _behind(roots: Collection[NodeId], blocking: Blocking) -> tuple[NodeId, ...]:
    """Every node from which a way along the waits leads to a root."""
    waiters: defaultdict[NodeId, list[NodeId]] = defaultdict(list)
    for node, sources in blocking.items():
        for source in sources:
            waiters[source].append(node)
    reached, todo = set(roots), list(roots)
    while todo:
        for waiter in waiters[todo.pop()]:
            if waiter not in reached:
                reached.add(waiter)
                todo.append(waiter)
    return tuple(sorted(reached - set(roots)))


# roots that wait for what never comes


def blame(snapshot: Snapshot, waiter: NodeId, wait: WaitNow, source: NodeId) -> Cause:
    """Why `source` does not give `waiter` what it waits for, where it is not a matter of other waits."""
    awaited, giver = wait.awaited[source], snapshot.nodes[source]
    if wait.what is What.ROOM:
        return Cause.FLOW_CONTROL
    if not snapshot.edge(*(awaited.edge or (source, waiter))).up:
        return Cause.UNREACHABLE
    if awaited.fate is Fate.LOST:
        return Cause.LOST_MESSAGE
    if awaited.fate is not Fate.NEVER and giver.state in (State.CRASHED, State.PAUSED):
        return Cause.UNREACHABLE
    return Cause.DEADLOCK


_FIRST = (Cause.UNREACHABLE, Cause.LOST_MESSAGE, Cause.FLOW_CONTROL, Cause.DEADLOCK)


def blamed(snapshot: Snapshot, waiter: NodeId) -> tuple[Cause, tuple[NodeId, ...]]:
    """The cause of a hopeless wait, and the nodes that it is blamed on."""
    wait = wait_of(snapshot, waiter)
    given = supplies(snapshot, waiter, wait)
    causes = {s: blame(snapshot, waiter, wait, s) for s, how in given.items() if how is Supply.NEVER}
    if not causes:  # senders choose alone, and it waits for more than there are
        return Cause.DEADLOCK, tuple(sorted(wait.awaited))
    cause = min(causes.values(), key=_FIRST.index)
    return cause, tuple(sorted(source for source, own in causes.items() if own is cause))


def _group(roots: Sequence[NodeId], snapshot: Snapshot) -> list[list[NodeId]]:
    """One group per crashed node, one for all who are cut off; a lost message has its waiter alone."""
    groups: defaultdict[Hashable, list[NodeId]] = defaultdict(list)
    for root in roots:
        cause, culprits = blamed(snapshot, root)
        if cause is not Cause.UNREACHABLE:
            groups[root].append(root)
        elif all(snapshot.nodes[c].state in (State.CRASHED, State.PAUSED) for c in culprits):
            groups[cause, culprits].append(root)
        else:
            groups[cause].append(root)
    return list(groups.values())


def _by_fate(snapshot: Snapshot, group: Sequence[NodeId], behind: tuple[NodeId, ...]) -> Finding:
    cause, _ = blamed(snapshot, group[0])
    pairs = [(root, culprit) for root in group for culprit in blamed(snapshot, root)[1]]
    text = _sentence(snapshot, cause, pairs) + words.behind(behind, group)
    return make_finding(snapshot, cause, pairs, text, behind, permanent=True)


def _sentence(snapshot: Snapshot, cause: Cause, pairs: Sequence[Edge]) -> str:
    roots, culprits = {root for root, _ in pairs}, {culprit for _, culprit in pairs}
    where = words.rounds([wait_of(snapshot, root).round for root in roots])
    verb = "waits" if len(roots) == 1 else "wait"
    head = f"{words.nodes(roots)} {verb} in {where} for {words.nodes(culprits)}"
    if cause is Cause.FLOW_CONTROL:
        return f"{words.nodes(roots)} can't send in {where}: the mailbox of {words.nodes(culprits)} is full"
    return head + ", " + describe_culprits(snapshot, cause, pairs)


def describe_culprits(snapshot: Snapshot, cause: Cause, pairs: Sequence[Edge]) -> str:
    """What is wrong with the nodes that are waited for: `whose message was lost on 2->3`."""
    culprits = sorted({culprit for _, culprit in pairs})
    edges = [wait_of(snapshot, root).awaited[culprit].edge or (culprit, root) for root, culprit in pairs]
    arrows = words.listed(f"{src}->{dst}" for src, dst in edges)
    if cause is Cause.LOST_MESSAGE:
        reasons = {wait_of(snapshot, root).awaited[culprit].reason for root, culprit in pairs} - {"", "loss"}
        why = f" ({words.listed(sorted(reasons))})" if reasons else ""
        again = all(wait_of(snapshot, root).awaited[culprit].resent for root, culprit in pairs)
        sent = ", and will be sent again" if again else ""
        if all(src == root for (src, _), (root, _) in zip(edges, pairs, strict=True)):
            return f"which its request never reached: it was lost on {arrows}{why}{sent}"
        return f"whose message{'s were' if len(pairs) > 1 else ' was'} lost on {arrows}{why}{sent}"
    if cause is Cause.UNREACHABLE:
        return _describe_unreachable(snapshot, culprits, edges, arrows)
    if any(wait_of(snapshot, root).need > len(snapshot.nodes) for root, _ in pairs):
        return "and does not know which of them will send: use a quorum, a deadline, or announce"
    done = all(snapshot.nodes[c].state is State.FINISHED for c in culprits)
    if len(culprits) > 1:
        return f"which {'have finished' if done else 'are past that round'} and send nothing any more"
    return f"which {'has finished' if done else 'is past that round'} and sends nothing any more"


def _describe_unreachable(snapshot: Snapshot, culprits: Sequence[NodeId], edges: Sequence[Edge], arrows: str) -> str:
    down = [edge for edge in edges if not snapshot.edge(*edge).up]
    if down:
        ends = [snapshot.edge(*edge).heals_ns for edge in down]
        it, verb = ("it is", "is") if len(edges) == 1 else ("they are", "are")
        return f"from which {it} cut off: {arrows} {verb} down {words.until(ends)}"
    states = {snapshot.nodes[culprit].state for culprit in culprits}
    what = "crashed" if State.CRASHED in states else "stands still"
    ends = [snapshot.nodes[culprit].back_ns for culprit in culprits]
    return f"which {what} and {words.back(ends)}"


# knots


def _knots(left: Collection[NodeId], blocking: Blocking) -> list[set[NodeId]]:
    """The strongly connected components of the waits among `left` that wait for nobody outside them."""
    graph: nx.DiGraph[NodeId] = nx.DiGraph()
    graph.add_nodes_from(sorted(left))
    graph.add_edges_from((node, source) for node in sorted(left) for source in blocking[node] if source in left)
    components = [set(component) for component in nx.strongly_connected_components(graph)]
    return sorted((c for c in components if all(set(graph[node]) <= c for node in c)), key=min)


def _smallest(snapshot: Snapshot, knot: Collection[NodeId]) -> list[NodeId]:
    """A smallest part of `knot` whose members hold each other: a cycle for AND waits, for OR waits the whole."""
    within = {node: sorted(set(wait_of(snapshot, node).awaited) & set(knot)) for node in sorted(knot)}
    core = set(knot)
    if all(wait_of(snapshot, node).short == len(wait_of(snapshot, node).awaited) for node in within):
        core = set(_short_cycle(within))
    if sum(len(core.intersection(within[node])) for node in core) > len(core):
        for node in sorted(core):
            if node in core:
                core = _hold_each_other(snapshot, core - {node}) or core
    return _in_order(snapshot, core)


def _short_cycle(graph: Blocking) -> list[NodeId]:
    """A shortest cycle through the lowest node, found from it breadth first."""
    start = min(graph)
    came_from: dict[NodeId, NodeId] = {}
    todo = [start]
    for node in todo:
        for source in graph[node]:
            if source == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(came_from[cycle[-1]])
                return cycle
            if source not in came_from:
                came_from[source] = node
                todo.append(source)
    raise AssertionError(f"no cycle leads through node {start}")


def _hold_each_other(snapshot: Snapshot, members: set[NodeId]) -> set[NodeId]:
    """What is left of `members` when everybody else goes on."""
    others = set(snapshot.nodes) - members
    return set(reduce(snapshot, others)) & members


def _in_order(snapshot: Snapshot, core: set[NodeId]) -> list[NodeId]:
    """From the lowest node on, each followed by one that it waits for where there is one."""
    order = [min(core)]
    while len(order) < len(core):
        rest = core - set(order)
        following = rest & set(wait_of(snapshot, order[-1]).awaited)
        order.append(min(following or rest))
    return order


def _by_each_other(snapshot: Snapshot, core: Sequence[NodeId], behind: tuple[NodeId, ...]) -> Finding:
    held = set(core)
    pairs = [(node, s) for node in core for s in sorted(wait_of(snapshot, node).awaited) if s in held]
    full = any(wait_of(snapshot, node).what is What.ROOM for node in core)
    each = words.listed(f"{node} for {words.for_whom(wait_of(snapshot, node))}" for node in core)
    where = words.rounds([wait_of(snapshot, node).round for node in core])
    text = f"{words.nodes(core)} wait for each other in {where}: {each}{words.behind(behind, core)}"
    return make_finding(snapshot, Cause.FLOW_CONTROL if full else Cause.DEADLOCK, pairs, text, behind, permanent=True)


def make_finding(
    snapshot: Snapshot,
    cause: Cause,
    pairs: Sequence[Edge],
    text: str,
    behind: tuple[NodeId, ...],
    *,
    permanent: bool,
    until_ns: int | None = None,
) -> Finding:
    """A finding whose roots wait as `pairs` (who, for whom) say."""
    roots = tuple(dict.fromkeys(root for root, _ in pairs))
    waits = [wait_of(snapshot, root) for root in roots]
    return Finding(
        cause=cause,
        roots=roots,
        text=text,
        round=min(wait.round for wait in waits),
        culprits=tuple(sorted({culprit for _, culprit in pairs})),
        behind=behind,
        witness=tuple(pairs),
        began_ns=max(wait.since_ns for wait in waits),
        found_ns=snapshot.at_ns,
        until_ns=until_ns,
        permanent=permanent,
    )
