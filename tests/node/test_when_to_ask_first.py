"""When a wait asks first: as early as its last answers and waits say, and never later than a long wait would be odd."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.core.types import Kind, Message, Payload
from netdfl.node.asking import STEP_DONE, TRIES, PeerQuery, QueriedWait
from netdfl.transport.base import Fate
from tests.node.query_desk import SLOT, Desk, S


def test_a_question_that_came_too_early_lets_the_next_come_later_up_to_a_bound() -> None:
    desk, took = Desk(), list[float]()
    for _ in range(8):
        took.append(desk.first_ns() / S)
        desk.queries.end()
    assert took == pytest.approx([0.5, 0.75, 1.125, 1.6875, 2.53125, 3.796875, 4.0, 4.0])


def test_a_lost_message_lets_the_next_question_come_as_early_as_answers_do() -> None:
    desk = Desk()
    lost: list[int] = []
    desk.queries.lost = lost.append
    assert desk.first_ns() == S // 2
    desk.clock.ns += S // 10
    assert desk.answer(past=True) is Fate.DELIVERED
    assert lost == [1]
    desk.queries.end()
    assert desk.queries.answers.timeout_ns() == desk.first_ns() == 3 * S // 10


def test_of_several_it_looks_again_when_the_first_is_due() -> None:
    desk = Desk()
    desk.queries.begin(SLOT, lambda: (1, 2))
    desk.clock.move_to(S // 2)
    assert [query.dst for query in desk.sent] == [1, 2]
    desk.sent.pop()
    desk.clock.ns += S // 10
    desk.answer(past=False)  # so node 1 is asked again sooner than node 2, which has not answered
    for hundredths, asked in ((99, []), (100, [1, 2]), (130, [1]), (145, [2])):
        desk.sent.clear()
        desk.clock.move_to(hundredths * S // 100)
        assert [query.dst for query in desk.sent] == asked


@pytest.mark.parametrize(
    ("tries", "due_ns", "heard_ns", "answer_ns", "silent"),
    [
        (TRIES, 100 * S, 97 * S, S // 4, True),
        (TRIES - 1, 100 * S, 97 * S, S // 4, False),
        (TRIES, 100 * S + 1, 97 * S, S // 4, False),
        (TRIES, 100 * S, 97 * S + 1, S // 4, False),
        (TRIES, 100 * S, 97 * S, S, False),
        (TRIES, 100 * S, 96 * S, S, True),
    ],
)
def test_who_was_asked_often_and_says_nothing_for_long_enough_is_silent(
    tries: int, due_ns: int, heard_ns: int, answer_ns: int, silent: bool
) -> None:
    missing = QueriedWait(SLOT, 90 * S, 1, 3 * S, lambda: (1,), {})
    assert missing.is_silent(PeerQuery(heard_ns, due_ns, 9, tries), 100 * S, answer_ns) is silent
    assert not missing.is_silent(None, 100 * S, answer_ns)


def test_no_two_looks_have_one_name() -> None:
    desk = Desk()
    for _ in range(3):
        desk.first_ns()
        desk.queries.end()
        desk.queries.close()
    names = [timer.name for timer in desk.clock.timers]
    assert len(set(names)) == len(names) > 3
    assert {name[:2] for name in names} == {("ask", 9)}


@pytest.mark.parametrize(
    ("meta", "fate"), [({}, Fate.REFUSED), ({STEP_DONE: 1}, Fate.REFUSED), ({STEP_DONE: True}, Fate.DUPLICATE)]
)
def test_an_answer_to_nothing_changes_nothing(meta: dict[str, Any], fate: Fate) -> None:
    desk = Desk()
    assert desk.queries.hear(Message(1, 9, Kind.STATUS, 0, 3, 0, 0, Payload(meta=meta))) is fate
    assert desk.queries.answers.timeout_ns() == S // 2
