"""The picture of a fleet on a run's page: nodes and their positions, links, and nodes that died.

Positions follow geography, sites, a server in the middle, a circle, springs, or a disc.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from netdfl.record.forms import GraphForm
from netdfl.record.remarks import find_deaths
from netdfl.record.run import Run
from netdfl.report.data.frame import Floats, Frame, Made, shorten, whole
from netdfl.report.words import some
from netdfl.topology.graph import count_words, redrawn_words

MOST_EDGES = 20_000


def fleet(run: Run, frame: Frame) -> Made:
    """Return the picture of the fleet: positions of the displayed nodes, the links of round 0, and a sentence.

    Positions are in a square from -1 to 1.
    """
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
    """Return a sentence about the graph of nodes and links; of a graph that changes, it counts the links of round 0."""
    directed = bool(graph.get("directed"))
    count = count_words(graph["num_nodes"], len(graph["edges"]), directed=directed)
    every, chosen, kind = graph.get("redraw_every", 0), graph.get("chosen_anew", False), graph.get("kind", "as drawn")
    if every or chosen:
        how = redrawn_words(every, chosen=chosen, server=graph.get("server") is not None)
        return f"The graph, {kind}: {count} in round 0; {how}."
    return f"The graph, {kind}: {count}."


def _degrees(graph: GraphForm) -> list[list[int]]:
    """Return the distribution of out-degrees, as pairs of degree and number of nodes."""
    out = np.bincount([edge[0] for edge in graph["edges"]] or [0], minlength=graph["num_nodes"])
    if not graph["edges"]:
        out[:] = 0
    degrees, numbers = np.unique(out, return_counts=True)
    return [[int(degree), int(number)] for degree, number in zip(degrees, numbers, strict=True)][:200]


CIRCLES = ("ring", "directed_ring", "exponential", "one_peer_exponential", "full")
MOST_FORCES = 300
"""The most nodes of a graph that is laid out by forces; more nodes are spread evenly over a disc, by number."""
MOST_NAMED = 12
Edges = Sequence[Sequence[int]]


def place_nodes(nodes: Sequence[int], edges: Edges, graph: GraphForm | None) -> tuple[Floats, str]:
    """Return positions for drawing the nodes in a square from -1 to 1, and a sentence about them, which may be empty.

    Equal graphs have equal positions.
    """
    count, given = len(nodes), graph or GraphForm(num_nodes=1, edges=[])
    known = given.get("places") or ()
    if any(place is not None for place in known):
        where = [known[node] if node < len(known) else None for node in nodes]
        return _geography(nodes, where, edges), "Nodes are drawn where they are on the earth."
    sites = given.get("sites") or _disjoint(given.get("groups") or {}, given["num_nodes"])
    if len(sites) > 1:
        named = some([name[:60] for name in sites], MOST_NAMED)
        return _by_site(nodes, sites), f"Nodes are drawn by sites, clockwise: {named}."
    server, kind = given.get("server"), given.get("kind", "")
    if server is not None and server in nodes:
        rim = _circle(count - 1)
        return np.insert(rim, list(nodes).index(server), 0.0, axis=0), ""
    if count > MOST_FORCES:
        return _disc(count), ""
    if kind in CIRCLES or count <= 3:
        return _circle(count), ""
    place = {node: number for number, node in enumerate(nodes)}
    return _springs(count, [(place[edge[0]], place[edge[1]]) for edge in edges if edge[0] != edge[1]]), ""


def place_sites(count: int, edges: Sequence[tuple[int, int]]) -> Floats:
    """Return positions for drawing the sites of an underlay network, shape (count, 2), in a square from -1 to 1.

    Linked sites lie near each other; in a large network, sites lie in the order of their numbers.
    """
    return _disc(count) if count > MOST_FORCES else _circle(count) if count <= 3 else _springs(count, edges)


def _geography(nodes: Sequence[int], where: Sequence[Sequence[float] | None], edges: Edges) -> Floats:
    """Return positions as on a map, north up; a node with unknown geographic position is put among its neighbors."""
    rows = {node: row for row, node in enumerate(nodes)}
    earth = np.asarray([(math.nan, math.nan) if at is None else at for at in where], dtype=float)
    earth[:, 1] = _unwrapped(earth[:, 1])
    for row in np.flatnonzero(np.isnan(earth[:, 0])).tolist():
        ends = {rows[end] for edge in edges if nodes[row] in edge for end in edge} - {row}
        near = [earth[end] for end in ends if not math.isnan(earth[end, 0])]
        earth[row] = np.mean(near, axis=0) if near else np.nanmean(earth, axis=0)
    at = np.stack([earth[:, 1] * math.cos(math.radians(float(earth[:, 0].mean()))), -earth[:, 0]], axis=1)
    at -= (at.max(axis=0) + at.min(axis=0)) / 2
    return _apart(at / max(1e-9, float(np.abs(at).max())))


def _unwrapped(longitudes: Floats) -> Floats:
    """Return longitudes shifted by whole turns so that the widest gap between them is at the edge of the map."""
    known = np.sort(longitudes[~np.isnan(longitudes)])
    gaps = np.append(known[1:], known[0] + 360) - known
    first = known[(int(np.argmax(gaps)) + 1) % len(known)]
    turned: Floats = (longitudes - first) % 360
    return turned


def _apart(at: Floats) -> Floats:
    """Return the nodes' positions `at` after moving apart, in place, those that are equal to two decimals."""
    _, which, numbers = np.unique(at.round(2), axis=0, return_inverse=True, return_counts=True)
    for place in np.flatnonzero(numbers > 1):
        rows = np.flatnonzero(which.ravel() == place)
        at[rows] += 0.06 * math.sqrt(len(rows)) * _disc(len(rows))
    return at


def _disjoint(groups: Mapping[str, Sequence[int]], num_nodes: int) -> Mapping[str, Sequence[int]]:
    """Return the groups if each node is in exactly one of them; else no groups."""
    named = sorted(node for group in groups.values() for node in group)
    return groups if named == list(range(num_nodes)) else {}


def _by_site(nodes: Sequence[int], sites: Mapping[str, Sequence[int]]) -> Floats:
    """Return positions in clusters around a circle, one cluster for each site and one for other nodes."""
    site_of = {node: place for place, group in enumerate(sites.values()) for node in group}
    mine = np.asarray([site_of.get(node, len(sites)) for node in nodes])
    heaps = np.unique(mine)
    centers, at = _circle(len(heaps)), np.zeros((len(nodes), 2))
    size = min(0.5, 0.6 * math.sin(math.pi / max(2, len(heaps))))
    for center, heap in zip(centers, heaps, strict=True):
        rows = np.flatnonzero(mine == heap)
        at[rows] = center + size * (_circle(len(rows)) if 1 < len(rows) <= 12 else _disc(len(rows)))
    return at / max(1e-9, float(np.abs(at).max()))


def _circle(count: int) -> Floats:
    first = math.pi if count == 2 else -math.pi / 2  # two stand beside each other
    angles = np.linspace(first, first + 2 * math.pi, max(1, count), endpoint=False)[:count]
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).reshape(count, 2)


def _disc(count: int) -> Floats:
    """Return `count` positions in a sunflower pattern on a disc, with about equal distances."""
    numbers = np.arange(count)
    radius, angles = np.sqrt((numbers + 0.5) / count), numbers * math.pi * (3 - math.sqrt(5))
    return np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)


def _springs(count: int, edges: Sequence[tuple[int, int]], steps: int = 80) -> Floats:
    """Return positions of `count` nodes by the forces of Fruchterman and Reingold: links attract, all nodes repel."""
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
