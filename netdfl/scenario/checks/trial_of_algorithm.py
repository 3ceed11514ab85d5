"""Trial of a user's own algorithm: its parts, and two rounds of a small fleet on a toy problem.

In the simulated world all nodes share an algorithm's parts, in other worlds each process has its own. So whatever a
part stores in itself, and not in the state that it returns, is shared by all nodes there, and by those of a process
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from sys import maxsize
from typing import TYPE_CHECKING

from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.core.errors import OwnPartError
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, NodeId
from netdfl.scenario.build import build_network
from netdfl.scenario.checks.trials import require, seeded_by, using
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training
from netdfl.topology.network import Network

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.algorithms.base import Algorithm, NodeState
    from netdfl.training.base import Update

_DIM, _ROUNDS = 64, 2
_NODES = 8
"""The most nodes of a trial. If the scenario's network can't be made so small, only two nodes train, and none mixes."""


def try_algorithm(part: Part, scenario: Scenario) -> None:
    """Build a user's own algorithm and use it. Raises OwnPartError where one of its parts breaks its contract."""
    from netdfl.algorithms.own import lacking

    def build() -> Algorithm:
        made: Algorithm = part.build(_exchange(scenario))
        return made

    algorithm = build()
    family = scenario.algorithm.traits.family
    did = f"made an algorithm of the family {algorithm.family!r}, and is listed under {family!r}"
    require(algorithm.family == family, part, did, f"name an Entry with family={algorithm.family!r}")
    for what, lacks in lacking(family, algorithm.start, algorithm.local, algorithm.mixing):
        require(False, part, f"made an algorithm whose {what} lacks {lacks}", "docs/extend.md has what each part has")
    try:
        network = _small_network(scenario)
    except Exception:  # what is wrong with the graph or its weights is told at their own places
        return
    with using(part, "in two rounds of a trial"):
        fault = _fault(build, network)
    if fault:
        require(False, part, *fault)


def _exchange(scenario: Scenario) -> Exchange:
    """Return the settings of exchanges for a trial, in which all messages arrive, at once and as they are."""
    return Exchange(
        wait=WaitPolicy(need=scenario.wait.need, stale=scenario.wait.stale),
        common_start=isinstance(scenario.task, Training),
        num_rounds=scenario.rounds,
        streams=Streams(scenario.seed),
    )


def _small_network(scenario: Scenario) -> Network:
    if scenario.nodes > _NODES:
        with suppress(Exception):
            return build_network(scenario.model_copy(update={"nodes": _NODES}))
    return build_network(scenario)


def _fault(build: Callable[[], Algorithm], network: Network) -> tuple[str, str] | None:
    """Run the algorithm on a toy problem; return a mistake and its remedy, or None if it has none.

    It is a mistake if the results differ when the run is repeated, or when all nodes share one algorithm object. An
    algorithm that raises an exception passes, because it may need another problem. Raises OwnPartError, NameError and
    ImportError all the same, because another problem would not avoid these.
    """
    clients = [node for node in range(network.num_nodes) if node != network.server]
    nodes = clients if len(clients) <= _NODES else clients[:2]
    shared = build()
    try:
        together = _played(dict.fromkeys(nodes, shared), network)
        apart, again = (_played({node: build() for node in nodes}, network) for _ in range(2))
    except (OwnPartError, NameError, ImportError):
        raise
    except Exception:
        return None
    if not _equal(apart, again):
        return "gives other models when it is played again", "draw from streams, and take nothing from a clock"
    if not _equal(together, apart):
        what = "gives nodes other models if they share its parts, as in the simulated world"
        return what, "keep what a part remembers in its state, not in itself"
    return None


def _equal(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    pairs = zip(ones, others, strict=True)
    return all(bool(((x == y) | (x.isnan() & y.isnan())).all()) for x, y in pairs)


def _played(algorithms: Mapping[NodeId, Algorithm], network: Network) -> list[Tensor]:
    """Return the vector of each node, shape (d,), after each of two rounds on quadratics.

    Nodes mix if the algorithm gossips, and `algorithms` has all nodes of the network.
    """
    from netdfl.algorithms.families import first_state
    from netdfl.algorithms.own import check_receivers, checked_steps
    from netdfl.training.catalog import TOYS

    alg = next(iter(algorithms.values()))
    gossips = alg.family == "gossip" and len(algorithms) == network.num_nodes
    tasks = {node: TOYS["quadratic"](node, Streams(0), dim=_DIM) for node in algorithms}
    states: dict[NodeId, NodeState] = {}
    for node, alg in algorithms.items():
        with seeded_by(node):
            states[node] = first_state(tasks[node].initial(), alg, network.view(node, 0))
    found: list[Tensor] = []
    for round in range(_ROUNDS):
        views = {node: network.view(node, round) for node in algorithms}
        updates: dict[NodeId, Update] = {}
        for node, alg in algorithms.items():
            with seeded_by(node, round):
                states[node], updates[node] = states[node].train(alg, tasks[node].data(round), views[node])
        steps = checked_steps(alg.mixing, alg.mixing.num_steps(round, views[0]), maxsize) if gossips else 0
        for step in range(steps):
            inboxes: dict[NodeId, list[Message]] = {node: [] for node in algorithms}
            for node, alg in algorithms.items():
                with seeded_by(node, round, step, "sent"):
                    states[node], outbox = states[node].outgoing(alg, updates[node], step, views[node])
                check_receivers(alg.mixing, outbox, views[node])
                for dst, payload in outbox.items():
                    inboxes[dst].append(Message(node, dst, Kind.DATA, 0, round, step, 0, payload))
            for node, alg in algorithms.items():
                with seeded_by(node, round, step):
                    mixed = states[node].mix(alg, updates[node], Inbox(inboxes[node]), step, views[node])
                states[node], updates[node] = mixed
        for node, alg in algorithms.items():
            found.append(updates[node].x)
            with seeded_by(node, round, "ended"):
                states[node] = states[node].end_round(alg, updates[node], views[node])
    return found
