"""The links of a whole fleet: every path with its random streams, made at its first use and changed by the schedule.

Sans-I/O: `path` gives the stages to the link engine of the simulated fabric, of the emulated transport or of the packet
forwarder. `apply` makes a scheduled change, and returns its effect on the messages or packets in the stages.

Relies on: rules whose random draws depend on names, so that a path made anew, or in another process, draws the same.

Why: A fleet has a path for each pair of nodes and uses few of them: a path is made at its first use, links with equal
entries share stages that have no state, and a path whose stages have no state that matters can be discarded. Each
process of a real fleet has a copy of all this and computes the same values without communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from netdfl.core.control import CoreRate
from netdfl.core.rng import Streams
from netdfl.core.types import Edge, NodeId
from netdfl.links.building import Maker, around, same_for_all
from netdfl.links.path import INSTANT_CHANGES, Fuse, Path, fuse
from netdfl.links.rules.base import LinkRule, Stage, StageOutcome
from netdfl.links.rules.disorder import Checksum, Corrupt
from netdfl.links.rules.mahimahi import rate_stage
from netdfl.links.rules.rate import Shape
from netdfl.links.rules.tcp import TcpTable
from netdfl.links.schedule.active_changes import (
    EffectiveValue,
    Overlays,
    OwnRules,
    TargetIndex,
    by_rounds,
    effective,
    few_edges,
    own_rules,
)
from netdfl.links.schedule.events import CompiledEvent, is_relative
from netdfl.links.sharing.building import NodeLink, fair_path
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.past import Past
from netdfl.links.sharing.stage import FairStage
from netdfl.links.sharing.told import ToldDownlinks
from netdfl.links.sharing.ways import ToldWays
from netdfl.links.spec import NODE_KEYS, LinkPart, LinksSpec


@dataclass(slots=True)
class _NodeStage:
    """The stage of a node's uplink or downlink, shared by all its links, with the current value of the rate."""

    stage: NodeLink
    value: EffectiveValue


class CrossedLinks(Protocol):
    """The core links (links of the underlay network) that one edge crosses, and the edge's own stages for them."""

    @property
    def links(self) -> Sequence[SharedLink]:
        """The core links whose rates the edge's messages share with others, in the order in which they are crossed."""
        ...

    @property
    def stages(self) -> Sequence[Stage]:
        """The edge's own stages for the core links, which no other edge shares: losses and delays in the core."""
        ...

    @property
    def behind(self) -> Sequence[Stage]:
        """The stages for core links in which packets queue one after another; they follow the edge's own stages."""
        ...

    def note(self, path: Path) -> None:
        """Store the path that contains these stages, so that its stages can be replaced when the edge is rerouted."""
        ...


