"""The core links under nodes' messages: which ones each edge crosses, how flows share them, how they change.

An edge is a pair of a sending and a receiving node. The module does no I/O. `links/channel.py` asks for the part of an
edge's path that lies in the core, and passes on scheduled changes of core links.
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
from netdfl.links.rules.tcp import Tcp, share_of_loss
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.stage import FairStage
from netdfl.underlay.routes import Routes
from netdfl.underlay.sites import CoreLink
from netdfl.underlay.underlay import Underlay
from netdfl.underlay.values import CoreValues

_THIRD = 3
"""The rank of core links among the links that flows share: behind uplinks and downlinks, and behind links' own
rates."""


class AnyLoss:
    """The loss of several core links in a row: a message is lost where any of them loses it."""

    def __init__(self, models: Sequence[LossModel]) -> None:
        """Combine `models`, which decide in this order."""
        self.models = tuple(models)

    @property
    def remembers(self) -> bool:
        """Whether the losses of any of the models depend on earlier messages."""
        return any(getattr(model, "remembers", True) for model in self.models)

    @property
    def stationary_loss(self) -> float:
        """The share of messages lost in the long run. Raises ValueError if a link replays a trace."""
        return 1 - prod(1 - share_of_loss(model) for model in self.models)

    def lost(self, unit: Transit) -> bool:
        """Return whether any link loses the message `unit`; each link decides on what the earlier ones let pass."""
        return any(model.lost(unit) for model in self.models)


class CoreLoss(Loss):
    """The stage of an edge's path (its sequence of link rules) that applies the losses of all core links on it.

    Scheduled changes of the edge's own link do not change it.
    """

    __slots__ = ()

    @override
    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        return ()


class CoreDelay(Latency):
    """The stage of an edge's path (its sequence of link rules) that applies the delays of all core links on it.

    Of the scheduled changes of the edge's own link, only `state` (up or down) changes it.
    """

    __slots__ = ()

    @override
    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        return super().changed({key: value for key, value in event.items() if key == "state"}, now_ns)


@dataclass(slots=True)
class CoreWay:
    """The part of an edge's path (its sequence of link rules) that lies in the core.

    Where messages go over TCP, the stage of TCP in the edge's path applies the loss and the delay of the core.

    Attributes:
        crossed: the core links on the way, in order.
        links: the same links as shared links, which divide their rate among flows.
        loss: the stage for the losses of all these links.
        delay: the stage for the delays of all these links.
        over_tcp: whether messages go over TCP.
        path: the whole path of the edge; None before `note`.
    """

    crossed: tuple[CoreLink, ...]
    links: tuple[SharedLink, ...]
    loss: CoreLoss
    delay: CoreDelay
    over_tcp: bool = False
    path: Path | None = None

    @property
    def stages(self) -> list[Stage]:
        """The stages for loss and delay in the core; empty without core links, or if TCP's stage applies both."""
        return [self.loss, self.delay] if self.crossed and not self.over_tcp else []

    @property
    def behind(self) -> Sequence[Stage]:
        """The stages that a message passes after the edge's own: none here, as it crosses all core links at once."""
        return ()

    def note(self, path: Path) -> None:
        """Store the edge's whole path, so that its stages can be changed when its way over the core links changes."""
        self.path = path
        self.tell_tcp()

    def tell_tcp(self) -> None:
        """Pass the loss and the delay of the core on to the TCP stage of the path, if it has one."""
        for stage in self.path.stages if self.over_tcp and self.path is not None else ():
            if isinstance(stage, Tcp):
                stage.go_further(share_of_loss(self.loss.model), self.delay.delay.constant_ns)


class SharedCore:
    """All core links of a fleet with their present values, and the route of each edge over them."""

    def __init__(self, underlay: Underlay, streams: Streams, *, over_tcp: bool = False) -> None:
        """Begin with the underlay's configured link values. `streams` give each edge its own losses on core links.

        With `over_tcp`, loss and delay in the core act on packets; the model of TCP turns them into the time of a
        message.
        """
        self._underlay, self._streams, self._over_tcp = underlay, streams, over_tcp
        self._values = values = CoreValues(underlay.network)
        self._shared = {link: SharedLink((_THIRD, n), values.rate(link)[0]) for link, n in values.numbers.items()}
        self._routes: Routes = underlay.routes
        self._built: dict[Edge, CoreWay] = {}

    @property
    def renewed(self) -> Mapping[Edge, Path]:
        """The new paths of edges after the last change: none here, as paths stay and their stages are changed."""
        return {}

    def way(self, edge: Edge) -> CoreWay:
        """Return a new `CoreWay` with the core links that `edge` crosses now.

        The caller passes the built path to its `note`.
        """
        crossed = self._underlay.way(edge, self._routes)
        way = CoreWay(crossed, self._links(edge, crossed), CoreLoss(), CoreDelay(0, constant(delay=0)), self._over_tcp)
        self._set(edge, way, ("loss", "latency"))
        self._built[edge] = way
        return way

    def shared(self, edge: Edge) -> tuple[SharedLink, ...]:
        """Return the core links that `edge` crosses now, in order."""
        return tuple(self._shared[link] for link in self._underlay.way(edge, self._routes))

    def _links(self, edge: Edge, crossed: Sequence[CoreLink]) -> tuple[SharedLink, ...]:
        """Return the links that messages of `edge` share with other flows on a way over the core links `crossed`."""
        return tuple(self._shared[link] for link in crossed)

    def _set(self, edge: Edge, way: CoreWay, keys: Sequence[str]) -> None:
        """Set the stages of an edge's `way` to its core links' present values, for the rules named in `keys`."""
        if "latency" in keys:
            way.delay.delay = constant(delay=sum(self._values.delay_ns(link) for link in way.crossed))
        if "loss" in keys:
            lossy = [(link, self._values[link]["loss"].value) for link in way.crossed]
            models = [part.build(self._seed_of(edge, link)) for link, part in lossy if part is not None]
            way.loss.model = AnyLoss(models) if models else None
        way.tell_tcp()

    def _seed_of(self, edge: Edge, link: CoreLink) -> int:
        return self._streams.integer("link", *edge, "core", link.name)

    def apply(self, event: CompiledEvent, network: FairNetwork, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a change of core links or of routes; return the new times at which messages under way leave the links.

        A cut is not applied here: it blocks the links of nodes that cross it.
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
        """Find routes without the core links called `without`, and move messages under way to the new paths.

        Return the new times at which these messages leave the links.
        """
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
