"""The fleet as a picture: where each node is drawn, who is linked to whom, who died."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from netdfl.core.graph_words import count_words, redrawn_words
from netdfl.record.forms import GraphForm
from netdfl.record.result import find_deaths
from netdfl.record.run import Run
from netdfl.report.data.columns import Floats, Made, shorten, whole
from netdfl.report.data.frame import Frame

CIRCLES = ("ring", "directed_ring", "exponential", "one_peer_exponential", "full")
MOST_FORCES = 300
"""Larger graphs are placed by their numbers, evenly over a disc."""
MOST_EDGES = 20_000


def fleet(run: Run, frame: Frame) -> Made:
    """Places of the shown nodes in a square from -1 to 1, the links of round 0 between them, and words about them."""
    graph = run.graph
    shown = set(frame.nodes)
    edges = [] if graph is None else [edge for edge in graph["edges"] if edge[0] in shown and edge[1] in shown]
    server = None if graph is None else graph.get("server")
    place = places(frame.nodes, edges, server, "" if graph is None else str(graph.get("kind", "")))
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
        "words": "" if graph is None else graph_words(graph),
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


def places(nodes: Sequence[int], edges: Sequence[Sequence[int]], server: int | None, kind: str) -> Floats:
    """The same place for the same graph: a star around its server, a circle, by springs, or, of many, over a disc."""
    count = len(nodes)
    if server is not None and server in nodes:
        rim = _circle(count - 1)
        where = list(nodes).index(server)
        return np.insert(rim, where, 0.0, axis=0)
    if count > MOST_FORCES:
        return _disc(count)
    if kind in CIRCLES or count <= 3:
        return _circle(count)
    place = {node: number for number, node in enumerate(nodes)}
    return _springs(count, [(place[edge[0]], place[edge[1]]) for edge in edges if edge[0] != edge[1]])


def _circle(count: int) -> Floats:
    angles = np.linspace(-math.pi / 2, 1.5 * math.pi, max(1, count), endpoint=False)[:count]
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).reshape(count, 2)


def _disc(count: int) -> Floats:
    """As the seeds of a sunflower: each about as far from its neighbors."""
    numbers = np.arange(count)
    radius, angles = np.sqrt((numbers + 0.5) / count), numbers * math.pi * (3 - math.sqrt(5))
    return np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)


def _springs(count: int, edges: Sequence[tuple[int, int]], steps: int = 80) -> Floats:
    """Fruchterman and Reingold's forces from a circle on: linked nodes attract, all repel each other."""
    at, length = _circle(count), 1.5 / math.sqrt(count)
    src, dst = (np.asarray(ends, dtype=int) for ends in zip(*(edges or [(0, 0)]), strict=True))
    for step in range(steps):
        apart = at[:, None, :] - at[None, :, :]
        far = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 1e-3)
        force = (apart * (length**2 / far**2)[..., None]).sum(axis=1)
        pull = at[src] - at[dst]
        pull *= np.hypot(pull[:, 0], pull[:, 1])[:, None] / length
        np.add.at(force, src, -pull)
        np.add.at(force, dst, pull)
        size = np.maximum(np.hypot(force[:, 0], force[:, 1]), 1e-9)[:, None]
        at = at + force / size * np.minimum(size, 0.2 * (1 - step / steps))
        at -= 0.02 * at  # pieces that nothing links stay on the picture
    at -= (at.max(axis=0) + at.min(axis=0)) / 2
    return at / max(1e-9, float(np.abs(at).max()))
