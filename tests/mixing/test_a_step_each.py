"""Plain mixings worked out by hand, a step each: rows and shares, what is late, who is asked, slow and fast servers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.rng import Streams
from netdfl.core.types import Acknowledgement, Inbox, Kind, Message, Payload, Role, View
from netdfl.mixing.averaging import Averaging
from netdfl.mixing.base import has_mass
from netdfl.mixing.compressed.gossip import Choco
from netdfl.mixing.compressed.references import Differences
from netdfl.mixing.dynamic import DynamicAveraging
from netdfl.mixing.gossip import Gossip, GossipThenStep
from netdfl.mixing.pairwise import Pairwise
from netdfl.mixing.payloads import pack, vector
from netdfl.mixing.push_sum import OverlappedPushSum, PushSum
from netdfl.mixing.running_sums import RunningSums
from netdfl.mixing.slow_momentum import SlowMomentum
from netdfl.training.base import Received, Update

X = torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=torch.float64)
Y = torch.tensor([3.0, 0.0, -1.5, 1.0], dtype=torch.float64)
QSGD = COMPRESSORS["qsgd"]()


def view(node: int = 0, round: int = 0, **more: Any) -> View:
    """Of three nodes that all hear each other, a quarter from each."""
    others = tuple(j for j in range(3) if j != node)
    quarter = dict.fromkeys(others, 0.25)
    return View(node, round, 3, others, others, 0.5, quarter, quarter)._replace(**more)


def message(payload: Payload, src: int = 1, round: int = 0, step: int = 0) -> Message:
    return Message(src, 0, Kind.DATA, 0, round, step, 0, payload)


def test_gossip_is_a_sum_by_the_row_and_lians_adds_the_step() -> None:
    came = [message(pack(k * Y), src=k) for k in (1, 2)]
    for mixing, expected in (
        (Gossip(), 0.5 * X + 0.25 * (Y + 2 * Y)),
        (GossipThenStep(), 0.5 * -X + 0.25 * 3 * Y + (X + X)),
    ):
        state = mixing.init(X, view())
        mixed = mixing.mix(state, Update(-X, X), Inbox(came), 0, view())
        torch.testing.assert_close(mixed.update.x, expected, rtol=1e-15, atol=1e-15)
        assert mixed.state is state
        assert mixed.received == Received()


def test_the_age_of_what_was_mixed_is_counted_in_rounds() -> None:
    gossip, at = Gossip(stale=2), view(round=6)
    state = gossip.init(X, at)
    assert gossip.figures(state) == {}
    came = [message(pack(Y), src=1, round=5), message(pack(Y), src=2, round=6)]
    state = gossip.mix(state, Update(X, X), Inbox(came), 0, at).state
    assert gossip.figures(state) == {"staleness": 0.5}
    state = gossip.mix(state, Update(X, X), Inbox(), 0, view(round=7)).state
    assert gossip.figures(state) == {"staleness": 1.5}
    state = gossip.mix(state, Update(X, X), Inbox(), 0, view(round=8)).state
    assert gossip.figures(state) == {"staleness": 2.0}, "one is too old"
    assert gossip.figures(gossip.mix(state, Update(X, X), Inbox(), 0, view(round=9)).state) == {}


def test_of_one_neighbors_messages_the_later_step_is_the_newer() -> None:
    gossip, at = Gossip(on_missing="last"), view()
    state = gossip.init(X, at)
    for round, step, k, known in ((0, 1, 1, 1), (0, 0, 2, 1), (0, 2, 3, 3), (1, 0, 4, 4), (0, 9, 5, 4)):
        state = gossip.mix(state, Update(X, X), Inbox([message(pack(k * Y), round=round, step=step)]), 0, at).state
        assert torch.equal(state.last[1], known * Y)


def test_shares_that_overlap_are_given_away_and_taken_whenever_they_come() -> None:
    mixing = OverlappedPushSum(before_training=True, lag=None)
    state, x, outbox = mixing.give(mixing.init(X, view()), X, view())
    assert (state.weight, x.tolist()) == (0.5, (X / 2).tolist())
    assert {j: payload.meta["w"] for j, payload in outbox.items()} == {1: 0.25, 2: 0.25}
    back = [message(payload) for payload in outbox.values()]
    state, x = mixing.take(state, x, Inbox(back[:1], (), [Acknowledgement(each, False) for each in back[1:]]), view())
    assert (state.weight, x.tolist()) == (1.0, X.tolist())


def test_a_counter_grows_by_each_share_and_gives_what_it_has_grown_by() -> None:
    sums = RunningSums()
    state, update = sums.init(X, view()), Update(X, X)
    state, first = sums.outgoing(state, update, 0, view())
    assert first[1] is first[2]
    state, second = sums.outgoing(state._replace(weight=0.5), Update(Y, Y), 0, view(out_weights={1: 0.25, 2: 0.5}))
    assert second[1] is not second[2]
    assert (second[1].meta["w"], second[2].meta["w"]) == (0.375, 0.5)
    torch.testing.assert_close(vector(message(second[2]), X), X / 4 + Y / 2)
    heard = sums.init(Y, view(1))
    at = view(1)
    for payload, round, step, gained in ((first[1], 2, 1, 0.25), (second[1], 2, 1, 0.0), (second[1], 2, 2, 0.125)):
        mixed = sums.mix(heard._replace(weight=1.0), Update(Y, Y), Inbox([message(payload, 0, round, step)]), 0, at)
        assert mixed.state.weight == 0.5 + gained
        heard = mixed.state


@pytest.mark.parametrize("asker", range(6))
def test_successors_are_asked_in_turn_beginning_with_the_next_higher_one(asker: int) -> None:
    mixing = Pairwise(order="successor", streams=Streams(0))
    peers = tuple(j for j in (5, 0, 3, 1) if j != asker)
    asked = [mixing.peer(View(asker, round, 6, peers, peers, 1.0, {}, {})) for round in range(2 * len(peers))]
    around = sorted(peers)
    above = [j for j in around if j > asker]
    assert asked[0] == (above or around)[0]
    places = [around.index(j) for j in asked if j is not None]
    assert all((after - before) % len(around) == 1 for before, after in pairwise(places))
    assert mixing.asks_first
    assert not Pairwise(order="random", streams=Streams(0)).asks_first
    assert mixing.push
    assert Pairwise(order="random", streams=Streams(0)).step == "before"


def test_a_slow_step_is_taken_after_the_last_exchange_of_a_round_in_which_it_is_due() -> None:
    slow = SlowMomentum(inner=Gossip(steps=2), every=3, alpha=0.5, beta=0.25, base_mixes=False, rate=lambda view: 0.1)
    assert [slow.num_steps(round, view()) for round in range(6)] == [0, 0, 2, 0, 0, 2]
    assert not slow.push
    state = slow.init(X, view())._replace(momentum=Y)
    alone = Inbox([], [1, 2])
    first = slow.mix(state, Update(X, Y), alone, 0, view(round=2))
    assert torch.equal(first.update.x, Y)
    assert torch.equal(first.state.anchor, X)
    last = slow.mix(first.state, first.update, alone, 1, view(round=2))
    moved = 0.25 * Y + (X - Y) / 0.1
    torch.testing.assert_close(last.state.momentum, moved)
    torch.testing.assert_close(last.update.x, X - 0.5 * 0.1 * moved)
    assert last.state.anchor is last.update.x


def test_a_server_averages_by_examples_and_goes_as_far_as_it_is_told() -> None:
    counts = {1: 3.0, 2: 1.0}
    reports = [message(pack(k * Y, {"samples": torch.tensor([n], dtype=X.dtype)}), k) for k, n in counts.items()]
    at = view(role=Role.SERVER)
    for by_samples, mean in ((False, 1.5 * Y), (True, 1.25 * Y)):
        for server_lr in (1.0, 0.5):
            server = Averaging(server_lr=server_lr, by_samples=by_samples)
            found = server.aggregate(server.init_server(X, at), X, Inbox(reports), at)[1]
            torch.testing.assert_close(found, X + server_lr * (mean - X))
    dynamic = DynamicAveraging()
    state, found = dynamic.aggregate(dynamic.init_server(X, at), X, Inbox(reports), at)
    torch.testing.assert_close(state.drift, ((Y - X) + (2 * Y - X)) / 3)
    torch.testing.assert_close(found, 1.5 * Y + state.drift)


def test_a_weight_is_mass_from_two_to_the_minus_eighty_on() -> None:
    assert has_mass(2.0**-80)
    assert has_mass(-1.0)
    assert not has_mass(0.99 * 2.0**-80)
    assert PushSum().push
    assert not Gossip().push
    assert not Choco(differences=Differences(compressor=QSGD)).push
