"""A push-sum node whose weight is too small to divide by: its model is the one it had, and its steps add to x."""

from __future__ import annotations

import pytest
import torch
from algorithm_fleets import network, quadratics

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.core.types import Inbox
from netdfl.mixing.base import LEAST_WEIGHT, has_mass
from netdfl.mixing.push_sum import PushSumState
from netdfl.testing.rounds import first_states
from netdfl.training.base import Update


@pytest.mark.parametrize(
    ("weight", "has"),
    [(1.0, True), (LEAST_WEIGHT, True), (-LEAST_WEIGHT, True), (LEAST_WEIGHT / 2, False), (0.0, False)],
)
def test_a_node_trains_on_its_ratio_or_without_mass_on_the_model_that_it_had(weight: float, has: bool) -> None:
    alg, net, tasks = ALGORITHMS["sgp"].build(Exchange(), lr=0.1), network("directed_ring"), quadratics(noise=0.0)
    state = first_states(alg, tasks, net.view)[0]
    z, view = state.x, net.view(0, 0)
    _, plain = state.train(alg, tasks[0].data(0), view)
    small = state._replace(x=z * weight + 1e-9, mixing=PushSumState(weight), z=z)
    assert has_mass(weight) == has
    model = small.model(alg)
    _, update = small.train(alg, tasks[0].data(0), view)
    if has:
        assert torch.equal(model, small.x / weight)
        return
    assert torch.equal(model, z)
    torch.testing.assert_close(update.x - small.x, plain.x - z, rtol=0, atol=1e-12)
    assert torch.equal(update.before, small.x)
    assert not torch.equal(update.x, small.x)


def test_a_server_has_all_mass() -> None:
    alg, net, tasks = ALGORITHMS["fedavg"].build(Exchange(), lr=0.1), network("star"), quadratics()
    state = first_states(alg, tasks, net.view)[0]
    assert torch.equal(state._replace(z=state.x + 1).model(alg), state.x)


def test_a_node_that_gives_its_last_mass_away_keeps_the_model_that_it_had_then() -> None:
    alg, net, tasks = ALGORITHMS["sgp"].build(Exchange(), lr=0.1), network("directed_ring"), quadratics(noise=0.0)
    view = net.view(0, 0)
    state = first_states(alg, tasks, net.view)[0]._replace(mixing=PushSumState(LEAST_WEIGHT))
    update = Update(state.x, state.x * LEAST_WEIGHT, {}, 0.0)
    given, mixed = state.mix(alg, update, Inbox([]), 0, view)
    assert not has_mass(alg.mixing.weight(given.mixing))
    torch.testing.assert_close(given.z, state.x)
    ended = given.end_round(alg, mixed, view)
    assert ended.z is given.z
    again, _ = ended.mix(alg, Update(ended.x, ended.x + 1, {}, 0.0), Inbox([]), 0, view)
    assert again.z is given.z, "what it had while it had mass"
    rich = again._replace(mixing=PushSumState(1.0))
    assert rich.end_round(alg, mixed, view).z is None
    full = first_states(alg, tasks, net.view)[0]
    after, _ = full.mix(alg, Update(full.x, full.x, {}, 0.0), Inbox([]), 0, view)
    assert after.z is None
