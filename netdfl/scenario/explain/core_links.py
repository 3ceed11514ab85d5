"""The core links (of the network below the links) before a run: rates, delays, losses, and links that cross them."""

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
    """One direction of a core link, before any event.

    Attributes:
        name: the name of the link in this direction, such as `paris->zurich`.
        rate_bps: the rate in bit/s; None: unlimited.
        latency_s: the delay in s.
        loss: the share of messages that it loses.
        links: the number of links of round 0 that cross it.
        crossed_by: the links of round 0 that cross it.
        seconds_a_round: the least time in s in which it carries one message of each of these links; None if unlimited.
    """

    name: str
    rate_bps: float | None
    latency_s: float
    loss: float
    links: int
    crossed_by: list[Edge]
    seconds_a_round: float | None


def core_links(scenario: Scenario, network: Network, message_bytes: float) -> list[CoreLinkFacts]:
    """Return the core links of a scenario, those with the longest `seconds_a_round` first; none without an underlay."""
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
