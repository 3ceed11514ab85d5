"""Links that are down, in one sentence: a partition by its sides, single links by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from netdfl.core.lazy import lazy_module
from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.snapshot import Snapshot

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_module("networkx")

FEW_LINKS = 2


def describe_cut(snapshot: Snapshot, edges: Sequence[Edge]) -> str:
    """`2->3 is down until 20 s`, `nothing passes between nodes 0 to 3 and nodes 4 to 7 for good (events[0])`."""
    ends = words.until([snapshot.edge(*edge).heals_ns for edge in edges])
    by = words.entry({snapshot.edge(*edge).event for edge in edges})
    divided = divides(snapshot, edges)
    if divided:
        return f"nothing passes {divided} {ends}{by}"
    return f"{words.arrows(edges)} {'is' if len(edges) == 1 else 'are'} down {ends}{by}"


def divides(snapshot: Snapshot, edges: Sequence[Edge]) -> str:
    """`between nodes 0 to 3 and nodes 4 to 7`, `from node 2 to nodes 3 to 5`; empty for few links, and others."""
    if len(edges) <= FEW_LINKS:
        return ""
    one_way, sides = _one_way(snapshot, edges), _sides(snapshot, edges)
    if one_way:
        return f"from {words.span(one_way[0])} to {words.span(one_way[1])}"
    return f"between {words.listed(map(words.span, sides))}" if sides else ""


def _sides(snapshot: Snapshot, edges: Sequence[Edge]) -> list[set[NodeId]]:
    """The parts into which `edges`, and others that are down, divide the nodes; none where they divide nothing."""
    graph: nx.Graph[NodeId] = nx.Graph()
    graph.add_nodes_from(snapshot.nodes)
    graph.add_edges_from(edge for edge, now in snapshot.edges.items() if now.up and edge not in edges)
    parts = [set(part) for part in nx.connected_components(graph)]
    place = {node: number for number, part in enumerate(parts) for node in part}
    if any(place[src] == place[dst] for src, dst in edges):
        return []
    ends = {place[node] for edge in edges for node in edge}
    return sorted((part for number, part in enumerate(parts) if number in ends), key=min)


def _one_way(snapshot: Snapshot, edges: Sequence[Edge]) -> tuple[set[NodeId], set[NodeId]] | None:
    """From whom to whom nothing passes, where the links all go one way and none beside them is up."""
    sources, sinks = {src for src, _ in edges}, {dst for _, dst in edges}
    beside = [edge for edge, now in snapshot.edges.items() if now.up and edge not in edges]
    if not sources.isdisjoint(sinks) or any(src in sources and dst in sinks for src, dst in beside):
        return None
    return sources, sinks
