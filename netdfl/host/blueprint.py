"""The blueprint of a fleet: the parts that all nodes share, built from a scenario, in simulated and in real time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.core.bounds import MemoryBounds
from netdfl.core.clock import Clock
from netdfl.core.errors import InputError
from netdfl.core.rng import Streams
from netdfl.core.types import Edge, Kind, NodeId, View
from netdfl.core.versions import DATA, MODULES, Versions, versions_here
from netdfl.host.comparison import ModelComparison, comparison_of, shares_equally
from netdfl.host.injection import by_node
from netdfl.host.problem import FleetProblem
from netdfl.host.task_setup import is_plain, make_problem
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import find_return, keeps_state, returns_by_node
from netdfl.links.spec import LinksSpec
from netdfl.node.admission import MOST_STEPS, STEPS_WITHOUT_GOSSIP, Admission
from netdfl.node.delivery import ResendPolicy
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.own_draws import has_own_parts
from netdfl.node.runtime import Hooks, Node
from netdfl.node.state_transfer import JoinPlan
from netdfl.node.worker import Worker
from netdfl.record.base import Recorder
from netdfl.scenario.build import (
    bounds_of,
    build_links,
    build_network,
    compile_schedule,
    delivery_of,
    is_push,
    scheme_of,
    used_links,
)
from netdfl.scenario.explain.link_rules import keep_order
from netdfl.scenario.loading.sources import hash_of_modules
from netdfl.scenario.model.network import AcknowledgedDelivery
from netdfl.scenario.model.schema import KEPT_BYTES, Scenario
from netdfl.scenario.model.task import Training
from netdfl.scenario.model.world import SimulatedOptions
from netdfl.topology.network import Network, without
from netdfl.transport.base import Sink, Transport


def make_algorithm(scenario: Scenario) -> Algorithm:
    """Return the scenario's algorithm with its wait policy and compression."""
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
    """Return whether the nodes of `scenario` need PyTorch: to train, or for a part of the algorithm."""
    return not is_plain(scenario, make_algorithm(scenario))


def resending(scenario: Scenario) -> ResendPolicy | None:
    """Return the policy for repeating unacknowledged messages.

    None if the scenario's delivery has no acknowledgements.
    """
    delivery = scenario.delivery
    if not isinstance(delivery, AcknowledgedDelivery):
        return None
    return ResendPolicy(timeout_ns=delivery.timeout, attempts=delivery.attempts)


