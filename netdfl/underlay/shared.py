"""The core links as links that flows share: what each directed pair of nodes crosses, and what the schedule changes.

Sans-I/O, as the rules of links are: `links/channel.py` asks for the way of an edge when it builds the path, and hands
the changes of core links over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from typing_extensions import override

from netdfl.core.rng import Streams
from netdfl.core.types import Edge
from netdfl.links.path import Path
from netdfl.links.rules.base import LinkEvent, Stage, StageOutcome, Transit
from netdfl.links.rules.latency import Latency, constant
from netdfl.links.rules.loss import Loss, LossModel
from netdfl.links.rules.tcp import TcpBehindShares, share_of_loss
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.stage import FairStage
from netdfl.underlay.routes import Routes
from netdfl.underlay.sites import CoreLink
from netdfl.underlay.underlay import Underlay
from netdfl.underlay.values import CoreValues

_THIRD = 3
"""The place of core links among shared links with equal shares: behind uplinks, downlinks and links' own rates."""


class AnyLoss:
    """The loss of several core links in a row: a message is lost where any of them loses it."""

    def __init__(self, models: Sequence[LossModel]) -> None:
        """Ask `models` in their order."""
        self.models = tuple(models)

    @property
    def remembers(self) -> bool:
        """Whether any of the models depends on earlier messages."""
        return any(getattr(model, "remembers", True) for model in self.models)

    @property
    def stationary_loss(self) -> float:
        """The share that is lost in the long run. Raises ValueError for a link that follows a trace."""
        return 1 - prod(1 - share_of_loss(model) for model in self.models)

    def lost(self, unit: Transit) -> bool:
        """Return whether any link loses `unit`; the later links meet what the earlier ones let pass."""
        return any(model.lost(unit) for model in self.models)


class CoreLoss(Loss):
    """The stage of the losses on all core links of a way. Changes of the edge's own rules do not concern it."""

    __slots__ = ()

    @override
    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        return ()


class CoreDelay(Latency):
    """The stage of the delays on all core links of a way. Of the changes of the edge it knows a reset alone."""

    __slots__ = ()

    @override
    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        return super().changed({key: value for key, value in event.items() if key == "state"}, now_ns)


@dataclass(slots=True)
class CoreWay:
    """The part of an edge's path that lies in the core: `links` that it shares, and stages for loss and delay.

    Where messages go over TCP, the edge's own stage of TCP meets the loss and the delay of the core.
    """

    crossed: tuple[CoreLink, ...]
    links: tuple[SharedLink, ...]
    loss: CoreLoss
    delay: CoreDelay
    over_tcp: bool = False
    path: Path | None = None

    @property
    def stages(self) -> list[Stage]:
        """The stages that belong to this edge alone, in the order of a path."""
        return [self.loss, self.delay] if self.crossed and not self.over_tcp else []

    @property
    def behind(self) -> Sequence[Stage]:
        """The stages that a message enters behind those of its edge: none, as all links are crossed at once."""
        return ()

    def note(self, path: Path) -> None:
        """Note the path whose stages change when the way does."""
        self.path = path
        self.tell_tcp()

    def tell_tcp(self) -> None:
        """Give the path's stage of TCP the loss and the delay of the core."""
        for stage in self.path.stages if self.over_tcp and self.path is not None else ():
            if isinstance(stage, TcpBehindShares):
                stage.go_further(share_of_loss(self.loss.model), self.delay.delay.constant_ns)


class SharedCore:
    """All core links of a fleet, with the changes in force, and the ways of the edges that are built."""

    def __init__(self, underlay: Underlay, streams: Streams, *, over_tcp: bool = False) -> None:
        """Begin without changes. `streams` give each edge its luck on each core link.

        With `over_tcp`, loss and delay in the core are what packets meet, and the model of TCP makes times of them.
        """
        self._underlay, self._seed, self._over_tcp = underlay, streams.seed, over_tcp
        self._values = values = CoreValues(underlay.network)
        self._shared = {link: SharedLink((_THIRD, n), values.rate(link)[0]) for link, n in values.numbers.items()}
        self._routes: Routes = underlay.routes
        self._built: dict[Edge, CoreWay] = {}

    @property
    def renewed(self) -> Mapping[Edge, Path]:
        """The paths that the last change replaced: none, as paths stay and their stages take another way."""
        return {}

    def way(self, edge: Edge) -> CoreWay:
        """Return what `edge` crosses now, new each time; its owner notes the path that is made of it."""
        crossed = self._underlay.way(edge, self._routes)
        way = CoreWay(crossed, self._links(edge, crossed), CoreLoss(), CoreDelay(0, constant(delay=0)), self._over_tcp)
        self._set(edge, way, ("loss", "latency"))
        self._built[edge] = way
        return way

    def shared(self, edge: Edge) -> tuple[SharedLink, ...]:
        """Return the core links that `edge` crosses now, in order."""
        return tuple(self._shared[link] for link in self._underlay.way(edge, self._routes))

    def _links(self, edge: Edge, crossed: Sequence[CoreLink]) -> tuple[SharedLink, ...]:
        """Return the links that messages of `edge` share on a way over the core links `crossed`."""
        return tuple(self._shared[link] for link in crossed)

    def _set(self, edge: Edge, way: CoreWay, keys: Sequence[str]) -> None:
        """Give the stages of a way the present values of its core links."""
        if "latency" in keys:
            way.delay.delay = constant(delay=sum(self._values.delay_ns(link) for link in way.crossed))
        if "loss" in keys:
            lossy = [(link, self._values[link]["loss"].value) for link in way.crossed]
            models = [part.build(self._seed_of(edge, link)) for link, part in lossy if part is not None]
            way.loss.model = AnyLoss(models) if models else None
        way.tell_tcp()

    def _seed_of(self, edge: Edge, link: CoreLink) -> int:
        return Streams(self._seed).integer("link", *edge, "core", link.name)

    def apply(self, event: CompiledEvent, network: FairNetwork, now_ns: int) -> Sequence[StageOutcome]:
        """Make a change of core links, or of routes; return the new departures of messages under way.

        A cut acts on the links of nodes that cross it, not here.
        """
        if event.blocks:
            return ()
        if "without" in event.parameters:
            return self._reroute(event.parameters["without"], network, now_ns)
        for link, changed in self._values.apply(event):
            if "rate" in changed:
                shape, scale = self._values.rate(link)
                network.change(self._shared[link], {"rate": shape, "rate_scale": scale})
            if keys := [key for key in ("loss", "latency") if key in changed]:
                for edge, way in self._crossing(link):
                    self._set(edge, way, keys)
        return network.retimed(now_ns)

    def _reroute(self, without: Sequence[str], network: FairNetwork, now_ns: int) -> Sequence[StageOutcome]:
        """Find the routes anew without some core links; what goes over a way that is given up goes over the new one."""
        self._routes = self._underlay.routes_without(without)
        for edge, way in sorted(self._built.items()):
            crossed = self._underlay.way(edge, self._routes)
            if crossed != way.crossed:
                old, way.crossed, way.links = way.links, crossed, self._links(edge, crossed)
                self._set(edge, way, ("loss", "latency"))
                for stage in way.path.stages if way.path is not None else ():
                    if isinstance(stage, FairStage) and old != way.links and old[0] in stage.links:
                        stage.reroute(old, way.links, now_ns)
        return network.retimed(now_ns)

    def _crossing(self, link: CoreLink) -> Iterator[tuple[Edge, CoreWay]]:
        return ((edge, way) for edge, way in sorted(self._built.items()) if link in way.crossed)
