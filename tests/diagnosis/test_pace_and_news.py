"""When a fleet is looked at: by the pace of its rounds, to the nanosecond; and what is news of what a look shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from wait_graphs import fleet, is_

from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.snapshot import State
from netdfl.diagnosis.watch import (
    FIRST_LOOK_NS,
    FIRST_NS,
    LEAST_LIVELOCK_NS,
    LEAST_NS,
    ROUNDS_KEPT,
    ROUNDS_LIVELOCK,
    ROUNDS_QUIET,
    FindingHistory,
    Pace,
    Window,
)
from netdfl.diagnosis.why import Grounds, Reason, ReasonKind

SECOND = 10**9


def steady(took_ns: int, rounds: int = 3) -> Pace:
    """Node 0 takes so long for a round; it is now at the beginning of one."""
    pace = Pace([0])
    for round in range(1, rounds + 1):
        pace.at(0, round, round * took_ns)
    return pace


def test_before_a_round_has_ended_nothing_is_known_of_the_pace() -> None:
    pace = Pace([0, 1])
    assert (pace.round_ns, pace.patience_ns, pace.look_ns) == (None, FIRST_NS, FIRST_LOOK_NS)
    assert (pace.livelock_ns, pace.last_ns) == (LEAST_LIVELOCK_NS, 0)
    assert pace.next_look_ns(5) == 5 + FIRST_LOOK_NS
    late = FIRST_NS + 2 * FIRST_LOOK_NS
    assert [pace.next_look_ns(late + more) for more in (0, 2, 200)] == [
        late + FIRST_LOOK_NS,
        late + 2 + FIRST_LOOK_NS + 1,
        late + 200 + FIRST_LOOK_NS + 100,
    ]
    assert Pace([]).last_ns == 0


@pytest.mark.parametrize(
    ("round_ns", "patience_ns", "livelock_ns"),
    [
        (SECOND, ROUNDS_QUIET * SECOND, ROUNDS_LIVELOCK * SECOND),
        (1, LEAST_NS, LEAST_LIVELOCK_NS),
        (LEAST_NS // ROUNDS_QUIET + 1, LEAST_NS + ROUNDS_QUIET, LEAST_LIVELOCK_NS),
        (LEAST_LIVELOCK_NS // ROUNDS_LIVELOCK + 1, 3 * SECOND + 10, LEAST_LIVELOCK_NS + ROUNDS_LIVELOCK),
    ],
)
def test_patience_follows_the_rounds(round_ns: int, patience_ns: int, livelock_ns: int) -> None:
    pace = steady(round_ns)
    assert (pace.round_ns, pace.patience_ns, pace.livelock_ns) == (round_ns, patience_ns, livelock_ns)
    assert pace.look_ns == patience_ns // 2
    assert pace.next_look_ns(7) == 7 + patience_ns // 2
    assert pace.last_ns == 3 * round_ns


def test_the_slowest_node_gives_the_pace_by_the_median_of_its_last_rounds() -> None:
    pace = steady(SECOND, rounds=4)
    pace.at(0, 5, 100 * SECOND)
    assert pace.round_ns == SECOND
    for round in range(6, 6 + ROUNDS_KEPT // 2):
        pace.at(0, round, pace.last_ns + 3 * SECOND)
    assert pace.round_ns == 3 * SECOND
    both = Pace([0, 1])
    both.at(0, 1, SECOND)
    both.at(1, 1, 2 * SECOND)
    assert both.round_ns == 2 * SECOND
    skips = Pace([0])
    skips.at(0, 4, 8 * SECOND)
    assert skips.round_ns == 2 * SECOND
    skips.at(0, 4, 9 * SECOND)
    assert (skips.round_ns, skips.last_ns) == (2 * SECOND, 8 * SECOND)
    skips.at(0, 2, 10 * SECOND)
    assert (skips.round_ns, skips.rounds[0]) == (2 * SECOND, (2, 10 * SECOND))


def test_a_round_that_was_held_up_is_none() -> None:
    pace = Pace([0, 1])
    pace.at(0, 1, SECOND)
    pace.stalled([0])
    pace.at(0, 2, 50 * SECOND)
    assert pace.round_ns == SECOND
    pace.at(0, 3, 53 * SECOND)
    assert pace.round_ns == 2 * SECOND


@pytest.mark.parametrize("for_ns", [None, 5])
def test_a_node_is_quiet_from_patience_on(for_ns: int | None) -> None:
    pace = Pace([0, 1])
    pace.at(0, 1, SECOND)
    since_ns = pace.patience_ns if for_ns is None else for_ns
    assert pace.quiet(SECOND + since_ns, [0], for_ns)
    assert not pace.quiet(SECOND + since_ns - 1, [0], for_ns)
    assert pace.quiet(since_ns, [0, 1], for_ns)
    assert not pace.quiet(SECOND + since_ns, [], for_ns)


def test_a_window_begins_with_the_first_look_after_a_round_began() -> None:
    pace, window = Pace([0]), Window()
    looks = [fleet(is_(0, State.RUNNING), at_ns=ns) for ns in (0, 10, LEAST_LIVELOCK_NS - 1, LEAST_LIVELOCK_NS)]
    assert [window.before(look, pace) for look in looks] == [None, None, None, looks[0]]
    pace.at(0, 1, LEAST_LIVELOCK_NS)
    assert window.before(looks[3], pace) is None
    longer = fleet(is_(0, State.RUNNING), at_ns=LEAST_LIVELOCK_NS + pace.livelock_ns)
    assert window.before(longer, pace) is looks[3]


def finding(waiter: int = 0, source: int = 1, *, found_ns: int = 1, **more: bool) -> Finding:
    reason = Reason(waiter=waiter, source=source, round=4, why=ReasonKind.LOST, edge=(source, waiter))
    return Finding(
        cause=Cause.LOST_MESSAGE,
        roots=(waiter,),
        culprits=(source,),
        round=4,
        witness=((waiter, source),),
        grounds=Grounds(reasons=(reason,)),
        began_ns=found_ns - 1,
        found_ns=found_ns,
        **more,
    )


@pytest.mark.parametrize(
    ("before", "now", "is_news"),
    [
        ({}, {}, False),
        ({"suspected": True}, {}, True),
        ({"suspected": True}, {"suspected": True}, False),
        ({}, {"suspected": True}, False),
        ({}, {"permanent": True}, True),
        ({"permanent": True}, {"permanent": True}, False),
        ({"permanent": True}, {}, False),
    ],
)
def test_news_is_what_is_new_confirmed_or_for_good_by_now(
    before: dict[str, bool], now: dict[str, bool], is_news: bool
) -> None:
    watch, later = FindingHistory(), finding(found_ns=9, **now)
    assert watch.take([finding(**before)]) == [finding(**before)]
    assert watch.take([later]) == ([later] if is_news else [])
    seen_ns = 9 if before.get("suspected") else 1
    assert watch.open == [replace(later, found_ns=seen_ns, began_ns=seen_ns - 1)]
    assert watch.closed == []


def test_a_stall_that_was_ended_is_closed_with_how_and_no_other_is() -> None:
    watch, one, other = FindingHistory(), finding(), finding(2, 3, found_ns=0)
    watch.take([one, other])
    watch.close(one, "skip")
    assert watch.open == [other]
    assert watch.closed == [replace(one, over=True, ended_by="skip")]
    assert watch.findings == [other, *watch.closed]


@pytest.mark.parametrize("lasts", [False, True])
def test_what_a_look_does_not_name_is_over_unless_it_lasts(lasts: bool) -> None:
    watch, old, new = FindingHistory(), finding(permanent=True), finding(2, 3)
    watch.take([old])
    assert watch.take([new], lambda each: lasts) == [new]
    assert watch.open == ([replace(old, permanent=False), new] if lasts else [new])
    assert watch.closed == ([] if lasts else [replace(old, over=True)])
