"""Links that are down, in one sentence: a partition by its sides, single links by their names."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.snapshot import Snapshot

FEW_LINKS = 2


def describe_cut(snapshot: Snapshot, edges: Sequence[Edge]) -> str:
    """`2->3 is down until 20 s`, `nothing passes between nodes 0..3 and 4..7 for good (events[0])`."""
    ends = words.until([snapshot.edge(*edge).heals_ns for edge in edges])
    by = _entry(snapshot, edges)
    one_way = _one_way(snapshot, edges)
    sides = _sides(snapshot, edges)
    if len(edges) > FEW_LINKS and one_way:
        return f"nothing passes from {words.span(one_way[0])} to {words.span(one_way[1])} {ends}{by}"
    if len(edges) > FEW_LINKS and sides:
        return f"nothing passes between {words.listed(map(words.span, sides))} {ends}{by}"
    arrows = words.listed("{}->{}".format(*edge) for edge in edges)
    return f"{arrows} {'is' if len(edges) == 1 else 'are'} down {ends}{by}"


def _entry(snapshot: Snapshot, edges: Sequence[Edge]) -> str:
    entries = {snapshot.edge(*edge).event for edge in edges}
    entry = entries.pop()
    return "" if entry is None or entries else f" (events[{entry}])"


def _sides(snapshot: Snapshot, edges: Sequence[Edge]) -> list[set[NodeId]]:
    """The parts into which the links that are down divide the nodes; none where they divide nothing."""
    graph: nx.Graph[NodeId] = nx.Graph()
    graph.add_nodes_from(snapshot.nodes)
    graph.add_edges_from(edge for edge, now in snapshot.edges.items() if now.up)
    parts = [set(part) for part in nx.connected_components(graph)]
    place = {node: number for number, part in enumerate(parts) for node in part}
    if any(place[src] == place[dst] for src, dst in edges):
        return []
    ends = {place[node] for edge in edges for node in edge}
    return sorted((part for number, part in enumerate(parts) if number in ends), key=min)


def _one_way(snapshot: Snapshot, edges: Sequence[Edge]) -> tuple[set[NodeId], set[NodeId]] | None:
    """From whom to whom nothing passes, where the links that are down all go one way and none beside them is up."""
    sources, sinks = {src for src, _ in edges}, {dst for _, dst in edges}
    open_ = any(now.up and src in sources and dst in sinks for (src, dst), now in snapshot.edges.items())
    return None if open_ or not sources.isdisjoint(sinks) else (sources, sinks)
