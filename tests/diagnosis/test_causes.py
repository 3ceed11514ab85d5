"""The seven causes on fleets written by hand: the root first, who waits behind it, and the sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from wait_graphs import FLYING, fleet, fleets, is_, lost, waits

from netdfl.core.types import Edge
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.diagnose import confirm, diagnose
from netdfl.diagnosis.finding import Cause, Finding, by_verdict
from netdfl.diagnosis.reasons import CAUSES, FIRST
from netdfl.diagnosis.reduce import Supply, reduce, supply, surely_gone
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, EdgeNow, NodeNow, Snapshot, State, WaitKind
from netdfl.diagnosis.why import ReasonKind

SECOND = 10**9


def only(snapshot: Snapshot, patience_ns: int = SECOND) -> Finding:
    found = diagnose(snapshot, patience_ns=patience_ns)
    assert len(found) == 1, found
    return found[0]


def test_a_lost_message_names_the_root_and_who_is_behind_it() -> None:
    found = only(
        fleet(
            waits(3, {2: lost(2, 3)}, round=12),
            waits(2, [3], round=13),
            waits(4, [3], round=13),
            waits(5, [4, 2], round=14),
        )
    )
    assert (
        found.what == "node 3 waits in round 12 for node 2, whose message was lost on 2->3; 2, 4 and 5 wait behind it"
    )
    assert (found.cause, found.roots, found.culprits) == (Cause.LOST_MESSAGE, (3,), (2,))
    assert found.behind == (2, 4, 5)
    assert found.witness == ((3, 2),)
    assert found.permanent


def test_a_request_that_was_lost_is_not_blamed_on_who_was_asked() -> None:
    found = only(fleet(waits(1, {2: lost(1, 2)}, round=3, what=WaitKind.REPLY), is_(2, State.RUNNING, round=9)))
    assert found.what == "node 1 waits in round 3 for node 2, which its request never reached: it was lost on 1->2"
    slow = only(
        fleet(waits(1, {2: lost(1, 2)}, round=3, what=WaitKind.REPLY, deadline_ns=SECOND), is_(2, State.RUNNING))
    )
    assert slow.text.endswith("never reached: it was lost on 1->2. Since 0 s. It ends at 1 s at the latest.")


@pytest.mark.parametrize("detector", ["none", "heartbeat", "oracle"])
def test_who_needs_more_messages_than_there_are_others_waits_for_good(detector: str) -> None:
    """Nobody is awaited any more, as all others have sent theirs; those who know their senders then go on."""
    others = waits(0, [2], round=3), waits(1, [2], round=2)
    found = only(fleet(waits(2, [], need=3, have=[0, 1], round=1, since_ns=5, from_anybody=True), *others))
    assert found.what == (
        "node 2 waits in round 1 for more messages than there are nodes that could send one; 0 and 1 wait behind it"
    )
    assert (found.cause, found.roots, found.culprits, found.behind) == (Cause.DEADLOCK, (2,), (), (0, 1))
    assert (found.round, found.began_ns, found.permanent) == (1, 5, True)
    assert found.remedies == ("wait.deadline: auto",)
    knows = fleet(waits(2, [], need=3, have=[0, 1], round=1), *others, detector=detector)
    assert find_stuck(knows) == []
    enough = fleet(waits(2, [], need=2, have=[0, 1], round=1, from_anybody=True), *others, detector=detector)
    assert find_stuck(enough) == []


def test_several_who_need_more_messages_than_there_are_others_are_told_one_by_one() -> None:
    nodes = [waits(node, [], need=3, have=[1 - node], round=node, from_anybody=True) for node in (0, 1)]
    one, two = find_stuck(fleet(*nodes))
    assert (one.roots, one.round, two.roots, two.round) == ((0,), 0, (1,), 1)


def test_a_request_on_its_way_is_told_apart_from_a_message_on_its_way() -> None:
    flying = AwaitedMessage(AwaitedFate.IN_FLIGHT, edge=(1, 2))
    found = only(fleet(waits(1, {2: flying}, round=3, what=WaitKind.REPLY), is_(2, State.RUNNING)))
    assert found.what == "node 1 waits in round 3 for node 2, to which its request is still on its way over 1->2"


def test_a_cycle_is_the_minimal_witness_of_a_deadlock() -> None:
    found = only(fleet(waits(0, [1]), waits(1, [2]), waits(2, [0]), waits(3, [0, 1]), waits(4, [3])))
    assert (found.cause, found.roots, found.behind) == (Cause.DEADLOCK, (0, 1, 2), (3, 4))
    assert found.witness == ((0, 1), (1, 2), (2, 0))
    assert (
        found.what
        == "nodes 0, 1 and 2 wait for each other in round 0: 0 for 1, 1 for 2 and 2 for 0; 3 and 4 wait behind them"
    )


def test_chords_are_not_part_of_the_witness() -> None:
    ring = [waits(i, [(i + 1) % 6]) for i in range(6)]
    ring[3] = waits(3, [4, 1])
    found = only(fleet(*ring))
    assert found.roots == (1, 2, 3)
    assert found.behind == (0, 4, 5)


def test_two_independent_cycles_are_two_deadlocks() -> None:
    found = find_stuck(fleet(waits(0, [1]), waits(1, [0]), waits(2, [3]), waits(3, [2])))
    assert [f.roots for f in found] == [(0, 1), (2, 3)]


def test_a_cycle_behind_a_lost_message_is_told_apart() -> None:
    found = find_stuck(fleet(waits(0, {4: lost(4, 0)}), waits(1, [2, 0]), waits(2, [1]), is_(4, State.RUNNING)))
    assert [(f.cause, f.roots) for f in found] == [(Cause.LOST_MESSAGE, (0,)), (Cause.DEADLOCK, (1, 2))]


def test_an_or_knot_is_a_deadlock_of_all_its_nodes() -> None:
    found = only(fleet(*(waits(i, {0, 1, 2} - {i}, need=1) for i in range(3))))
    assert found.roots == (0, 1, 2)
    assert "0 for 1 or 2" in found.text


def test_k_of_n_counts_the_sender_that_runs() -> None:
    nodes = [waits(i, {0, 1, 2, 3} - {i}, need=2) for i in range(3)]
    found = only(fleet(*nodes, is_(3, State.RUNNING)))
    assert (found.cause, found.roots) == (Cause.DEADLOCK, (0, 1, 2))
    assert "0 for 2 of 1, 2 and 3" in found.text


def test_a_crash_groups_all_who_wait_for_the_node() -> None:
    crashed = is_(4, State.CRASHED)
    found = only(fleet(waits(3, [4], round=12), waits(5, [4], round=12), waits(2, [3], round=13), crashed))
    assert (found.cause, found.roots, found.culprits, found.behind) == (Cause.UNREACHABLE, (3, 5), (4,), (2,))
    assert found.text.startswith(
        "nodes 3 and 5 wait in round 12 for node 4, which crashed and does not return; 2 waits"
    )


def test_a_crashed_node_that_the_scenario_restarts_is_no_permanent_stall() -> None:
    found = only(fleet(waits(3, [4]), is_(4, State.CRASHED, back_ns=12 * SECOND)))
    assert (found.cause, found.permanent, found.until_ns) == (Cause.UNREACHABLE, False, 12 * SECOND)
    assert found.what == "node 3 waits in round 0 for node 4, which crashed and returns at 12 s"


def test_a_partition_says_when_it_heals() -> None:
    nodes = waits(0, [1]), is_(1, State.RUNNING)
    found = only(fleet(*nodes, edges={(1, 0): EdgeNow(up=False, heals_ns=20 * SECOND)}))
    assert (found.cause, found.until_ns, found.permanent) == (Cause.UNREACHABLE, 20 * SECOND, False)
    assert found.what.endswith("from which it is cut off: 1->0 is down until 20 s")
    for_good = only(fleet(*nodes, edges={(1, 0): EdgeNow(up=False)}))
    assert for_good.permanent
    assert for_good.what.endswith("1->0 is down for good")


def test_after_the_heal_what_the_cut_dropped_is_a_lost_message() -> None:
    found = only(fleet(waits(0, {1: lost(1, 0, "down")}), waits(1, [0], round=1)))
    assert found.cause is Cause.LOST_MESSAGE
    assert "lost on 1->0 (the link was down)" in found.text


def test_a_straggler_is_named_and_its_chain() -> None:
    found = only(fleet(waits(0, [1]), waits(2, [0]), is_(1, State.RUNNING), at_ns=4 * SECOND))
    assert (found.cause, found.roots, found.culprits, found.behind) == (Cause.STRAGGLER, (0,), (1,), (2,))
    assert found.what == "node 1 has been at work in round 0 for 4 s; node 0 waits in round 0 for it; 2 waits behind it"
    assert not found.permanent


def test_a_message_on_its_way_is_a_phantom_and_no_deadlock() -> None:
    ring = [waits(i, [(i + 1) % 4]) for i in range(3)]
    snapshot = fleet(*ring, waits(3, {0: FLYING}))
    assert find_stuck(snapshot) == []
    found = only(snapshot)
    assert found.cause is Cause.STRAGGLER
    assert "still on its way over 0->3" in found.text


def test_full_mailboxes_in_a_cycle_are_flow_control() -> None:
    found = only(fleet(waits(0, [1], what=WaitKind.ROOM), waits(1, [0])))
    assert (found.cause, found.permanent) == (Cause.FLOW_CONTROL, True)
    assert "0 for room at 1" in found.text


def test_a_full_mailbox_at_a_busy_node_is_flow_control_that_ends() -> None:
    found = only(fleet(waits(0, [1], what=WaitKind.ROOM), is_(1, State.RUNNING)))
    assert (found.cause, found.permanent) == (Cause.FLOW_CONTROL, False)


def test_an_event_loop_that_does_not_answer_is_named_with_and_without_waiters() -> None:
    blocked = is_(1, State.BLOCKED)
    assert only(fleet(waits(0, [1]), blocked)).cause is Cause.BLOCKED_LOOP
    alone = only(fleet(is_(0, State.RUNNING), blocked))
    assert (alone.cause, alone.roots) == (Cause.BLOCKED_LOOP, (1,))


def test_a_source_that_has_finished_sends_nothing() -> None:
    found = only(fleet(waits(0, [1]), is_(1, State.FINISHED)))
    assert found.cause is Cause.DEADLOCK
    assert "which has finished and sends nothing any more" in found.text


def test_livelock_is_traffic_without_progress() -> None:
    def at(ns: int, sent: int) -> Snapshot:
        busy = {edge: EdgeNow(sent=sent, delivered=sent) for edge in ((0, 1), (1, 0))}
        nodes = [replace(waits(i, {1 - i: FLYING}, since_ns=ns - 5), state=State.WAITING) for i in (0, 1)]
        return fleet(*nodes, edges=busy, at_ns=ns)

    before, now = at(SECOND, 10), at(9 * SECOND, 60)
    found = diagnose(now, patience_ns=SECOND, window=before)
    assert [(f.cause, f.roots) for f in found] == [(Cause.LIVELOCK, (0, 1))]
    assert found[0].text.startswith("100 messages passed in 8 s and no node finished a round")
    assert diagnose(at(9 * SECOND, 10), patience_ns=SECOND, window=before) == []


def test_young_waits_are_no_stall() -> None:
    assert diagnose(fleet(waits(0, [1]), is_(1, State.RUNNING)), patience_ns=2 * SECOND) == []


@given(fleets())
def test_every_stuck_node_is_a_root_or_behind_one(snapshot: Snapshot) -> None:
    found = find_stuck(snapshot)
    named = [node for f in found for node in f.roots]
    assert len(named) == len(set(named))
    assert {node for f in found for node in (*f.roots, *f.behind)} == reduce(snapshot)
    for finding in found:
        assert finding.permanent
        assert set(finding.behind).isdisjoint(finding.roots)


@given(fleets())
def test_the_witness_of_a_deadlock_is_stuck_by_itself(snapshot: Snapshot) -> None:
    for finding in find_stuck(snapshot):
        others = set(snapshot.nodes) - set(finding.roots)
        if len(finding.roots) > 1 and all(a in finding.roots for edge in finding.witness for a in edge):
            assert reduce(snapshot, others) == set(finding.roots)


CUT = {(1, 0): EdgeNow(up=False)}


def would_give(snapshot: Snapshot, waiter: int, source: int) -> bool:
    """Whether `waiter` gets what it waits for because `source` goes on, and not anyway."""
    wait = snapshot.nodes[waiter].wait
    assert wait is not None
    going_on = replace(snapshot, nodes=snapshot.nodes | {source: is_(source, State.RUNNING)})
    before, after = (supply(each, waiter, wait, source) for each in (snapshot, going_on))
    return before is not Supply.SURE and after is Supply.SURE


def heard(snapshot: Snapshot, waiter: int) -> set[int]:
    """Whom `waiter` waits for; those that are gone where nobody else may send, for their messages would do as well."""
    wait = snapshot.nodes[waiter].wait
    assert wait is not None
    here = set(wait.awaited) - surely_gone(snapshot, waiter, wait)
    may_send = any(supply(snapshot, waiter, wait, source) is Supply.IF_RELEASED for source in here)
    return here if may_send else set(wait.awaited)


@given(fleets())
@example(
    fleet(
        waits(0, [1]),
        is_(1, State.RUNNING),
        waits(3, {0: AwaitedMessage(), 1: lost(1, 3)}, need=1, gone=[0]),
        edges=CUT,
    )
)
@example(fleet(waits(1, {2: lost(2, 1)}), waits(3, {1: FLYING, 4: lost(4, 3)}), is_(2, State.RUNNING), waits(4, [3])))
@example(fleet(waits(1, {2: lost(2, 1)}), waits(3, [1, 5]), is_(2, State.RUNNING), waits(4, [3]), waits(5, [4])))
def test_behind_a_root_are_those_whom_its_going_on_would_reach(snapshot: Snapshot) -> None:
    stuck = reduce(snapshot)
    for finding in find_stuck(snapshot):
        reached = set(finding.roots)
        while more := {
            node
            for node in stuck - reached
            for source in reached & heard(snapshot, node)
            if would_give(snapshot, node, source)
        }:
            reached |= more
        assert finding.behind == tuple(sorted(reached - set(finding.roots)))


def test_each_reason_is_of_one_cause() -> None:
    assert set(CAUSES) == set(ReasonKind)


def test_who_waits_for_one_that_will_be_gone_and_for_nobody_else_is_held_by_it() -> None:
    """Node 0 is cut off from node 2, and node 1, which waits for node 2, will crash: it may send before."""
    cut = {(0, 2): EdgeNow(up=False)}
    snapshot = fleet(
        is_(0, State.RUNNING), waits(1, [2], ends_ns=20), waits(2, [0, 1], need=1), edges=cut, detector="oracle"
    )
    assert [(finding.cause, finding.roots) for finding in find_stuck(snapshot)] == [(Cause.DEADLOCK, (1, 2))]


@given(fleets())
def test_the_reasons_of_a_finding_are_its_waits(snapshot: Snapshot) -> None:
    for finding in find_stuck(snapshot):
        reasons = finding.grounds.reasons
        assert reasons
        assert {(reason.waiter, reason.source) for reason in reasons} <= set(finding.witness)
        assert finding.cause in {CAUSES[reason.why] for reason in reasons}
        assert [each["why"] for each in finding.to_json()["reasons"]] == [reason.why.value for reason in reasons]


def test_every_cause_has_its_place_among_those_of_one_stall() -> None:
    assert sorted(FIRST) == sorted(Cause)


@given(fleets())
def test_any_fleet_is_diagnosed_in_sentences(snapshot: Snapshot) -> None:
    for finding in diagnose(snapshot, patience_ns=0, window=snapshot):
        assert finding.text.endswith(".")
        assert finding.to_json()["cause"] == finding.cause.value


def pair(*, counts: int = 3, since_ns: int = 0, round: int = 2) -> Snapshot:
    nodes: list[NodeNow] = [waits(i, [1 - i], round=round, since_ns=since_ns) for i in (0, 1)]
    edges: dict[Edge, EdgeNow] = {(i, 1 - i): EdgeNow(sent=counts, delivered=counts) for i in (0, 1)}
    return fleet(*nodes, edges=edges)


@pytest.mark.parametrize(
    ("first", "suspected"),
    [(pair(), False), (pair(counts=2), True), (pair(since_ns=7), True)],
    ids=["still", "a message came", "another wait"],
)
def test_two_equal_snapshots_confirm_what_one_suspects(first: Snapshot, suspected: bool) -> None:
    second = pair()
    (found,) = confirm(find_stuck(second), first, second)
    assert found.suspected is suspected
    verdict = by_verdict([found])
    assert (len(verdict["deadlocks"]), len(verdict["stalls"])) == ((0, 1) if suspected else (1, 0))


def test_what_is_held_by_a_link_that_is_down_comes_when_it_heals() -> None:
    held = AwaitedMessage(AwaitedFate.HELD)
    nodes = waits(0, {1: held}), waits(1, [0])
    assert only(fleet(*nodes, edges={(1, 0): EdgeNow(up=False)})).permanent
    healing = only(fleet(*nodes, edges={(1, 0): EdgeNow(up=False, heals_ns=9 * SECOND)}))
    assert (healing.cause, healing.permanent, healing.until_ns) == (Cause.UNREACHABLE, False, 9 * SECOND)
