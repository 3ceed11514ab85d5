"""The load that a scenario asks of the packet forwarder, in bit/s, if every node sends as much as it can.

The load has three upper bounds: the rate at which nodes can send, the rate at which they can receive, and the rate at
which core links carry packets out of sites plus the traffic within sites. The load is the smallest of them. A sum that
includes an unlimited rate is no bound. If no bound is left, the load is the largest of what nodes send, what they
receive and what core links carry out of sites, each summed over limited rates only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Any, NamedTuple

from netdfl.core.types import Edge, NodeId
from netdfl.links.spec import LinksSpec
from netdfl.scenario.build import build_network, build_underlay
from netdfl.scenario.model.schema import Scenario
from netdfl.underlay.sites import CoreLink


class _LinkLoad(NamedTuple):
    """A sum of rates in bit/s; `is_bound` is false if an unlimited rate was left out of the sum."""

    bps: float
    is_bound: bool


def asked_bps(scenario: Scenario, spec: LinksSpec) -> float:
    """Return the load that `scenario` asks of the forwarder, in bit/s."""
    edges, underlay = build_network(scenario).graph(0).edges, build_underlay(scenario)
    ways = {edge: () if underlay is None else underlay.way(edge) for edge in edges}
    own = {edge: _rate_bps(spec.link(edge).rate) for edge in edges}
    rates = {edge: min([rate, *map(_core_bps, ways[edge])]) for edge, rate in own.items()}
    within = {edge: rate for edge, rate in own.items() if not ways[edge]}
    nodes = {node: spec.node(node) for edge in edges for node in edge}
    up = {node: _rate_bps(each.uplink) for node, each in nodes.items()}
    down = {node: _rate_bps(each.downlink) for node, each in nodes.items()}
    out = _load([_core_bps(link) for link in {way[0] for way in ways.values() if way}])
    loads = [_at_ends(rates, up, 0), _at_ends(rates, down, 1), _sum([_at_ends(within, up, 0), out])]
    bounds = [load.bps for load in loads if load.is_bound]
    return min(bounds) if bounds else max(load.bps for load in (_at_ends(own, up, 0), _at_ends(own, down, 1), out))


def _at_ends(rates: Mapping[Edge, float], of_node: Mapping[NodeId, float], end: int) -> _LinkLoad:
    """Return the load in bit/s of links, limited by the rates of the nodes at one end of them.

    Args:
        rates: the rate of each link.
        of_node: the rate of each node's uplink or downlink, which limits the sum of its links' rates.
        end: which nodes limit: 0 for the senders, 1 for the receivers.
    """
    of: dict[NodeId, list[float]] = {}
    for edge, rate in rates.items():
        of.setdefault(edge[end], []).append(rate)
    loads = []
    for node, those in of.items():
        together = min(sum(those), of_node[node])
        loads.append(_load([together] if together < inf else those))
    return _sum(loads)


def _sum(loads: Collection[_LinkLoad]) -> _LinkLoad:
    return _LinkLoad(sum(load.bps for load in loads), all(load.is_bound for load in loads))


def _load(rates: Collection[float]) -> _LinkLoad:
    return _LinkLoad(sum(rate for rate in rates if rate < inf), all(rate < inf for rate in rates))


def _rate_bps(part: Any) -> float:
    rate = None if part is None else getattr(part.build(), "rate_bps", None)
    return inf if rate is None else float(rate)


def _core_bps(link: CoreLink) -> float:
    return inf if link.figures.rate_bps is None else link.figures.rate_bps
