"""What averaging keeps and comes to by the papers' equations, at the tolerances of the algorithm sheet (float64)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE, STREAMS, N, apart, network, quadratics, run, stack

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.fitness import averages_exactly, ole_is_stable
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message
from netdfl.mixing.payloads import mass, vector
from netdfl.testing.rounds import first_states, play_rounds
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.network import Network
from netdfl.topology.selection import RandomNeighbors
from netdfl.topology.spectrum import psi

MANY = 30


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
            inbox = Inbox([m for m in flying if m.dst == i and m not in late])
            state[i], x[i] = mixing.take(state[i], x[i], inbox, net.view(i, round))
        flying = late
        held = sum(x.values()) + sum((vector(m, x[0]) for m in flying), torch.zeros(DIM, dtype=torch.float64))
        total_w = sum(s.weight for s in state.values()) + sum(mass(m, "w") for m in flying)
        torch.testing.assert_close(held, total, rtol=0, atol=1e-12)
        assert total_w == pytest.approx(8, abs=1e-12)
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
    ("kind", "n", "weights", "limit"),
    [
        ("ring", 100, "auto", 0.50),
        ("grid", 100, "auto", 0.276),
        ("full", 10, "auto", 1.0),
        ("exponential", 100, "auto", 0.567),  # one way
        ("directed_ring", 10, "auto", 1.0),
        ("star", 10, "uniform", 3 / 7),  # its eigenvalues are 1, 1/2 and -2/5
        ("small_world", 30, "uniform", 0.4556),
    ],
)
def test_oles_limit_is_that_of_the_graph_and_its_weights(kind: str, n: int, weights: str, limit: float) -> None:
    net = Network(TOPOLOGIES[kind](n, Streams(0)), WEIGHTS[weights])
    (misfit,) = ole_is_stable({"beta": limit + 1e-3}, net, 10)
    assert misfit.parameter == "beta"
    assert "lazy" in misfit.remedy
    assert not list(ole_is_stable({"beta": limit - 1e-3}, net, 10))
    below, beyond = (
        np.linalg.matrix_power((1 + beta) * net.matrix(0) - beta * np.eye(n), 200)
        for beta in (limit - 0.05, limit + 0.05)
    )
    assert np.ptp(below, axis=0).max() < 10
    assert np.ptp(beyond, axis=0).max() > 1e3


def test_ole_has_no_limit_of_one_graph_where_graphs_change() -> None:
    topology = TOPOLOGIES["small_world"](12, STREAMS)
    drawn = Network(topology, WEIGHTS["uniform"], RandomNeighbors(12, STREAMS, k=2))
    for net in (network("random_sym", neighbors=2), drawn):
        assert not list(ole_is_stable({"beta": 0.99}, net, 10))


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
    (misfit,) = averages_exactly({"every": 9}, network("full"), 8)
    assert "at most 8" in misfit.remedy
