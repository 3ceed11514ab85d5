"""The contract of an algorithm: checks that every algorithm in netdfl's catalog passes, and that your own should pass.

    from netdfl.testing.contract import check_algorithm
    check_algorithm(Entry(build=my_algorithm, family="gossip", needs=frozenset({"doubly"}), source="mine"))

A failed check raises AssertionError with the expectation. The checks run eight clients. If a default value of the
algorithm does not suit so few (such as a momentum for a thousand), bind another value with `functools.partial`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from netdfl.algorithms.base import Algorithm, Entry, NodeState
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.errors import MalformedMessage, NetdflError
from netdfl.core.rng import Streams
from netdfl.core.tables import by_name
from netdfl.core.types import NodeId, View
from netdfl.core.whose import named_error, own_place
from netdfl.node.checkpoint import load_state, save_state
from netdfl.testing.loopback import run_fleet
from netdfl.testing.rounds import States, Updates, exchange, first_states, in_step, play_rounds
from netdfl.topology.base import Topology
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.graph import Graph
from netdfl.topology.network import Network
from netdfl.topology.selection import AllNeighbors, PrivateSelection, halves, sampled
from netdfl.topology.weights import uniform
from netdfl.training.base import Extras, Update
from netdfl.training.catalog import consensus
from netdfl.training.toy import Quadratic, optimum

NODES, DIM = 8, 6
EXACT = 1e-12
EXCHANGE = Exchange(wait=WaitPolicy(announce=True))


@dataclass(frozen=True)
class SmallFleet:
    """A small network of nodes and the nodes' training tasks, on which an algorithm is checked."""

    network: Network
    tasks: Mapping[NodeId, Quadratic]

    @property
    def server(self) -> NodeId | None:
        """The server's id; None if there is no server."""
        return self.network.server


ContractCheck = Callable[[Entry], None]


def network_for(entry: Entry, streams: Streams) -> Network:
    """Return a small network that suits the algorithm of the catalog `entry`.

    It has a star where a server is needed, and directed, changing links where the columns of the matrix must sum to 1.
    Otherwise nodes have unequal numbers of neighbors, so that a mixing that ignores the weights is noticed; except in
    methods with sparse vectors, which count each neighbor that has a coordinate alike.
    """
    if "server" in entry.needs:
        star = TOPOLOGIES["star"](NODES + 1, streams)
        return Network(star, server=NODES, participants=sampled(NODES, streams, participation=0.5))
    if entry.selects:
        return Network(TOPOLOGIES["full"](NODES, streams), selection=PrivateSelection(AllNeighbors()))
    if "both_ways" in entry.needs:
        topology = TOPOLOGIES["random_sym"](NODES, streams)
        return Network(topology, uniform, halves(topology))
    if "column" in entry.needs:
        return Network(TOPOLOGIES["random_push"](NODES, streams))
    if "average" in entry.needs:
        return Network(TOPOLOGIES["full"](NODES, streams))
    return Network(TOPOLOGIES["random_sym"](NODES, streams) if entry.sparse else uneven(streams))


def uneven(streams: Streams) -> Topology:
    """Return a graph that is drawn each round, in which node 0 is linked with all others, and these with some."""
    regular = TOPOLOGIES["random_sym"](NODES, streams)

    def draw(round: int) -> Graph:
        return Graph.undirected(NODES, [*regular.graph(round).edges, *((0, node) for node in range(1, NODES))])

    return Topology(NODES, draw, directed=False, redraw_every=1)


def consensus_fleet(entry: Entry, seed: int = 0) -> SmallFleet:
    """Return a fleet whose nodes start at different vectors and have no gradient, on a network that suits `entry`."""
    streams = Streams(seed)
    network = network_for(entry, streams)
    return SmallFleet(network, {i: consensus(i, streams, dim=DIM) for i in range(network.num_nodes)})


def quadratic_fleet(entry: Entry, seed: int = 0, noise: float = 0.0) -> SmallFleet:
    """Return a fleet whose nodes start at 0 and minimize quadratics with optima around 3.

    `noise` is the standard deviation of the gradients' noise per coordinate.
    """
    streams = Streams(seed)
    network = network_for(entry, streams)
    tasks = {i: _around_three(i, streams, noise) for i in range(network.num_nodes)}
    return SmallFleet(network, tasks)


