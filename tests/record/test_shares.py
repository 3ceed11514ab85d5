"""Lost push-sum weight: a share is told by its life, for a sender that lost its state sends others of the same name."""

from __future__ import annotations

from itertools import permutations

import pytest

from netdfl.record.shares import CRASH, GIVEN_UP, RESTART, TAKEN_AGAIN, UNACKNOWLEDGED, Share, ShareRecord

SHARE: Share = (0, 1, 2, 0)
ABOUT, FROM = (1, 2, 0), (0, 2, 0)
LOST_STATE, KEPT_STATE = (CRASH, 10.0, 0, ABOUT, 1.0, "lost"), (CRASH, 10.0, 0, ABOUT, 1.0, "kept")
BEFORE, AFTER = (GIVEN_UP, 10.0, 0, ABOUT, 0.5, ""), (GIVEN_UP, 20.0, 0, ABOUT, 0.25, "")
OPEN_AFTER = (UNACKNOWLEDGED, 30.0, 0, ABOUT, 0.25, "")
AGAIN, RECEIVER_CRASH, RECEIVER_BACK = (
    (TAKEN_AGAIN, 16.0, 1, FROM, 0.25, ""),
    (CRASH, 14.0, 1, FROM, 1.0, "lost"),
    (RESTART, 15.0, 1, FROM, 0.0, ""),
)
FIRST, SECOND = (6.0, 5.0), (13.0, 12.0)
"""When the share of the first life arrived and was sent, and that of the second life."""

LOST = {
    "the other life's arrival is not this one's": ([LOST_STATE, BEFORE], [SECOND], [0.5]),
    "its own arrival is, though it was given up": ([LOST_STATE, BEFORE], [FIRST, SECOND], []),
    "both lives give one up": ([LOST_STATE, BEFORE, AFTER], [], [0.25, 0.5]),
    "the second life's arrives, both are given up": ([LOST_STATE, BEFORE, AFTER], [SECOND], [0.5]),
    "with its state the sender repeats the same share": ([KEPT_STATE, BEFORE], [SECOND], []),
}


@pytest.mark.parametrize(("events", "came", "lost"), LOST.values(), ids=LOST)
def test_given_up_shares_are_lost_by_life_in_whatever_order_their_events_come(
    events: list[tuple[str, float, int, tuple[int, int, int], float, str]],
    came: list[tuple[float, float]],
    lost: list[float],
) -> None:
    for order in permutations(events):
        record = recorded(order, came)
        assert sorted(each.weight for each in record.lost()) == lost


def test_a_share_taken_again_is_counted_twice_only_if_that_life_s_was_taken_before() -> None:
    events = (LOST_STATE, RECEIVER_CRASH, RECEIVER_BACK, AGAIN)
    assert [each.weight for each in recorded(events, [SECOND, (16.0, 12.0)]).twice()] == [0.25]
    assert not list(recorded(events, [FIRST, (16.0, 12.0)]).twice())


def test_an_open_share_is_kept_although_another_life_s_was_given_up() -> None:
    """Its receiver took it, and lost it with its state; its sender still has it."""
    events = (LOST_STATE, BEFORE, OPEN_AFTER, RECEIVER_CRASH, RECEIVER_BACK)
    assert [each.weight for each in recorded(events, [SECOND]).twice()] == [0.25]


def recorded(
    events: tuple[tuple[str, float, int, tuple[int, int, int], float, str], ...], came: list[tuple[float, float]]
) -> ShareRecord:
    """A record of events, and of arrivals with the times at which they were sent."""
    record = ShareRecord()
    for event in events:
        record.add(*event)
    for at, sent in came:
        record.arrive(SHARE, at, sent)
    return record
