"""Remedies of stalls whose waits differ in their ends or fates, each bound held at, below and above it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stall_terms import BEATS, DEADLINE, SKIP
from wait_graphs import fleet, is_, lost, waits

from netdfl.diagnosis.causes import find_doubtful
from netdfl.diagnosis.diagnose import diagnose
from netdfl.diagnosis.reduce import reduce
from netdfl.diagnosis.remedies import CALLED_GONE_NS, GIVEN_UP_NS, Recovery
from netdfl.diagnosis.slow import find_slow
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, EdgeNow, NodeNow, State
from netdfl.diagnosis.trying import NEVER_NS, goes_on

S = 10**9
MISSED = AwaitedMessage(AwaitedFate.MISSED)
CUT = EdgeNow(up=False)


def offered(*nodes: NodeNow, **more: Any) -> dict[tuple[int, ...], set[str]]:
    """The remedies of each stall, by whom is waited for."""
    found = diagnose(fleet(*nodes, at_ns=7 * S, **more), patience_ns=S)
    return {each.culprits: set(each.remedies) for each in found}


@pytest.mark.parametrize(
    ("lasts_ns", "remedies"),
    [
        (5 * S, set()),
        (CALLED_GONE_NS, set()),
        (CALLED_GONE_NS + 1, {BEATS}),
        (GIVEN_UP_NS, {BEATS}),
        (GIVEN_UP_NS + 1, {DEADLINE, BEATS}),
    ],
)
def test_of_two_outages_the_shorter_is_gone_on_without_only_where_it_lasts_itself(
    lasts_ns: int, remedies: set[str]
) -> None:
    """A node waits for both: to go on without the longer one would end its wait sooner in each case."""
    away = [is_(node, State.CRASHED, since_ns=3 * S, back_ns=ns) for node, ns in ((7, 3 * S + lasts_ns), (8, 40 * S))]
    assert offered(waits(0, [7, 8], since_ns=3 * S), *away) == {(7,): remedies, (8,): {DEADLINE, BEATS}}


def test_who_is_down_behind_a_link_that_is_down_is_called_gone_by_the_longer_of_both() -> None:
    for back_s, heals_s, gone in ((40, 8, True), (9, 40, True), (9, 8, False)):
        edges = {(8, 0): EdgeNow(up=False, heals_ns=heals_s * S), (0, 8): EdgeNow(up=False, heals_ns=heals_s * S)}
        found = offered(waits(0, [8], since_ns=3 * S), is_(8, State.CRASHED, back_ns=back_s * S), edges=edges)
        assert (BEATS in found[(8,)]) is gone


def test_a_wait_counts_from_its_beginning_where_the_outage_is_older() -> None:
    for since_s, gone in ((4, False), (3, True)):
        away = is_(8, State.CRASHED, since_ns=S, back_ns=11 * S)
        found = offered(waits(0, [8], since_ns=since_s * S), away)
        assert (BEATS in found[(8,)]) is gone


def test_a_loop_that_does_not_answer_is_not_called_gone_by_who_cannot_do_without_it() -> None:
    for essential, remedies in ((False, {DEADLINE, BEATS}), (True, {DEADLINE})):
        assert offered(waits(0, [8], essential=essential), is_(8, State.BLOCKED)) == {(8,): remedies}


def test_no_detector_is_offered_where_one_of_two_has_returned_past_and_is_cut_off_since() -> None:
    """It would be called gone, as the other one; yet the fleet had gone on by itself."""
    edges = {(9, 0): CUT, (0, 9): CUT}
    nodes = is_(8, State.CRASHED), is_(9, State.RUNNING, returned=True)
    plain, beats = {DEADLINE, SKIP}, {DEADLINE, BEATS, SKIP}
    assert offered(waits(0, {8: AwaitedMessage(), 9: MISSED}), *nodes, edges=edges) == {(8, 9): plain}
    assert offered(waits(0, [8, 9]), *nodes, edges=edges) == {(8, 9): beats}


def test_a_deadline_of_its_own_ends_a_wait_whatever_else_does() -> None:
    for deadline_s in (8, 60):
        found = offered(waits(0, [8], since_ns=3 * S, deadline_ns=deadline_s * S), is_(8, State.CRASHED))
        assert all(not remedies for remedies in found.values())


@pytest.mark.parametrize(
    ("away", "until_s"),
    [
        ({"back": 40, "heals": 8}, 40),
        ({"back": 9, "heals": 40}, 40),
        ({"back": 9}, 9),
        ({"heals": 30}, 30),
        ({"back": 40, "heals": 30, "deadline": 20}, 20),
        ({"back": 40, "heals": 30, "deadline": 50}, 40),
        ({"heals": 30, "back": 40, "held": True}, 30),
    ],
)
def test_a_wait_lasts_until_all_outages_before_it_are_over_or_its_deadline(away: dict[str, int], until_s: int) -> None:
    """What a link keeps comes once the link is there again, whatever its sender does."""
    back, heals, ends = (None if ns is None else ns * S for ns in map(away.get, ("back", "heals", "deadline")))
    fate = {8: AwaitedMessage(AwaitedFate.HELD if "held" in away else AwaitedFate.UNSENT)}
    node = is_(8, State.RUNNING if back is None else State.CRASHED, back_ns=back)
    edges = {} if heals is None else {(8, 0): EdgeNow(up=False, heals_ns=heals)}
    snapshot = fleet(waits(0, fate, since_ns=3 * S, deadline_ns=ends), node, at_ns=7 * S, edges=edges)
    (found,) = diagnose(snapshot, patience_ns=S)
    assert found.until_ns == until_s * S


def test_what_is_under_way_comes_though_its_link_is_down_for_good_since() -> None:
    flying = fleet(
        waits(0, {8: AwaitedMessage(AwaitedFate.IN_FLIGHT)}), is_(8, State.RUNNING), at_ns=7 * S, edges={(8, 0): CUT}
    )
    assert goes_on(flying) == {0: 7 * S}


def test_who_is_held_up_in_doubt_is_told_from_that_moment_on_when_it_has_waited_so_long() -> None:
    parts = {0: AwaitedMessage(), 9: lost(9, 1)}
    nodes = waits(0, {9: lost(9, 0)}), waits(1, parts, undecided=[9], since_ns=3 * S), is_(9, State.RUNNING)
    snapshot = fleet(*nodes, at_ns=7 * S, detector="heartbeat")
    assert [each.roots for each in find_doubtful(snapshot, [1], 4 * S)] == [(1,)]
    assert find_doubtful(snapshot, [1], 4 * S + 1) == []


@pytest.mark.parametrize(
    ("node", "ends"),
    [
        (waits(0, [8], need=1, have=[5]), 7 * S),
        (waits(0, [8], need=2, have=[5]), NEVER_NS),
        (waits(0, [], need=2, have=[5]), 7 * S),
        (waits(0, [8, 9], need=2, have=[5]), 7 * S),
    ],
)
def test_a_wait_that_is_over_by_itself_is_over_at_once(node: NodeNow, ends: int) -> None:
    """It has as many as it needs, or nobody is left to wait for; else node 9, which runs, gives one, and 8 none."""
    snapshot = fleet(node, is_(8, State.CRASHED), is_(9, State.RUNNING), at_ns=7 * S)
    assert goes_on(snapshot) == {0: ends}
    assert reduce(snapshot) == (frozenset() if ends < NEVER_NS else {0})


@pytest.mark.parametrize("state", [State.RUNNING, State.BLOCKED])
def test_what_is_slow_is_told_from_the_moment_on_when_all_of_it_has_lasted_so_long(state: State) -> None:
    def told(patience_ns: int, sent_ns: int = 0, *nodes: NodeNow) -> int:
        giver = is_(9, state, since_ns=3 * S)
        fate = AwaitedMessage(AwaitedFate.IN_FLIGHT if sent_ns else AwaitedFate.UNSENT, since_ns=sent_ns)
        return len(
            find_slow(fleet(*(nodes or (waits(0, {9: fate}, since_ns=3 * S),)), giver, at_ns=7 * S), (), patience_ns)
        )

    assert [told(4 * S), told(4 * S + 1)] == [1, 0]
    alone = int(state is State.BLOCKED)
    young = [told(2 * S, 5 * S), told(2 * S + 1, 5 * S)]
    assert young == [1 + alone, alone]
    assert [told(4 * S, 0, is_(0, State.RUNNING)), told(4 * S + 1, 0, is_(0, State.RUNNING))] == [alone, 0]


LOST_FOR_NOW = replace(lost(9, 0), in_vain=True, passes_ns=20 * S)


@pytest.mark.parametrize(
    ("parts", "patient"),
    [
        ({9: LOST_FOR_NOW}, True),
        ({9: LOST_FOR_NOW, 7: replace(lost(7, 0), in_vain=True, passes_ns=30 * S)}, True),
        ({9: LOST_FOR_NOW, 7: lost(7, 0)}, True),
        ({9: LOST_FOR_NOW, 7: replace(lost(7, 0), in_vain=True)}, False),
        ({9: replace(lost(9, 0), in_vain=True)}, False),
        ({9: lost(9, 0)}, False),
        ({9: LOST_FOR_NOW, 8: AwaitedMessage()}, False),
    ],
)
def test_what_is_lost_is_waited_for_where_a_copy_of_each_will_pass(
    parts: dict[int, AwaitedMessage], patient: bool
) -> None:
    """Node 8 has crashed: a stall that names it is no matter of copies."""
    runs = (is_(node, State.RUNNING) for node in (7, 9))
    snapshot = fleet(waits(0, parts), *runs, is_(8, State.CRASHED), at_ns=7 * S)
    found = diagnose(snapshot, patience_ns=S)
    assert Recovery("resend", lambda *sent: True).waits(found, snapshot) is patient
    for choice in ("skip", "stop"):
        assert not Recovery(choice, lambda *sent: True).waits(found, snapshot)  # type: ignore[arg-type]
    assert not Recovery("resend", lambda *sent: True).waits([replace(found[0], permanent=False)], snapshot)
