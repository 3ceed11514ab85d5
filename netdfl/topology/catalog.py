"""The topologies, weights and neighbor selections that a scenario can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netdfl.core.tables import by_name
from netdfl.topology import selection, static, varying, weights
from netdfl.topology.selection import Selection

# (num_nodes, streams, /, *, ...): num_nodes counts the server, where there is one.
TOPOLOGIES = by_name(
    *(
        static.alone,
        static.line,
        static.ring,
        static.directed_ring,
        static.grid,
        static.torus,
        static.exponential,
        static.full,
        static.star,
    ),
    *(static.erdos_renyi, static.small_world, static.edge_list, static.graphml, static.gml),
    *(
        varying.one_peer_exponential,
        varying.random_pairs,
        varying.random_sym,
        varying.random_push,
        varying.random_pull,
        varying.by_round,
    ),
)

# (graph, /, *, ...): bind the keywords with functools.partial to get a `Weights`.
WEIGHTS = by_name(weights.auto, weights.uniform, weights.metropolis, weights.max_degree, weights.column)

# (num_nodes, streams, /, *, ...)
SELECTIONS: Mapping[str, Callable[..., Selection]] = {
    "all": selection.everyone,
    "random_k": selection.RandomNeighbors,
}
