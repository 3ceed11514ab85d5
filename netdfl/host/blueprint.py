"""From a resolved scenario to the parts of a fleet; every world builds its nodes here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.core.clock import Clock
from netdfl.core.errors import InputError
from netdfl.core.rng import Streams
from netdfl.core.types import Edge, NodeId, View
from netdfl.host.injection import by_node
from netdfl.host.problem import Problem
from netdfl.host.task_setup import is_plain, make_problem
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import keeps_state, returns_by_node
from netdfl.links.spec import LinksSpec
from netdfl.node.delivery import Resending
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Hooks, Node
from netdfl.node.state_transfer import Joining
from netdfl.node.worker import Worker
from netdfl.record.base import Recorder
from netdfl.scenario.build import (
    build_links,
    build_network,
    compile_schedule,
    delivery_of,
    is_push,
    scheme_of,
    used_links,
)
from netdfl.scenario.explain.link_rules import keep_order
from netdfl.scenario.model.network import AcknowledgedDelivery
from netdfl.scenario.model.schema import KEPT_BYTES, Scenario
from netdfl.scenario.model.task import Training
from netdfl.topology.network import Network, without
from netdfl.transport.base import Transport


def make_algorithm(scenario: Scenario) -> Algorithm:
    """The algorithm with the scenario's wait and compression."""
    wait = scenario.wait
    announce = wait.need == "all" and not isinstance(wait.deadline, int) if wait.announce is None else wait.announce
    delivery = delivery_of(scenario)
    policy = WaitPolicy(
        need=wait.need,
        deadline_ns=wait.deadline,
        stale=wait.stale,
        announce=announce,
        resent=delivery == "acknowledged",
        ordered=keep_order(scenario),
        on_not_finite=wait.on_not_finite,
        cumulative=delivery == "running_sums",
    )
    exchange = Exchange(
        wait=policy,
        on_missing=wait.on_missing,
        delivery=delivery,
        common_start=isinstance(scenario.task, Training),
        num_rounds=scenario.rounds,
        streams=Streams(scenario.seed),
    )
    compression = scenario.compression
    if compression is not None:
        exchange = replace(
            exchange,
            compressor=compression.build(),
            scheme=scheme_of(scenario),
            gamma=compression.gamma,
            extras=compression.extras,
        )
    algorithm: Algorithm = scenario.algorithm.build(exchange)
    return algorithm


def needs_torch(scenario: Scenario) -> bool:
    """Whether the nodes of `scenario` need PyTorch: something trains, or a part of the algorithm asks for it."""
    return not is_plain(scenario, make_algorithm(scenario))


def resending(scenario: Scenario) -> Resending | None:
    """How nodes send again what is not answered; None where nobody answers."""
    delivery = scenario.delivery
    if not isinstance(delivery, AcknowledgedDelivery):
        return None
    return Resending(timeout_ns=delivery.timeout, attempts=delivery.attempts)


