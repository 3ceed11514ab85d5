"""What a scenario must satisfy beyond its schema: mistakes that only show between two of its parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from netdfl.core.errors import InputError, Problem
from netdfl.core.rng import Streams
from netdfl.links.schedule.compile import ScheduleError
from netdfl.links.spec import LinksSpec
from netdfl.record.judge import FIGURES
from netdfl.scenario.build import build_network, build_topology, compile_schedule
from netdfl.scenario.checks.compression import compression_fits
from netdfl.scenario.checks.no_effect import messages_exist, selection_chooses
from netdfl.scenario.checks.pictures import task_has_pictures
from netdfl.scenario.checks.plugins import without_data
from netdfl.scenario.checks.survival import rejoins, survives
from netdfl.scenario.checks.waiting import missing_is_treated, quorum_can_come, stale_acts
from netdfl.scenario.loading.document import Document, Path
from netdfl.scenario.model.links import block
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.tables import ALGORITHMS, algorithms
from netdfl.scenario.model.task import Train
from netdfl.topology.base import Topology
from netdfl.topology.network import Network
from netdfl.topology.weights import MixingMatrix

_GROUP = re.compile(r"[A-Za-z][\w-]*")
_TAKEN = ("default", "all", "none")
_ROUNDS = 4
_TOLERANCE = 1e-9


class Check(NamedTuple):
    """A check, and the top-level keys that it reads: it is skipped while one of them is itself wrong."""

    run: Callable[[Scenario, Document], Iterable[Problem]]
    reads: frozenset[str]


def nodes_exist(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Every node that is named exists."""
    named: list[tuple[Path, list[int]]] = [(("groups", name), nodes) for name, nodes in scenario.groups.items()]
    if isinstance(scenario.expect.died, list):
        named.append((("expect", "died"), scenario.expect.died))
    stragglers = getattr(scenario.world, "stragglers", None)
    if stragglers is not None:
        named.append((("world", "stragglers", "nodes"), stragglers.nodes))
    for path, nodes in named:
        missing = sorted({node for node in nodes if node >= scenario.num_nodes})
        if missing:
            what = f"node {missing[0]} does not exist" + (f", nor do {len(missing) - 1} more" if missing[1:] else "")
            nodes_are = f"nodes are 0 to {scenario.num_nodes - 1}"
            yield document.problem(path, what, nodes_are, "correct the numbers, or raise `nodes`")


