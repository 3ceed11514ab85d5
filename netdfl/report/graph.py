"""The fleet's graph, drawn: who is linked to whom, and who died."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import networkx as nx
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import FancyArrowPatch

from netdfl.core.types import Edge, Json, NodeId
from netdfl.report.figures import BAD, COLORS, INK, STYLE, new_canvas, to_svg

Positions: TypeAlias = Mapping[NodeId, tuple[float, float]]

CIRCLES = ("ring", "directed_ring", "exponential", "one_peer_exponential", "full")
MOST_ARROWS, MOST_LABELS, MOST_KAMADA, MOST_SPRING = 400, 60, 150, 400


def draw_graph(graph: Json, died: Collection[NodeId]) -> str:
    """Draw `graph.json`: the dead in red, the server in orange, arrows where edges are few and directed."""
    num_nodes, edges = graph["num_nodes"], [(src, dst) for src, dst in graph["edges"] if src != dst]
    place = _layout(graph, edges)
    with rc_context(STYLE):
        canvas, axes = new_canvas((5.2, 5.0))
        axes.set_axis_off()
        axes.set_aspect("equal")
        if graph.get("directed") and len(edges) <= MOST_ARROWS:
            _draw_arrows(axes, edges, place)
        else:
            lines = [(place[src], place[dst]) for src, dst in {(min(edge), max(edge)) for edge in edges}]
            faint = max(0.05, min(0.5, 100 / (1 + len(lines))))
            axes.add_collection(
                LineCollection(lines, colors=INK, alpha=faint, linewidths=0.8, rasterized=len(lines) > 3000)
            )
        colors = [BAD if n in died else COLORS[1] if n == graph.get("server") else COLORS[0] for n in range(num_nodes)]
        xs, ys = zip(*(place[node] for node in range(num_nodes)), strict=True)
        size = max(6.0, min(220.0, 6000 / num_nodes))
        sizes = [max(size, 60.0) if node in died else size for node in range(num_nodes)]
        axes.scatter(xs, ys, s=sizes, c=colors, zorder=2, linewidth=0)
        axes.margins(0.08)
        for node in range(num_nodes) if num_nodes <= MOST_LABELS else sorted(died):
            axes.annotate(str(node), place[node], ha="center", va="center", fontsize=7, color="white", zorder=3)
        return to_svg(canvas)


def _draw_arrows(axes: Axes, edges: Sequence[Edge], place: Positions) -> None:
    both = set(edges)
    for src, dst in edges:
        bend = "arc3,rad=0.12" if (dst, src) in both else "arc3"
        axes.add_patch(
            FancyArrowPatch(
                place[src],
                place[dst],
                arrowstyle="-|>",
                mutation_scale=7,
                shrinkA=7,
                shrinkB=7,
                connectionstyle=bend,
                color=INK,
                alpha=0.45,
                linewidth=0.7,
            )
        )


def _layout(graph: Json, edges: Sequence[Edge]) -> Positions:
    """Place the nodes: a circle where the graph is one, a star around its server, else by its distances."""
    num_nodes, server = graph["num_nodes"], graph.get("server")
    net = nx.Graph()
    net.add_nodes_from(range(num_nodes))
    net.add_edges_from(edges)
    if server is not None:
        rim = [node for node in range(num_nodes) if node != server]
        return {**_points(nx.circular_layout(rim)), server: (0.0, 0.0)}
    if graph.get("kind") in CIRCLES or num_nodes > MOST_SPRING:
        return _points(nx.circular_layout(net))
    if num_nodes <= MOST_KAMADA and nx.is_connected(net):
        return _points(nx.kamada_kawai_layout(net))
    return _points(nx.spring_layout(net, seed=0))


def _points(layout: Mapping[NodeId, Sequence[float]]) -> dict[NodeId, tuple[float, float]]:
    return {node: (float(x), float(y)) for node, (x, y) in layout.items()}
