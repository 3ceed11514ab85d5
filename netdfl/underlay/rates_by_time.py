"""The rates that an edge shares with others, by time: of core links on its route, the sender's uplink, the downlink.

They follow the schedule: changes of core links and of nodes' rates, new routes, and cuts, during which nothing passes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TypeAlias, TypeVar

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import Edge, NodeId
from netdfl.links.schedule.active_changes import EffectiveValue, Overlays, effective, effective_state
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.spec import NODE_KEYS, LinksSpec
from netdfl.underlay.routes import Routes
from netdfl.underlay.underlay import Underlay
from netdfl.underlay.values import CoreValues

T = TypeVar("T")
RateSince: TypeAlias = tuple[int, float | None]
"""A rate in bit/s (None: unlimited) and the time in ns from which it holds."""


class RatesByTime:
    """The rates that edges of one fleet share, as its schedule changes them."""

    def __init__(self, underlay: Underlay, links: LinksSpec, events: Sequence[CompiledEvent]) -> None:
        """Read the compiled `events` of a fleet over `underlay`; `links` has the uplinks and downlinks of its nodes."""
        self._underlay, self._links = underlay, links
        self._routes: list[tuple[int, Routes]] = [(0, underlay.routes)]
        self._nodes: list[CompiledEvent] = []
        self._cuts: list[CompiledEvent] = []
        values = CoreValues(underlay.network)
        self._core: dict[str, list[RateSince]] = {link.name: [(0, link.figures.rate_bps)] for link in values.numbers}
        for event in (each for each in events if each.acts_on_links and each.at_ns is not None):
            if event.core and not event.blocks:
                self._change_core(event, event.at_ns or 0, values)
            elif event.nodes:
                self._nodes.append(event)
            elif event.entry == "cut" or event.parameters.get("state") == "up":
                self._cuts.append(event)
        self._of_node = cache(self._find_of_node)

    def _change_core(self, event: CompiledEvent, at_ns: int, values: CoreValues) -> None:
        if "without" in event.parameters:
            self._routes.append((at_ns, self._underlay.routes_without(event.parameters["without"])))
            return
        for link, changed in values.apply(event):
            if "rate" in changed:
                shape, scale = values.rate(link)
                self._core[link.name].append((at_ns, None if shape.rate_bps is None else shape.rate_bps * scale))

    def of(self, edge: Edge) -> Sequence[tuple[float, Mapping[str, float]]]:
        """Return the rates in bit/s that `edge` shares, by the link's name, with the times in s from which they hold.

        They are in order of time, the first from 0 s on. They are empty while nothing passes: a core link on the route
        is cut, or a rate is 0.
        """
        ways = [(since, [link.name for link in self._underlay.way(edge, routes)]) for since, routes in self._routes]
        ends = {
            f"the {key} of node {node}": self._of_node(node, key) for node, key in zip(edge, NODE_KEYS, strict=True)
        }
        rates = {name: self._core[name] for _, names in ways for name in names} | ends
        downs = list(self._downs(edge))
        times = {since for since, _ in (*ways, *downs)} | {since for row in rates.values() for since, _ in row}
        found: list[tuple[float, Mapping[str, float]]] = []
        for at_ns in sorted(times):
            now = {name: _at(rates[name], at_ns) for name in (*_at(ways, at_ns), *ends)}
            stands = _at(downs, at_ns) or 0 in now.values()
            left = {} if stands else {name: rate for name, rate in now.items() if rate}
            if not found or found[-1][1] != left:
                found.append((at_ns / NS_PER_S, left))
        return found

    def _downs(self, edge: Edge) -> Iterator[tuple[int, bool]]:
        """Yield whether a cut has `edge` down, with the time in ns since when."""
        yield 0, False
        overlays = Overlays()
        for event in self._cuts:
            if any(edge in block for block in event.blocks):
                overlays.apply(event)
                yield event.at_ns or 0, effective_state("up", overlays.on_link(edge)) != "up"

    def _find_of_node(self, node: NodeId, key: str) -> list[RateSince]:
        """Return the rates of the uplink or downlink (`key`) of `node`."""
        spec, overlays = self._links.node(node), Overlays()
        base = {each: EffectiveValue(getattr(spec, each)) for each in NODE_KEYS}
        found = [(0, _rate(base[key]))]
        for event in self._nodes:
            if node in event.nodes:
                overlays.apply(event)
                found.append((event.at_ns or 0, _rate(effective(base, overlays.on_node(node))[key])))
        return found


def _rate(now: EffectiveValue) -> float | None:
    rate_bps = None if now.value is None else getattr(now.value.build(), "rate_bps", None)
    return None if rate_bps is None else rate_bps * now.scale


def _at(rows: Sequence[tuple[int, T]], at_ns: int) -> T:
    """Return what holds at `at_ns` of `rows`, which are in order of time; of rows of one time the last."""
    return rows[bisect_right(rows, at_ns, key=lambda row: row[0]) - 1][1]
