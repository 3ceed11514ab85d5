"""Whom nodes choose by loss, and how they train with momentum and masks, as the papers' equations say (float64)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from algorithm_fleets import EXCHANGE, STREAMS, N, apart, network, quadratics, stack
from hypothesis import given
from hypothesis import strategies as st

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, Payload
from netdfl.mixing.by_loss import ByLoss, ByLossState, Posted, draw_by_loss
from netdfl.mixing.payloads import mass
from netdfl.testing.loopback import run_fleet
from netdfl.testing.rounds import first_states, play_rounds
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.topology.selection import AllNeighbors, PrivateSelection
from netdfl.training.base import Update
from netdfl.training.masked import MaskedSgd, layers
from netdfl.training.sgd import LocalSgd

# DFedSGPSM-S


def test_by_loss_never_chooses_the_node_itself_and_ten_distinct_others() -> None:
    net = Network(TOPOLOGIES["full"](100, STREAMS), selection=PrivateSelection(AllNeighbors()))
    alg = ALGORITHMS["dfedsgpsm_s"].build(EXCHANGE, neighbors=10)
    tasks = apart(100)
    for node in (0, 50, 99):
        s, view = first_states(alg, tasks, net.view)[node], net.view(node, 0)
        board = {j: Posted(0, float(j % 7)) for j in range(100)}
        s = s._replace(mixing=ByLossState(s.mixing.inner, board, {}, ()))
        s, outbox = s.outgoing(alg, Update(s.x, s.x, loss=3.0), 0, view)
        assert len(outbox) == len(set(outbox)) == 10
        assert node not in outbox
        share = {round(mass(Message(node, j, Kind.DATA, 0, 0, 0, 0, p), "w"), 15) for j, p in outbox.items()}
        assert share == {round(1 / 11, 15)}


def test_by_loss_draws_as_the_equation_says() -> None:
    apart, draws = {1: 0.0, 2: 1.0, 3: 2.0}, 20_000
    noise = np.random.default_rng(0).gumbel(size=(draws, 3))
    chosen = [draw_by_loss(apart, (1, 2, 3), 1, 1.0, each)[0] for each in noise]
    p = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    shares = np.array([chosen.count(j) / draws for j in (1, 2, 3)])
    assert np.all(np.abs(shares - p) < 5 * np.sqrt(p * (1 - p) / draws))


@given(st.floats(0, allow_infinity=True), st.floats(-1e308, 1e308), st.floats(1e-3, 1e3))
def test_by_loss_is_stable_for_any_losses(own: float, other: float, temperature: float) -> None:
    far = ByLoss.apart({0: own}, own, {1: Posted(0, other), 2: Posted(0, -other)})
    assert len(set(draw_by_loss(far, (1, 2, 3), 2, temperature, np.zeros(3)))) == 2


def test_losses_are_compared_with_ones_own_of_the_same_round() -> None:
    board = {1: Posted(3, 2.0), 2: Posted(4, 1.5), 3: Posted(1, 9.0)}
    assert ByLoss.apart({3: 2.25, 4: 1.0}, 1.0, board) == {1: 0.25, 2: 0.5, 3: 8.0}


def test_a_high_temperature_forgets_the_losses() -> None:
    noise = np.array([0.3, 0.1, 0.2])
    assert draw_by_loss({1: 0.0, 2: 9.0}, (1, 2, 3), 1, 1e9, noise) == (1,)
    assert draw_by_loss({1: 0.0, 2: 9.0}, (1, 2, 3), 1, 1.0, noise) == (2,)


def test_losses_spread_on_messages_and_old_ones_are_left_out() -> None:
    net = Network(TOPOLOGIES["full"](8, STREAMS), selection=PrivateSelection(AllNeighbors()))
    tasks = quadratics(8)
    alg = ALGORITHMS["dfedsgpsm_s"].build(Exchange(wait=WaitPolicy(announce=True)), neighbors=2, max_age=4)
    kept = run_fleet(alg, net.view, tasks, 8)
    boards = [kept[i].states[-1].mixing.board for i in range(8)]
    assert all(len(board) >= 5 for board in boards)
    assert max(posted.round for posted in boards[0].values()) == 7
    sent = [posted.round for board in boards for posted in board.values()]
    assert min(sent) >= 7 - 4


@pytest.mark.parametrize("newest_from", [1, 3])
def test_the_newest_loss_of_a_node_stays_on_the_board_whoever_tells_of_it(newest_from: int) -> None:
    net = Network(TOPOLOGIES["full"](4, STREAMS), selection=PrivateSelection(AllNeighbors()))
    alg = ALGORITHMS["dfedsgpsm_s"].build(EXCHANGE, neighbors=2)
    s = first_states(alg, apart(4), net.view)[0]
    s, outbox = s.outgoing(alg, Update(s.x, s.x), 0, net.view(0, 5))
    payload, told = next(iter(outbox.values())), []
    for src in (1, 3):
        post = [2, 5, 1.0] if src == newest_from else [2, 3, 9.0]
        told.append(Message(src, 0, Kind.DATA, 0, 5, 0, 0, Payload(payload.arrays, {**payload.meta, "board": [post]})))
    mixed = alg.mixing.mix(s.mixing, Update(s.x, s.x), Inbox(told), 0, net.view(0, 5))
    assert mixed.state.board[2] == Posted(5, 1.0)


@pytest.mark.parametrize(
    "board", [None, 3, [[0, 0]], [[9, 0, 1.0]], [[0, 5, 1.0]], [[0, 0, math.nan]], [["0", 0, 1.0]]]
)
def test_a_board_with_absurd_contents_is_refused(board: Any) -> None:
    net = Network(TOPOLOGIES["full"](4, STREAMS), selection=PrivateSelection(AllNeighbors()))
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


def test_sending_to_everybody_dfedsgpsm_s_is_dfedsgpsm() -> None:
    topology, tasks = TOPOLOGIES["full"](N, STREAMS), quadratics()
    private = Network(topology, selection=PrivateSelection(AllNeighbors()))
    chosen, plain = ALGORITHMS["dfedsgpsm_s"].build(EXCHANGE, neighbors=N), ALGORITHMS["dfedsgpsm"].build(EXCHANGE)
    left = play_rounds(chosen, first_states(chosen, tasks, private.view), tasks, private.view, 4)
    right = play_rounds(plain, first_states(plain, tasks, private.view), tasks, private.view, 4)
    assert torch.equal(stack(left), stack(right))


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


# DisPFL

SHAPES = ((3, 1, 5, 5), (8,), (20, 30), (30,), (30, 10), (10,))


def masked(**options: Any) -> MaskedSgd:
    defaults: dict[str, Any] = {
        "density": 0.5,
        "layout": "erk",
        "anneal": 0.5,
        "anneal_rounds": 10,
        "regrow": "gradient",
        "streams": Streams(3),
    }
    return MaskedSgd(sgd=LocalSgd(lr=0.1, steps=1), **(defaults | options))


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
        active = {place for place in range(start, start + size) if mask[place]}
        change = math.ceil(0.25 * (1 + math.cos(0.0)) * len(active))
        kept = active - set(sorted(active, key=lambda place: sizes[place])[:change])
        grown = sorted(set(range(start, start + size)) - kept, key=lambda place: -slopes[place])[:change]
        assert {place for place in range(start, start + size) if after[place]} == kept | set(grown)
    assert int(after.sum()) == int(mask.sum())
    assert torch.equal(solver.evolved(mask, sizes, slopes, SHAPES, 10), mask)


def test_dispfl_sends_what_its_mask_keeps_and_averages_each_coordinate_over_those_that_have_it() -> None:
    net, tasks = network("ring"), quadratics(noise=0.0)
    alg = ALGORITHMS["dispfl"].build(EXCHANGE, density=0.6, local_steps=1)
    states = first_states(alg, tasks, net.view)
    trained = {i: s.train(alg, tasks[i].data(0), net.view(i, 0)) for i, s in states.items()}
    masks = {i: u.extras["mask"] for i, (_, u) in trained.items()}
    following = {i: s.local.mask for i, (s, _) in trained.items()}
    assert all(int(mask.sum()) == 3 for mask in (*masks.values(), *following.values()))
    assert any(not torch.equal(masks[i], following[i]) for i in range(N))
    _, outbox = trained[0][0].outgoing(alg, trained[0][1], 0, net.view(0, 0))
    assert {name: array.nbytes for name, array in next(iter(outbox.values())).arrays.items()} == {"x": 24, "mask": 1}
    after = play_rounds(alg, states, tasks, net.view, 1)
    for i in range(N):
        near = [i, *net.view(i, 0).out_neighbors]
        total = sum(trained[j][1].x * masks[j] for j in near)
        count = sum(masks[j].double() for j in near)
        torch.testing.assert_close(after[i].x, total / count.clamp(min=1) * following[i], rtol=0, atol=1e-15)