def _around_three(node: NodeId, streams: Streams, noise: float) -> Quadratic:
    center = 3.0 + 0.3 * torch.from_numpy(streams.rng("contract", node).standard_normal(DIM))
    start, curvature = torch.zeros(DIM, dtype=torch.float64), torch.linspace(0.5, 1.0, DIM, dtype=torch.float64)
    return Quadratic(center, start, curvature, node=node, streams=streams, noise=noise)


def agrees_without_gradient(entry: Entry) -> None:
    """Check that without a gradient all models come close to each other within 60 rounds."""
    alg, fleet = entry.build(EXCHANGE), consensus_fleet(entry)
    before = _spread(alg, first_states(alg, fleet.tasks, fleet.network.view))
    states = _after(alg, fleet, 60)
    spread = _spread(alg, states)
    assert spread <= 1e-3 * before, f"after 60 rounds without gradient the models are still {spread:.2g} apart"


def leaves_the_start_alone(entry: Entry) -> None:
    """Check that no node writes to its initial vector, which it shares with others."""
    for alg, fleet in product(_compressed_or_not(entry), (consensus_fleet(entry), quadratic_fleet(entry))):
        shared = fleet.tasks[0].initial()
        kept = shared.clone()
        tasks = {i: _FixedStartTask(task, shared) for i, task in fleet.tasks.items()}
        play_rounds(alg, first_states(alg, tasks, fleet.network.view), tasks, fleet.network.view, 3)
        assert torch.equal(shared, kept), "the vector that nodes start from was written to; make a copy first"


def _compressed_or_not(entry: Entry) -> Iterator[Algorithm]:
    yield entry.build(EXCHANGE)
    with suppress(ValueError):  # some send whole vectors by definition
        yield entry.build(replace(EXCHANGE, compressor=IdentityCompressor()))


class _FixedStartTask:
    """A wrapper around a task whose initial model is a given vector."""

    def __init__(self, task: Quadratic, start: Tensor) -> None:
        self._task, self._start = task, start

    def initial(self) -> Tensor:
        return self._start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


def preserves_the_mean(entry: Entry) -> None:
    """Check that without a gradient the sums of all x and of all weights w stay the same; so does a server's model."""
    alg, fleet = entry.build(EXCHANGE), consensus_fleet(entry)
    states = first_states(alg, fleet.tasks, fleet.network.view)
    kept_x, kept_w = _conserved(alg, fleet, states)
    for round in range(20):
        states = play_rounds(alg, states, fleet.tasks, fleet.network.view, 1)
        x, w = _conserved(alg, fleet, states)
        off = max(float((x - kept_x).abs().max()), abs(w - kept_w))
        assert off <= EXACT * NODES, f"round {round} without gradient moved the mean (or the mass) by {off:.2g}"


def mixes_as_the_matrix(entry: Entry) -> None:
    """Check that each step of uncompressed mixing is the matrix product X+ = M X.

    There is no gradient, so X has the vectors before and after training alike, and the check holds for either order of
    mixing and gradient step. A server's row of M is the mean of the participants. In pairwise gossip, M is the product
    of the pairs' averages; where nodes choose their receivers themselves, M follows their choice.
    """
    alg, fleet = entry.build(EXCHANGE), consensus_fleet(entry, seed=1)
    states, views = first_states(alg, fleet.tasks, fleet.network.view), _views(fleet, 0)
    if fleet.server is not None:
        return _averages_reports(alg, fleet, states)
    if alg.family in ("bilateral", "overlap"):
        return _mixes_in_a_round(alg, fleet, states)
    updates = {i: Update(s.x, s.x.clone(), _beside(alg, s, fleet, views[i])) for i, s in states.items()}
    matrix = _chosen_matrix(alg, states, updates, views) if entry.selects else torch.from_numpy(fleet.network.matrix(0))
    steps = alg.mixing.num_steps(0, views[0])
    expected = torch.linalg.matrix_power(matrix, steps) @ _stack(states)
    _, mixed = exchange(alg, states, updates, views)
    off = float((torch.stack([mixed[i].x for i in sorted(mixed)]) - expected).abs().max())
    assert off <= EXACT, f"{steps} steps of mixing differ from M^{steps} X by {off:.2g}"
    for i, update in updates.items():
        assert torch.equal(update.x, states[i].x), f"mixing wrote to the update's vector of node {i}; make a new one"


def _beside(alg: Algorithm, state: NodeState, fleet: SmallFleet, view: View) -> Extras:
    """Return the floating-point vectors that a node's local solver sends besides its model."""
    _, update = state.train(alg, fleet.tasks[view.node].data(view.round), view)
    return {name: value for name, value in update.extras.items() if value.is_floating_point()}


