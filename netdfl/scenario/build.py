"""Functions that build from a checked scenario, without torch: graph, network, link rules, events.

Also decide which compression scheme and which delivery `auto` stands for on a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

from netdfl.algorithms.exchange import Delivery, Scheme
from netdfl.core.bounds import MemoryBounds
from netdfl.core.rng import Streams
from netdfl.core.types import Edge
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from netdfl.scenario.model.links import block
from netdfl.scenario.model.schema import Scenario
from netdfl.topology.base import Topology
from netdfl.topology.network import Network
from netdfl.topology.selection import PrivateSelection, halves, sampled
from netdfl.topology.weights import Weights, uniform
from netdfl.underlay.placement import place
from netdfl.underlay.rates_by_time import RatesByTime
from netdfl.underlay.rerouting import rerouted
from netdfl.underlay.sites import CoreFigures, CoreNetwork, ends_in
from netdfl.underlay.underlay import Underlay

_ROUNDS = 64
_ANYBODY = ("random_push", "random_pull")
T = TypeVar("T")


def build_topology(scenario: Scenario) -> Topology:
    """Return the topology (the graph of each round) over all nodes, the server included.

    Raises ValueError where no graph can be made.
    """
    try:
        topology: Topology = scenario.topology.build(scenario.num_nodes, Streams(scenario.seed))
    except MemoryError as exc:
        what = f"its graph of {scenario.num_nodes} nodes takes more memory than there is"
        raise ValueError(f"{what}; lower nodes, or use a graph with fewer links") from exc
    return topology


def build_network(scenario: Scenario, topology: Topology | None = None) -> Network:
    """Return the nodes' neighbors and weights. Raises ValueError where weights, selection or server do not fit."""
    drawn = topology or build_topology(scenario)
    streams = Streams(scenario.seed)
    selection = scenario.topology.selection.build(scenario.num_nodes, streams)
    traits = scenario.algorithm.traits
    if traits.family == "bilateral":
        split = scenario.algorithm.params.get("bipartite", False)
        return Network(drawn, uniform, halves(drawn, selection) if split else selection)
    if traits.selects:
        selection = PrivateSelection(selection)
    if not scenario.has_server:
        return Network(drawn, _weights(scenario, drawn), selection)
    chosen = sampled(scenario.nodes, streams, participation=scenario.topology.participation)
    return Network(drawn, _weights(scenario, drawn), selection, server=scenario.nodes, participants=chosen)


def bounds_of(scenario: Scenario, network: Network, dim: int) -> MemoryBounds:
    """Return the nodes' memory limits for data that others send, for models of `dim` numbers."""
    graph, num_nodes = network.graph(0), network.num_nodes
    peers = num_nodes - 1 if network.topology.time_varying else int(graph.in_degrees.max(initial=0))
    together = getattr(scenario.world, "nodes_per_process", 1)
    return MemoryBounds.of(
        num_nodes=num_nodes,
        together=together,
        peers=peers,
        directed=not graph.is_symmetric,
        dim=dim,
        tls=getattr(scenario.world, "tls", False),
    )


def delivers_damage(scenario: Scenario) -> bool:
    """Return whether links may deliver messages with damaged bytes: by a rule or, possibly, by a file of rules."""
    rules = scenario.model_dump_json(include={"links", "events"})
    return scenario.links_from is not None or '"deliver"' in rules


def used_links(scenario: Scenario, topology: Topology) -> frozenset[Edge] | None:
    """Return the links of the graphs of all rounds; None where senders pick among all nodes and any link may occur.

    Of a graph that changes and is not drawn from a fixed base graph, only the first 64 rounds count.
    """
    if topology.base is not None and topology.time_varying:
        return frozenset(topology.base.edges)
    if topology.time_varying and scenario.topology.kind in _ANYBODY:
        return None
    rounds = min(scenario.rounds, _ROUNDS) if topology.time_varying else 1
    return frozenset(edge for round in range(rounds) for edge in topology.graph(round).edges)


def drawn(build: Callable[[Scenario], T], scenario: Scenario) -> T | None:
    """Return `build(scenario)`; None if the scenario's graph can't be made, which another check reports."""
    try:
        return build(scenario)
    except (ValueError, OSError):
        return None


def compile_schedule(scenario: Scenario) -> list[CompiledEvent]:
    """Return the scenario's `events` as a flat, sorted list. Raises ScheduleError that names every wrong entry."""
    underlay = build_underlay(scenario)
    events = compile_as_written(scenario, underlay)
    if underlay is None:
        return events
    try:
        return rerouted(events, underlay)
    except ValueError as exc:
        index, _, what = str(exc).removeprefix("events[").partition("]: ")
        raise ScheduleError([(int(index), what)]) from exc


