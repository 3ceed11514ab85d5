"""NaN and infinity at a node's door, requests that wait to be answered, and what a user's own parts draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.core.errors import MalformedMessage, NotFiniteMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, Payload
from netdfl.mixing.base import LEAST_WEIGHT
from netdfl.mixing.payloads import pack
from netdfl.node.not_finite import HEAVY, LONGEST, OUTLYING, NonFinitePolicy
from netdfl.node.own_draws import OwnDraws
from netdfl.node.requests import Requests
from netdfl.transport.base import Fate

GOOD, NAN, INF = (pack(torch.tensor([1.0, value])) for value in (2.0, math.nan, -math.inf))


def message(src: int, payload: Any = GOOD, **more: Any) -> Message:
    return Message(src, 9, Kind.DATA, 0, 4, 1, 0, payload)._replace(**more)


class Ledger:
    """Notes what was mixed all the same, and what was refused."""

    def __init__(self) -> None:
        self.mixed, self.said = list[Message](), list[tuple[Any, ...]]()
        self.mixed_not_finite = self.mixed.append
        self.odd = list[tuple[Any, ...]]()

    def outlier(self, message: Message, *said: Any) -> None:
        self.odd.append((message.src, *said))

    def refused(self, *said: Any) -> None:
        self.said.append(said)


def screen(how: Any) -> tuple[Any, Ledger]:
    ledger: Any = Ledger()
    return NonFinitePolicy(how, ledger), ledger


def test_messages_with_nan_or_infinity_are_found() -> None:
    bad = [message(1, NAN), message(3, INF)]
    inbox = Inbox([message(0), *bad, message(4)])
    assert NonFinitePolicy.not_finite(inbox) == bad
    assert NonFinitePolicy.only_finite(Inbox([message(0), message(4)])).messages == (message(0), message(4))
    with pytest.raises(NotFiniteMessage, match=r"message 1->9 of round 4: NaN or infinity") as caught:
        NonFinitePolicy.only_finite(inbox)
    assert caught.value.message == bad[0]


def test_what_is_known_to_be_finite_is_not_looked_at_again() -> None:
    known = pack(torch.tensor([math.nan]))
    known.length = 1.0
    assert NonFinitePolicy.not_finite(Inbox([message(1, known)])) == []


def models(*lengths: float, w: float | None = None, **more: Any) -> Inbox:
    """A model of each length, or x of it where there are weights; node 0 sends the first, node 1 the next."""
    meta = {} if w is None else {"w": w}
    return Inbox([message(j, pack(torch.tensor([0.0, each]), meta=meta), **more) for j, each in enumerate(lengths)])


def test_infinite_squares_and_nan_are_refused_and_the_first_such_sender_is_told() -> None:
    its, ledger = screen("refuse")
    fine = models(1.0, 2.0)
    assert its.screen(fine) is fine
    assert its.screen(Inbox([])).messages == ()
    with pytest.raises(NotFiniteMessage, match=r"1->9 of round 4: numbers up to 3e\+38, whose squares are infinite$"):
        its.screen(models(1.0, -3e38, math.nan))
    with pytest.raises(NotFiniteMessage, match=r"message 2->9 of round 4: NaN or infinity$"):
        its.screen(models(1.0, 1.0, math.nan))
    assert ledger.odd == []


def test_the_first_model_of_a_sender_that_is_out_of_proportion_is_recorded_and_does_not_become_usual() -> None:
    its, ledger = screen("refuse")
    its.screen(models(2.0, 4.0))
    its.screen(models(4 * OUTLYING, 3.0))
    assert ledger.odd == [], "so long it may be"
    its.screen(models(1.0, 8 * OUTLYING * OUTLYING, 8 * OUTLYING * OUTLYING))
    sizes = ("model", 8 * OUTLYING * OUTLYING, 4 * OUTLYING)
    assert ledger.odd == [(1, *sizes), (2, *sizes)]
    its.screen(models(8 * OUTLYING * OUTLYING, 8 * OUTLYING * OUTLYING))
    assert ledger.odd[2:] == [(0, *sizes)]


def test_of_the_first_models_the_shortest_is_usual_unless_it_is_nothing() -> None:
    its, ledger = screen("refuse")
    its.screen(models(0.0, 0.0))
    its.screen(models(0.0, 8 * OUTLYING))
    its.screen(models(8 * OUTLYING * OUTLYING))
    assert ledger.odd == []
    its, ledger = screen("refuse")
    its.screen(models(8 * OUTLYING, 2.0))
    assert ledger.odd == [(0, "model", 8 * OUTLYING, 2.0)]


def test_of_a_share_the_model_is_x_by_w_and_the_weight_is_looked_at_too() -> None:
    its, ledger = screen("refuse")
    its.screen(models(1.0, w=0.5))
    its.screen(models(1.0, w=0.5 * HEAVY))
    assert ledger.odd == []
    its.screen(models(1.0, w=0.5 * HEAVY * HEAVY * 2))
    assert ledger.odd == [(0, "weight", HEAVY * HEAVY, 0.5 * HEAVY)]
    its.screen(models(1.0, w=LEAST_WEIGHT))
    assert ledger.odd[1:] == [(0, "model", 1.0 / LEAST_WEIGHT, 2.0)]


@pytest.mark.parametrize(("w", "size"), [(0.0, LONGEST), (LEAST_WEIGHT / 2, None)])
def test_a_model_without_weight_is_as_long_as_can_be_but_of_a_node_that_returned(w: float, size: float | None) -> None:
    its, ledger = screen("refuse")
    its.screen(models(1.0, w=0.5))
    its.screen(models(1.0, w=w, epoch=1))
    its.screen(models(0.0, w=w))
    assert ledger.odd == []
    its.screen(models(1.0, w=w))
    assert ledger.odd == ([] if size is None else [(0, "model", size, 2.0)])


def test_a_weight_below_0_is_no_measure_of_others() -> None:
    its, ledger = screen("refuse")
    its.screen(models(1.0, w=-1.0))
    its.screen(models(1.0, w=1.0))
    assert ledger.odd == []


def test_what_is_no_model_is_not_compared() -> None:
    its, ledger = screen("refuse")
    its.screen(models(1.0))
    its.screen(models(1e9, kind=Kind.BOARD))
    its.screen(Inbox([message(1, Payload({"other": pack(torch.tensor([1e9])).arrays["x"]}))]))
    its.screen(Inbox([message(1), message(2, Payload({}, {"w": "much"}))]))
    assert ledger.odd == []
    its.screen(models(1e9))
    assert len(ledger.odd) == 1


@pytest.mark.parametrize("how", ["refuse", "count", "pass"])
def test_requests_are_answered_once_they_were_looked_at_as_the_scenario_says(how: str) -> None:
    its, ledger = screen(how)
    answered: list[int] = []

    def answer(request: Message) -> None:
        answered.append(request.src)

    assert its.requests(None) is None
    looks: Callable[[Message], None] = its.requests(answer)
    assert (looks is answer) == (how == "pass")
    looks(message(1))
    if how == "refuse":
        with pytest.raises(NotFiniteMessage):
            looks(message(3, NAN))
    else:
        looks(message(3, NAN))
    assert answered == ([1] if how == "refuse" else [1, 3])
    assert [m.src for m in ledger.mixed] == ([3] if how == "count" else [])


def test_a_failed_round_is_blamed_on_those_whose_numbers_were_mixed() -> None:
    its, ledger = screen("count")
    bad = torch.tensor([1.0, math.inf])
    assert its.blame(bad) == ": the model was not finite when the round began"
    its.count([message(5, NAN), message(3, NAN)])
    its.count([message(3, INF)])
    assert [m.src for m in ledger.mixed] == [5, 3, 3]
    said = ": the model was not finite when the round began, as what node 3 had sent, as what node 5 had sent"
    assert its.blame(bad) == said
    assert its.blame(torch.ones(2)) == ""


# requests


def test_requests_wait_in_order_until_somebody_answers_and_again_when_nobody_does() -> None:
    ledger: Any = Ledger()
    requests, answered = Requests(ledger), list[int]()
    first, second, third = (message(src, round=src) for src in (1, 3, 4))
    assert (requests.serving, requests.kept, requests.answered) == (False, (), {})
    assert [requests.deliver(each) for each in (first, second)] == [Fate.DELIVERED] * 2
    assert requests.kept == ((1, 1, 1), (3, 3, 1))
    requests.serve(lambda request: answered.append(request.src))
    assert (requests.serving, requests.kept, answered) == (True, (), [1, 3])
    assert requests.deliver(third) is Fate.DELIVERED
    assert answered == [1, 3, 4]
    requests.serve(None)
    assert requests.deliver(first) is Fate.DELIVERED
    assert (requests.serving, requests.kept, answered) == (False, ((1, 1, 1),), [1, 3, 4])


def test_a_malformed_request_is_refused_by_its_edge_and_the_next_is_answered() -> None:
    ledger: Any = Ledger()
    requests, answered = Requests(ledger), list[int]()

    def answer(request: Message) -> None:
        if request.src == 1:
            raise MalformedMessage("no vector", request)
        answered.append(request.src)

    requests.deliver(message(1))
    requests.deliver(message(3))
    requests.serve(answer)
    assert requests.deliver(message(1)) is Fate.REFUSED
    assert requests.deliver(message(4)) is Fate.DELIVERED
    assert (answered, ledger.said) == ([3, 4], [((1, 9), "malformed", "no vector")] * 2)


# own draws

PLAIN = ALGORITHMS["dfedavg"].build(Exchange())


@dataclass(frozen=True)
class Mine:
    """A part that is no part of netdfl."""


OWN: Algorithm = replace(PLAIN, refine=Mine())  # type: ignore[arg-type]


def draws(node: int = 2, seed: int = 3) -> OwnDraws:
    found = OwnDraws.of(node, OWN, Streams(seed))
    assert found is not None
    return found


def drawn(*of: Any, **which: int) -> float:
    with draws(**which).within(*of):
        return float(torch.rand(()))


def test_there_are_streams_for_a_users_own_parts_alone() -> None:
    assert OwnDraws.of(2, OWN, None) is None
    assert OwnDraws.of(2, PLAIN, Streams(3)) is None
    assert draws().node == 2


def test_what_is_drawn_is_of_the_node_the_round_and_what_is_done() -> None:
    torch.manual_seed(5)
    outside = torch.rand(2).tolist()
    torch.manual_seed(5)
    first = torch.rand(1).tolist()
    own = drawn("mix", 4, 1)
    assert [*first, *torch.rand(1).tolist()] == outside, "draws outside go on as if there had been none within"
    assert drawn("mix", 4, 1) == own
    others = [("mix", 5, 1), ("wait", 4, 1), ("mix", 4, 2), ("mix", 4), ("mix", 4, 1, 0)]
    more = [drawn(*each) for each in others] + [drawn("mix", 4, 1, node=3), drawn("mix", 4, 1, seed=4)]
    assert len({own, *more}) == 1 + len(more)


def test_calls_are_told_apart_by_a_key_or_by_the_functions_name_and_whole_numbers() -> None:
    def mixes(*given: object) -> float:
        return float(torch.rand(()))

    plain, keyed = draws().drawing(mixes, 4), draws().drawing(mixes, 4, "wait", 7)
    assert plain() == drawn("mixes", 4)
    assert plain("x", 3, SimpleNamespace(), 8) == drawn("mixes", 4, 3, 8)
    assert keyed(3) == keyed(8) == drawn("wait", 4, 7)
    assert draws().drawing(max, 4)(3, 8) == 8
