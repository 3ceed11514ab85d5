"""The topologies, weights and neighbor selections that a scenario can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netdfl.topology import selection, static, varying, weights
from netdfl.topology.base import Topology
from netdfl.topology.selection import Selection
from netdfl.topology.weights import MixingMatrix

# (num_nodes, streams, /, *, ...): num_nodes counts the server, where there is one.
TOPOLOGIES: Mapping[str, Callable[..., Topology]] = {
    "ring": static.ring,
    "directed_ring": static.directed_ring,
    "grid": static.grid,
    "torus": static.torus,
    "exponential": static.exponential,
    "full": static.full,
    "star": static.star,
    "erdos_renyi": static.erdos_renyi,
    "small_world": static.small_world,
    "edge_list": static.edge_list,
    "graphml": static.graphml,
    "one_peer_exponential": varying.one_peer_exponential,
    "random_sym": varying.random_sym,
    "random_push": varying.random_push,
    "random_pull": varying.random_pull,
    "by_round": varying.by_round,
}

# (graph, /, *, ...): bind the keywords with functools.partial to get a `Weights`.
WEIGHTS: Mapping[str, Callable[..., MixingMatrix]] = {
    "auto": weights.auto,
    "uniform": weights.uniform,
    "metropolis": weights.metropolis,
    "max_degree": weights.max_degree,
    "column": weights.column,
}

# (num_nodes, streams, /, *, ...)
SELECTIONS: Mapping[str, Callable[..., Selection]] = {
    "all": selection.everyone,
    "random_k": selection.random_k,
}
