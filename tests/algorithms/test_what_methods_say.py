"""What the catalog says of methods is what they do; what goes with which network; what an own solver may return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE, SMALL, STREAMS, network
from torch import Tensor

from netdfl.algorithms import fitness
from netdfl.algorithms.base import Algorithm, NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import PLAIN_SGD, Exchange, OptimizerChoice, WaitPolicy
from netdfl.algorithms.families import first_state, joining_state
from netdfl.algorithms.plain_parts import needs_torch
from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.errors import NotFiniteError, OwnPartError
from netdfl.core.types import Role, View
from netdfl.mixing.base import StatefulAggregation
from netdfl.mixing.by_loss import ByLoss
from netdfl.mixing.masked import MaskedAverage
from netdfl.topology.base import Topology, static
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.graph import Graph
from netdfl.topology.network import Network
from netdfl.training.base import Received, Update
from netdfl.training.momentum import KeptMomentum
from netdfl.training.rollback import Rollback
from netdfl.training.sgd import LocalSgd, PlainStart, Stateless

X, Z = torch.linspace(1.0, 2.0, DIM, dtype=torch.float64), torch.linspace(-1.0, 1.0, DIM, dtype=torch.float64)
VIEW = View(0, 0, 3, (1, 2), (1, 2), 0.5, {1: 0.25, 2: 0.25}, {1: 0.25, 2: 0.25})
SERVER = VIEW._replace(role=Role.SERVER)


def built(name: str, exchange: Exchange = EXCHANGE, **params: Any) -> Algorithm:
    return ALGORITHMS[name].build(exchange, **SMALL.get(name, {}) | {"lr": 0.1} | params)


def parts_of(part: Any) -> list[Any]:
    """A part, and those within it."""
    inside = [getattr(part, name) for name in ("inner", "sgd", "solver") if hasattr(part, name)]
    return [part, *(each for one in inside for each in parts_of(one))]


# traits


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_traits_of_a_method_are_what_its_parts_do(name: str) -> None:
    entry, made = ALGORITHMS[name], built(name)
    assert made.family == entry.family
    mixings, locals_ = parts_of(made.mixing), parts_of(made.local)
    assert entry.selects == any(isinstance(each, ByLoss) for each in mixings)
    assert entry.sparse == any(isinstance(each, MaskedAverage) for each in mixings)
    changes = made.family == "server" and built(name, replace(EXCHANGE, extras="compressed")).mixing.changes
    assert entry.adds_up == bool(changes)
    assert entry.remembers == any(isinstance(each, Rollback) for each in locals_)
    if made.family == "server":
        payload = made.mixing.broadcast(made.mixing.init_server(X, SERVER), X, SERVER)[1]
        assert (len(payload.arrays) > 1) == (entry.adds_up or entry.tells)
    if entry.scheme is not None:
        assert type(made.mixing).__name__.lower() == entry.scheme
    if entry.literal is not None:
        name_of, value = entry.literal
        assert type(built(name, **{name_of: value}).mixing).__name__ == "LiteralQuantized"
    if entry.counterpart:
        with pytest.raises(ValueError, match=f"its compressed counterpart is {entry.counterpart}"):
            built(name, replace(EXCHANGE, compressor=COMPRESSORS["qsgd"]()))
    assert entry.augments == ("augment" in entry.build.__signature__.parameters)  # type: ignore[attr-defined]


def test_only_parts_that_work_on_plain_vectors_need_no_torch() -> None:
    free = {name for name in ALGORITHMS if not needs_torch(built(name))}
    plain = {"dpsgd", "lian_dpsgd", "dfedavg", "dfedavgm", "dfedsam", "dfedsam_mgs", "ad_psgd", "asyng", "overlap_sgp"}
    assert free == plain | {"sgp", "osgp", "dfedsgpm", "dfedsgpsm"}
    assert not needs_torch(built("sgp", replace(EXCHANGE, delivery="running_sums")))


# what goes together


def whole(lazy: bool = False) -> Network:
    return Network(TOPOLOGIES["full"](4, STREAMS), (lambda g: WEIGHTS["metropolis"](g, lazy=True)) if lazy else None)


@pytest.mark.parametrize(
    ("every", "rounds", "net", "said"),
    [
        (2, 8, whole, ""),
        (8, 8, whole, ""),
        (9, 8, whole, "the exact average is due every 9 rounds, and the run has 8"),
        (2, 8, lambda: whole(lazy=True), "the exact average is due in round 1, and the graph of that round"),
        (3, 8, lambda: network("ring"), "the exact average is due in round 2, and the graph"),
        (1, 8, lambda: network("ring"), "the exact average is due in round 0, and the graph"),
    ],
)
def test_an_average_is_exact_on_a_graph_that_gives_it(every: int, rounds: int, net: Any, said: str) -> None:
    found = list(fitness.averages_exactly({"every": every}, net(), rounds))
    assert [each.what.startswith(said) for each in found] == [True] * bool(said)
    assert all(each.parameter == "every" for each in found)


def test_only_rounds_in_which_the_average_is_due_must_give_it() -> None:
    full, ring = TOPOLOGIES["full"](4, STREAMS), TOPOLOGIES["ring"](4, STREAMS)
    drawn: list[int] = []

    def draw(round: int) -> Graph:
        drawn.append(round)
        return (full if round % 3 == 2 and round < 9 else ring).graph(0)

    net = Network(Topology(4, draw, directed=False, redraw_every=1))
    assert list(fitness.averages_exactly({"every": 3}, net, 9)) == []
    assert {2, 5, 8} <= set(drawn) <= {0, 2, 5, 8}
    (late,) = fitness.averages_exactly({"every": 3}, net, 12)
    assert late.what.startswith("the exact average is due in round 11")
    assert list(fitness.averages_exactly({"every": 3}, net, 11)) == []


def test_momentum_and_another_optimizer_do_not_go_together() -> None:
    adam = OptimizerChoice(name="adam")
    for momentum, optimizer, wrong in [(0.9, adam, True), (0.0, adam, False), (0.9, PLAIN_SGD, False)]:
        params = {"momentum": momentum, "optimizer": optimizer}
        assert bool(list(fitness.one_optimizer(params, network("ring"), 1))) is wrong
        if wrong:
            with pytest.raises(
                ValueError, match="momentum is plain SGD's, and optimizer is adam: leave one of them out"
            ):
                built("dpsgd", **params)
        elif optimizer is PLAIN_SGD:
            assert isinstance(built("dpsgd", **params).local, KeptMomentum)


@pytest.mark.parametrize(
    ("warns", "params", "rounds", "said"),
    [
        (fitness.nesterov_acts, {"nesterov": True, "momentum": 0.0}, 1, ["algorithm.nesterov: it is a form"]),
        (fitness.nesterov_acts, {"nesterov": True, "momentum": 0.9}, 1, []),
        (fitness.nesterov_acts, {"nesterov": False, "momentum": 0.0}, 1, []),
        (fitness.slow_rounds, {"every": 4, "nesterov": False, "momentum": 0.0}, 8, []),
        (fitness.slow_rounds, {"every": 4, "nesterov": False}, 9, ["algorithm.every: the last round comes after"]),
        (fitness.slow_rounds, {"every": 4, "nesterov": False}, 10, ["algorithm.every: the last 2 rounds come after"]),
        (fitness.slow_rounds, {"every": 4, "nesterov": True, "momentum": 0.0}, 8, ["algorithm.nesterov: it is"]),
        (fitness.never_distils, {"warmup_rounds": 5}, 5, ["algorithm.warmup_rounds: all 5 rounds are warm-up"]),
        (fitness.never_distils, {"warmup_rounds": 5}, 6, []),
    ],
)
def test_what_nobody_means_is_said(warns: Any, params: dict[str, Any], rounds: int, said: list[str]) -> None:
    found = list(warns(params, rounds))
    assert len(found) == len(said)
    assert all(one.startswith(begin) for one, begin in zip(found, said, strict=True))


@pytest.mark.parametrize("key", ["distil_gap", "distil_steps"])
def test_a_warm_up_gives_models_as_far_apart_as_are_matched(key: str) -> None:
    params = {key: 3, "distil_steps": 99} if key == "distil_gap" else {key: 3}
    assert list(fitness.distils({**params, "warmup_rounds": 3}, network("star"), 9)) == []
    (short,) = fitness.distils({**params, "warmup_rounds": 2}, network("star"), 9)
    assert (short.parameter, short.remedy) == (key, f"give {key} of at most 2, or warmup_rounds of 3 or more")


def test_where_nothing_is_left_to_choose_it_is_said() -> None:
    ring = network("ring")
    assert list(fitness.chooses({"neighbors": 1}, ring, 4)) == []
    (two,) = fitness.chooses({"neighbors": 2}, ring, 4)
    assert two.what == "nothing is left to choose: no node has more than 2 out-neighbors"
    assert two.remedy == "give neighbors of at most 1, or use a denser graph"
    line = static(Graph(2, [(0, 1), (1, 0)]))
    (one,) = fitness.chooses({"neighbors": 1}, Network(line, None), 4)
    assert one.remedy == "use a denser graph"
    full, alone = TOPOLOGIES["full"](4, STREAMS), TOPOLOGIES["ring"](4, STREAMS)
    late = Network(Topology(4, lambda block: (full if block == 3 else alone).graph(0), directed=False, redraw_every=2))
    assert list(fitness.chooses({"neighbors": 2}, late, 7)) == []
    assert list(fitness.chooses({"neighbors": 2}, late, 6))


def test_pairs_need_links_both_ways_and_between_two_halves() -> None:
    def said(topology: Topology, *, bipartite: bool = True, leave_out: bool = False, rounds: int = 4) -> list[str]:
        params = {"bipartite": bipartite, "leave_out": leave_out}
        return [each.what for each in fitness.pairs_can_meet(params, Network(topology), rounds)]

    even, odd = TOPOLOGIES["ring"](4, STREAMS), TOPOLOGIES["ring"](5, STREAMS)
    assert said(even) == said(odd, bipartite=False) == said(odd, leave_out=True) == []
    assert said(odd)[0].startswith("the graph has no two halves: link ")
    assert "nor do" not in said(odd)[0]
    assert said(TOPOLOGIES["full"](4, STREAMS))[0].endswith(", nor do 2 more")
    assert said(TOPOLOGIES["directed_ring"](4, STREAMS)) == ["an exchange needs links in both directions"]
    odd_late = Topology(4, lambda block: (even if block < 3 else TOPOLOGIES["directed_ring"](4, STREAMS)).graph(0),
                        directed=True, redraw_every=1)  # fmt: skip
    assert said(odd_late, rounds=3) == []
    assert len(said(odd_late, rounds=4)) == 1


@pytest.mark.parametrize(("need", "of_3", "of_0"), [("all", 3, 0), ("any", 1, 0), ("none", 0, 0), (2, 2, 0), (9, 3, 0)])
def test_a_wait_is_for_as_many_as_it_says_and_never_for_more_than_there_are(need: Any, of_3: int, of_0: int) -> None:
    assert WaitPolicy(need=need).count(3) == of_3
    assert WaitPolicy(need=need).count(0) == of_0


# an own solver


class Data:
    """A node's data that keep statistics, of which there are others after each round."""

    still, writes, num_samples, shapes = 0, False, 1, ((DIM,),)

    def __init__(self, statistics: Any = None) -> None:
        self.statistics, self.begun = statistics, list[Any]()

    def steps(self, **limits: Any) -> Any:
        yield lambda at: torch.ones_like(at)

    def begin(self, z: Tensor, kept: Any) -> None:
        self.begun.append((z, kept))

    def ended(self, x: Tensor, weight: float) -> Any:
        return x + 100 * weight, self.statistics


