"""What a message says beside its arrays is of its type, or the message is refused, named by who sent it."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
import torch

from netdfl.compression.identity import IdentityCompressor
from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, Payload, View
from netdfl.mixing.by_loss import ByLoss, Posted
from netdfl.mixing.compressed.gossip import lazily
from netdfl.mixing.gossip import Gossip, row
from netdfl.mixing.payloads import (
    MOST_PASSES,
    PASSES,
    encoded_vector,
    join_passes,
    natural,
    pack,
    pack_encoded,
    some_nodes,
    unpack_encoded,
)
from netdfl.training.base import Update


def said(**meta: object) -> Message:
    return Message(3, 0, Kind.DATA, 0, 7, 0, 0, Payload({}, meta))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 0, -1, True, 1.0, "1", [1], nan, inf])
def test_a_whole_number_is_one_from_1(value: object) -> None:
    with pytest.raises(MalformedMessage, match=r"message 3->0 of round 7: expected a whole number 'version' from 1"):
        natural(said(version=value), "version")
    assert natural(said(version=1), "version") == 1


@pytest.mark.parametrize("value", [None, 5, "34", {"1": 2}, [1, "2"], [1.0], [True], ["3", 4]])
def test_nodes_are_a_list_of_whole_numbers(value: object) -> None:
    with pytest.raises(MalformedMessage, match=r"message 3->0 of round 7: expected nodes under 'ask'"):
        some_nodes(said(ask=value), "ask")


def test_nodes_that_are_not_named_are_none() -> None:
    assert some_nodes(said(), "ask") == some_nodes(said(ask=[]), "ask") == ()
    assert some_nodes(said(ask=[4, 2]), "ask") == some_nodes(said(ask=(4, 2)), "ask") == (4, 2)


X = torch.zeros(3)


def test_a_posted_loss_is_known_for_as_many_rounds_as_may_be() -> None:
    mixing = ByLoss(inner=Gossip(), neighbors=1, temperature=1.0, max_age=2, streams=Streams(0))
    parts = dict.fromkeys((1, 2, 3), 0.25)
    view = View(0, 5, 4, (1, 2, 3), (1, 2, 3), 0.25, parts, parts)
    posted = {1: Posted(2, 1.0), 2: Posted(3, 1.0), 3: Posted(5, 1.0)}
    state = mixing.init(X, view)._replace(board=posted, own={2: 0.5, 3: 0.5, 4: 0.5})
    after, _ = mixing.outgoing(state, Update(X, X, {}, 0.25), 0, view)
    assert after.board == {2: Posted(3, 1.0), 3: Posted(5, 1.0), 0: Posted(5, 0.25)}
    assert after.own == {3: 0.5, 4: 0.5, 5: 0.25}
    after, _ = mixing.outgoing(state, Update(X, X, {}, nan), 0, view)
    assert 0 not in after.board
    assert 5 not in after.own


def test_gossip_takes_nothing_of_an_earlier_round_unless_that_is_said() -> None:
    assert Gossip() == Gossip(on_missing="self", stale=0)
    assert Gossip() != Gossip(on_missing="self", stale=1)


def test_a_codes_arrays_have_names_that_another_version_reads() -> None:
    identity = IdentityCompressor()
    one, two, other = (
        pack_encoded(identity.compress(torch.full((3,), number), np.random.default_rng(0)), nth, of)
        for number, nth, of in ((1.0, 1, "code"), (2.0, 2, "code"), (4.0, 1, "control"))
    )
    assert [sorted(each.arrays) for each in (one, two, other)] == [
        ["code.values"],
        ["code2.values"],
        ["control.values"],
    ]
    both = join_passes(one, two, 2)
    assert sorted(both.arrays) == ["code.values", "code2.values"]
    assert torch.equal(unpack_encoded(both, identity, X), torch.full((3,), 3.0)), "passes add up"
    assert torch.equal(unpack_encoded(both, identity, X, 2), torch.full((3,), 2.0))
    assert torch.equal(unpack_encoded(other, identity, X, 1, "control"), torch.full((3,), 4.0))
    for passes in (0, MOST_PASSES + 1, True, "1"):
        with pytest.raises(MalformedMessage, match=f"expected 1 to {MOST_PASSES} {PASSES}, got {passes!r}"):
            unpack_encoded(Payload(one.arrays, {**one.meta, PASSES: passes}), identity, X)
    with pytest.raises(MalformedMessage, match="expected a mapping under 'code', got 3"):
        unpack_encoded(Payload(one.arrays, {"code": 3}), identity, X)
    sent = Message(3, 0, Kind.DATA, 0, 7, 0, 0, Payload(one.arrays, {"code": 3}))
    with pytest.raises(MalformedMessage, match="message 3->0 of round 7: expected a mapping") as caught:
        encoded_vector(sent, identity, X)
    assert caught.value.message is sent


def test_a_lazy_mean_keeps_what_is_its_own_and_the_weights_of_those_that_are_missing() -> None:
    view = View(0, 0, 4, (1, 2, 3), (1, 2, 3), 0.4, {1: 0.3, 2: 0.2, 3: 0.1}, {1: 0.3, 2: 0.2, 3: 0.1})
    for size in (3, 100_000):
        x, own, one, two = (torch.full((size,), number) for number in (10.0, 2.0, 5.0, 7.0))
        found = lazily(x, own, {2: two, 1: one, 9: x}, {1: 1.0, 2: 0.5}, view)
        kept = 0.4 + 0.1 + 0.5 * 0.2  # what is its own, what is missing, and half of what 2 weighs
        assert torch.allclose(found, torch.full((size,), kept * 2.0 + 0.3 * 5.0 + 0.1 * 7.0 + (10.0 - 2.0)))
        assert torch.equal(own, torch.full((size,), 2.0))


def test_weights_are_uniform_over_what_came_where_nobody_knows_who_sends_and_by_shares_where_they_are_little() -> None:
    unknown = View(0, 0, 4, (1,), None, 0.5, {}, {1: 0.5})
    assert row(unknown, [2, 3, 7]) == ({2: 0.25, 3: 0.25, 7: 0.25}, 0.25)
    assert row(unknown, []) == ({}, 1.0)
    assert row(unknown._replace(in_neighbors=(1,), in_weights={1: 0.5}), [2]) == ({1: 0.5}, 0.5)
    little = View(0, 0, 4, (1, 2, 3), (1, 2, 3), 1e-10, {1: 1e-10, 2: 1.0 - 3e-10, 3: 1e-10}, {})
    inbox = Inbox([Message(1, 0, Kind.DATA, 0, 0, 0, 0, pack(torch.full((3,), 8.0)))], [2, 3])
    _, found = Gossip(on_missing="renormalise").average(Gossip().init(X, little), X + 2.0, inbox, little)
    assert torch.allclose(found, torch.full((3,), 5.0)), "half each, as their weights are to each other"
    alone = little._replace(self_weight=0.0)
    _, own = Gossip(on_missing="renormalise").average(Gossip().init(X, alone), X + 2.0, Inbox([], [1, 2, 3]), alone)
    assert torch.equal(own, X + 2.0)
    half = View(0, 0, 4, (1, 2), (1, 2), 0.5, {1: 0.25, 2: 0.25}, {})
    for how, value in (("renormalise", (0.5 * 2 + 0.25 * 8) / 0.75), ("self", 0.75 * 2 + 0.25 * 8)):
        _, mean = Gossip(on_missing=how).average(Gossip().init(X, half), X + 2.0, inbox, half)  # type: ignore[arg-type]
        assert torch.allclose(mean, torch.full((3,), value))
