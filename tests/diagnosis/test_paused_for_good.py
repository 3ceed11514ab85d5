"""Nothing that is due of a node comes while it is paused for good; who is paused goes on where the scenario says so."""

from __future__ import annotations

from typing import Any

import pytest
from test_assemble import AGAIN, ROUND, waits
from test_fleets_to_their_end import BASE as PLAIN

import netdfl
from netdfl.core.types import Kind
from netdfl.diagnosis.account import EdgeAccount
from netdfl.diagnosis.assemble import DownNode, assemble
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.snapshot import DOWN, AwaitedFate, NodeNow, Snapshot, State
from netdfl.diagnosis.watch import Pace, Window
from netdfl.diagnosis.why import ReasonKind
from netdfl.explore.execute import Executor, ExploredRun

BASE: dict[str, Any] = PLAIN | {
    "name": "paused",
    "seed": 3,
    "nodes": 5,
    "rounds": 8,
    "links": {"default": {"latency": "1ms"}},
}
ANSWERED = {"kind": "acknowledged", "timeout": "400ms"}
BEATS = {"kind": "heartbeat", "every": "200ms", "misses": 3}
CHAIN = {"kind": "edge_list", "edges": [[0, 1], [1, 2], [2, 3], [3, 4]]}


def run(**keys: Any) -> ExploredRun:
    ended = Executor(60).run(netdfl.load(BASE | keys))
    assert not ended.broke, ended.broke
    assert ended.error is None
    return ended


def left(ended: ExploredRun) -> list[Finding]:
    return [stall for stall in ended.stalls if not stall.over]


def whys(ended: ExploredRun) -> dict[tuple[int, int], ReasonKind]:
    return {(each.waiter, each.source): each.why for stall in left(ended) for each in stall.grounds.reasons}


@pytest.mark.parametrize("state", sorted(DOWN))
@pytest.mark.parametrize("back_ns", [None, 5000])
@pytest.mark.parametrize("kind", [Kind.DATA, Kind.NOTICE])
def test_a_message_that_is_due_again_comes_if_its_sender_returns(state: State, back_ns: int | None, kind: Kind) -> None:
    """Its receiver took it in a life that has ended, and nobody remembers more than that it was sent."""
    edge = EdgeAccount(sent=9, delivered=9, dropped={}, in_flight=0, slots=((str(kind), 0, (((0, 0), (ROUND, 0)),)),))
    dst, id = AGAIN
    sender = waits(2, 3, ROUND + 1, edges={3: edge}, again=((dst, id._replace(kind=kind)),))
    down = {2: DownNode(state, ROUND + 1, 120, back_ns)}
    snapshot = assemble(1000, {2: sender, 3: waits(3, 2, ROUND, epoch=1, born_ns=110)}, down, Outages(()))
    assert [finding.roots for finding in find_stuck(snapshot)] == ([(3,)] if back_ns is None else [])
    wait = snapshot.nodes[3].wait
    assert wait is not None
    assert (wait.awaited[2].fate is AwaitedFate.IN_FLIGHT) == (back_ns is not None)


def test_what_a_paused_node_would_send_again_keeps_no_run_going() -> None:
    """Node 1 took node 0's message of round 1 and crashed while it waited for node 2; node 0 is paused by then."""
    slow = {"at_round": 1, "slow_down": 2, "factor": 50, "for_rounds": 1}
    crash = {"at": "200ms", "crash": 1, "restart_after": "15ms", "state": "kept"}
    ended = run(topology=CHAIN, delivery=ANSWERED, events=[slow, {"at_round": 2, "pause": 0}, crash])
    assert whys(ended) == {(1, 0): ReasonKind.PAUSED}
    assert [stall.permanent for stall in left(ended)] == [True]


@pytest.mark.parametrize(
    "keys",
    [
        {"delivery": ANSWERED},
        {"delivery": ANSWERED, "algorithm": "fedavg", "topology": "star", "nodes": 4},
        {"delivery": ANSWERED, "failure_detector": BEATS, "algorithm": "fedavg", "topology": "star", "nodes": 2},
        {"delivery": ANSWERED, "nodes": 4, "algorithm": {"name": "ad_psgd", "order": "successor", "bipartite": True}},
        {"delivery": "running_sums", "algorithm": "sgp", "topology": "exponential"},
        {"wait": {"deadline": "auto"}},
        {"wait": {"for": "all", "deadline": "3s"}},
        {"failure_detector": BEATS},
        {"failure_detector": BEATS, "world": {"kind": "simulated", "compute": "20s"}},  # beats take all the room there
        {"events": [{"at": "35ms", "pause": 2}, {"at": "40ms", "crash": 1, "restart_after": "1s", "state": "lost"}]},
    ],
    ids=str,
)
def test_a_run_with_a_node_that_is_paused_for_good_ends_and_does_not_pass(keys: dict[str, Any]) -> None:
    """Whatever is due of it: messages again, beats, questions, a deadline; and of others that ask it for a model."""
    ended = run(**{"events": [{"at": "35ms", "pause": 2}]} | keys)
    assert ended.verdict == "fail"
    assert any(
        "node 2, which is paused and never resumed" in each or "node 2 is paused" in each for each in ended.reasons
    )