class CoreLinks(Protocol):
    """Core links, which lie below the fleet's links and are shared by many edges (`netdfl.underlay`)."""

    def way(self, edge: Edge) -> CrossedLinks:
        """Return the core links that `edge` crosses from now on, with the stages for them."""
        ...

    def apply(self, event: CompiledEvent, network: FairNetwork, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a scheduled change of core links; return how it moves or drops the messages or packets under way.

        `network` has the flows that share rates.
        """
        ...

    @property
    def renewed(self) -> Mapping[Edge, Path]:
        """The new paths of the edges whose paths the last change replaced."""
        ...


class Links:
    """The paths of a whole fleet. A path is built at its first use, including the scheduled changes in force then."""

    def __init__(
        self,
        spec: LinksSpec,
        streams: Streams,
        events: Sequence[CompiledEvent] = (),
        tcp: TcpTable | None = None,
        *,
        fifo: bool = False,
        halves: bool = False,
        core: CoreLinks | None = None,
    ) -> None:
        """Prepare the links of `spec`.

        Args:
            spec: the rules of links and nodes.
            streams: give each link its random draws.
            events: the compiled schedule, which decides how each path is built.
            tcp: if given, the links carry messages over TCP, and loss, rate and latency act on the packets below it.
            fifo: the links carry packets, not messages; uplinks and downlinks serve them in order of arrival, and real
                TCP shares the rates.
            halves: the sender emulates a message's way to the end of the link, and the receiver the way over its
                downlink, whose rate it divides among senders.
            core: the core links, which lie between uplinks and downlinks, and which edges share.
        """
        self._core = core
        self._tcp, self._fifo = tcp, fifo
        self._network = FairNetwork(Past() if halves else None)
        self._downlinks = FairNetwork() if halves else self._network
        self._spec = spec
        self._streams = streams
        self._overlays = Overlays()
        self._paths: dict[Edge, Path] = {}
        self._values: dict[Edge, Mapping[str, EffectiveValue]] = {}
        self._rules: dict[tuple[int, ...], OwnRules] = {}
        self._shared: dict[tuple[NodeId, str], _NodeStage | None] = {}
        self._by_round: TargetIndex[CompiledEvent] = TargetIndex()
        self._changing: TargetIndex[frozenset[str]] = TargetIndex()
        self._named: TargetIndex[CompiledEvent] = TargetIndex()
        self._node_changes: dict[tuple[NodeId, str], LinkPart | None] = {}
        scripted = any(event.action == "set" or event.names_messages for event in events)
        self._unchanging = tcp is None and core is None and not scripted
        self._stateless: dict[tuple[int, ...], tuple[Stage, ...] | None] = {}
        self._over_uplinks: dict[tuple[NodeId, tuple[int, ...]], tuple[LinkRule, ...]] = {}
        self._learn(events)
        downlinks = spec.has_downlinks or any(key == "downlink" for _, key in self._node_changes)
        self.told = ToldDownlinks(self._network) if halves and downlinks else None
        self.told_ways: ToldWays | None = getattr(core, "told", None)

    def _learn(self, events: Sequence[CompiledEvent]) -> None:
        changing = set()
        for event in events:
            keys = frozenset(event.parameters)
            if event.names_messages:
                self._named.add(event.blocks, event)
            if event.action != "set":
                continue
            if event.nodes:
                for key, change in event.parameters.items():
                    part = None if is_relative(change) else event.part(key)
                    for node in event.nodes:
                        self._node_changes[node, key] = self._node_changes.get((node, key)) or part
            elif event.at_round is not None:
                self._by_round.add(event.blocks, event)
            else:
                keys |= {"reset"} if event.parameters.get("state") == "down_reset" else frozenset()
                changing.add((event.blocks, keys))
        for blocks, keys in changing:
            self._changing.add(blocks, keys)

    @cached_property
    def common(self) -> Path | None:
        """The path that serves every edge if all edges have the same stages, which keep no state; else None."""
        if not self._unchanging or not self._spec.is_uniform:
            return None
        edge = (0, 0)  # any: all are alike
        own = self._alike(edge)
        ends = [self._node_stage(0, key) for key in NODE_KEYS]
        return Path(edge, own) if own is not None and ends == [None, None] else None

    def path(self, src: NodeId, dst: NodeId) -> Path:
        """Return the path from `src` to `dst`."""
        edge = (src, dst)
        path = self._paths.get(edge)
        if path is not None:
            return path
        own = self._alike(edge) if self._unchanging else None
        if own is None:
            return self._build(edge)
        uplink = self._node_stage(src, "uplink")
        if isinstance(uplink, SharedLink) and self._node_stage(dst, "downlink") is None:
            path = self._paths[edge] = Path(edge, self._over_uplink(edge, uplink, own))
            return path
        return self._between(edge, own, (), tuple)

    def _over_uplink(self, edge: Edge, uplink: SharedLink, own: tuple[Stage, ...]) -> tuple[LinkRule, ...]:
        """Return the stages of an edge whose sender has a shared uplink and whose receiver has no downlink.

        They are cached: all edges of a node to which the same entries of the scenario's `links` apply share them. On
        graphs that change, these edges are many.
        """
        alike = edge[0], self._spec.entries(edge)
        if alike not in self._over_uplinks:
            self._over_uplinks[alike] = (FairStage(self._network, edge, [uplink], judges=()), *own)
        return self._over_uplinks[alike]

    def forget(self, src: NodeId, dst: NodeId) -> None:
        """Discard the path from `src` to `dst`, whose stages hold no message; the next use builds a new one."""
        self._paths.pop((src, dst), None)
        self._values.pop((src, dst), None)

    def _alike(self, edge: Edge) -> tuple[Stage, ...] | None:
        """Return the stages that all links with the same scenario entries as `edge` share; None if they can't share.

        An entry is one of the block `links:`.
        """
        entries = self._spec.entries(edge)
        if entries not in self._stateless:
            self._stateless[entries] = same_for_all(*self._own_rules(edge))
        return self._stateless[entries]

    def apply(self, event: CompiledEvent, now_ns: int) -> list[StageOutcome]:
        """Apply a `set` or `unset` event at `now_ns`; return its effects on messages or packets in the stages.

        Two kinds of events have no effect here: events by round, which are part of the paths from the start, and
        crashes and pauses of nodes, which do not change links.
        """
        if event.at_round is not None or not event.acts_on_links:
            return []
        in_core: list[StageOutcome] = []
        if event.core and self._core is not None:
            in_core = [*self._core.apply(event, self._network, now_ns)]
            self._paths |= self._core.renewed
        if event.core and not event.blocks:
            return in_core
        self._overlays.apply(event)
        if event.nodes:
            return [each for node in event.nodes for key in NODE_KEYS for each in self._change_node(node, key, now_ns)]
        return in_core + [each for path in self._built(event) for each in self._change(path, now_ns)]

    def _built(self, event: CompiledEvent) -> Iterable[Path]:
        edges = few_edges(event.blocks, len(self._paths))
        if edges is None:
            edges = [edge for edge in self._paths if any(edge in block for block in event.blocks)]
        return [self._paths[edge] for edge in sorted(set(edges)) if edge in self._paths]

    def _change(self, path: Path, now_ns: int) -> list[StageOutcome]:
        edge = path.edge
        values = effective(self._own_rules(edge).values, self._overlays.on_link(edge))
        change = Maker(self._streams, edge).event(self._values[edge], values)
        self._values[edge] = values
        return path.changed(change, now_ns) if change else []

    def _change_node(self, node: NodeId, key: str, now_ns: int) -> Sequence[StageOutcome]:
        shared = self._shared.get((node, key))
        if shared is None:
            return ()
        value = self._node_value(node, key)
        change = Maker(self._streams, (node, node)).event({"rate": shared.value}, {"rate": value})
        shared.value = value
        if isinstance(shared.stage, SharedLink):
            network = self._network if key == "uplink" else self._downlinks
            network.change(shared.stage, change)
            return network.retimed(now_ns)
        return shared.stage.changed(change, now_ns)

    def _node_value(self, node: NodeId, key: str) -> EffectiveValue:
        spec = self._spec.node(node)
        base = {each: EffectiveValue(getattr(spec, each)) for each in NODE_KEYS}
        return effective(base, self._overlays.on_node(node))[key]

    def _build(self, edge: Edge) -> Path:
        base, used = self._own_rules(edge)
        changing: frozenset[str] = frozenset().union(*self._changing.of(edge)) if self._changing else frozenset()
        pieces = by_rounds(list(self._by_round.of(edge))) if self._by_round else ()
        if changing or pieces:
            used = used.union(changing, *(piece.values for piece in pieces))
        way = None if self._core is None else self._core.way(edge)
        if self._tcp is not None and way is not None and way.links:
            used |= {"latency"}  # of the core
        maker = Maker(self._streams, edge)
        own = list(maker.stages(base, used, pieces) if self._tcp is None else maker.tcp(base, used, self._tcp))
        if self._named:
            own = list(around(own, list(self._named.of(edge))))
        last = [Checksum(stage) for stage in own if isinstance(stage, Corrupt)]
        fused: Fuse = fuse if changing <= INSTANT_CHANGES and self._tcp is None else tuple
        path = self._between(edge, own, last, fused, way)
        self._paths[edge] = path
        self._values[edge] = base
        if way is not None:
            way.note(path)
        if self._overlays.on_link(edge):
            self._change(path, 0)  # a new path holds nothing, so the time does not matter
        return path

    def _between(
        self, edge: Edge, own: Sequence[Stage], last: Sequence[LinkRule], fuse: Fuse, way: CrossedLinks | None = None
    ) -> Path:
        """Return the path of `edge`: the sender's uplink, the stages `own`, the receiver's downlink, the stages `last`.

        `fuse` combines the link's stages. `way` has the core links that the path crosses between uplink and downlink.
        """
        uplink, downlink = self._node_stage(edge[0], "uplink"), self._node_stage(edge[1], "downlink")
        core: Sequence[SharedLink] = () if way is None else way.links
        if not core and not isinstance(uplink, SharedLink) and not isinstance(downlink, SharedLink):
            behind: list[LinkRule] = [] if way is None else [*way.behind]
            return Path(edge, fuse(own), uplink, None, [*behind, *([] if downlink is None else [downlink]), *last])
        networks, over_tcp = (self._network, self._downlinks), self._tcp is not None
        own = own if way is None else [*own, *way.stages]
        path = self._paths[edge] = fair_path(
            networks, edge, own, uplink, downlink, last, fuse, self.told, core, over_tcp=over_tcp
        )
        return path

    def take_rates(
        self, node: NodeId, rates: Sequence[CoreRate], now_ns: int, *, answers: bool
    ) -> Sequence[StageOutcome]:
        """Apply the supervisor's rates for the messages of `node` over core links; return the new departures.

        `answers` says that they answer the node's last report of the rates at which it could send.
        """
        if self.told_ways is not None:
            self.told_ways.take(node, rates, self._network, now_ns, answers=answers)
        return self._network.retimed(now_ns)

    def go_by_known_shares(self, now_ns: int) -> Sequence[StageOutcome]:
        """Let messages leave before the supervisor has sent their shares of core links; return the new departures."""
        if self.told_ways is not None:
            self.told_ways.go(self._network)
        return self._network.retimed(now_ns)

    @property
    def shared_since_ns(self) -> tuple[int, int]:
        """Two times in ns from which on the present rates hold: of this node's flows, and of its own downlink."""
        return self._network.since_ns, self._downlinks.since_ns

    def shared_downlink(self, node: NodeId) -> SharedLink | None:
        """Return the downlink of `node` if messages that cross it at the same time share its rate; else None."""
        link = self._node_stage(node, "downlink")
        return link if isinstance(link, SharedLink) else None

    def _own_rules(self, edge: Edge) -> OwnRules:
        """Return the rules of `edge` before any event, cached for all links with the same entries of `links:`."""
        entries = self._spec.entries(edge)
        rules = self._rules.get(entries)
        if rules is None:
            rules = self._rules[entries] = own_rules(self._spec, edge)
        return rules

    def _node_stage(self, node: NodeId, key: str) -> NodeLink | None:
        if (node, key) not in self._shared:
            value = self._node_value(node, key)
            used = value.value is not None or (node, key) in self._node_changes
            self._shared[node, key] = self._new_shared(node, key, value) if used else None
        shared = self._shared[node, key]
        return None if shared is None else shared.stage

    def _new_shared(self, node: NodeId, key: str, value: EffectiveValue) -> _NodeStage:
        maker = Maker(self._streams, (node, node))
        config = maker.value("rate", value.value)
        if isinstance(config, Shape) and not self._fifo and self._is_fair(node, key):
            return _NodeStage(SharedLink((NODE_KEYS.index(key), node), config, value.scale), value)
        stage = rate_stage(config)
        stage.changed(maker.event({"rate": EffectiveValue(value.value)}, {"rate": value}), 0)
        return _NodeStage(stage, value)

    def _is_fair(self, node: NodeId, key: str) -> bool:
        """Return whether messages on a node's uplink or downlink (`key` says which) share its rate fairly, all at once.

        If only events set its rate, the first such event decides.
        """
        said = getattr(self._spec.node(node), key) or self._node_changes.get((node, key))
        return getattr(said and said.build(), "sharing", None) == "fair"