def _chosen_matrix(alg: Algorithm, states: States, updates: Updates, views: Mapping[NodeId, View]) -> Tensor:
    """Return the mixing matrix in which each node gives equal weights to its chosen receivers and to itself."""
    matrix = torch.eye(len(states), dtype=torch.float64)
    for i, s in states.items():
        _, outbox = s.outgoing(alg, updates[i], 0, views[i])
        matrix[list(outbox), i] = 1.0
    return matrix / matrix.sum(0)


def _mixes_in_a_round(alg: Algorithm, fleet: SmallFleet, states: States) -> None:
    if alg.family == "overlap":
        matrix = torch.from_numpy(fleet.network.matrix(0))
    else:
        matrix = torch.eye(len(states), dtype=torch.float64)
        for i, view in sorted(_views(fleet, 0).items()):
            peer = alg.mixing.peer(view)
            if peer is not None:
                matrix[[i, peer]] = matrix[[i, peer]].mean(0)
    mixed = play_rounds(alg, states, fleet.tasks, fleet.network.view, 1)
    off = float((_stack(mixed) - matrix @ _stack(states)).abs().max())
    assert off <= EXACT, f"a round without gradient differs from M X by {off:.2g}"


def _averages_reports(alg: Algorithm, fleet: SmallFleet, states: States) -> None:
    assert fleet.server is not None
    after = play_rounds(alg, states, fleet.tasks, fleet.network.view, 1)
    active = fleet.network.view(fleet.server, 0).out_neighbors
    off = max(float((after[i].x - states[fleet.server].x).abs().max()) for i in (*active, fleet.server))
    assert off <= EXACT, f"the mean of {len(active)} untrained copies of the server's model is off by {off:.2g}"


def converges_on_a_quadratic(entry: Entry) -> None:
    """Check that on quadratics with different optima, the average model closes 99 % of its gap to the common optimum.

    The gap is the mean loss above its minimum; the models have 60 rounds.
    """
    alg, fleet = entry.build(EXCHANGE), quadratic_fleet(entry)
    first = _gap(alg, fleet, first_states(alg, fleet.tasks, fleet.network.view))
    gap = _gap(alg, fleet, _after(alg, fleet, 60))
    assert gap <= 0.01 * first, f"after 60 rounds the loss is {gap:.3g} above the optimum, from {first:.3g} at first"


def survives_save_and_load(entry: Entry) -> None:
    """Check that saving and loading the nodes' states after two of four rounds changes no bit of the result."""
    alg, fleet = entry.build(EXCHANGE), quadratic_fleet(entry, noise=0.1)
    view_of = fleet.network.view
    first = first_states(alg, fleet.tasks, view_of)
    half = play_rounds(alg, first, fleet.tasks, view_of, 2)
    with tempfile.TemporaryDirectory() as folder:
        for i, state in half.items():
            save_state(state, Path(folder) / f"{i}.state")
        loaded = {i: load_state(Path(folder) / f"{i}.state", first[i]) for i in half}
    resumed = play_rounds(alg, loaded, fleet.tasks, view_of, 2)
    _same(play_rounds(alg, first, fleet.tasks, view_of, 4), resumed, "a run resumed from saved states")


def identity_changes_nothing(entry: Entry) -> None:
    """Check that compression of messages by the identity changes no result; an algorithm may refuse compression."""
    plain = entry.build(EXCHANGE)
    try:
        compressed = entry.build(replace(EXCHANGE, compressor=IdentityCompressor()))
    except ValueError:
        return
    fleet = quadratic_fleet(entry, noise=0.1)
    if entry.family == "gossip" and "column" not in entry.needs:
        ring = Network(TOPOLOGIES["ring"](NODES, Streams(0)))
        fleet = replace(fleet, network=ring)  # references to one's neighbors are for graphs that stay
    without, by_identity = (_stack(_after(alg, fleet, 3)) for alg in (plain, compressed))
    off = float((by_identity - without).abs().max())
    assert off <= EXACT, f"three rounds of messages compressed by the identity differ from plain ones by {off:.2g}"


