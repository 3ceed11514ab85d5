"""The fleet as a picture: what the page draws of it, who is linked to whom, who died."""

from __future__ import annotations

import numpy as np

from netdfl.core.graph_words import count_words, redrawn_words
from netdfl.record.forms import GraphForm
from netdfl.record.result import find_deaths
from netdfl.record.run import Run
from netdfl.report.data.columns import Made, shorten, whole
from netdfl.report.data.frame import Frame
from netdfl.report.data.places import place_nodes

MOST_EDGES = 20_000


def fleet(run: Run, frame: Frame) -> Made:
    """Places of the shown nodes in a square from -1 to 1, the links of round 0 between them, and words about them."""
    graph = run.graph
    shown = set(frame.nodes)
    edges = [] if graph is None else [edge for edge in graph["edges"] if edge[0] in shown and edge[1] in shown]
    server = None if graph is None else graph.get("server")
    place, placed = place_nodes(frame.nodes, edges, graph)
    return {
        "x": shorten(place[:, 0], 4),
        "y": shorten(place[:, 1], 4),
        "src": whole([edge[0] for edge in edges[:MOST_EDGES]]),
        "dst": whole([edge[1] for edge in edges[:MOST_EDGES]]),
        "num_edges": 0 if graph is None else len(graph["edges"]),
        "directed": bool(graph and graph.get("directed")),
        "varies": bool(graph and (graph.get("redraw_every") or graph.get("chosen_anew"))),
        "server": server,
        "died": sorted({death["node"] for death in find_deaths(run)}),
        "words": "" if graph is None else f"{graph_words(graph)} {placed}".strip(),
        "degrees": [] if graph is None else _degrees(graph),
    }


def graph_words(graph: GraphForm) -> str:
    """What is drawn: of a graph that changes, that of round 0."""
    directed = bool(graph.get("directed"))
    count = count_words(graph["num_nodes"], len(graph["edges"]), directed=directed)
    every, chosen, kind = graph.get("redraw_every", 0), graph.get("chosen_anew", False), graph.get("kind", "as drawn")
    if every or chosen:
        how = redrawn_words(every, chosen=chosen, server=graph.get("server") is not None)
        return f"The graph of round 0, {kind}: {count}; {how}."
    return f"The graph, {kind}: {count}."


def _degrees(graph: GraphForm) -> list[list[int]]:
    """How many nodes have how many outgoing links: pairs of degree and number."""
    out = np.bincount([edge[0] for edge in graph["edges"]] or [0], minlength=graph["num_nodes"])
    if not graph["edges"]:
        out[:] = 0
    degrees, numbers = np.unique(out, return_counts=True)
    return [[int(degree), int(number)] for degree, number in zip(degrees, numbers, strict=True)][:200]