def compile_as_written(scenario: Scenario, underlay: Underlay | None) -> list[CompiledEvent]:
    """Return the scenario's `events` as a flat list, as if routes over core links never changed.

    Raises ScheduleError that names every wrong entry.
    """
    facts = Facts(
        scenario.num_nodes,
        Streams(scenario.seed),
        scenario.groups,
        rounds=scenario.rounds,
        core=underlay,
        says=partial(_says, scenario),
    )
    return compile_events(scenario.events, facts)


def _says(scenario: Scenario, event: CompiledEvent, key: str) -> bool:
    """Return whether the scenario has the rule `key`, be it `none`, for any link or node that `event` concerns.

    True if that is not known yet, because `links_from` is not read, or an entry of `links` is wrong.
    """
    if event.core:
        links = {} if scenario.underlay is None else scenario.underlay.links
        wanted = _directions(event.core)
        return any(key in each.model_fields_set and wanted & _directions(name) for name, each in links.items())
    try:
        return scenario.links_from is not None or build_links(scenario).says(key, event.blocks, event.nodes)
    except ValueError:
        return True


def _directions(core: str) -> set[tuple[str, str]]:
    """Return the (source, target) sites of each direction that the name of a core link means."""
    src, dst, both = ends_in(core)
    return {(src, dst), (dst, src)} if both else {(src, dst)}


def build_underlay(scenario: Scenario) -> Underlay | None:
    """Return the underlay (the network of core links below the links) with each node's site; None without one.

    Raises ValueError for core links, places or sites that do not fit. The core links of a file were written into the
    scenario when it was loaded.
    """
    part = scenario.underlay
    if part is None:
        return None
    figures = {name: CoreFigures(each.latency, each.rate, each.loss, each.queue) for name, each in part.links.items()}
    network = CoreNetwork(figures)
    placed = place(part.place, scenario.num_nodes, network.sites, scenario.groups, Streams(scenario.seed))
    underlay = Underlay(network, placed, part.reroute)
    underlay.check_reachable()
    return underlay


def build_links(scenario: Scenario) -> LinksSpec:
    """Return the rules of every link and node. Raises ValueError for an entry that can't be interpreted."""
    return LinksSpec(block(scenario.links), scenario.groups, scenario.num_nodes)


def shared_rates(scenario: Scenario) -> Callable[[Edge], Sequence[tuple[float, Mapping[str, float]]]] | None:
    """Return a function from a link to the rates in bit/s that it shares with other links; None without an underlay.

    These are the rates of the core links on its route, the sender's uplink and the receiver's downlink, by name, each
    time that they change with the time in s.
    """
    underlay = build_underlay(scenario)
    if underlay is None:
        return None
    return cache(RatesByTime(underlay, build_links(scenario), compile_schedule(scenario)).of)


def _weights(scenario: Scenario, topology: Topology) -> Weights:
    part = scenario.topology.weights
    chosen: Any = topology.weights if part.kind == "auto" else type(part).function
    weights: Weights = partial(chosen, **part.params) if any(part.params.values()) else chosen
    return weights


GOSSIP = ("choco", "deepsqueeze", "unsafe")
PUSH = ("edge", "push_sum")
SERVER = ("plain", "ef14", "ef21")


def scheme_of(scenario: Scenario, topology: Topology | None = None) -> Scheme:
    """Return the compression scheme: the one in the scenario, or the one that `auto` stands for.

    Raises ValueError where the graph can't be drawn.
    """
    if scenario.compression is not None and scenario.compression.scheme != "auto":
        return scenario.compression.scheme
    if scenario.has_server:
        return "plain"
    if is_push(scenario):
        return "edge"
    if own := scenario.algorithm.traits.scheme:
        return own
    return "choco" if is_static(scenario, topology or build_topology(scenario)) else "deepsqueeze"


def delivery_of(scenario: Scenario) -> Delivery:
    """Return the delivery of messages (plain, acknowledged ...), which says how losses are treated.

    An unresolved `auto` counts as plain.
    """
    kind = scenario.delivery.kind
    return "plain" if kind == "auto" else kind


def is_push(scenario: Scenario) -> bool:
    """Return whether the algorithm is push-sum: nodes send shares of value and weight that the senders decide."""
    return "column" in scenario.algorithm.traits.needs


def is_literal(scenario: Scenario) -> bool:
    """Return whether the algorithm sends the compressed change C(z - x) of its model in a local round.

    That is the form in its paper, for which nodes keep no copies of others' vectors.
    """
    written = scenario.algorithm.traits.literal
    return written is not None and scenario.algorithm.params.get(written[0]) == written[1]


def sends_vectors(scenario: Scenario) -> bool:
    """Return whether gossip sends whole vectors: no compression is set, and the algorithm itself has none."""
    traits = scenario.algorithm.traits
    return scenario.compression is None and traits.scheme is None and not traits.sparse


def is_static(scenario: Scenario, topology: Topology) -> bool:
    """Return whether every node has the same neighbors in every round."""
    return not topology.time_varying and scenario.topology.selection.kind == "all"