def same_seed_same_result(entry: Entry) -> None:
    """Check that equal seeds give equal runs, bit for bit, and different seeds different ones.

    Rounds computed step by step must also equal the rounds of the node's own loop.
    """
    alg = entry.build(EXCHANGE)
    fleet, again, other = (quadratic_fleet(entry, seed, noise=0.1) for seed in (5, 5, 6))
    states = _run(alg, fleet, 4)
    _same(states, _run(alg, again, 4), "a second run from the same seed")
    if in_step(alg):
        first = first_states(alg, again.tasks, again.network.view)
        _same(states, play_rounds(alg, first, again.tasks, again.network.view, 4), "the rounds played by hand")
    assert not torch.equal(_stack(states), _stack(_run(alg, other, 4))), "another seed gives the same result"


def _in_words(check: ContractCheck) -> ContractCheck:
    """Wrap a check so that an error inside the algorithm fails it and names the line in its author's file."""

    @wraps(check)
    def checking(entry: Entry) -> None:
        try:
            check(entry)
        except AssertionError:
            raise
        except Exception as raised:
            exc = raised
            while isinstance(exc, ExceptionGroup):
                exc = exc.exceptions[0]
            told = str(exc) if isinstance(exc, NetdflError) else f"your own code raised {named_error(exc)}"
            place = f" ({where})" if (where := own_place(exc)) and where not in told else ""
            raise AssertionError(f"{check.__name__}: {told}{place}{_hint(exc)}") from exc

    return checking


def _hint(exc: Exception) -> str:
    if not isinstance(exc, KeyError | MalformedMessage):
        return ""
    return (
        "; a vector beside the model has one name in three places: Update(y, x, {name: vector}) in the solver, "
        "pack(update.x, update.extras) in `outgoing`, extra(message, like, name) in `mix`"
    )


_ALL: tuple[ContractCheck, ...] = (
    *(agrees_without_gradient, preserves_the_mean, mixes_as_the_matrix, converges_on_a_quadratic),
    *(leaves_the_start_alone, survives_save_and_load, identity_changes_nothing, same_seed_same_result),
)
CHECKS: Mapping[str, ContractCheck] = by_name(*map(_in_words, _ALL))


def check_algorithm(entry: Entry) -> None:
    """Run every check of this module on the algorithm of a catalog entry, or of your own. Raises AssertionError."""
    for check in CHECKS.values():
        check(entry)


def _run(alg: Algorithm, fleet: SmallFleet, num_rounds: int) -> States:
    return {i: kept.states[-1] for i, kept in run_fleet(alg, fleet.network.view, fleet.tasks, num_rounds).items()}


def _after(alg: Algorithm, fleet: SmallFleet, num_rounds: int) -> States:
    """Return the nodes' states after `num_rounds` rounds computed step by step, with all nodes in the same round.

    `same_seed_same_result` compares the node's own loop with these rounds.
    """
    first = first_states(alg, fleet.tasks, fleet.network.view)
    return play_rounds(alg, first, fleet.tasks, fleet.network.view, num_rounds)


def _views(fleet: SmallFleet, round: int) -> dict[NodeId, View]:
    return {i: fleet.network.view(i, round) for i in fleet.tasks}


def _stack(states: States) -> Tensor:
    return torch.stack([states[i].x for i in sorted(states)])


def _weight(alg: Algorithm, state: NodeState) -> float:
    return 1.0 if alg.family == "server" else float(alg.mixing.weight(state.mixing))


def _spread(alg: Algorithm, states: States) -> float:
    models = torch.stack([s.x / _weight(alg, s) for s in states.values()])
    return float((models - models.mean(0)).norm())


def _conserved(alg: Algorithm, fleet: SmallFleet, states: States) -> tuple[Tensor, float]:
    if fleet.server is not None:
        return states[fleet.server].x, 1.0
    return _stack(states).sum(0), sum(_weight(alg, s) for s in states.values())


def _gap(alg: Algorithm, fleet: SmallFleet, states: States) -> float:
    """Return by how much the mean loss of the average model over the clients' quadratics exceeds its minimum."""
    x, w = _conserved(alg, fleet, states)
    tasks = [task for i, task in fleet.tasks.items() if i != fleet.server]
    best = optimum(tasks)
    return sum(task.data(0).loss(x / w) - task.data(0).loss(best) for task in tasks) / len(tasks)


def _same(expected: States, got: States, what: str) -> None:
    for i, state in expected.items():
        assert equal(state, got[i]), f"{what} differs at node {i}: expected {state}, got {got[i]}"


def equal(a: Any, b: Any) -> bool:
    """Return whether two nested values are equal in types, structure, numbers and bits of tensors; NaN equals NaN."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(_bits(a), _bits(b))
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