@dataclass(frozen=True)
class Blueprint:
    """The parts that all nodes of a fleet share, made once, before any node exists.

    Attributes:
        scenario: the scenario.
        streams: the random streams, by its seed.
        network: the graph, its mixing matrix and every node's view of them.
        algorithm: the algorithm.
        problem: the task, from which each node's own task is made.
    """

    scenario: Scenario
    streams: Streams
    network: Network
    algorithm: Algorithm
    problem: FleetProblem
    plain: bool
    """Whether model vectors are netdfl's own (`netdfl.compression.vector`), so that nothing needs torch."""

    @classmethod
    def of(cls, scenario: Scenario) -> Blueprint:
        """Build the blueprint of `scenario`. Raises InputError if parts of the scenario do not fit together."""
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
    def versions(self) -> Versions:
        """The versions of software, and digests of the user's modules and the clients' shares of data, to compare."""
        digests = {MODULES: hash_of_modules(self.scenario), DATA: self.problem.shares_digest}
        known = {name: digest for name, digest in digests.items() if digest}
        return {**versions_here(trains=not self.plain), **known}

    @cached_property
    def links(self) -> LinksSpec:
        """The scenario's emulation rules (delay, loss, rate and so on) for every link and node."""
        return build_links(self.scenario)

    @cached_property
    def schedule(self) -> list[CompiledEvent]:
        """The scenario's scheduled events (crashes, pauses, changes of links and so on), as one sorted list."""
        return compile_schedule(self.scenario)

    @cached_property
    def _by_node(self) -> dict[NodeId, list[CompiledEvent]]:
        return by_node(self.schedule)

    def events_of(self, node: NodeId) -> list[CompiledEvent]:
        """Return the scheduled events that act at `node`."""
        return self._by_node.get(node, [])

    def keeps_state(self, node: NodeId) -> bool:
        """Return whether `node` stores its state at the end of each round, as it may have to restart with it."""
        world = self.scenario.world
        asked = isinstance(world, SimulatedOptions) and node in world.keeps_state
        return asked or keeps_state(self._returns.get(node, ()), node)

    def loses_state(self, node: NodeId) -> bool:
        """Return whether `node` may have to restart without its state."""
        return any(event.parameters.get("state", "kept") == "lost" for event in self._returns.get(node, ()))

    def state_after(self, node: NodeId, crash: CompiledEvent, at_ns: int) -> str:
        """Return `kept` or `lost`: whether `node`, once it restarts after its `crash` at `at_ns`, still has its state.

        If the schedule has no restart for it, the `state` that the crash event itself names counts.
        """
        events = self._returns.get(node, ())
        back = find_return(events, node, at_ns, source=crash.source, at_round=crash.at_round)
        if back is None:
            return str(crash.parameters.get("state", "kept"))
        return "kept" if back.keep_state else "lost"

    @cached_property
    def _returns(self) -> dict[NodeId, list[CompiledEvent]]:
        return returns_by_node(self.schedule)

    @property
    def emulates_messages(self) -> bool:
        """Whether link rules act on whole messages above the real transport, and not on packets."""
        scripted = any(event.acts_on_links or event.names_messages for event in self.schedule)
        layer = self.scenario.world.loss_layer
        return layer == "message" and (bool(self.scenario.links) or scripted or self.scenario.underlay is not None)

    @property
    def node_ids(self) -> range:
        """The ids of all nodes; a server has the last one."""
        return range(self.network.num_nodes)

    def possible_neighbors(self, node: NodeId) -> frozenset[NodeId]:
        """Return the nodes with which `node` may ever exchange messages; all nodes if the graph varies."""
        if self.network.topology.time_varying:
            return frozenset(self.node_ids) - {node}
        edges = self.network.topology.graph(0).edges
        return frozenset(other for edge in edges if node in edge for other in edge if other != node)

    @cached_property
    def _links_used(self) -> frozenset[Edge] | None:
        """The directed edges in use, if any edge works in one direction only; None if all edges work in both."""
        topology = self.network.topology
        return used_links(self.scenario, topology) if topology.directed else None

    @cached_property
    def mutual(self) -> Mapping[NodeId, Sequence[NodeId]] | None:
        """For each node, the nodes with which it has edges in both directions; None: any two nodes may have such edges.

        Cached, because it visits every edge.
        """
        links = used_links(self.scenario, self.network.topology)
        if links is None:
            return None
        found: dict[NodeId, list[NodeId]] = {}
        for src, dst in links:
            if (dst, src) in links:
                found.setdefault(src, []).append(dst)
        return found

    def admission(self, node: NodeId, mailbox: Mailbox) -> Admission:
        """Return the check by which `node` refuses messages that no member of the run would send to it.

        `mailbox` must know already which kinds of messages it handles.
        """
        bilateral = self.algorithm.family == "bilateral"
        asked = {
            Kind.DATA: True,
            Kind.REQUEST: bilateral,
            Kind.REPLY: bilateral,
            Kind.NOTICE: self.algorithm.wait.announce,
        }

        def senders(round: int) -> tuple[NodeId, ...]:
            both = self.network.view(node, round).out_neighbors if bilateral else ()
            return (*self.network.senders(node, round), *both)

        def steps(round: int) -> int:
            if self.algorithm.family != "gossip":
                return STEPS_WITHOUT_GOSSIP
            return MOST_STEPS if own else int(self.algorithm.mixing.num_steps(round, self.network.view(node, round)))

        own, neighbors = has_own_parts(self.algorithm), self.possible_neighbors(node)
        return Admission(self.scenario.rounds, senders, neighbors, asked, mailbox.handles, steps)

    def can_ask(self, node: NodeId, peers: Iterable[NodeId]) -> bool:
        """Return whether edges lead in both directions between `node` and all `peers`, so that queries get answers."""
        links = self._links_used
        return links is None or all((node, peer) in links and (peer, node) in links for peer in peers)

    @cached_property
    def join_rounds(self) -> frozenset[int]:
        """The rounds in which nodes join late: such a node joins once any other node begins the round."""
        return frozenset(each.at_round for each in self.schedule if each.action == "join" and each.at_round is not None)

    @cached_property
    def joiners(self) -> frozenset[NodeId]:
        """The nodes that join late."""
        return frozenset(node for each in self.schedule if each.action == "join" for node in each.nodes)

    @property
    def absent_at_first(self) -> frozenset[NodeId]:
        """The nodes that the others leave out of round 0: those that join late, if the failure detector says so."""
        return self.joiners if self.scenario.failure_detector.kind == "oracle" else frozenset()

    def joining(self, node: NodeId, round: int, weight: int) -> JoinPlan:
        """Return the plan by which `node`, which lost its state, joins in `round` or later with the push-sum `weight`.

        It asks its peers for a model in the order of their ids, beginning with the next higher one.
        """
        num, mutual = self.network.num_nodes, self.mutual
        others = range(num) if mutual is None else mutual.get(node, ())
        peers = sorted((each for each in others if each != node), key=lambda each: (each - node) % num)
        return JoinPlan(round=round, peers=tuple(peers), weight=weight if is_push(self.scenario) else None)

    def held_weight(self, node: Node) -> float | None:
        """Return the push-sum weight that only this node holds and that its crash may take away, to be recorded.

        None for a method without weights, and where messages carry running sums.
        """
        summed = self.scenario.delivery.kind == "running_sums"
        return node.held_weight if is_push(self.scenario) and not summed else None

    @property
    def push(self) -> bool:
        """Whether messages carry shares of push-sum mass."""
        return self.algorithm.family != "server" and bool(self.algorithm.mixing.push)

    @property
    def evaluated(self) -> range:
        """The nodes whose models are averaged and evaluated: all, or only the server."""
        server = self.network.server
        return range(self.network.num_nodes) if server is None else range(server, server + 1)

    def view(self, node: NodeId, round: int, gone: frozenset[NodeId]) -> View:
        """Return the neighbors and mixing weights of `node` in `round`, without peers that `node` considers `gone`."""
        view = self.network.view(node, round)
        return without(view, gone, keep="columns" if self.push else "rows") if gone else view

    def evaluates(self, round: int) -> bool:
        """Return whether models are evaluated at the end of `round`."""
        every = self.scenario.evaluation.every
        return (round + 1) % every == 0 or round + 1 == self.scenario.rounds

    def keeps_models(self, round: int) -> bool:
        """Return whether every node's model is saved at the end of `round`.

        Only the last round's models are kept, where the scenario asks or all are small.
        """
        return round + 1 == self.scenario.rounds and self._keeps_last_models

    @cached_property
    def _keeps_last_models(self) -> bool:
        wanted = self.scenario.evaluation.keep_models
        if wanted != "auto":
            return wanted
        nbytes = 4 * self.problem.dim * self.network.num_nodes
        return isinstance(self.scenario.task, Training) and nbytes <= KEPT_BYTES

    def mailbox(self) -> Mailbox:
        """Create the mailbox of a node; in the simulated world its size in bytes is not limited."""
        stale, bounds = self.algorithm.wait.stale, self.bounds
        if self.scenario.world.kind == "simulated":
            return Mailbox(keep_late=self.push, stale=stale)
        return Mailbox(keep_late=self.push, stale=stale, peer_bytes=bounds.peer_bytes, late_bytes=bounds.mailbox_bytes)

    @cached_property
    def compared(self) -> ModelComparison:
        """The messages whose digests receivers record, to find a node that sends different models to neighbors."""
        mixing = self.algorithm.mixing
        shares_one = getattr(mixing, "one_share", False) and shares_equally(self.scenario, self.network)
        return comparison_of(self.scenario, getattr(mixing, "same_to_all", False) or shares_one)

    @cached_property
    def bounds(self) -> MemoryBounds:
        """The limits to the memory in which a node in real time stores data that other nodes send to it."""
        return bounds_of(self.scenario, self.network, self.problem.dim)

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
        mailbox: Mailbox,
        sink: Sink,
        saves: bool,
        still: Callable[[], bool],
        epoch: int = 0,
    ) -> Node:
        """Build the runtime of node number `node` from the given parts, ready to run.

        Messages to the node go to `sink`, which passes them on to the node's `mailbox`. `saves`: the node acknowledges
        messages only after its state is stored. `still` returns whether a pause or a crash has stopped the node.
        `epoch` is the number of the node's restarts.
        """
        task = self.problem.idle(device) if node == self.network.server else self.problem.task(node, device)
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
            mailbox=mailbox,
            hooks=hooks,
            epoch=epoch,
            resending=resending(self.scenario),
            can_ask=partial(self.can_ask, node),
            streams=self.streams,
            sink=sink,
            saves=saves,
            still=still,
        )
