"""Losses as a run had them: by each part of a message's name, in order, and by a draw where none is left."""

from __future__ import annotations

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.core.types import Kind
from netdfl.links.rules.base import DROPPED, Transit
from netdfl.links.rules.loss import Bernoulli, Loss
from netdfl.links.rules.recorded import RecordedFate, RecordedLoss
from netdfl.scenario.load import load

NAME = {"kind": Kind.ACK, "round": 3, "step": 1, "attempt": 2, "incarnation": 1}
LOST = RecordedFate(lost=True, **NAME)


def unit(**changes: object) -> Transit:
    named = {**NAME, **changes}
    life = named.pop("incarnation")
    return Transit(0, 1, nbytes=100, incarnation=life, **named)


def test_a_listed_message_is_lost_and_one_that_differs_in_any_part_of_its_name_is_not() -> None:
    others = [{"kind": Kind.DATA}, {"round": 4}, {"step": 0}, {"attempt": 1}, {"incarnation": 0}]
    model = RecordedLoss(7, messages=[LOST])
    assert not any(model.lost(unit(**changes)) for changes in others)
    stage = Loss(model)
    assert stage.advance(unit(), 5) == DROPPED
    assert stage.advance(unit(), 6) == 6


def test_a_fate_names_first_attempts_of_data_that_came_unless_it_says_otherwise() -> None:
    data = Transit(0, 1, Kind.DATA, 3, 0, 0, 100)
    assert RecordedLoss(7, messages=[RecordedFate(3, lost=True)]).lost(data)
    assert not RecordedLoss(7, messages=[RecordedFate(3)], otherwise=1.0).lost(data)
    assert not RecordedLoss(7, messages=[]).lost(data)


def test_of_messages_with_one_name_each_has_its_own_fate_in_order_and_then_they_are_drawn() -> None:
    kept = RecordedFate(**NAME)
    model = RecordedLoss(7, messages=[kept, LOST, kept], otherwise=1.0)
    assert [model.lost(unit()) for _ in range(4)] == [False, True, False, True]


@pytest.mark.parametrize("otherwise", [0.0, 0.3, 1.0])
def test_messages_that_are_not_listed_have_the_luck_of_the_same_link_by_chance(otherwise: float) -> None:
    model, chance = RecordedLoss(7, messages=[LOST], otherwise=otherwise), Bernoulli(7, probability=otherwise)
    units = [unit(round=round) for round in range(4, 200)]
    assert [model.lost(each) for each in units] == [chance.lost(each) for each in units]


def test_packets_have_no_names() -> None:
    rule = "links={'0->1': {loss: {model: recorded, messages: [{round: 3}]}}}"
    with pytest.raises(ScenarioError, match="a packet has no name: recorded loses messages"):
        load("scenarios/quickstart.yaml", ["world={kind: simulated, loss_layer: packet}", rule])
