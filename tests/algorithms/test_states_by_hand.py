"""A node's state and its desk by hand: a model without mass, whose code draws, what is asked twice or not said."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE

from netdfl.algorithms.base import LocalRound, NodeState
from netdfl.algorithms.bilateral import Desk
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.families import first_state
from netdfl.core.types import Kind, Message, Payload, View
from netdfl.mixing.base import LEAST_WEIGHT
from netdfl.mixing.payloads import pack
from netdfl.training.base import Update

X = torch.linspace(1.0, 2.0, DIM, dtype=torch.float64)
VIEW = View(0, 0, 3, (1, 2), (1, 2), 0.5, {1: 0.25, 2: 0.25}, {1: 0.25, 2: 0.25})


@pytest.mark.parametrize("weight", [2.0, 1.0, 0.5, LEAST_WEIGHT, LEAST_WEIGHT / 2])
def test_a_model_is_the_numerator_by_its_weight_where_none_lies_beside_it(weight: float) -> None:
    alg = ALGORITHMS["sgp"].build(EXCHANGE)
    state = first_state(X, alg, VIEW)._replace(mixing=alg.mixing.init(X, VIEW)._replace(weight=weight))
    assert torch.equal(state.model(alg), X / weight)
    beside = state._replace(z=2 * X).model(alg)
    assert torch.equal(beside, 2 * X if weight < LEAST_WEIGHT else X / weight)


def test_only_a_users_own_solver_may_draw_beside_its_steps() -> None:
    class Own:
        def init(self, x: Any, view: View) -> tuple[()]:
            return ()

        def train(self, state: Any, y: Any, *more: Any) -> Any:
            return state, Update(y, y)

        def after_mix(self, state: Any, *more: Any) -> Any:
            return state

    asked = list[bool]()

    def drawing(*, anyway: bool) -> Any:
        asked.append(anyway)
        return nullcontext()

    plain = ALGORITHMS["dpsgd"].build(EXCHANGE)
    data: Any = SimpleNamespace(drawing=drawing, steps=lambda **limits: iter(()), num_samples=1, shapes=((DIM,),))
    for alg, own in ((plain, False), (replace(plain, local=Own()), True)):  # type: ignore[arg-type]
        asked.clear()
        state, update = LocalRound(first_state(X, alg, VIEW), alg, data, VIEW)()
        assert asked == [own]
        assert update.x is X
        assert isinstance(state, NodeState)
    without: Any = SimpleNamespace(steps=lambda **limits: iter(()), num_samples=1, shapes=((DIM,),))
    with LocalRound(first_state(X, plain, VIEW), plain, without, VIEW).drawing():
        pass


class Node:
    def __init__(self) -> None:
        self.replied, self.drawn = list[Payload](), list[tuple[Any, ...]]()

    def drawing(self, *key: Any) -> Any:
        self.drawn.append(key)
        return nullcontext()

    def reply(self, request: Message, payload: Payload) -> None:
        self.replied.append(payload)


def test_what_is_asked_twice_gets_the_same_answer_and_moves_nothing() -> None:
    node, mixing = Node(), ALGORITHMS["ad_psgd"].build(EXCHANGE).mixing
    desk = Desk(node, mixing, 0 * X)  # type: ignore[arg-type]

    def ask(round: int, epoch: int = 0, src: int = 1) -> bool:
        before, count = desk.x, len(node.replied)
        desk.answer(Message(src, 0, Kind.REQUEST, epoch, round, 0, 0, pack(X)))
        return len(node.replied) > count and desk.x is not before

    assert ask(0)
    assert torch.equal(desk.x, X / 2)
    assert not ask(0)
    assert node.replied[1] is node.replied[0]
    assert ask(0, src=2), "of another peer"
    assert ask(1)
    assert not ask(0)
    assert len(node.replied) == 4, "a copy of an earlier one gets no answer"
    assert ask(0, epoch=1), "a new life"
    assert not ask(9, epoch=0)
    assert len(node.replied) == 5
    assert [key[:2] for key in node.drawn] == [("answer", 0), ("answer", 0), ("answer", 1), ("answer", 0)]
