"""The parts that a method is built of are those that its exchange and its parameters ask for, each with its values."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE, SMALL, STREAMS

from netdfl.algorithms import fitness
from netdfl.algorithms.base import Algorithm, NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, Sgd, WaitPolicy, flat
from netdfl.algorithms.families import first_state
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.errors import OwnPartError
from netdfl.core.types import Inbox, Role, View
from netdfl.mixing.base import LEAST_WEIGHT
from netdfl.mixing.compressed.references import KEPT, KEPT_SURE
from netdfl.mixing.compressed.server import InnerRefinement
from netdfl.mixing.compressed.step_size import ScaledCompressor
from netdfl.topology.base import Topology
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.base import StepSolver, Update
from netdfl.training.stepping import CONSTANT, Schedule

QSGD = COMPRESSORS["qsgd"](bits=3)
X, Y = torch.linspace(1.0, 2.0, DIM, dtype=torch.float64), torch.linspace(-1.0, 1.0, DIM, dtype=torch.float64)
VIEW = View(0, 0, 3, (1, 2), (1, 2), 0.5, {1: 0.25, 2: 0.25}, {1: 0.25, 2: 0.25})


def built(name: str, exchange: Exchange = EXCHANGE, **params: Any) -> Algorithm:
    return ALGORITHMS[name].build(exchange, **SMALL.get(name, {}) | {"lr": 0.1} | params)


def compressor_of(mixing: Any) -> Any:
    found = mixing.differences.compressor if hasattr(mixing, "differences") else mixing.compressor
    return found.inner if isinstance(found, ScaledCompressor) else found


# how messages are compressed


COMPRESSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("dpsgd", "auto", {}, "Choco"),
    ("dpsgd", "deepsqueeze", {}, "DeepSqueeze"),
    ("dpsgd", "unsafe", {}, "BareModel"),
    ("choco_sgd", "auto", {}, "Choco"),
    ("deepsqueeze", "auto", {}, "DeepSqueeze"),
    ("delicoco", "auto", {}, "Choco"),
    ("qdfedavgm", "auto", {}, "Choco"),
    ("qdfedavgm", "auto", {"form": "literal"}, "LiteralQuantized"),
    ("sgp", "auto", {}, "EdgePushSum"),
    ("sgp", "push_sum", {}, "QuantizedPushSum"),
    ("fedavg", "plain", {}, "CompressedReports"),
    ("fedavg", "ef14", {}, "CompressedReports"),
    ("fedavg", "ef21", {}, "CompressedReports"),
]


@pytest.mark.parametrize(("name", "scheme", "params", "kind"), COMPRESSED)
def test_vectors_are_compressed_by_what_the_exchange_gives_and_steadied_where_steps_are_left_to_netdfl(
    name: str, scheme: Any, params: dict[str, Any], kind: str
) -> None:
    for gamma in ("auto", 0.5):
        exchange = Exchange(compressor=QSGD, scheme=scheme, gamma=gamma, streams=STREAMS)  # type: ignore[arg-type]
        mixing = built(name, exchange, **params).mixing
        assert type(mixing).__name__ == kind
        assert compressor_of(mixing) is QSGD
        how = getattr(mixing, "differences", mixing)
        assert how.streams is STREAMS
        left = gamma == "auto" and kind not in ("BareModel", "LiteralQuantized") and scheme != "plain"
        assert isinstance(how.compressor, ScaledCompressor) is left
        if hasattr(mixing, "gamma"):
            assert mixing.gamma == (1.0 if name == "qdfedavgm" and gamma == "auto" else gamma)
        if hasattr(mixing, "feedback"):
            assert mixing.feedback == scheme


@pytest.mark.parametrize("name", ["choco_sgd", "deepsqueeze", "delicoco", "qdfedavgm"])
def test_a_method_that_compresses_by_definition_sends_vectors_as_they_are_where_nothing_compresses(name: str) -> None:
    assert isinstance(compressor_of(built(name).mixing), IdentityCompressor)
    if name == "qdfedavgm":
        assert isinstance(compressor_of(built(name, form="literal").mixing), IdentityCompressor)


def test_references_wait_for_as_many_as_may_still_come_and_begin_where_nodes_do() -> None:
    for delivery, kept in (("plain", KEPT), ("acknowledged", KEPT_SURE)):
        for common in (False, True):
            exchange = Exchange(compressor=QSGD, delivery=delivery, common_start=common)  # type: ignore[arg-type]
            for name, mass in (("choco_sgd", False), ("sgp", True)):
                how = built(name, exchange).mixing.differences
                assert (how.kept, how.common_start, how.mass) == (kept, common, mass)


def test_a_round_has_as_many_exchanges_as_are_asked_for() -> None:
    for exchange in (EXCHANGE, Exchange(compressor=QSGD), Exchange(compressor=QSGD, scheme="deepsqueeze")):
        for name in ("dpsgd", "dfedsam_mgs", "choco_sgd", "delicoco", "sgp", "deepsqueeze"):
            if exchange.scheme == "deepsqueeze" and name == "sgp":
                continue
            several = name in ("dfedsam_mgs", "delicoco")
            assert built(name, exchange).mixing.num_steps(0, VIEW) == (4 if several else 1)
            if several:
                assert built(name, exchange, gossip_steps=2).mixing.num_steps(0, VIEW) == 2


def test_a_missing_neighbor_fares_as_the_exchange_says() -> None:
    for name in ("dpsgd", "lian_dpsgd", "slowmo"):
        for how in ("self", "last", "renormalise"):
            mixing = built(name, Exchange(on_missing=how)).mixing  # type: ignore[arg-type]
            assert getattr(mixing, "inner", mixing).on_missing == how
    for name in ("dpsgd", "lian_dpsgd"):
        assert built(name, Exchange(wait=WaitPolicy(stale=3))).mixing.stale == 3
    assert built("choco_sgd", Exchange(on_missing="last")).mixing.on_missing == "last"


def test_a_server_refines_its_own_model_also_beneath_compressed_reports() -> None:
    for name, entry in ALGORITHMS.items():
        if entry.family == "server":
            plain, coded = built(name).refine, built(name, Exchange(compressor=QSGD)).refine
            distils = name in ("fedsynsam", "dynafed", "dynafed_synonly")
            assert (plain is not None) is distils
            assert isinstance(coded, InnerRefinement) is distils
            assert not isinstance(plain, InnerRefinement)


@pytest.mark.parametrize("tau", [1, 2, 5])
def test_shares_may_be_one_round_less_late_than_tau(tau: int) -> None:
    for name, before in (("overlap_sgp", True), ("asyng", False)):
        mixing = built(name, tau=tau).mixing
        assert (mixing.lag, mixing.before_training) == (tau - 1, before)
    assert built("asyng", tau=None).mixing.lag is None


def test_a_schedule_without_rounds_of_its_own_goes_by_the_runs() -> None:
    cosine = Schedule(kind="cosine")
    for rounds, own, found in ((None, None, None), (30, None, 30), (30, 7, 7)):
        schedule = replace(cosine, rounds=own)
        made = built("dpsgd", Exchange(num_rounds=rounds), schedule=schedule)
        assert made.local.schedule == replace(cosine, rounds=found)
    assert built("dpsgd").local.schedule == CONSTANT

    def method(context: object = None, /, *, sgd: Sgd = Sgd(), other: Schedule = CONSTANT) -> Any:
        return sgd.schedule.rounds, other

    assert flat(method)(Exchange(num_rounds=9)) == (9, CONSTANT)
    assert flat(method)() == (None, CONSTANT)


# what goes together, to the last digit


def test_an_average_is_exact_to_a_billionth() -> None:
    graph = TOPOLOGIES["full"](4, STREAMS).graph(0)
    for off, fits in ((0.0, True), (2e-10, True), (3e-9, False), (1e-3, False)):
        weights = SimpleNamespace(graph=graph, on_edges=np.full(12, 0.25 - off), on_self=np.full(4, 0.25 + 3 * off))
        net: Any = SimpleNamespace(num_nodes=4, graph=lambda round: graph, weights=lambda graph, found=weights: found)
        assert (list(fitness.averages_exactly({"every": 1}, net, 1)) == []) is fits


@pytest.mark.parametrize(
    ("eigenvalues", "beta", "said"),
    [
        ([1, -0.5], 1 / 3, "the limit of this graph, 0.3333 (W has the eigenvalue -0.5)"),
        ([1, -0.5], 0.3333, ""),
        ([1, 1 + 9e-7, 0.5], 1.0, ""),  # both are 1, up to rounding
        ([1, 0.5j, 0.0], 0.6, "the limit of this graph, 0.6 (W has the eigenvalue 0+0.5j)"),
        ([1, -0.2 + fitness.TOLERANCE * 1j], 0.7, "the limit of this graph, 0.6667 (W has the eigenvalue -0.2)"),
        ([1], 1.0, ""),
    ],
)
def test_ole_stays_below_the_limit_of_the_worst_eigenvalue_that_is_not_1(
    eigenvalues: list[complex], beta: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitness, "eigenvalues", lambda weights: np.array(eigenvalues))
    found = list(fitness.ole_is_stable({"beta": beta}, Network(TOPOLOGIES["ring"](4, STREAMS)), 5))
    assert [said in each.what for each in found] == [True] * bool(said)
    moving = Topology(4, TOPOLOGIES["ring"](4, STREAMS).graph, directed=False, redraw_every=1)
    assert list(fitness.ole_is_stable({"beta": 1.0}, Network(moving), 5)) == []


def test_pairs_are_looked_for_in_as_many_rounds_as_a_graph_has_or_a_run() -> None:
    even, asked = TOPOLOGIES["ring"](4, STREAMS), list[int]()

    def looked_at(redrawn: int, rounds: int) -> list[int]:
        asked.clear()
        topology = Topology(4, lambda block: even.graph(asked.append(block) or 0), directed=False, redraw_every=redrawn)
        params = {"bipartite": False, "leave_out": False}
        assert list(fitness.pairs_can_meet(params, Network(topology), rounds)) == []
        return asked

    assert looked_at(0, 9) == [0]
    assert looked_at(1, 3) == [0, 1, 2]
    assert looked_at(1, 99) == list(range(fitness.ROUNDS))


# a node's state


def own(result: Any) -> Algorithm:
    class Own:
        def init(self, x: Any, view: View) -> tuple[()]:
            return ()

        def train(self, state: Any, y: Any, *more: Any) -> Any:
            return result(state, y)

    return replace(built("dpsgd"), local=Own())  # type: ignore[arg-type]


DATA: Any = SimpleNamespace(steps=lambda **limits: iter(()), num_samples=1, shapes=((DIM,),))


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda state, y: [state, Update(y, y)], "returned list"),
        (lambda state, y: (state,), "returned tuple"),
        (lambda state, y: (state, Update(y, y), 1), "returned tuple"),
        (lambda state, y: None, "returned NoneType"),
    ],
)
def test_an_own_solver_returns_a_pair_and_nothing_else(result: Any, said: str) -> None:
    alg = own(result)
    with pytest.raises(OwnPartError, match=said):
        first_state(X, alg, VIEW).train(alg, DATA, VIEW)


class Training:
    def init(self, x: Any, view: View) -> tuple[()]:
        return ()

    def train(self, *given: Any) -> Any:
        return None

    def after_mix(self, state: Any, *more: Any) -> Any:
        return state


class Stepping(Training):
    train = StepSolver.train  # type: ignore[assignment]

    def solve(self, *given: Any) -> Any:
        yield from ()


class Handed(Training):
    train = partial(print, end="")  # type: ignore[assignment]  # nobody knows on which line that stands


def test_what_an_own_solver_returns_wrong_is_told_with_its_place() -> None:
    for kind, line in ((Training, Training.train), (Stepping, Stepping.solve), (Handed, Handed)):
        alg = replace(built("dpsgd"), local=kind())  # type: ignore[arg-type]
        place = f"{Path(__file__).name}:{inspect.getsourcelines(line)[1]})"
        with pytest.raises(OwnPartError, match=re.escape(place)):
            first_state(X, alg, VIEW).train(alg, DATA, VIEW)


@pytest.mark.parametrize("weight", [1.0, LEAST_WEIGHT, 0.5 * LEAST_WEIGHT, 0.0])
def test_only_who_gave_all_of_its_mass_away_keeps_the_model_beside_it(weight: float) -> None:
    alg = built("sgp")
    before = first_state(X, alg, VIEW)._replace(mixing=alg.mixing.init(X, VIEW)._replace(weight=0.5))
    at = VIEW._replace(self_weight=2 * weight, out_weights={1: 0.0, 2: 0.0})
    after, update = before.mix(alg, Update(X, Y), Inbox(), 0, at)
    assert alg.mixing.weight(after.mixing) == weight
    if weight >= LEAST_WEIGHT:
        assert after.z is None
    else:
        assert torch.equal(after.z, Y / 0.5)  # type: ignore[arg-type]
        again, _ = after.mix(alg, update, Inbox(), 0, at)
        assert again.z is after.z
    slow = built("slowmo")
    kept = first_state(X, slow, VIEW)
    assert kept.mix(slow, Update(X, Y), Inbox(), 0, VIEW)[0].z is None


def test_a_state_is_the_same_one_where_nothing_in_it_changes() -> None:
    alg = built("dpsgd", Exchange())
    state = first_state(X, alg, VIEW)
    assert state.outgoing(alg, Update(X, Y), 0, VIEW)[0] is state
    assert built("fedavg").served_alone(VIEW) is False
    server: NodeState = first_state(X, built("fedavg"), VIEW._replace(role=Role.SERVER))
    assert server.refine(built("fedavg"), DATA, VIEW) is server
    alone = built("dynafed_synonly")
    assert [alone.served_alone(VIEW._replace(round=round)) for round in (0, 1, 2, 3)] == [False, False, True, True]
    assert not built("dynafed").served_alone(VIEW._replace(round=9))
