"""Remedies where other waits matter: who would stay behind another stall, or goes on as soon anyway, is not helped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from stall_terms import ANSWERED, BEATS, DEADLINE, RESEND, SKIP
from wait_graphs import fleet, fleets, is_, lost, waits

import netdfl
from netdfl.core.fates import Fate
from netdfl.core.types import Edge, Kind
from netdfl.diagnosis.diagnose import diagnose
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.reduce import reduce
from netdfl.diagnosis.remedies import ANY, CALLED_GONE_NS, HALVES, ORACLE, Allows
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, EdgeNow, NodeNow, Snapshot, State, WaitKind
from netdfl.diagnosis.trying import NEVER_NS, goes_on
from netdfl.explore.execute import Executor
from netdfl.links.rules.base import Transit
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.selectors import Block
from netdfl.links.spec import LinkSpec, choose

SECOND = 10**9
PLAIN, COPY, DETECTED = (DEADLINE, SKIP), (DEADLINE, RESEND, ANSWERED, SKIP), (DEADLINE, BEATS, SKIP)
RUNS, CRASHED = is_(9, State.RUNNING), is_(8, State.CRASHED)
IN_VAIN = {9: replace(lost(9, 0), in_vain=True)}
CUT = EdgeNow(up=False)


def told(*nodes: NodeNow, allows: Allows = lambda setting: True, **edges: Any) -> dict[tuple[int, ...], Any]:
    """The remedies of each stall, by its roots."""
    snapshot = fleet(*nodes, at_ns=7 * SECOND, **edges)
    return {each.roots: each.remedies for each in diagnose(snapshot, patience_ns=SECOND, allows=allows)}


def steps(node: NodeNow, steps: int, step: int = 0) -> NodeNow:
    assert node.wait is not None
    return replace(node, steps=steps, step=step, wait=replace(node.wait, step=step))


# behind another stall


def test_who_would_wait_behind_another_stall_is_offered_what_ends_both() -> None:
    behind = waits(1, {9: lost(9, 1), 0: AwaitedMessage()})
    assert told(waits(0, IN_VAIN), behind, RUNS) == {(0,): PLAIN, (1,): PLAIN}
    assert told(waits(0, {9: lost(9, 0)}), behind, RUNS) == {(0,): COPY, (1,): COPY}


def test_messages_again_end_no_wait_for_more_than_there_are_to_send_one() -> None:
    """A node that does not know who sends waits for all, and so for more messages than any repetition brings."""
    one_lost = {9: lost(9, 0)}
    assert told(waits(0, one_lost, need=3, from_anybody=True), RUNS) == {(0,): PLAIN}
    assert told(waits(0, one_lost, need=1, from_anybody=True), RUNS) == {(0,): COPY}


def test_a_detector_helps_who_does_not_wait_for_others_that_stand() -> None:
    assert told(waits(0, IN_VAIN), waits(1, [0, 8]), RUNS, CRASHED) == {(0,): PLAIN, (1,): PLAIN}
    assert told(waits(0, IN_VAIN), waits(1, [0, 8], need=1, have=[5]), waits(2, [8]), RUNS, CRASHED)[(2,)] == DETECTED


def test_who_has_more_steps_to_make_in_its_round_needs_all_others() -> None:
    apart = waits(0, IN_VAIN), RUNS, CRASHED
    assert told(steps(waits(1, [8]), 2), *apart)[(1,)] == PLAIN
    assert told(steps(waits(1, [8]), 2, step=1), *apart)[(1,)] == DETECTED
    assert told(steps(waits(1, [8]), 2), CRASHED)[(1,)] == DETECTED


def test_a_request_that_is_sent_again_is_answered_once_who_is_asked_goes_on() -> None:
    def asks(node: int, peer: int, **more: Any) -> NodeNow:
        return waits(node, {peer: replace(lost(node, peer), **more)}, what=WaitKind.REPLY)

    stands = waits(2, [8], what=WaitKind.REPLY)
    assert told(asks(1, 2), stands, CRASHED)[(1,)] == PLAIN
    assert told(asks(1, 2), asks(2, 9), RUNS) == {(1,): (DEADLINE, RESEND, SKIP), (2,): (DEADLINE, RESEND, SKIP)}
    for answers in (waits(2, [8]), is_(2, State.FINISHED)):  # who waits for a round's messages answers, or has no more
        assert told(asks(1, 2), answers, CRASHED)[(1,)] == (DEADLINE, RESEND, SKIP)


def test_what_is_sent_again_in_vain_is_nothing_to_go_on_by() -> None:
    again = {8: AwaitedMessage(), 9: replace(lost(9, 1), resent=True, in_vain=True)}
    assert told(waits(1, again), RUNS, CRASHED) == {(1,): PLAIN}
    assert told(waits(1, again | {9: replace(again[9], in_vain=False)}), RUNS, CRASHED) == {(1,): DETECTED}


def test_acknowledgements_help_where_so_many_come_as_are_needed() -> None:
    parts = {7: replace(lost(7, 0), kept=False), 9: lost(9, 0)}
    assert told(waits(0, parts, need=1), is_(7, State.RUNNING), RUNS) == {(0,): (DEADLINE, ANSWERED, SKIP)}
    assert told(waits(0, parts), is_(7, State.RUNNING), RUNS) == {(0,): PLAIN}


def test_who_gives_once_it_goes_on_gives_nothing_that_will_be_lost() -> None:
    behind = waits(1, {0: AwaitedMessage(in_vain=True), 8: AwaitedMessage()}), waits(0, [8]), CRASHED
    assert told(*behind) == {(0, 1): PLAIN}
    assert told(waits(1, [0, 8]), *behind[1:]) == {(0, 1): DETECTED}


def test_what_will_be_lost_is_known_by_rounds_and_names_and_links_alone() -> None:
    def loses(action: str, base: LinkSpec = LinkSpec(), **when: Any) -> bool:  # noqa: B008
        event = CompiledEvent(action, 0, blocks=[Block(frozenset([2]), frozenset([3]))], **when)  # type: ignore[arg-type]
        return Outages([event], lambda edge: base).will_lose(Transit(2, 3, Kind.DATA, 4, 0, 0, 0))

    down = {"state": "down_drop"}
    assert loses("set", at_round=4, parameters=down)
    assert not loses("set", at_round=5, parameters=down)
    assert not loses("set", at_ns=1, parameters=down)
    assert loses("drop", at_round=4, parameters={})
    assert not loses("drop", at_round=5, parameters={})
    assert loses("drop", LinkSpec(loss=choose("loss", 1)), at_round=5, parameters={})


def test_who_returns_without_its_state_gives_nothing_for_the_present_round() -> None:
    back = is_(7, State.CRASHED, back_ns=9 * SECOND, keeps=False)
    nodes = waits(0, {7: AwaitedMessage(), 9: lost(9, 0)}), RUNS
    assert told(*nodes, back) == {(0,): PLAIN}
    assert told(*nodes, replace(back, keeps=True)) == {(0,): COPY}


# no sooner than as things are


@pytest.mark.parametrize(("first_s", "remedies"), [(11, ()), (16, (BEATS,)), (30, (DEADLINE, BEATS))])
def test_an_outage_that_need_not_end_is_not_gone_on_without(first_s: int, remedies: tuple[str, ...]) -> None:
    """Node 0 needs one of two that are down; the first is back before anybody would be called gone, or not."""
    away = [is_(node, State.CRASHED, since_ns=5 * SECOND, back_ns=s * SECOND) for node, s in ((7, first_s), (8, 40))]
    found = told(waits(0, [7, 8], need=2, have=[5], since_ns=5 * SECOND), *away)
    assert set(found) == {(0,)}
    assert found[(0,)] == remedies


def test_an_outage_counts_from_its_beginning_and_not_from_that_of_the_wait() -> None:
    def offered(since_s: int) -> tuple[str, ...]:
        away = is_(8, State.CRASHED, since_ns=since_s * SECOND, back_ns=11 * SECOND)
        return tuple(told(waits(0, [8]), away)[(0,)])

    assert BEATS in offered(11 - CALLED_GONE_NS // SECOND - 1)
    assert BEATS not in offered(11 - CALLED_GONE_NS // SECOND)


def test_who_waits_behind_a_stall_that_is_ended_does_not_wait_for_long() -> None:
    away = is_(8, State.CRASHED, back_ns=40 * SECOND)
    nodes = waits(0, [1, 8], need=2, have=[5]), waits(1, {9: lost(9, 1)}), RUNS, away
    assert told(*nodes)[(0,)] == (DEADLINE,)
    assert told(*nodes, allows=lambda setting: setting != RESEND)[(0,)] == ()
    assert told(*nodes, allows=lambda setting: setting not in (RESEND, SKIP))[(0,)] == (DEADLINE,)


def test_a_loop_that_does_not_answer_is_gone_on_without_at_some_time() -> None:
    assert told(waits(0, [8]), is_(8, State.BLOCKED))[(0,)] == (DEADLINE, BEATS)


def test_who_may_be_called_gone_by_chance_is_gone_on_without_by_asking() -> None:
    beats = waits(0, {9: lost(9, 0)}, undecided=[9])
    assert told(beats, RUNS, detector="heartbeat") == {(0,): (DEADLINE,)}


# what a setting does elsewhere


def test_heartbeats_are_not_offered_where_a_link_is_down_one_way() -> None:
    def offered(**edges: Any) -> tuple[str, ...]:
        return tuple(told(waits(0, [8]), CRASHED, waits(3, [4]), is_(4, State.RUNNING), edges=edges["edges"])[(0,)])

    one_way: Mapping[Edge, EdgeNow] = {(4, 3): CUT, (3, 4): EdgeNow()}
    assert offered(edges=one_way) == PLAIN
    assert offered(edges={**one_way, (3, 4): CUT}) == DETECTED
    assert offered(edges={**one_way, (4, 3): EdgeNow(up=False, heals_ns=9 * SECOND)}) == DETECTED


def test_heartbeats_do_not_replace_a_detector_that_has_told_of_a_crash() -> None:
    paused, back = is_(8, State.PAUSED), is_(7, State.RUNNING, returned=True)

    def knows(setting: str) -> bool:
        return setting != ORACLE

    assert told(waits(0, [8]), paused, allows=knows)[(0,)] == DETECTED
    assert told(waits(0, [8]), paused, is_(7, State.CRASHED), allows=knows)[(0,)] == PLAIN
    assert told(waits(0, [8]), paused, back, allows=knows)[(0,)] == PLAIN
    assert told(waits(0, [8]), paused, back)[(0,)] == DETECTED


def test_copies_are_not_offered_in_place_of_leaving_out() -> None:
    """What had been left out before would be waited for."""
    nodes = waits(0, {9: lost(9, 0)}), RUNS
    assert told(*nodes, allows=lambda setting: setting != SKIP) == {(0,): (DEADLINE, ANSWERED)}


def test_halves_are_offered_where_no_fault_would_hit_others_instead() -> None:
    knot = waits(0, [1], what=WaitKind.REPLY), waits(1, [0], what=WaitKind.REPLY)
    sound = (HALVES, SKIP, DEADLINE)
    assert told(*knot, RUNS) == {(0, 1): sound}
    assert told(*knot, is_(9, State.PAUSED, back_ns=9 * SECOND))[(0, 1)] == PLAIN
    assert told(*knot, RUNS, edges={(9, 1): EdgeNow(dropped={Fate.GONE: 1})})[(0, 1)] == PLAIN
    assert told(*knot, RUNS, edges={(9, 1): CUT})[(0, 1)] == PLAIN
    (scripted,) = diagnose(replace(fleet(*knot, RUNS), scripted=True), patience_ns=SECOND)
    assert scripted.remedies == PLAIN


def test_any_is_offered_where_more_than_one_is_needed_by_that_rule() -> None:
    assert told(waits(0, [9], have=[5]), RUNS)[(0,)] == (ANY,)
    assert told(waits(0, [9, 8], need=1), RUNS, is_(8, State.RUNNING))[(0,)] == ()
    own = waits(0, [9], have=[5])  # an algorithm's own
    assert own.wait is not None
    assert told(replace(own, wait=replace(own.wait, cumulative=True)), RUNS)[(0,)] == ()


# trials


def test_nodes_go_on_in_time_where_they_ever_do() -> None:
    away, held = is_(8, State.CRASHED, back_ns=9 * SECOND), {9: AwaitedMessage(AwaitedFate.HELD)}
    heals = {(9, 4): EdgeNow(up=False, heals_ns=8 * SECOND)}
    nodes = [waits(0, [8]), waits(1, [0]), waits(2, [0, 4], need=1), waits(3, IN_VAIN), waits(4, held), RUNS, away]
    snapshot = fleet(*nodes, waits(5, [3], deadline_ns=10 * SECOND), at_ns=7 * SECOND, edges=heals)
    seconds = {0: 9, 1: 9, 2: 8, 4: 8, 5: 10}
    assert goes_on(snapshot) == {3: NEVER_NS} | {node: when * SECOND for node, when in seconds.items()}


@given(fleets())
def test_without_a_setting_those_go_on_that_do(snapshot: Snapshot) -> None:
    assert {node for node, at_ns in goes_on(snapshot).items() if at_ns >= NEVER_NS} == reduce(snapshot)


# in fleets


KEYS: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "again",
    "seed": 5,
    "nodes": 4,
    "rounds": 4,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 2},
    "algorithm": {"name": "ad_psgd", "bipartite": True},
    "topology": "ring",
    "wait": {"for": "all", "deadline": "none", "on_stall": "resend"},
    "delivery": "plain",
    "failure_detector": {"kind": "none"},
    "links": {"default": {"latency": "2ms"}},
    "evaluation": {"every": 1000},
}


def test_a_request_is_sent_again_once_who_is_asked_is_there() -> None:
    """It was sent three times before, as often as it could be, while nobody was there to take it."""
    events = [{"at": "13ms", "crash": 1, "restart_after": "9s", "state": "kept"}]
    ended = Executor().run(netdfl.load(KEYS | {"events": events}))
    resent: list[Finding] = [stall for stall in ended.stalls if stall.ended_by]
    assert ended.verdict == "done", ended.reasons
    assert all(stall.found_ns <= 9 * SECOND + SECOND for stall in resent)