def state_of(alg: Algorithm, x: Tensor = X) -> NodeState:
    return first_state(x, alg, VIEW)


def test_what_the_model_keeps_is_in_the_state_though_no_part_of_the_method_keeps_anything() -> None:
    alg, kept = built("dpsgd", local_steps=1), {"mean": torch.ones(1)}
    data: Any = Data(kept)
    state, update = state_of(alg).train(alg, data, VIEW)
    assert state.statistics is kept
    assert torch.allclose(update.x, X - 0.1 + 100)
    assert data.begun[0][1] is None
    again: Any = Data(kept)
    same, _ = state.train(alg, again, VIEW)
    assert same is state, "nothing changed"
    assert again.begun[0][1] is kept


def test_where_there_is_a_weight_the_model_is_what_is_divided_by_it() -> None:
    alg, data = built("sgp", local_steps=1), Data()
    state = state_of(alg)
    half = state._replace(mixing=state.mixing._replace(weight=0.5))  # type: ignore[attr-defined]
    _, update = half.train(alg, data, VIEW)  # type: ignore[arg-type]
    assert torch.equal(data.begun[0][0], X / 0.5)
    assert torch.allclose(update.x, X - 0.1 + 50)
    assert torch.equal(half.model(alg), X / 0.5)
    assert state.model(alg) is X


