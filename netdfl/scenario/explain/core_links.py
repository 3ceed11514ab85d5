"""The core links of a fleet before it runs: their figures, and the links of nodes that cross them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from netdfl.core.types import Edge
from netdfl.scenario.build import build_underlay
from netdfl.scenario.model.schema import Scenario
from netdfl.topology.network import Network
from netdfl.underlay.sites import CoreLink
from netdfl.underlay.underlay import Underlay

SECOND, BITS = 10**9, 8


@dataclass(frozen=True)
class CoreLinkFacts:
    """A core link in one direction, and the links of round 0 whose messages cross it, before any event.

    `seconds_a_round` is how long it takes for a message of each of them, at least; None for an unlimited rate.
    """

    name: str
    rate_bps: float | None
    latency_s: float
    loss: float
    links: int
    crossed_by: list[Edge]
    seconds_a_round: float | None


def core_links(scenario: Scenario, network: Network, message_bytes: float) -> list[CoreLinkFacts]:
    """Return the core links of a scenario, the one that takes longest a round first; none without an underlay."""
    underlay = build_underlay(scenario)
    if underlay is None:
        return []
    crossing = _crossing(underlay, network.graph(0).edges)
    rows = [_row(link, crossing.get(link, []), message_bytes) for link in underlay.network.links.values()]
    return sorted(rows, key=lambda row: (-(row.seconds_a_round or 0), -row.links, row.name))


def _crossing(underlay: Underlay, edges: Iterable[Edge]) -> dict[CoreLink, list[Edge]]:
    found: dict[CoreLink, list[Edge]] = {}
    for edge in edges:
        for link in underlay.way(edge):
            found.setdefault(link, []).append(edge)
    return found


def _row(link: CoreLink, edges: list[Edge], message_bytes: float) -> CoreLinkFacts:
    figures = link.figures
    takes = None if figures.rate_bps is None else len(edges) * message_bytes * BITS / figures.rate_bps
    latency_s = figures.latency_ns / SECOND
    return CoreLinkFacts(link.name, figures.rate_bps, latency_s, figures.loss, len(edges), edges, takes)
