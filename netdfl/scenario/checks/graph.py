"""The checks of the graph (whether it can be drawn, and suits the algorithm), and of pictures to augment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from netdfl.algorithms.fitness import told
from netdfl.scenario.build import build_network, build_topology, drawn
from netdfl.scenario.checks.finding import CheckFinding
from netdfl.scenario.model.algorithm import ALGORITHMS, algorithms
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training
from netdfl.topology.base import Topology
from netdfl.topology.network import Network
from netdfl.topology.spectrum import eigenvalues
from netdfl.topology.weights import MixingMatrix

_ROUNDS = 4
_TOLERANCE, _ROUNDING = 1e-9, 1e-6


def somebody_to_talk_to(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that there are at least two nodes, unless the algorithm has a server."""
    if scenario.nodes == 1 and not scenario.has_server:
        what = f"one node has no neighbors: on {scenario.topology.kind} it would train alone"
        yield CheckFinding(("nodes",), what, "use 2 nodes or more")


def server_and_star(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that an algorithm with a server runs on a star graph, and that no other algorithm does."""
    name, graph, path = scenario.algorithm.kind, scenario.topology.kind, ("topology", "kind")
    if scenario.has_server and graph != "star":
        yield CheckFinding(
            path, f"{name} is a server algorithm", "use topology: star", f"on {graph} there is no server"
        )
    if not scenario.has_server and graph == "star":
        server = ", ".join(kind for kind, entry in algorithms().items() if entry.family == "server")
        what = f"star is the graph of a server, and {name} has none"
        yield CheckFinding(path, what, f"use another graph, or a server algorithm: {server}")
    if not scenario.has_server and scenario.topology.participation != 1:
        what, remedy = f"{name} has no server that could sample clients", "remove participation, or use"
        yield CheckFinding(("topology", "participation"), what, f"{remedy} `selection: random_k`", key=True)


def graph_fits(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that the graph can be drawn and is connected, and that its weights suit the algorithm."""
    if scenario.has_server != (scenario.topology.kind == "star") or (scenario.nodes == 1 and not scenario.has_server):
        return
    key = "kind"
    try:
        topology = build_topology(scenario)
        key = "weights"
        network = build_network(scenario, topology)
    except (ValueError, OSError) as exc:
        yield CheckFinding(("topology", key), f"topology {scenario.topology.kind}: {exc}")
        return
    if not scenario.has_server:
        yield from _matrix_suits(scenario, topology, network)
    for misfit in told(scenario.algorithm.traits.fits, scenario.algorithm.params, network, scenario.rounds):
        what = f"{scenario.algorithm.kind} on {scenario.topology.kind}: {misfit.what}"
        yield CheckFinding(("algorithm", misfit.parameter), what, misfit.remedy)


def graph_notices(scenario: Scenario) -> Iterator[str]:
    """Yield a notice for each kind of element (such as self loops) in the topology's file that the graph leaves out."""
    if scenario.topology.params.get("file"):
        yield from build_topology(scenario).notes


def _matrix_suits(scenario: Scenario, topology: Topology, network: Network) -> Iterator[CheckFinding]:
    needs = scenario.algorithm.traits.needs
    matrices = [network.weights(network.graph(round)) for round in range(_num_graphs(scenario, topology))]
    yield from _negative_weights_suit(scenario, matrices)
    kind = _kind(matrices)
    if not needs or kind in needs or "both_ways" in needs:
        return
    wanted = "column" if "column" in needs else "doubly"
    others = _alternatives(scenario, kind)
    given = f"{kind} stochastic" if kind != "none" else "neither row nor column stochastic"
    on = f"{scenario.topology.kind} with {scenario.topology.weights.kind} weights"
    what = f"{scenario.algorithm.kind} needs a {wanted} stochastic W; {on} gives a {given} one"
    remedy = f"use {' or '.join(others)}, or another topology" if others else "use other weights"
    yield CheckFinding(("algorithm", "name"), what, remedy)


def _alternatives(scenario: Scenario, kind: str) -> list[str]:
    """Return two algorithms for mixing matrices of `kind` (doubly, row ...), the ones with defaults most alike."""
    own = set(scenario.algorithm.params.items())

    def alike(name: str) -> int:
        fields = ALGORITHMS.model(name).model_fields
        return len(own & {(key, field.default) for key, field in fields.items()})

    suitable = [name for name, entry in algorithms().items() if kind in entry.needs]
    return sorted(suitable, key=alike, reverse=True)[:2]


def _num_graphs(scenario: Scenario, topology: Topology) -> int:
    """Return the number of first rounds whose graphs are checked."""
    return min(_ROUNDS, scenario.rounds) if topology.time_varying else 1


def _negative_weights_suit(scenario: Scenario, matrices: Sequence[MixingMatrix]) -> Iterator[CheckFinding]:
    """Check that negative weights, which some matrices that mix fast have, do not move nodes apart."""
    if all(min(matrix.on_edges.min(initial=0), matrix.on_self.min()) >= -_TOLERANCE for matrix in matrices):
        return
    what = f"{scenario.topology.kind} with {scenario.topology.weights.kind} weights has negative ones"
    if "column" in scenario.algorithm.traits.needs:
        what += f", and the push-sum weights of {scenario.algorithm.kind} have to stay positive"
        yield CheckFinding(("topology", "weights"), what, "use weights of 0 or more")
    elif (largest := max(float(np.abs(eigenvalues(matrix)).max()) for matrix in matrices)) > 1 + _ROUNDING:
        what += f" and an eigenvalue of modulus {largest:.3g}: with each exchange nodes move apart"
        yield CheckFinding(("topology", "weights"), what, "make smaller steps: no eigenvalue may exceed 1")


def _kind(matrices: Sequence[MixingMatrix]) -> str:
    rows = columns = True
    for matrix in matrices:
        ends = matrix.graph.dst, matrix.graph.src
        totals = (matrix.on_self + np.bincount(end, matrix.on_edges, matrix.graph.num_nodes) for end in ends)
        even = [bool(np.allclose(total, 1, rtol=0, atol=_TOLERANCE)) for total in totals]
        rows, columns = rows and even[0], columns and even[1]
    return "doubly" if rows and columns else "row" if rows else "column" if columns else "none"


def selection_chooses(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that on a static graph some node has as many neighbors as `topology.selection` chooses in a round."""
    selection = scenario.topology.selection
    k = selection.params.get("k")
    if scenario.has_server or not isinstance(k, int) or (topology := drawn(build_topology, scenario)) is None:
        return
    most = int(topology.graph(0).out_degrees.max())
    if not topology.time_varying and k > most:
        what = f"{selection.kind} of k = {k} neighbors would choose nothing: no node has more than {most}"
        yield CheckFinding(("topology", "selection", "k"), what, f"give k from 1 to {most}, or use a denser graph")


def task_has_pictures(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that no algorithm augments (mirrors, shifts) the examples of a toy problem, which are no pictures."""
    if _augments(scenario) and not isinstance(scenario.task, Training):
        yield _no_pictures(scenario, f"the examples of task {scenario.task.kind} are vectors")


def data_are_pictures(scenario: Scenario, shape: tuple[int, ...]) -> Iterator[CheckFinding]:
    """Check that inputs have the `shape` of pictures (channels, rows, columns) where the algorithm augments them."""
    if _augments(scenario) and len(shape) != 3:
        yield _no_pictures(scenario, f"an input of the dataset has the shape {shape}")


def _augments(scenario: Scenario) -> bool:
    algorithm = scenario.algorithm
    return algorithm.traits.augments and bool(algorithm.params.get("augment"))


def _no_pictures(scenario: Scenario, given: str) -> CheckFinding:
    what = f"{scenario.algorithm.kind} would augment pictures, and {given}"
    return CheckFinding(("algorithm", "augment"), what, "set augment: []", "expected (channels, height, width)")