@pytest.mark.parametrize("weight", [0.0, 2.0**-90, 0.5])
def test_a_model_beside_the_numerator_is_trained_only_where_there_is_no_mass(weight: float) -> None:
    alg, data = built("sgp", local_steps=1), Data()
    mixing = alg.mixing.init(X, VIEW)._replace(weight=weight)
    state = state_of(alg)._replace(mixing=mixing, z=Z)
    after, update = state.train(alg, data, VIEW)  # type: ignore[arg-type]
    assert torch.equal(update.before, X)
    if weight == 0.5:
        assert torch.equal(data.begun[0][0], X / 0.5)
        assert torch.allclose(update.x, X - 0.1 + 50)
        assert torch.equal(state.model(alg), X / 0.5)
        assert after.end_round(alg, update, VIEW).z is None
    else:
        assert torch.equal(data.begun[0][0], Z)
        assert torch.allclose(update.x, X - 0.1 + 100), "what z moved by is added to x"
        assert state.model(alg) is Z
        assert after.end_round(alg, update, VIEW).z is Z
    assert after.end_round(alg, update, VIEW).round == VIEW.round + 1


def own(train: Callable[..., Any]) -> Algorithm:
    class Own(Stateless):
        def train(self, state: Any, y: Tensor, received: Any, weight: float, data: Any, view: View) -> Any:
            return train(state, y)

        def after_mix(self, state: Any, *more: Any) -> Any:
            return state

    return replace(built("dpsgd"), local=Own())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (lambda s, y: y, "the local solver Own returned Tensor"),
        (lambda s, y: (s, y, y), "the local solver Own returned tuple"),
        (lambda s, y: (s, y), r"the local solver Own returned \(state, Tensor\)"),
        (lambda s, y: (s, Update(y, y[:2])), rf"returned an update to a vector of \(2,\) from one of \({DIM},\)"),
        (lambda s, y: (s, Update(y, 3)), rf"returned an update to a vector of \(\) from one of \({DIM},\)"),
    ],
)
def test_an_own_solver_that_returns_something_else_is_told_with_its_place(train: Any, said: str) -> None:
    alg = own(train)
    place = r"\(.*test_what_methods_say\.py:\d+\)"
    with pytest.raises(OwnPartError, match=f"{said} {place}.*") as caught:
        state_of(alg).train(alg, Data(), VIEW)  # type: ignore[arg-type]
    line = int(str(caught.value).partition("say.py:")[2].partition(")")[0])
    with open(__file__) as file:
        assert "def train(" in file.read().splitlines()[line - 1]


