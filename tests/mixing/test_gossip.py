"""Gossip: the weighted mean, in either order of mixing and stepping, and what a missing neighbor does to it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from netdfl.core.types import Inbox, Kind, Message, NodeId, View
from netdfl.mixing.base import Mixing
from netdfl.mixing.gossip import Gossip, GossipThenStep, OnMissing
from netdfl.mixing.payloads import pack, vector
from netdfl.mixing.push_sum import PushSum
from netdfl.training.base import Update

OWN = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
OTHER = {1: OWN * 10, 2: OWN * -4, 7: OWN + 5}
WEIGHTS = {1: 0.2, 2: 0.3, 7: 0.1}
VIEW = View(0, 0, 8, (1, 2, 7), (1, 2, 7), 0.4, WEIGHTS, WEIGHTS)
UPDATE = Update(OWN, OWN)


def came(*sources: NodeId, round: int = 0, awaited: tuple[NodeId, ...] = (1, 2, 7)) -> Inbox:
    messages = [Message(j, 0, Kind.DATA, 0, round, 0, 0, pack(OTHER[j])) for j in sources]
    return Inbox(messages, [j for j in awaited if j not in sources])


def mixed(mixing: Mixing, inbox: Inbox, view: View = VIEW, update: Update = UPDATE) -> Tensor:
    return mixing.mix(mixing.init(OWN, view), update, inbox, 0, view).update.x


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-14)


def test_it_is_the_weighted_mean() -> None:
    close(mixed(Gossip(), came(1, 2, 7)), 0.4 * OWN + 0.2 * OTHER[1] + 0.3 * OTHER[2] + 0.1 * OTHER[7])


def test_a_missing_neighbor_gives_its_weight_to_self() -> None:
    close(mixed(Gossip(on_missing="self"), came(1, 7)), 0.7 * OWN + 0.2 * OTHER[1] + 0.1 * OTHER[7])


def test_or_the_rest_is_scaled_up() -> None:
    expected = (0.4 * OWN + 0.2 * OTHER[1] + 0.1 * OTHER[7]) / 0.7
    close(mixed(Gossip(on_missing="renormalise"), came(1, 7)), expected)


def test_or_its_last_vector_stands_in_once_there_is_one() -> None:
    gossip = Gossip(on_missing="last")
    first = gossip.mix(gossip.init(OWN, VIEW), UPDATE, came(1, 7), 0, VIEW)
    close(first.update.x, 0.7 * OWN + 0.2 * OTHER[1] + 0.1 * OTHER[7])
    second = gossip.mix(first.state, UPDATE, came(2), 0, VIEW)
    close(second.update.x, 0.4 * OWN + 0.2 * OTHER[1] + 0.3 * OTHER[2] + 0.1 * OTHER[7])
    assert sorted(second.state.last) == [1, 2, 7]


def at(round: int) -> View:
    return VIEW._replace(round=round)


def test_a_stale_vector_stands_in_as_long_as_it_is_young_enough() -> None:
    """Of round 2 from node 1, of round 4 from node 7, in exchanges that take what is two rounds old."""
    gossip, results = Gossip(stale=2), []
    mixed = gossip.mix(gossip.init(OWN, VIEW), UPDATE, came(1, 2, 7, round=2), 0, at(2))
    mixed = gossip.mix(mixed.state, UPDATE, came(7, round=4), 0, at(4))
    for round in (4, 5, 6, 7):
        results.append((mixed.update.x, gossip.figures(mixed.state)))
        mixed = gossip.mix(mixed.state, UPDATE, came(), 0, at(round + 1))
    close(results[0][0], 0.4 * OWN + 0.2 * OTHER[1] + 0.3 * OTHER[2] + 0.1 * OTHER[7])
    close(results[1][0], 0.9 * OWN + 0.1 * OTHER[7])
    close(results[2][0], 0.9 * OWN + 0.1 * OTHER[7])
    close(results[3][0], OWN)
    assert [figures for _, figures in results] == [{"staleness": 4 / 3}, {"staleness": 1}, {"staleness": 2}, {}]


def test_of_several_stale_vectors_the_newest_is_mixed_whenever_it_came() -> None:
    gossip, older = Gossip(stale=9), Message(1, 0, Kind.DATA, 0, 3, 0, 0, pack(OWN * 1000))
    expected = 0.8 * OWN + 0.2 * OTHER[1]
    both = gossip.mix(gossip.init(OWN, VIEW), UPDATE, Inbox([*came(1, round=4), older]), 0, at(5))
    close(both.update.x, expected)
    overtaken = gossip.mix(both.state, UPDATE, Inbox([older]), 0, at(6))
    close(overtaken.update.x, expected)


def test_what_is_too_old_is_missing_and_fares_as_the_missing_do() -> None:
    for how, expected in (("renormalise", OWN), ("last", 0.8 * OWN + 0.2 * OTHER[1])):
        gossip = Gossip(stale=1, on_missing=how)
        state = gossip.mix(gossip.init(OWN, VIEW), UPDATE, came(1, round=3), 0, at(3)).state
        close(gossip.mix(state, UPDATE, came(), 0, at(5)).update.x, expected)


def test_lians_order_takes_stale_vectors_too() -> None:
    lian = GossipThenStep(stale=1)
    mixed = lian.mix(lian.init(OWN, VIEW), Update(OWN, OWN - 0.5), came(1, round=3), 0, at(4))
    close(mixed.update.x, 0.8 * OWN + 0.2 * OTHER[1] - 0.5)


@given(present=st.sets(st.sampled_from([1, 2, 7])), how=st.sampled_from(["self", "renormalise", "last"]))
def test_rows_always_sum_to_one(present: set[NodeId], how: OnMissing) -> None:
    """Equal vectors stay as they are, whoever is missing."""
    same = Inbox([Message(j, 0, Kind.DATA, 0, 0, 0, 0, pack(OWN)) for j in present], sorted({1, 2, 7} - present))
    close(mixed(Gossip(on_missing=how), same), OWN)


def test_a_message_from_a_stranger_has_no_weight() -> None:
    stranger = Message(5, 0, Kind.DATA, 0, 0, 0, 0, pack(OWN * 1000))
    inbox = Inbox([*came(1, 2, 7), stranger])
    close(mixed(Gossip(), inbox), mixed(Gossip(), came(1, 2, 7)))


def test_where_senders_are_unknown_what_came_weighs_the_same() -> None:
    view = View(0, 0, 8, (1,), None, 0.5, {}, {1: 0.5})
    close(mixed(Gossip(), came(1, 2, awaited=()), view), (OWN + OTHER[1] + OTHER[2]) / 3)
    close(mixed(Gossip(), came(awaited=()), view), OWN)


def test_the_order_of_arrival_changes_no_bit() -> None:
    thirds = View(0, 0, 8, (1, 2, 7), (1, 2, 7), 0.25, dict.fromkeys((7, 1, 2), 1 / 4), {})
    results = [mixed(Gossip(), came(*order), thirds) for order in ((1, 2, 7), (7, 2, 1), (2, 7, 1))]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_lians_order_sends_what_stood_before_and_adds_the_step_after() -> None:
    update = Update(OWN, OWN - 0.5)
    lian = GossipThenStep()
    _, outbox = lian.outgoing(lian.init(OWN, VIEW), update, 0, VIEW)
    assert torch.equal(vector(Message(0, 1, Kind.DATA, 0, 0, 0, 0, outbox[1]), OWN), OWN)
    close(mixed(lian, came(1, 2, 7), update=update), mixed(Gossip(), came(1, 2, 7)) - 0.5)


@pytest.mark.parametrize("mixing", [Gossip(), GossipThenStep(), PushSum(), Gossip(steps=2)], ids=repr)
def test_what_was_sent_is_a_snapshot(mixing: Mixing) -> None:
    x = OWN.clone()
    _, outbox = mixing.outgoing(mixing.init(x, VIEW), Update(x, x), 0, VIEW)
    payload = outbox[1]
    before = bytes(payload.arrays["x"].data)
    x.zero_()
    assert bytes(payload.arrays["x"].data) == before
    assert payload.arrays["x"].data.readonly


@pytest.mark.parametrize("mixing", [Gossip(), GossipThenStep(), Gossip(steps=2)], ids=repr)
def test_one_payload_is_shared_by_all_neighbors(mixing: Mixing) -> None:
    _, outbox = mixing.outgoing(mixing.init(OWN, VIEW), UPDATE, 0, VIEW)
    assert tuple(outbox) == (1, 2, 7)
    assert len({id(payload) for payload in outbox.values()}) == 1


@pytest.mark.parametrize("num", [1, 2, 5])
def test_any_mixing_may_take_several_steps_a_round(num: int) -> None:
    gossip, push = Gossip(steps=num), PushSum(steps=num)
    assert (gossip.push, push.push) == (False, True)
    assert gossip.num_steps(0, VIEW) == push.num_steps(0, VIEW) == num
    assert push.weight(push.init(OWN, VIEW)) == 1.0