def groups_are_apart(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Every group has nodes and a name that can be used, and no node is in two."""
    home: dict[int, str] = {}
    for name, nodes in scenario.groups.items():
        path: Path = ("groups", name)
        if not nodes:
            yield document.problem(path, f"the group {name!r} has no nodes", "", "give it some, or remove it")
        if name in _TAKEN or not _GROUP.fullmatch(name):
            what = f"{name!r} can't name a group: links and events would not know it from something else"
            yield document.problem(path, what, "", "use letters, digits and _, with a letter first", key=True)
        twice = sorted({node for node in nodes if home.setdefault(node, name) != name})
        if twice:
            what = f"node {twice[0]} is in group {home[twice[0]]} and in group {name}"
            yield document.problem(path, what, "", "groups don't overlap: leave it in one")


def figures_come(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """What `expect` bounds is measured on this task, in this world."""
    toy, kind = scenario.task.kind in ("consensus", "quadratic"), scenario.task.kind
    train = isinstance(scenario.task, Train)
    for name in (name for name in FIGURES if getattr(scenario.expect, name) is not None):
        if toy and name in ("test_accuracy", "mean_local", "mean_personal", "test_loss"):
            what, remedy = f"{name} is never measured: task {kind} has no test set", "bound error, or use task: train"
        elif train and name == "error":
            what, remedy = "error is never measured: it is the distance to the answer of a toy task", "bound test_loss"
        elif name == "virtual_duration_s" and scenario.world.kind != "simulated":
            what, remedy = f"{name} is never measured: {scenario.world.kind} runs on the real clock", "bound duration_s"
        else:
            continue
        yield document.problem(("expect", name), what, "", remedy, key=True)


def somebody_to_talk_to(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """A graph without a server has two nodes or more."""
    if scenario.nodes == 1 and not scenario.has_server:
        what = f"one node has no neighbors: on {scenario.topology.kind} it would train alone"
        yield document.problem(("nodes",), what, "", "use 2 nodes or more")


def server_and_star(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """A server algorithm runs on a star, and only it does."""
    name, graph = scenario.algorithm.kind, scenario.topology.kind
    if scenario.has_server and graph != "star":
        yield document.problem(
            ("topology", "kind"),
            f"{name} is a server algorithm",
            f"on {graph} there is no server",
            "use topology: star",
        )
    if not scenario.has_server and graph == "star":
        server = ", ".join(kind for kind, entry in algorithms().items() if entry.family == "server")
        yield document.problem(
            ("topology", "kind"),
            f"star is the graph of a server, and {name} has none",
            "",
            f"use another graph, or a server algorithm: {server}",
        )
    if not scenario.has_server and scenario.topology.participation != 1:
        yield document.problem(
            ("topology", "participation"),
            f"{name} has no server that could sample clients",
            "",
            "remove participation, or use `selection: random_k`",
            key=True,
        )


def graph_fits(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """The graph can be drawn, is connected, and its weights suit the algorithm."""
    if scenario.has_server != (scenario.topology.kind == "star") or (scenario.nodes == 1 and not scenario.has_server):
        return
    path: Path = ("topology", "kind")
    try:
        topology = build_topology(scenario)
        path = ("topology", "weights")
        network = build_network(scenario, topology)
    except (ValueError, OSError) as exc:
        yield document.problem(path, f"topology {scenario.topology.kind}: {exc}")
        return
    if not scenario.has_server:
        yield from _matrix_suits(scenario, document, topology, network)
    fits = scenario.algorithm.traits.fits
    for misfit in fits(scenario.algorithm.params, network, scenario.rounds) if fits else ():
        what = f"{scenario.algorithm.kind} on {scenario.topology.kind}: {misfit.what}"
        yield document.problem(("algorithm", misfit.parameter), what, "", misfit.remedy)


def _matrix_suits(scenario: Scenario, document: Document, topology: Topology, network: Network) -> Iterator[Problem]:
    needs = scenario.algorithm.traits.needs
    kind = _kind(network, range(min(_ROUNDS, scenario.rounds)) if topology.time_varying else range(1))
    if not needs or kind in needs or "both_ways" in needs:
        return
    wanted = "column" if "column" in needs else "doubly"
    others = _alternatives(scenario, kind)
    given = f"{kind} stochastic" if kind != "none" else "neither row nor column stochastic"
    graph = scenario.topology.kind
    weights = scenario.topology.weights.kind
    yield document.problem(
        ("algorithm", "name"),
        f"{scenario.algorithm.kind} needs a {wanted} stochastic W; {graph} with {weights} weights gives a {given} one",
        "",
        f"use {' or '.join(others)}, or another topology" if others else "use other weights",
    )


def _alternatives(scenario: Scenario, kind: str) -> list[str]:
    """The two algorithms most like the scenario's that are defined for matrices of this kind."""
    own = set(scenario.algorithm.params.items())

    def alike(name: str) -> int:
        fields = ALGORITHMS.model(name).model_fields
        return len(own & {(key, field.default) for key, field in fields.items()})

    suitable = [name for name, entry in algorithms().items() if kind in entry.needs]
    return sorted(suitable, key=alike, reverse=True)[:2]


def _kind(network: Network, rounds: range) -> str:
    rows = columns = True
    for round in rounds:
        matrix: MixingMatrix = network.weights(network.graph(round))
        graph = matrix.graph
        for sums, ends in (("rows", graph.dst), ("columns", graph.src)):
            total = matrix.on_self + np.bincount(ends, weights=matrix.on_edges, minlength=graph.num_nodes)
            even = bool(np.allclose(total, 1, rtol=0, atol=_TOLERANCE))
            rows, columns = (rows and even, columns) if sums == "rows" else (rows, columns and even)
    return "doubly" if rows and columns else "row" if rows else "column" if columns else "none"


def waits_can_end(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Nodes that can't know who will send do not wait for all of them forever."""
    wait = scenario.wait
    if wait.need != "all" or wait.deadline is not None or wait.announce is not False or scenario.has_server:
        return
    try:
        known = build_network(scenario).receivers_know
    except (ValueError, OSError):
        return
    if not known:
        yield document.problem(
            ("wait",),
            "nodes would wait for all who send, without end, and can't know who will",
            "",
            "set announce: true, a deadline, or for: {quorum: k}",
            key=True,
        )


def local_sample(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """No more local models are tested than there are."""
    local = scenario.evaluation.local
    if isinstance(local, int) and local > scenario.nodes:
        yield document.problem(
            ("evaluation", "local"), f"a sample of {local} local models", f"there are {scenario.nodes}", "use all"
        )


def links_mean_something(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Every entry of `links` names nodes that exist, sets keys that suit it, and its rules can be built."""
    for selector, entry in block(scenario.links).items():
        path = ("links", selector)
        wrong = {key: found for key, part in entry.items() if (found := _unbuildable(key, part))}
        for key, found in wrong.items():
            yield document.problem((*path, key), found)
        try:
            sound = {key: part for key, part in entry.items() if key not in wrong}
            LinksSpec({selector: sound}, scenario.groups, scenario.num_nodes)
        except ValueError as exc:
            yield document.problem(path, str(exc), key=True)


def _unbuildable(key: str, part: object) -> str:
    """Why a rule of a link can't be built; empty where it can."""
    try:
        if isinstance(part, Part):
            part.build(*((0,) if key == "loss" else ()))
    except (ValueError, OSError) as exc:
        return f"{key}: {exc}"
    return ""


def events_can_be(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Every event names what exists, and no two contradict each other."""
    try:
        compile_schedule(scenario)
    except ScheduleError as exc:
        for index, what in exc.problems:
            yield document.problem(("events", index), what)


def compute_can_be(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """What local rounds take in virtual time can be drawn."""
    compute = getattr(scenario.world, "compute", None)
    try:
        if isinstance(compute, Part):
            compute.build(Streams(scenario.seed))
    except (ValueError, InputError) as exc:
        yield document.problem(("world", "compute"), str(exc))


def layer_exists(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Only worlds with a network of their own have packets, or a model of what TCP makes of them."""
    world: Any = scenario.world
    if world.loss_layer == "packet" and world.kind not in ("namespaces", "containers", "simulated"):
        yield document.problem(
            ("world", "loss_layer"),
            f"{world.kind} has no packets, its links act on messages",
            "",
            "remove loss_layer, or use kind: namespaces",
        )


def packets_can(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """At packet level, nothing that needs a message, or a sender that is told."""
    world: Any = scenario.world
    if world.loss_layer != "packet":
        return
    for selector, entry in block(scenario.links).items():
        for key, part in entry.items():
            if what := _no_packet(key, part) or _no_model(scenario, key):
                yield document.problem(("links", selector, key), what, "", _AT_MESSAGES)
    try:
        events = compile_schedule(scenario)
    except ScheduleError:
        return
    wrong: dict[int, str] = {}
    for event in events:
        if event.action == "set" and event.at_round is not None:
            wrong.setdefault(event.source, "a packet belongs to no round: at_round can't act on links")
        for key, value in event.parameters.items():
            if event.action == "set" and (what := _no_packet(key, value) or _no_model(scenario, key)):
                wrong.setdefault(event.source, what)
    for index, what in sorted(wrong.items()):
        yield document.problem(("events", index), what, "", _AT_MESSAGES)


def _no_model(scenario: Scenario, key: str) -> str:
    unknown = scenario.world.kind == "simulated" and key in ("duplicate", "corrupt", "reorder")
    return f"the simulated world's model of TCP knows no {key}" if unknown else ""


_AT_MESSAGES = "use another rule, or world.loss_layer: message"


def _no_packet(key: str, value: object) -> str:
    """What is wrong with a rule of a link at packet level; empty where nothing is."""
    rule: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    if isinstance(value, Part):
        rule = {"model": value.kind, **value.params}
    if key == "loss" and rule.get("model") == "drop_list":
        return "a packet has no name: drop_list loses messages"
    if key == "corrupt" and rule.get("mode") == "deliver":
        return "TCP's checksum finds damaged packets: corrupt can't deliver them"
    if key == "state" and value == "down_hold":
        return "no router keeps packets until a link is back: down_hold holds messages"
    return ""


CHECKS: tuple[Check, ...] = (
    Check(nodes_exist, frozenset({"nodes", "algorithm", "groups", "expect", "world"})),
    Check(groups_are_apart, frozenset({"groups"})),
    Check(figures_come, frozenset({"expect", "task", "world"})),
    Check(somebody_to_talk_to, frozenset({"nodes", "algorithm", "topology"})),
    Check(server_and_star, frozenset({"algorithm", "topology"})),
    Check(graph_fits, frozenset({"nodes", "seed", "rounds", "algorithm", "topology"})),
    Check(
        compression_fits,
        frozenset({"nodes", "seed", "rounds", "task", "algorithm", "topology", "compression", "wait"}),
    ),
    Check(waits_can_end, frozenset({"nodes", "seed", "rounds", "algorithm", "topology", "wait"})),
    Check(survives, frozenset({"nodes", "seed", "algorithm", "topology", "compression", "wait", "delivery", "events"})),
    Check(rejoins, frozenset({"algorithm", "events"})),
    Check(missing_is_treated, frozenset({"nodes", "seed", "algorithm", "topology", "compression", "wait"})),
    Check(quorum_can_come, frozenset({"nodes", "seed", "algorithm", "topology", "wait"})),
    Check(stale_acts, frozenset({"nodes", "seed", "algorithm", "topology", "compression", "wait"})),
    Check(task_has_pictures, frozenset({"task", "algorithm"})),
    Check(local_sample, frozenset({"nodes", "evaluation"})),
    Check(events_can_be, frozenset({"nodes", "rounds", "seed", "algorithm", "groups", "events"})),
    Check(layer_exists, frozenset({"world"})),
    Check(compute_can_be, frozenset({"world", "seed"})),
    Check(packets_can, frozenset({"nodes", "rounds", "seed", "algorithm", "groups", "events", "links", "world"})),
    Check(links_mean_something, frozenset({"nodes", "algorithm", "groups", "links"})),
    Check(messages_exist, frozenset({"rounds", "links"})),
    Check(selection_chooses, frozenset({"nodes", "seed", "algorithm", "topology"})),
)


def find_problems(scenario: Scenario, document: Document, wrong: frozenset[str] = frozenset()) -> Iterator[Problem]:
    """Every mistake that the checks find; those that read a key that is `wrong`, or whose part is, are left out."""
    if wrong.isdisjoint(("nodes", "seed", "algorithm")):
        for path, problem in without_data(scenario, document):
            wrong |= {str(path[0])}
            yield problem
    for check in CHECKS:
        if wrong.isdisjoint(check.reads):
            yield from check.run(scenario, document)
