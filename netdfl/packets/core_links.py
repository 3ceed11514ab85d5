"""Core links for packets: each direction has one queue, which the packets of all edges that cross it enter one by one.

A packet enters the core links of its route one after another, as at routers. Each link applies four stages to it: its
state (up or cut), its loss, its rate with a queue, and its delay. So the TCP connections of edges that share a core
link compete for its rate by themselves. A link that is cut drops every packet that reaches it, even a packet that was
sent before the cut. After a change of routes, packets that are already on the old route stay on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netdfl.core.rng import Streams
from netdfl.core.types import Edge
from netdfl.links.path import Path
from netdfl.links.rules.base import LinkEvent, Stage, StageOutcome
from netdfl.links.rules.latency import Latency, constant
from netdfl.links.rules.loss import Loss
from netdfl.links.rules.rate import Rate
from netdfl.links.rules.state import LinkState
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.underlay.routes import Routes
from netdfl.underlay.sites import CoreLink
from netdfl.underlay.underlay import Underlay
from netdfl.underlay.values import CoreValues


class CoreQueue:
    """One direction of a core link, which the packets of all edges that cross it enter."""

    def __init__(self, values: CoreValues, link: CoreLink) -> None:
        """Start with the link up and the queue empty."""
        self.state, self.rate = LinkState(), Rate(values.rate(link)[0])
        self.latency = Latency(0, constant(delay=values.delay_ns(link)))
        self.losses: dict[Edge, Loss] = {}

    def of(self, edge: Edge) -> tuple[Stage, ...]:
        """Return this link's stages (state, loss, rate, delay) for packets of `edge`; each edge has its own loss."""
        return self.state, self.losses.setdefault(edge, Loss()), self.rate, self.latency

    def changed(self, event: LinkEvent, now_ns: int) -> list[StageOutcome]:
        """Apply a change of the link's values to its stages; return its effect on the packets in them."""
        stages = (self.latency, self.rate, self.state)
        return [outcome for stage in stages for outcome in stage.changed(event, now_ns)]


@dataclass(slots=True)
class PacketWay:
    """The core links (`crossed`) that the packets of one directed edge cross, and the stages of these links (`behind`).

    The stages, which are state, loss, rate and delay for each link, follow the stages of the edge itself on its `path`.
    """

    crossed: tuple[CoreLink, ...]
    behind: Sequence[Stage]
    links: Sequence[SharedLink] = ()
    stages: Sequence[Stage] = ()
    path: Path | None = None

    def note(self, path: Path) -> None:
        """Store `path`, the whole sequence of stages of the edge, which contains the core links' stages."""
        self.path = path

    def instead(self, crossed: tuple[CoreLink, ...], behind: Sequence[Stage]) -> Path | None:
        """Replace the core links on the edge's path by the links `crossed` with their stages `behind`.

        Return the new path, in which the edge's other stages are the same, or None if `note` has stored no path yet.
        """
        old, before, self.crossed, self.behind = self.path, len(self.behind), crossed, behind
        if old is None:
            return None
        place = old.own.stop
        self.path = path = Path(old.edge, ())
        path.own, path.stages = old.own, (*old.stages[:place], *behind, *old.stages[place + before :])
        return path


class PacketCore:
    """All core links of a fleet for packets, with their present values, and the route of each edge over them."""

    def __init__(self, underlay: Underlay, streams: Streams) -> None:
        """Begin with the underlay's configured link values.

        `streams` are the random streams, from which each edge gets losses of its own on each core link.
        """
        self._underlay, self._streams = underlay, streams
        self._values = CoreValues(underlay.network)
        self._queues = {link: CoreQueue(self._values, link) for link in self._values.numbers}
        self._routes: Routes = underlay.routes
        self._ways: dict[Edge, PacketWay] = {}
        self.renewed: Mapping[Edge, Path] = {}

    def way(self, edge: Edge) -> PacketWay:
        """Return the core links that the packets of `edge` cross from now on, with their stages."""
        crossed = self._underlay.way(edge, self._routes)
        self._ways[edge] = PacketWay(crossed, self._stages(edge, crossed))
        return self._ways[edge]

    def _stages(self, edge: Edge, crossed: Sequence[CoreLink]) -> list[Stage]:
        new = [link for link in crossed if edge not in self._queues[link].losses]
        stages = [stage for link in crossed for stage in self._queues[link].of(edge)]
        for link in new:
            self._set_loss(edge, link)
        return stages

    def _set_loss(self, edge: Edge, link: CoreLink) -> None:
        part = self._values[link]["loss"].value
        seed = self._streams.integer("link", *edge, "core", link.name)
        self._queues[link].losses[edge].model = None if part is None else part.build(seed)

    def apply(self, event: CompiledEvent, network: FairNetwork, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a scheduled change of core links or of routes; return its effect on packets in flight.

        After a change of routes, `renewed` has the new path of each edge that got one.
        """
        self.renewed = {}
        if "without" in event.parameters:
            self._reroute(event.parameters["without"])
            return ()
        outcomes: list[StageOutcome] = []
        for link, changed in self._values.apply(event):
            queue = self._queues[link]
            shape, scale = self._values.rate(link)
            now = {"rate": shape, "rate_scale": scale, "latency": constant(delay=self._values.delay_ns(link))}
            now |= {"state": self._values[link]["state"].value} if "state" in changed else {}
            outcomes += queue.changed(now, now_ns)
            for edge in queue.losses if "loss" in changed else ():
                self._set_loss(edge, link)
        return outcomes

    def _reroute(self, without: Sequence[str]) -> None:
        """Find routes without the core links called `without`; packets that enter from now on take the new routes."""
        self._routes = self._underlay.routes_without(without)
        renewed: dict[Edge, Path] = {}
        for edge, way in sorted(self._ways.items()):
            crossed = self._underlay.way(edge, self._routes)
            if crossed != way.crossed and (path := way.instead(crossed, self._stages(edge, crossed))) is not None:
                renewed[edge] = path
        self.renewed = renewed
