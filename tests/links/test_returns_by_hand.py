"""When a node that crashed lives again, and with what, of a schedule that may say it in several places."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import Return, find_return, fresh_round, keeps_state, returns_by_node


def back(at_ns: int | None = None, *nodes: int, source: int = 0, **more: Any) -> CompiledEvent:
    parameters = more.pop("said", {})
    return CompiledEvent("restart", source, at_ns=at_ns, nodes=nodes or (1,), parameters=parameters, **more)


def crash(at_ns: int, *nodes: int) -> CompiledEvent:
    return CompiledEvent("crash", 0, at_ns=at_ns, nodes=nodes, parameters={"state": "kept"})


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, Return(7, True, 0, False)),
        ({"state": "kept", "rejoin": "catch_up"}, Return(7, True, 0, False)),
        ({"rejoin": "replay"}, Return(7, True, 0, True)),
        ({"state": "lost"}, Return(7, False, 0, False)),
        ({"state": "lost", "rejoin_weight": 1}, Return(7, False, 1, False)),
    ],
)
def test_a_return_is_what_its_event_says(said: dict[str, object], expected: Return) -> None:
    assert Return.by(back(3, said=said), 7) == expected
    assert Return(7, True) == Return(7, True, 0, False)


def test_the_restarts_of_each_node_are_in_their_order() -> None:
    first, second, other = back(3, 1, 2), back(9, 1), back(5, 4)
    events = [crash(1, 1, 2, 3), first, crash(4, 3), other, second]
    assert returns_by_node(events) == {1: [first, second], 2: [first], 4: [other]}
    assert returns_by_node([crash(1, 1)]) == {}


def found(*events: CompiledEvent, at_ns: int = 10, source: int = 0, at_round: int | None = None) -> int | None:
    back_ = find_return(events, 1, at_ns, source=source, at_round=at_round)
    return None if back_ is None else back_.at_ns


def test_a_node_lives_again_at_the_first_restart_after_its_crash() -> None:
    assert found() is None
    assert found(back(15)) == 15
    assert found(back(25), back(15), back(20)) == 15
    assert [found(back(at_ns)) for at_ns in (9, 10, 11)] == [None, None, 11]
    assert found(back(15, 2), back(20, 3, 1)) == 20
    assert found(crash(15, 1), back(20)) == 20


def test_a_restart_after_a_rounds_crash_is_of_the_same_entry_and_round() -> None:
    after = back(source=2, at_round=4, after_ns=5)
    assert found(after, source=2, at_round=4) == 15
    assert found(after, source=3, at_round=4) is None
    assert found(after, source=2, at_round=5) is None
    assert found(after) is None
    assert found(after, back(12), source=2, at_round=4) == 12
    assert found(back(source=2, at_round=4), source=2, at_round=4) is None, "at that moment it crashes"


def test_whether_a_state_may_be_needed_again() -> None:
    lost = back(9, 2, said={"state": "lost"})
    events = [crash(1, 1, 2, 3), back(3, 1), lost]
    assert [keeps_state(events, node) for node in (1, 2, 3)] == [True, False, False]
    assert keeps_state([lost, back(9, 2, said={"state": "kept"})], 2)
    assert not keeps_state([], 1)


@pytest.mark.parametrize(("others", "begins"), [([], 4), ([2, 3], 4), ([2, 4], 5), ([9, 2], 10)])
def test_who_lost_its_state_begins_in_the_first_round_that_nobody_has_begun(others: list[int], begins: int) -> None:
    assert fresh_round(4, others) == begins
    assert fresh_round(0, []) == 0
