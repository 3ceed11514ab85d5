"""What waits without questions teach about when to ask, and how far attempts are counted."""

from __future__ import annotations

from tests.node.query_desk import SLOT, Desk, S


def test_where_waits_last_long_by_themselves_it_asks_after_twice_as_long_and_sooner_once_they_do_not() -> None:
    desk = Desk()
    desk.queries._first_ns = 30 * S
    desk.queries._lasted.extend([10 * S] * 9)
    assert desk.first_ns() == 20 * S
    desk.queries.end()
    for _ in range(9):
        desk.queries.begin(SLOT, lambda: (1,))
        desk.clock.ns += S
        desk.queries.end()
    assert desk.first_ns() == 4 * S


def test_a_wait_that_nobody_was_asked_about_changes_nothing() -> None:
    desk = Desk()
    desk.queries.begin(SLOT, lambda: (1,))
    desk.clock.ns += S // 4
    desk.queries.end()
    desk.queries.end()
    assert list(desk.queries._lasted) == [S // 4]
    assert desk.first_ns() == S // 2


def test_attempts_are_counted_as_far_as_a_message_can_say() -> None:
    desk = Desk()
    desk.first_ns()
    assert desk.queries._missing is not None
    desk.queries._missing.asked[1].attempts = 0xFFFE
    while len(desk.sent) < 4:
        desk.clock.move_to(min(timer.at_ns for timer in desk.clock.timers if timer.live))
    assert [query.attempt for query in desk.sent] == [0, 0xFFFE, 0xFFFF, 0xFFFF]