@dataclass(frozen=True)
class Blueprint:
    """What all nodes of a fleet have in common: made once, before any node exists."""

    scenario: Scenario
    streams: Streams
    network: Network
    algorithm: Algorithm
    problem: Problem
    plain: bool
    """Whether vectors are `netdfl.compression.vector`'s, so that nothing needs torch."""

    @classmethod
    def of(cls, scenario: Scenario) -> Blueprint:
        """Build it. Raises InputError where the scenario asks for what can't be."""
        streams = Streams(scenario.seed)
        try:
            network = build_network(scenario)
        except ValueError as error:
            raise InputError(str(error)) from error
        algorithm = make_algorithm(scenario)
        plain = is_plain(scenario, algorithm)
        problem = make_problem(scenario, streams, plain=plain)
        if fit_ways := getattr(problem, "fit_ways", None):
            fit_ways(algorithm.local)
        return cls(scenario, streams, network, algorithm, problem, plain)

    @cached_property
    def links(self) -> LinksSpec:
        """The rules of every link and node."""
        return build_links(self.scenario)

    @cached_property
    def schedule(self) -> list[CompiledEvent]:
        """The flat, sorted list of scripted events."""
        return compile_schedule(self.scenario)

    @cached_property
    def _by_node(self) -> dict[NodeId, list[CompiledEvent]]:
        return by_node(self.schedule)

    def events_of(self, node: NodeId) -> list[CompiledEvent]:
        """What the schedule does to `node` where it lives; see `netdfl.host.injection`."""
        return self._by_node.get(node, [])

    def keeps_state(self, node: NodeId) -> bool:
        """Whether `node` may have to begin again with the state of its last round's end."""
        return keeps_state(self._returns.get(node, ()), node)

    @cached_property
    def _returns(self) -> dict[NodeId, list[CompiledEvent]]:
        return returns_by_node(self.schedule)

    @property
    def emulates_messages(self) -> bool:
        """Whether links act on messages above the real transport: there are rules, and packets don't bear them."""
        scripted = any(event.acts_on_links or event.names_messages for event in self.schedule)
        layer = self.scenario.world.loss_layer
        return layer == "message" and (bool(self.scenario.links) or scripted)

    @property
    def node_ids(self) -> range:
        """All nodes; the server, where there is one, is the last."""
        return range(self.network.num_nodes)

    def possible_neighbors(self, node: NodeId) -> frozenset[NodeId]:
        """Whom `node` may ever exchange messages with: everybody, where the graph varies."""
        if self.network.topology.time_varying:
            return frozenset(self.node_ids) - {node}
        edges = self.network.topology.graph(0).edges
        return frozenset(other for edge in edges if node in edge for other in edge if other != node)

    @cached_property
    def _links_used(self) -> frozenset[Edge] | None:
        """The links of a graph that has one-way links; None: whoever sends may be sent to."""
        topology = self.network.topology
        return used_links(self.scenario, topology) if topology.directed else None

    @cached_property
    def mutual(self) -> Mapping[NodeId, Sequence[NodeId]] | None:
        """By node, those to whom links work both ways; None: between any two. Made once: it takes every link."""
        links = used_links(self.scenario, self.network.topology)
        if links is None:
            return None
        found: dict[NodeId, list[NodeId]] = {}
        for src, dst in links:
            if (dst, src) in links:
                found.setdefault(src, []).append(dst)
        return found

    def can_ask(self, node: NodeId, peers: Iterable[NodeId]) -> bool:
        """Whether links work both ways between `node` and all `peers`, so that a question gets its answer."""
        links = self._links_used
        return links is None or all((node, peer) in links and (peer, node) in links for peer in peers)

    def joining(self, node: NodeId, round: int, weight: int) -> Joining:
        """How `node`, which lost its state, joins in `round` or later: it asks whom it can, the next one first."""
        num, mutual = self.network.num_nodes, self.mutual
        others = range(num) if mutual is None else mutual.get(node, ())
        peers = sorted((each for each in others if each != node), key=lambda each: (each - node) % num)
        return Joining(round=round, peers=tuple(peers), weight=weight if is_push(self.scenario) else None)

    def held_weight(self, node: Node) -> float | None:
        """What a crash's event says of the push-sum weight that is the node's alone; None where that means nothing."""
        summed = self.scenario.delivery.kind == "running_sums"
        return node.held_weight if is_push(self.scenario) and not summed else None

    @property
    def push(self) -> bool:
        """Whether messages are shares of mass."""
        return self.algorithm.family != "server" and bool(self.algorithm.mixing.push)

    @property
    def evaluated(self) -> range:
        """The nodes whose models are averaged and judged: all, or the server alone."""
        server = self.network.server
        return range(self.network.num_nodes) if server is None else range(server, server + 1)

    def view(self, node: NodeId, round: int, gone: frozenset[NodeId]) -> View:
        """What `node` knows of `round`, without the peers that it takes for gone."""
        view = self.network.view(node, round)
        return without(view, gone, keep="columns" if self.push else "rows") if gone else view

    def evaluates(self, round: int) -> bool:
        """Whether models are judged at the end of `round`."""
        every = self.scenario.evaluation.every
        return (round + 1) % every == 0 or round + 1 == self.scenario.rounds

    def keeps_models(self, round: int) -> bool:
        """Whether every node's model is kept at the end of `round`: the last, where wanted or all are small."""
        return round + 1 == self.scenario.rounds and self._keeps_last_models

    @cached_property
    def _keeps_last_models(self) -> bool:
        wanted = self.scenario.evaluation.keep_models
        if wanted != "auto":
            return wanted
        nbytes = 4 * self.problem.dim * self.network.num_nodes
        return isinstance(self.scenario.task, Training) and nbytes <= KEPT_BYTES

    def node(
        self,
        node: NodeId,
        *,
        device: str,
        transport: Transport,
        clock: Clock,
        worker: Worker,
        recorder: Recorder,
        ledger: NodeLedger,
        hooks: Hooks,
        epoch: int = 0,
    ) -> Node:
        """One node, ready to run."""
        task = self.problem.idle() if node == self.network.server else self.problem.task(node, device)
        return Node(
            id=node,
            algorithm=self.algorithm,
            task=task,
            view_of=partial(self.view, node),
            num_rounds=self.scenario.rounds,
            transport=transport,
            clock=clock,
            worker=worker,
            recorder=recorder,
            ledger=ledger,
            mailbox=Mailbox(keep_late=self.push, stale=self.algorithm.wait.stale),
            hooks=hooks,
            epoch=epoch,
            resending=resending(self.scenario),
            can_ask=partial(self.can_ask, node),
            streams=self.streams,
        )