def test_a_good_own_solver_is_taken_and_what_is_not_finite_refused() -> None:
    alg = own(lambda s, y: (s, Update(y, y + 1)))
    assert torch.equal(state_of(alg).train(alg, Data(), VIEW)[1].x, X + 1 + 100)  # type: ignore[arg-type]
    bad = own(lambda s, y: (s, Update(y, y / 0)))
    with pytest.raises(NotFiniteError, match="a parameter became infinite or NaN"):
        state_of(bad).train(bad, Data(), VIEW)  # type: ignore[arg-type]


# a node that lost its state


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("weight", [None, 0, 1])
def test_who_lost_its_state_begins_with_the_model_it_is_given(name: str, weight: int | None) -> None:
    alg = built(name)
    pushes = alg.family != "server" and "weight" in getattr(alg.mixing.init(X, VIEW), "_fields", ())
    if pushes == (weight is None):
        return
    state = joining_state(X, Z, weight, alg, VIEW)
    fresh = first_state(Z, alg, VIEW)
    assert torch.equal(state.model(alg), Z)
    assert (state.round, state.received) == (fresh.round, fresh.received)
    if weight == 0:
        assert alg.mixing.weight(state.mixing) == 0.0
        assert not state.x.any()
        assert state.z is Z
    else:
        assert state.x is Z
        assert state.z is None
        assert alg.family == "server" or alg.mixing.weight(state.mixing) == 1.0


def test_references_begin_where_all_nodes_began_and_slow_momentum_where_the_node_does() -> None:
    for name, reference in (("choco_sgd", lambda mixing: mixing.own), ("slowmo", lambda mixing: mixing.anchor)):
        exchange = replace(EXCHANGE, common_start=True, compressor=None if name == "slowmo" else COMPRESSORS["qsgd"]())
        alg = built(name, exchange)
        found = reference(joining_state(X, Z, None, alg, VIEW).mixing)
        assert torch.equal(getattr(found, "vector", found), Z if name == "slowmo" else X)
    inner = replace(built("slowmo").mixing, inner=built("sgp").mixing)
    wrapped = replace(built("slowmo"), mixing=inner)
    without = joining_state(X, Z, 0, wrapped, VIEW)
    assert inner.weight(without.mixing) == 0.0
    assert torch.equal(without.mixing.anchor, Z)  # type: ignore[attr-defined]


def test_a_client_that_keeps_something_has_a_state_and_one_that_does_not_has_none() -> None:
    client, server = VIEW._replace(role=Role.CLIENT), SERVER
    plain = built("fedavg")
    assert first_state(X, plain, client).mixing is None
    assert first_state(X, plain, server).mixing is not None
    ef = built("fedavg", replace(EXCHANGE, compressor=COMPRESSORS["qsgd"](), scheme="ef21"))
    assert isinstance(ef.mixing, StatefulAggregation)
    assert first_state(X, ef, client).mixing is not None


def test_parts_of_nothing_are_plain() -> None:
    assert isinstance(built("dpsgd").start, PlainStart)
    assert isinstance(built("dpsgd").local, LocalSgd)
    assert first_state(X, built("dpsgd"), VIEW._replace(round=4)).round == 4
    assert first_state(X, built("dpsgd"), VIEW).received == Received()
