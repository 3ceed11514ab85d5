"""What the papers' equations imply, at the tolerances of the algorithm sheet (float64)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE, STREAMS, N, network, quadratics, run, stack
from hypothesis import given
from hypothesis import strategies as st

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.fitness import averages_exactly, ole_is_stable
from netdfl.algorithms.wait import WaitPolicy
from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, Payload
from netdfl.mixing.by_loss import ByLossState, Posted, draw_by_loss
from netdfl.mixing.payloads import number, vector
from netdfl.testing.loopback import run_fleet
from netdfl.testing.rounds import first_states, play_rounds
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.network import Network
from netdfl.topology.selection import Everyone, Private
from netdfl.topology.spectrum import psi, smallest_eigenvalue
from netdfl.training.base import Update
from netdfl.training.masked import Masked, layers
from netdfl.training.sgd import LocalSgd
from netdfl.training.toy import consensus

MANY = 30


def apart(n: int) -> dict[int, Any]:
    return {i: consensus(i, STREAMS, dim=DIM) for i in range(n)}


# push-sum


def test_push_sum_conserves_mass_and_finds_the_mean() -> None:
    net = Network(TOPOLOGIES["random_push"](MANY, STREAMS, out_neighbors=4))
    alg, tasks = ALGORITHMS["osgp"].build(EXCHANGE), apart(MANY)
    states = first_states(alg, tasks, net.view)
    start = torch.stack([s.x for s in states.values()])
    for round in range(60):
        states = play_rounds(alg, states, tasks, net.view, 1)
        x = torch.stack([s.x for s in states.values()])
        w = torch.tensor([alg.mixing.weight(s.mixing) for s in states.values()], dtype=torch.float64)
        assert float((x.sum(0) - start.sum(0)).abs().max()) < 1e-10
        assert abs(float(w.sum()) - MANY) < 1e-10
        if round >= 44:
            assert float((x / w[:, None] - start.mean(0)).abs().max()) < 1e-12


def test_overlapping_push_sum_conserves_what_nodes_hold_and_what_is_in_flight() -> None:
    """By hand, with every message held back for as many rounds as a keyed draw says."""
    net = Network(TOPOLOGIES["random_push"](8, STREAMS, out_neighbors=3))
    mixing = ALGORITHMS["overlap_sgp"].build(EXCHANGE, tau=3).mixing
    x = {i: task.initial() for i, task in apart(8).items()}
    state = {i: mixing.init(x[i], net.view(i, 0)) for i in x}
    total, flying = sum(x.values()), []
    for round in range(30):
        for i in x:
            state[i], x[i], outbox = mixing.give(state[i], x[i], net.view(i, round))
            flying += [Message(i, j, Kind.DATA, 0, round, 0, 0, payload) for j, payload in outbox.items()]
        late = [m for m in flying if STREAMS.uniform("late", m.src, m.dst, m.round, round) < 0.5]
        for i in x:
            state[i], x[i] = mixing.take(state[i], x[i], Inbox([m for m in flying if m.dst == i and m not in late]))
        flying = late
        held = sum(x.values()) + sum((vector(m, x[0]) for m in flying), torch.zeros(DIM, dtype=torch.float64))
        mass = sum(s.weight for s in state.values()) + sum(number(m, "w") for m in flying)
        torch.testing.assert_close(held, total, rtol=0, atol=1e-12)
        assert mass == pytest.approx(8, abs=1e-12)
    assert flying


def test_overlap_sgp_is_the_papers_recursion() -> None:
    """x+ = P x - lr g(x / w), w+ = P w."""
    net, tasks = network("random_push", out_neighbors=2), quadratics(noise=0.0)
    x, w = torch.stack([tasks[i].initial() for i in range(N)]), torch.ones(N, dtype=torch.float64)
    for round in range(5):
        z, p = x / w[:, None], torch.from_numpy(net.matrix(round))
        slopes = torch.stack([tasks[i].curvature * (z[i] - tasks[i].center) for i in range(N)])
        x, w = p @ x - 0.1 * slopes, p @ w
    alg = ALGORITHMS["overlap_sgp"].build(EXCHANGE, lr=0.1)
    states = run(alg, net, 5, noise=0.0)
    torch.testing.assert_close(stack(states), x, rtol=0, atol=1e-13)
    assert [alg.mixing.weight(states[i].mixing) for i in range(N)] == pytest.approx(w.tolist(), abs=1e-13)


def test_asyng_takes_all_gradients_of_a_round_at_one_point() -> None:
    """On a quadratic without noise K gradients at z are K times one."""
    net, view_of = network("ring"), network("ring").view
    tasks = quadratics(noise=0.0)
    alg = ALGORITHMS["asyng"].build(EXCHANGE, lr=0.1, local_steps=4, clip_norm=None)
    task, s = tasks[0], first_states(alg, tasks, view_of)[0]
    _, update = s.train(alg, task.data(0), net.view(0, 0))
    expected = s.x - 4 * 0.1 * task.curvature * (s.x - task.center)
    torch.testing.assert_close(update.x, expected, rtol=0, atol=1e-14)


def test_one_peer_exponential_averages_exactly_in_log2_n_rounds() -> None:
    net = Network(TOPOLOGIES["one_peer_exponential"](16, STREAMS))
    product = np.eye(16)
    for round in range(4):
        product = net.matrix(round) @ product
    assert np.array_equal(product, np.full((16, 16), 1 / 16))


# gossip


@pytest.mark.parametrize("kind", ["ring", "random_sym", "full"])
def test_gossip_keeps_column_means(kind: str) -> None:
    net, tasks = network(kind), apart(N)
    alg = ALGORITHMS["dfedavg"].build(EXCHANGE)
    first = first_states(alg, tasks, net.view)
    x = stack(play_rounds(alg, first, tasks, net.view, 10))
    torch.testing.assert_close(x.mean(0), stack(first).mean(0), rtol=0, atol=1e-14)


@pytest.mark.parametrize("q", [1, 3, 4])
def test_gossip_steps_are_a_power_of_w_and_so_is_psi(q: int) -> None:
    net, tasks = network("ring"), apart(N)
    alg = ALGORITHMS["dfedsam_mgs"].build(EXCHANGE, gossip_steps=q)
    first = first_states(alg, tasks, net.view)
    power = np.linalg.matrix_power(net.matrix(0), q)
    x = stack(play_rounds(alg, first, tasks, net.view, 1))
    torch.testing.assert_close(x, torch.from_numpy(power) @ stack(first), rtol=0, atol=1e-14)
    assert psi(power) == pytest.approx(psi(net.matrix(0)) ** q, abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "n", "expected", "within"),
    [
        ("ring", 16, 0.9493, 5e-5),
        ("ring", 100, 0.998684, 5e-7),
        ("ring", 64, 1 / 3 + 2 / 3 * math.cos(2 * math.pi / 64), 1e-12),
        ("grid", 16, 0.8686, 5e-5),
        ("grid", 100, 0.9795, 5e-5),
        ("exponential", 16, 0.600, 1e-9),
        ("exponential", 64, 5 / 7, 1e-9),
        ("exponential", 100, 0.750, 1e-9),
        ("full", 16, 0.0, 1e-12),
    ],
)
def test_psi_is_as_tabled(kind: str, n: int, expected: float, within: float) -> None:
    net = Network(TOPOLOGIES[kind](n, STREAMS))
    assert psi(net.matrix(0)) == pytest.approx(expected, abs=within)


# Ole


def test_ole_begins_at_an_over_relaxed_average_and_keeps_the_mean() -> None:
    beta, net, tasks = 0.45, network("ring"), apart(N)
    alg = ALGORITHMS["oledfl_sgd"].build(EXCHANGE, beta=beta)
    w, states = torch.from_numpy(net.matrix(0)), first_states(alg, tasks, net.view)
    mean, z = stack(states).mean(0), stack(states)
    for round in range(6):
        states = play_rounds(alg, states, tasks, net.view, 1)
        z = ((1 + beta) * w - beta * torch.eye(N, dtype=z.dtype)) @ z if round else z
        previous = torch.stack([states[i].start.previous for i in range(N)])
        torch.testing.assert_close(previous, z, rtol=0, atol=1e-14)
        torch.testing.assert_close(previous.mean(0), mean, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("kind", "n", "limit"), [("ring", 100, 0.50), ("grid", 100, 0.276), ("full", 10, 1.0), ("exponential", 16, None)]
)
def test_oles_limit_is_that_of_the_graph(kind: str, n: int, limit: float | None) -> None:
    net = Network(TOPOLOGIES[kind](n, STREAMS))
    if limit is None:  # directed: no such limit is known
        assert not list(ole_is_stable({"beta": 1.0}, net, 10))
        return
    (misfit,) = ole_is_stable({"beta": limit + 1e-3}, net, 10)
    assert misfit.parameter == "beta"
    assert "lazy" in misfit.remedy
    assert not list(ole_is_stable({"beta": limit - 1e-3}, net, 10))


def test_beyond_its_limit_ole_drives_nodes_apart_and_lazy_weights_cure_it() -> None:
    tasks = apart(N)
    spread = {}
    for lazy in (False, True):
        net = Network(TOPOLOGIES["ring"](N, STREAMS), lambda graph, lazy=lazy: WEIGHTS["metropolis"](graph, lazy=lazy))
        alg = ALGORITHMS["oledfl_sgd"].build(EXCHANGE, beta=0.9)
        x = stack(play_rounds(alg, first_states(alg, tasks, net.view), tasks, net.view, 40))
        spread[lazy] = float((x - x.mean(0)).norm())
        assert bool(list(ole_is_stable({"beta": 0.9}, net, 40))) is not lazy
    assert spread[False] > 1e3
    assert spread[True] < 1e-3


def test_many_nodes_eigenvalue_comes_from_powers(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(TOPOLOGIES["grid"](36, STREAMS))
    exact = smallest_eigenvalue(net.weights(net.graph(0)))
    monkeypatch.setattr("netdfl.topology.spectrum._DENSE", 0)
    assert smallest_eigenvalue(net.weights(net.graph(0))) == pytest.approx(exact, abs=1e-6)


# momentum


@given(st.integers(1, 8), st.floats(0, 0.95))
def test_momentum_moves_as_the_lemma_says(steps: int, alpha: float) -> None:
    """K steps on constant gradients move by -lr g (K - a (1 - a^K) / (1 - a)) / (1 - a)."""
    solver = LocalSgd(lr=0.1, steps=steps, momentum=alpha)
    view, slope = network("ring").view(0, 0), torch.tensor([1.0, -2.0], dtype=torch.float64)

    class Constant:
        def steps(self, **length: Any) -> Any:
            return iter([lambda at: slope.clone()] * steps)

    x, _ = solver.steps_from(torch.zeros(2, dtype=torch.float64), 1.0, Constant(), view)()  # type: ignore[arg-type]
    factor = (steps - alpha * (1 - alpha**steps) / (1 - alpha)) / (1 - alpha)
    torch.testing.assert_close(x, -0.1 * slope * factor, rtol=0, atol=1e-11)


# DFedSGPSM-S


def test_by_loss_never_chooses_the_node_itself_and_ten_distinct_others() -> None:
    net = Network(TOPOLOGIES["full"](100, STREAMS), selection=Private(Everyone()))
    alg = ALGORITHMS["dfedsgpsm_s"].build(EXCHANGE, neighbors=10)
    tasks = apart(100)
    for node in (0, 50, 99):
        s, view = first_states(alg, tasks, net.view)[node], net.view(node, 0)
        board = {j: Posted(0, float(j % 7)) for j in range(100)}
        s = s._replace(mixing=ByLossState(s.mixing.inner, board, ()))
        s, outbox = s.outgoing(alg, Update(s.x, s.x, loss=3.0), 0, view)
        assert len(outbox) == len(set(outbox)) == 10
        assert node not in outbox
        share = {round(number(Message(node, j, Kind.DATA, 0, 0, 0, 0, p), "w"), 15) for j, p in outbox.items()}
        assert share == {round(1 / 11, 15)}


def test_by_loss_draws_as_the_equation_says() -> None:
    losses, own, draws = {1: 0.5, 2: 1.5, 3: 2.5}, 0.5, 20_000
    noise = np.random.default_rng(0).gumbel(size=(draws, 3))
    chosen = [draw_by_loss(own, losses, (1, 2, 3), 1, 1.0, each)[0] for each in noise]
    p = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    shares = np.array([chosen.count(j) / draws for j in (1, 2, 3)])
    assert np.all(np.abs(shares - p) < 5 * np.sqrt(p * (1 - p) / draws))


@given(st.floats(0, allow_infinity=True), st.floats(-1e308, 1e308), st.floats(1e-3, 1e3))
def test_by_loss_is_stable_for_any_losses(own: float, other: float, temperature: float) -> None:
    chosen = draw_by_loss(own, {1: other, 2: -other}, (1, 2, 3), 2, temperature, np.zeros(3))
    assert len(set(chosen)) == 2


def test_a_high_temperature_forgets_the_losses() -> None:
    noise = np.array([0.3, 0.1, 0.2])
    assert draw_by_loss(0.0, {1: 0.0, 2: 9.0}, (1, 2, 3), 1, 1e9, noise) == (1,)
    assert draw_by_loss(0.0, {1: 0.0, 2: 9.0}, (1, 2, 3), 1, 1.0, noise) == (2,)


def test_losses_spread_on_messages_and_old_ones_are_left_out() -> None:
    net = Network(TOPOLOGIES["full"](8, STREAMS), selection=Private(Everyone()))
    tasks = quadratics(8)
    alg = ALGORITHMS["dfedsgpsm_s"].build(Exchange(wait=WaitPolicy(announce=True)), neighbors=2, max_age=4)
    kept = run_fleet(alg, net.view, tasks, 8)
    boards = [kept[i].states[-1].mixing.board for i in range(8)]
    assert all(len(board) >= 5 for board in boards)
    assert max(posted.round for posted in boards[0].values()) == 7
    sent = [posted.round for board in boards for posted in board.values()]
    assert min(sent) >= 7 - 4


@pytest.mark.parametrize(
    "board", [None, 3, [[0, 0]], [[9, 0, 1.0]], [[0, 5, 1.0]], [[0, 0, math.nan]], [["0", 0, 1.0]]]
)
def test_a_board_with_absurd_contents_is_refused(board: Any) -> None:
    net = Network(TOPOLOGIES["full"](4, STREAMS), selection=Private(Everyone()))
    alg = ALGORITHMS["dfedsgpsm_s"].build(EXCHANGE, neighbors=2)
    s = first_states(alg, apart(4), net.view)[0]
    _, outbox = s.outgoing(alg, Update(s.x, s.x), 0, net.view(0, 0))
    payload = next(iter(outbox.values()))
    message = Message(1, 0, Kind.DATA, 0, 0, 0, 0, Payload(payload.arrays, {**payload.meta, "board": board}))
    with pytest.raises(MalformedMessage, match="board"):
        alg.mixing.mix(s.mixing, Update(s.x, s.x), Inbox([message]), 0, net.view(0, 0))


def test_columns_of_a_push_graph_sum_to_one_with_eleven_entries() -> None:
    matrix = Network(TOPOLOGIES["random_push"](100, STREAMS, out_neighbors=10)).matrix(3)
    assert matrix.sum(0) == pytest.approx(np.ones(100), abs=1e-12)
    assert np.all((matrix > 0).sum(0) == 11)


# SlowMo


def test_slowmo_without_momentum_is_local_training_with_exact_averages() -> None:
    tasks, net = quadratics(), network("full")
    slow = ALGORITHMS["slowmo"].build(EXCHANGE, every=3, alpha=1.0, beta=0.0)
    base = ALGORITHMS["dpsgd"].build(EXCHANGE)
    states = first_states(base, tasks, net.view)
    for round in range(6):
        trained = {i: s.train(base, tasks[i].data(round), net.view(i, round))[1].x for i, s in states.items()}
        mean = torch.stack(list(trained.values())).mean(0)
        states = {i: s._replace(round=round + 1, x=mean if round % 3 == 2 else trained[i]) for i, s in states.items()}
    torch.testing.assert_close(stack(run(slow, net, 6)), stack(states), rtol=0, atol=1e-12)


def test_slowmo_is_its_equations() -> None:
    tasks, net = quadratics(), network("full")
    alpha, beta, lr = 0.8, 0.6, 0.1
    alg = ALGORITHMS["slowmo"].build(EXCHANGE, every=1, alpha=alpha, beta=beta, lr=lr)
    states = first_states(alg, tasks, net.view)
    anchor, u = states[0].x, torch.zeros(DIM, dtype=torch.float64)
    for _ in range(4):
        trained = [s.train(alg, tasks[i].data(s.round), net.view(i, s.round))[1].x for i, s in states.items()]
        u = beta * u + (anchor - torch.stack(trained).mean(0)) / lr
        anchor = anchor - alpha * lr * u
        states = play_rounds(alg, states, tasks, net.view, 1)
        torch.testing.assert_close(states[3].x, anchor, rtol=0, atol=1e-12)


def test_slowmo_needs_the_exact_average_when_it_is_due() -> None:
    assert not list(averages_exactly({"every": 2}, network("full"), 8))
    everyone = [[a, b] for a in range(N) for b in range(a)]
    links = [[i, (i + 1) % N] for i in range(N)]
    net = network("by_round", rounds=[links, everyone])
    assert not list(averages_exactly({"every": 2}, net, 8))
    (misfit,) = averages_exactly({"every": 3}, net, 8)
    assert "round 2" in misfit.what


# DisPFL

SHAPES = ((3, 1, 5, 5), (8,), (20, 30), (30,), (30, 10), (10,))


def masked(**options: Any) -> Masked:
    defaults: dict[str, Any] = {
        "density": 0.5,
        "layout": "erk",
        "anneal": 0.5,
        "anneal_rounds": 10,
        "regrow": "gradient",
        "streams": Streams(3),
    }
    return Masked(sgd=LocalSgd(lr=0.1, steps=1), **(defaults | options))


@pytest.mark.parametrize("layout", ["erk", "uniform"])
@pytest.mark.parametrize("density", [0.1, 0.5, 1.0])
def test_masks_have_the_density_asked_for_and_biases_stay_dense(layout: str, density: float) -> None:
    view = network("ring").view(0, 0)
    mask = masked(layout=layout, density=density).first_mask(SHAPES, view)
    sparse = torch.zeros_like(mask)
    for start, size in layers(SHAPES):
        sparse[start : start + size] = True
    assert bool(mask[~sparse].all())
    assert float(mask[sparse].double().mean()) == pytest.approx(density, abs=0.01)


def test_erk_gives_small_layers_more() -> None:
    small, _, large = masked(density=0.2).densities(SHAPES)
    assert 0.2 < small <= 1
    assert large != pytest.approx(small)


def test_pruning_gives_up_the_smallest_and_grows_the_steepest_and_keeps_the_count() -> None:
    solver, view = masked(), network("ring").view(0, 0)
    mask = solver.first_mask(SHAPES, view)
    draw = torch.Generator().manual_seed(0)
    sizes, slopes = torch.rand(len(mask), generator=draw), torch.rand(len(mask), generator=draw)
    after = solver.evolved(mask, sizes, slopes, SHAPES, 0)
    for start, size in layers(SHAPES):
        old, new = mask[start : start + size], after[start : start + size]
        assert int(old.sum()) == int(new.sum())
        dropped, grown = old & ~new, new & ~old
        if dropped.any():
            assert sizes[start : start + size][dropped].max() <= sizes[start : start + size][old & new].min()
            left = slopes[start : start + size][~old & ~new]
            assert all(slopes[start : start + size][grown].min() >= slope for slope in left)
    assert torch.equal(solver.evolved(mask, sizes, slopes, SHAPES, 10), mask)


def test_dispfl_sends_what_its_mask_keeps_and_averages_each_coordinate_over_those_that_have_it() -> None:
    net, tasks = network("ring"), quadratics(noise=0.0)
    alg = ALGORITHMS["dispfl"].build(EXCHANGE, density=0.6, local_steps=1)
    states = first_states(alg, tasks, net.view)
    trained = {i: s.train(alg, tasks[i].data(0), net.view(i, 0)) for i, s in states.items()}
    masks = {i: u.extras["mask"] for i, (_, u) in trained.items()}
    assert all(int(mask.sum()) == 3 for mask in masks.values())
    _, outbox = trained[0][0].outgoing(alg, trained[0][1], 0, net.view(0, 0))
    assert {name: array.nbytes for name, array in next(iter(outbox.values())).arrays.items()} == {"x": 24, "mask": 1}
    after = play_rounds(alg, states, tasks, net.view, 1)
    for i in range(N):
        near = [i, *net.view(i, 0).out_neighbors]
        total = sum(trained[j][1].x * masks[j] for j in near)
        count = sum(masks[j].double() for j in near)
        torch.testing.assert_close(after[i].x, total / count.clamp(min=1) * masks[i], rtol=0, atol=1e-15)


# reductions of methods that the lattice's loop does not run


def test_sending_to_everybody_dfedsgpsm_s_is_dfedsgpsm() -> None:
    topology, tasks = TOPOLOGIES["full"](N, STREAMS), quadratics()
    private = Network(topology, selection=Private(Everyone()))
    chosen, plain = ALGORITHMS["dfedsgpsm_s"].build(EXCHANGE, neighbors=N), ALGORITHMS["dfedsgpsm"].build(EXCHANGE)
    left = play_rounds(chosen, first_states(chosen, tasks, private.view), tasks, private.view, 4)
    right = play_rounds(plain, first_states(plain, tasks, private.view), tasks, private.view, 4)
    assert torch.equal(stack(left), stack(right))


def test_with_one_gradient_a_round_asyng_is_osgp() -> None:
    net, tasks, params = (
        network("random_push", out_neighbors=2),
        quadratics(),
        {"lr": 0.1, "local_steps": 1, "clip_norm": None},
    )
    late, plain = (ALGORITHMS[name].build(EXCHANGE, **params) for name in ("asyng", "osgp"))
    left = play_rounds(late, first_states(late, tasks, net.view), tasks, net.view, 4)
    right = play_rounds(plain, first_states(plain, tasks, net.view), tasks, net.view, 4)
    assert torch.equal(stack(left), stack(right))
