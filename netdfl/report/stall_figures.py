"""Stalls, drawn: who waits for whom, and the messages that passed, or did not, around the beginning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import networkx as nx
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from netdfl.core.types import Edge, Json, NodeId
from netdfl.report.bands import Band, shade
from netdfl.report.figures import BAD, COLORS, INK, STYLE, new_canvas, to_svg

MOST_NODES, MOST_LIFELINES = 40, 8
WAITING, SOURCE, SEED = COLORS[1], COLORS[0], BAD
LOST_SHARE = 0.55  # how far the line of a lost message goes

FindingJson: TypeAlias = Json


class Arrow(NamedTuple):
    """A message: its edge, its round, when it was sent and arrived (None: it did not), in seconds."""

    src: NodeId
    dst: NodeId
    round: int
    sent_s: float
    arrived_s: float | None
    fate: str


def shown_nodes(finding: FindingJson, most: int) -> list[NodeId]:
    """The nodes of a finding, the roots first, at most `most` of them."""
    order = dict.fromkeys([*finding["roots"], *finding["culprits"], *finding["behind"]])
    return sorted(list(order)[:most])


def draw_waits(finding: FindingJson, waits: Sequence[Edge]) -> str:
    """Draw the wait-for graph: an arrow from who waits to whom it waits for, the witness in red."""
    shown = set(shown_nodes(finding, MOST_NODES))
    witness = {tuple(edge) for edge in finding["witness"]}
    edges = sorted({edge for edge in (*waits, *witness) if set(edge) <= shown})
    place = _layout(sorted(shown), edges)
    with rc_context(STYLE):
        canvas, axes = new_canvas((5.2, 4.4))
        axes.set_axis_off()
        axes.set_aspect("equal")
        for edge in edges:
            _arrow(axes, place[edge[0]], place[edge[1]], SEED if edge in witness else INK, edge in witness)
        roots, culprits = set(finding["roots"]), set(finding["culprits"])
        colors = [SEED if n in roots else SOURCE if n in culprits else WAITING for n in sorted(shown)]
        xs, ys = zip(*(place[node] for node in sorted(shown)), strict=True)
        axes.scatter(xs, ys, s=max(90.0, min(320.0, 4000 / len(shown))), c=colors, zorder=3, linewidth=0)
        for node in shown:
            axes.annotate(str(node), place[node], ha="center", va="center", fontsize=8, color="white", zorder=4)
        axes.margins(0.15)
        names = {SEED: "root", SOURCE: "waited for", WAITING: "waits behind"}
        marks = [Line2D([], [], marker="o", linewidth=0, color=c, label=names[c]) for c in names if c in colors]
        axes.legend(handles=marks, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=3)
        return to_svg(canvas)


def _layout(nodes: Sequence[NodeId], edges: Sequence[Edge]) -> dict[NodeId, tuple[float, float]]:
    graph: nx.DiGraph[NodeId] = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    made = nx.circular_layout(graph) if len(nodes) > 2 else {n: (float(i), 0.0) for i, n in enumerate(nodes)}
    return {node: (float(x), float(y)) for node, (x, y) in made.items()}


def _arrow(axes: Axes, tail: tuple[float, float], head: tuple[float, float], color: str, strong: bool) -> None:
    style: dict[str, object] = {
        "arrowstyle": "-|>",
        "color": color,
        "alpha": 0.95 if strong else 0.4,
        "linewidth": 1.8 if strong else 0.8,
        "mutation_scale": 11,
        "shrinkA": 9,
        "shrinkB": 10,
        "connectionstyle": "arc3,rad=0.1",
    }
    axes.annotate("", head, tail, arrowprops=style, zorder=2 if strong else 1)


def draw_messages(
    finding: FindingJson,
    arrows: Sequence[Arrow],
    since: Mapping[NodeId, float] = MappingProxyType({}),
    bands: Sequence[Band] = (),
) -> str:
    """Draw a Lamport diagram: a line per node, an arrow per message, a bar from when a root began to wait.

    `since` is when that was, in seconds; where it is not known, the beginning of the stall. Where the fleet was
    parted the background is shaded.
    """
    nodes = shown_nodes(finding, MOST_LIFELINES)
    row = {node: -place for place, node in enumerate(nodes)}
    began, found = finding["began_s"], finding["found_s"]
    starts = {node: since.get(node, began) for node in finding["roots"] if node in row}
    first = min([*(arrow.sent_s for arrow in arrows), *starts.values()], default=began)
    last = max([began, *(a.arrived_s or a.sent_s for a in arrows)]) if arrows else found
    span = max(last - first, 1e-6)
    end = min(found, last + 0.35 * span)
    with rc_context(STYLE | {"axes.grid": False}):
        canvas, axes = new_canvas((10.6, 1.1 + 0.5 * len(nodes)))
        axes.hlines([row[node] for node in nodes], first - 0.03 * span, end, color=INK, alpha=0.35, linewidth=0.8)
        axes.hlines([row[n] for n in starts], list(starts.values()), end, color=WAITING, alpha=0.6, linewidth=6)
        for arrow in arrows:
            if arrow.src in row and arrow.dst in row:
                _message(axes, arrow, row, end)
        axes.set_yticks([row[node] for node in nodes], [f"node {node}" for node in nodes])
        axes.set(xlabel="seconds since the start", ylim=(-len(nodes) + 0.4, 0.6), xlim=(first - 0.04 * span, end))
        shade(axes, bands)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.legend(handles=_legend(), loc="upper left", bbox_to_anchor=(1, 1))
        return to_svg(canvas)


def _message(axes: Axes, arrow: Arrow, row: Mapping[NodeId, int], end: float) -> None:
    """A line that ends in a cross where the message was lost, at the border where it is still on its way."""
    top, bottom = row[arrow.src], row[arrow.dst]
    lost = arrow.arrived_s is None
    color = BAD if lost else SOURCE
    tip = (arrow.sent_s, top + LOST_SHARE * (bottom - top)) if lost else (min(arrow.arrived_s or end, end), bottom)
    style = {"arrowstyle": "-" if lost else "-|>", "color": color, "linewidth": 1.1, "mutation_scale": 9}
    axes.annotate("", tip, (arrow.sent_s, top), arrowprops=style | {"shrinkA": 0, "shrinkB": 0, "alpha": 0.8})
    if lost:
        axes.scatter([tip[0]], [tip[1]], marker="x", s=42, color=BAD, zorder=4)
    axes.annotate(
        str(arrow.round),
        (arrow.sent_s, top),
        (3, 3 if bottom > top else -9),
        fontsize=7,
        color=color,
        textcoords="offset points",
    )


def _legend() -> list[Line2D]:
    return [
        Line2D([], [], color=SOURCE, label="message, with its round"),
        Line2D([], [], color=BAD, marker="x", label="did not arrive"),
        Line2D([], [], color=WAITING, alpha=0.6, linewidth=6, label="root waits"),
    ]