def test_messages_that_go_in_circles_are_a_livelock_beside_a_node_that_is_paused_for_good() -> None:
    steps = {"name": "dfedsam_mgs", "gossip_steps": 100_000_000}
    keys = {"algorithm": steps, "topology": "full", "nodes": 4, "links": {"default": {"latency": "1s"}}}
    ended = run(**keys, wait={"for": {"quorum": 2}, "deadline": "none"}, events=[{"at": "35ms", "pause": 2}])
    assert [(stall.cause, stall.roots) for stall in left(ended)] == [(Cause.LIVELOCK, (0, 1, 3))]


def test_a_node_that_is_called_gone_makes_no_room_for_a_message_to_it() -> None:
    """The beats of 20 s fill the mailbox before the first message is sent: no node called gone ends that wait."""
    slow = {"kind": "simulated", "compute": "20s"}
    ended = run(world=slow, failure_detector=BEATS, events=[{"at": "1s", "pause": 0}])
    assert whys(ended) == {(1, 0): ReasonKind.PAUSED, (4, 0): ReasonKind.PAUSED}
    assert [(stall.roots, stall.permanent, stall.behind) for stall in left(ended)] == [((1, 4), True, (2, 3))]
    assert "can't send in round 0: the mailbox of node 0 is full" in left(ended)[0].text


# who goes on


def test_who_is_paused_and_then_crashes_and_returns_is_waited_for() -> None:
    crash = {"at": "40s", "crash": 2, "restart_after": "1s", "state": "kept"}
    ended = run(delivery=ANSWERED, events=[{"at": "35ms", "pause": 2}, crash])
    assert (ended.verdict, ended.reasons) == ("done", ())
    assert (ended.stalls[0].text.split(". ")[0], ended.stalls[0].until_ns) == (UNTIL_IT_RETURNS, 41_000_000_000)


UNTIL_IT_RETURNS = (
    "nodes 1 and 3 wait in round 3 for node 2, which crashed and returns at 41 s; 0 and 4 wait behind them"
)


def test_the_end_of_a_pause_in_a_round_that_never_comes_resumes_nobody() -> None:
    ended = run(events=[{"at": "35ms", "pause": 2}, {"at_round": 7, "pause": 2, "for": "100s"}])
    assert whys(ended) == {(1, 2): ReasonKind.PAUSED, (3, 2): ReasonKind.PAUSED}
    assert [(stall.permanent, stall.until_ns) for stall in left(ended)] == [(True, None)]


def test_a_pause_that_began_with_a_round_ends_when_it_is_told_to() -> None:
    ended = run(events=[{"at_round": 3, "pause": 2, "for": "20s"}])
    assert ended.verdict == "done"
    assert {stall.until_ns for stall in ended.stalls} == {20_033_000_000}


@pytest.mark.parametrize(("lasts", "num"), [({}, 0), ({"for": "60s"}, 1)])
def test_nobody_has_a_paused_node_send_again_before_it_is_resumed(lasts: dict[str, str], num: int) -> None:
    wait = {"for": "all", "deadline": "none", "on_stall": "resend"}
    pause = {"at_round": 4, "pause": 2} | lasts
    ended = run(wait=wait, events=[{"at_round": 3, "drop": "2->3", "attempt": 0}, pause])
    again = [each for each in ended.rows.messages if (each.src, each.dst, each.round, each.attempt) == (2, 3, 3, 1)]
    assert [each.sent_ns > 60_000_000_000 for each in again] == [True] * num
    assert (ended.verdict == "done") == (num == 1)


@pytest.mark.parametrize("state", sorted(DOWN))
def test_messages_that_passed_while_a_node_was_down_are_no_livelock_once_it_is_back(state: State) -> None:
    window, pace = Window(), Pace([1, 2])
    for at_ns, now, before in (
        (0, state, None),
        (10**12, state, 0),
        (10**12 + 1, State.WAITING, None),
        (2**50, state, None),
    ):
        nodes = {1: NodeNow(node=1, state=State.WAITING), 2: NodeNow(node=2, state=now)}
        seen = window.before(Snapshot(at_ns=at_ns, nodes=nodes), pace)
        assert (None if seen is None else seen.at_ns) == before


def test_who_has_just_been_back_is_not_said_to_have_been_at_work_since_the_run_began() -> None:
    """At 39.5 s and 40 s the fleet is looked at, when node 2 is back from its crash or its pause."""
    crash = {"at": "35ms", "crash": 2, "restart_after": "39465ms", "state": "kept", "rejoin": "replay"}
    for fault in (crash, {"at_round": 3, "pause": 2, "for": "39467ms"}):
        ended = run(delivery=ANSWERED, events=[fault])
        assert ended.verdict == "done"
        assert [stall.text for stall in ended.stalls if stall.cause is Cause.STRAGGLER] == []
