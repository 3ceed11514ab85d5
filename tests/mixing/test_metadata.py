"""What a message says beside its arrays is of its type, or the message is refused, named by who sent it."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch

from netdfl.compression.arrays import snapshot
from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, Message, Payload, View
from netdfl.mixing.by_loss import ByLoss, Posted
from netdfl.mixing.compressed.references import _mark
from netdfl.mixing.gossip import Gossip
from netdfl.mixing.payloads import natural, some_nodes
from netdfl.mixing.synthetic import _synthetic
from netdfl.training.base import Update
from netdfl.training.guided import INPUTS, LABELS


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
GOOD = {INPUTS: torch.zeros(2, 5), LABELS: torch.tensor([0, 3])}


def synthesized(arrays: dict[str, torch.Tensor]) -> Message:
    return Message(3, 0, Kind.DATA, 0, 7, 0, 0, Payload({name: snapshot(array) for name, array in arrays.items()}))


@pytest.mark.parametrize(
    "wrong",
    [
        {INPUTS: torch.zeros(2, 5, dtype=torch.float64)},
        {INPUTS: torch.tensor([[nan], [0.0]])},
        {INPUTS: torch.zeros(3, 5)},
        {LABELS: torch.tensor([0, 3], dtype=torch.int32)},
        {LABELS: torch.tensor([0.0, 1.0], dtype=torch.float64)},
        {LABELS: torch.tensor([0, -1])},
        {LABELS: torch.tensor([0.0, inf])},
        {LABELS: torch.zeros(3, dtype=torch.int64)},
        {INPUTS: None},
        {LABELS: None},
    ],
)
def test_synthetic_examples_are_finite_inputs_with_as_many_labels_from_0(wrong: dict[str, torch.Tensor | None]) -> None:
    arrays = {name: array for name, array in (GOOD | wrong).items() if array is not None}
    with pytest.raises(MalformedMessage, match="message 3->0 of round 7: expected"):
        _synthetic(synthesized(arrays), X)


@pytest.mark.parametrize("labels", [torch.tensor([0, 3]), torch.tensor([0.0, 2.5])])
def test_good_synthetic_examples_come_as_they_were_sent(labels: torch.Tensor) -> None:
    found = _synthetic(synthesized(GOOD | {LABELS: labels}), X)
    assert torch.equal(found[INPUTS], GOOD[INPUTS])
    assert torch.equal(found[LABELS], labels)
    assert _synthetic(synthesized({}), X) == {}


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


def test_a_mark_tells_what_was_said_apart_and_is_a_whole_number_that_the_wire_holds() -> None:
    said = [Payload({"x": snapshot(torch.tensor([float(i)]))}, {"version": v}) for i in range(20) for v in (1, 2)]
    said.append(Payload({"y": snapshot(torch.tensor([0.0]))}, {"version": 1}))
    marks = [_mark(after, payload) for after in (1, 2, 2**63) for payload in said]
    assert all(1 <= mark <= 2**63 for mark in marks)
    assert len(set(marks)) == len(marks)
    assert marks == [_mark(after, payload) for after in (1, 2, 2**63) for payload in said]
