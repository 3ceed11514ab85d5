"""When a run is over, who goes on after a server's end, and what is said of those that did not finish: all by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from wait_graphs import FLYING, fleet, is_, lost, waits

from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.ending import (
    AFTER_SERVER_NS,
    MOST_AFTER_SERVER_NS,
    MOST_BY_ITSELF_NS,
    goes_on,
    is_idle,
    is_over,
    lasts,
    not_ended,
    time_is_up,
    unfinished,
)
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, EdgeNow, NodeNow, Snapshot, State, WaitKind
from netdfl.diagnosis.watch import FIRST_NS, Pace
from netdfl.record.status import FleetStatus, NodeStatus, Phase

SECOND = 10**9
RUNS, SERVER_DONE = is_(9, State.RUNNING), is_(4, State.FINISHED, round=9)
NEVER = AwaitedMessage(AwaitedFate.NEVER)


def client(node: int = 0, fate: AwaitedMessage = NEVER, **more: Any) -> NodeNow:
    """A client that waits for server 4 alone."""
    early = more.pop("early", 0)
    return replace(waits(node, {4: fate}, **{"essential": True, **more}), early=early)


# is it over


def test_a_fleet_whose_messages_go_in_circles_is_over_unless_somebody_is_due_back() -> None:
    circles = Finding(cause=Cause.LIVELOCK, roots=(0, 1))
    busy = [is_(0, State.RUNNING), is_(1, State.RUNNING)]
    assert is_over([circles], fleet(*busy), [0, 1])
    assert is_over([circles], fleet(*busy), [])
    assert is_over([circles], fleet(*busy, is_(2, State.CRASHED)), [0, 1])
    assert is_over([circles], fleet(*busy, is_(2, State.PAUSED, back_ns=9)), [0, 1])
    assert not is_over([circles], fleet(*busy, is_(2, State.CRASHED, back_ns=9)), [0, 1])
    assert not is_over([replace(circles, cause=Cause.STRAGGLER)], fleet(*busy), [0, 1])


@pytest.mark.parametrize(
    ("other", "over"),
    [
        (is_(2, State.STOPPED), True),
        (is_(2, State.STOPPED, back_ns=9), True),
        (is_(2, State.PAUSED), True),
        (is_(2, State.PAUSED, back_ns=9), False),
        (is_(2, State.BLOCKED), False),
        (is_(2, State.STANDING), False),
        (is_(2, State.RUNNING), False),
        (client(2), True),
        (client(2, FLYING), False),
    ],
)
def test_a_run_is_over_where_each_running_node_is_held_or_stands_or_is_idle(other: NodeNow, over: bool) -> None:
    snapshot = fleet(waits(0, [1]), waits(1, [0]), other, SERVER_DONE)
    found = find_stuck(fleet(waits(0, [1]), waits(1, [0])))
    assert is_over(found, snapshot, [0, 1, 2]) is over
    assert is_over(found, snapshot, [0, 1])


def test_only_who_is_surely_held_for_good_is_held_and_those_behind_it_are() -> None:
    snapshot = fleet(waits(0, [1]), waits(1, [0]), waits(2, [1]))
    (found,) = find_stuck(snapshot)
    assert (found.roots, found.behind) == ((0, 1), (2,))
    assert is_over([found], snapshot, [0, 1, 2])
    for less in ({"permanent": False}, {"suspected": True}, {"behind": ()}, {"roots": (0,)}):
        assert not is_over([replace(found, **less)], snapshot, [0, 1, 2])


# after a server's end


@pytest.mark.parametrize(
    ("round_ns", "patience_ns"),
    [(None, FIRST_NS), (SECOND // 2, MOST_AFTER_SERVER_NS), (SECOND, MOST_AFTER_SERVER_NS), (2 * SECOND, 20 * SECOND)],
)
def test_clients_have_ten_seconds_after_their_servers_end_or_as_long_as_their_pace_asks(
    round_ns: int | None, patience_ns: int
) -> None:
    pace = Pace([0])
    if round_ns is not None:
        pace.at(0, 1, round_ns)
    assert (AFTER_SERVER_NS, MOST_AFTER_SERVER_NS) == (SECOND, 10 * SECOND)
    ended = [time_is_up(3 * SECOND, 3 * SECOND + patience_ns + more, pace) for more in (-1, 0, 1)]
    assert ended == [False, True, True]


@pytest.mark.parametrize(
    ("now", "on"),
    [
        (is_(0, State.RUNNING, since_ns=69 * SECOND), False),
        (client(since_ns=69 * SECOND), False),
        (client(deadline_ns=99 * SECOND, since_ns=10 * SECOND + 1), True),
        (client(deadline_ns=99 * SECOND, since_ns=10 * SECOND), False),
        (is_(0, State.FETCHING, since_ns=10 * SECOND + 1), True),
        (is_(0, State.FETCHING, since_ns=10 * SECOND), False),
        (replace(client(deadline_ns=99 * SECOND, since_ns=11 * SECOND), since_ns=0), True),
        (replace(client(deadline_ns=99 * SECOND, since_ns=0), since_ns=11 * SECOND), False),
        (client(fate=FLYING, since_ns=10 * SECOND + 1), True),
        (client(fate=replace(lost(4, 0), resent=True), since_ns=10 * SECOND + 1), True),
        (client(fate=FLYING, since_ns=10 * SECOND), False),
        (client(fate=lost(4, 0), since_ns=69 * SECOND), False),
        # the scenario says when that ends
        (is_(0, State.PAUSED, back_ns=999 * SECOND), True),
        (is_(0, State.PAUSED), False),
    ],
)
def test_a_client_goes_on_by_itself_while_it_fetches_or_has_a_deadline_or_something_comes_for_a_minute(
    now: NodeNow, on: bool
) -> None:
    assert MOST_BY_ITSELF_NS == 60 * SECOND
    snapshot = fleet(now, RUNS, SERVER_DONE, at_ns=70 * SECOND)
    assert goes_on(snapshot, [9, 0]) is on
    assert goes_on(snapshot, [0, 9]) is on
    assert not goes_on(snapshot, [9])
    assert not goes_on(snapshot, [])


def test_a_client_goes_on_where_its_link_holds_what_it_waits_for_until_the_scenario_ends_that() -> None:
    heals = EdgeNow(up=False, heals_ns=999 * SECOND)
    for edge, on in ((heals, True), (replace(heals, heals_ns=None), False)):
        snapshot = fleet(client(fate=HELD), RUNS, SERVER_DONE, at_ns=70 * SECOND, edges={(4, 0): edge})
        assert goes_on(snapshot, [0]) is on


HELD, LOST = AwaitedMessage(AwaitedFate.HELD), lost(4, 0)


@pytest.mark.parametrize(
    ("now", "idle"),
    [
        (client(), True),
        (client(fate=AwaitedMessage()), True),
        (client(fate=LOST), True),
        (client(fate=replace(LOST, resent=True)), False),
        (client(fate=FLYING), False),
        (client(fate=HELD), False),
        (client(early=1), False),
        (client(essential=False), False),
        (client(what=WaitKind.REPLY), False),
        (client(what=WaitKind.ROOM), False),
        (client(deadline_ns=9), False),
        (is_(0, State.RUNNING), False),
        (waits(0, {4: NEVER, 9: NEVER}, essential=True), False),
        (waits(0, {9: NEVER, 4: NEVER}, essential=True), False),
    ],
)
def test_idle_is_a_client_that_awaits_a_finished_server_alone_with_nothing_to_come(now: NodeNow, idle: bool) -> None:
    assert is_idle(fleet(now, RUNS, SERVER_DONE), 0) is idle
    assert not is_idle(fleet(now, RUNS, is_(4, State.RUNNING)), 0)


def stall(*nodes: NodeNow) -> tuple[Finding, Callable[..., Snapshot]]:
    """The one stall of `nodes`, and a fleet in which some of them are otherwise."""
    by_id = {now.node: now for now in nodes}
    (found,) = find_stuck(fleet(*nodes))
    return found, lambda *other: fleet(*(by_id | {now.node: now for now in other}).values())


def test_a_stall_lasts_while_one_of_its_waits_is_there_and_not_of_idle_clients_alone() -> None:
    found, now = stall(waits(0, [4], round=3), waits(1, [4], round=3), is_(4, State.CRASHED), RUNS)
    assert found.waits == {(0, 4, 3), (1, 4, 3)}
    gone = is_(0, State.RUNNING, round=3), is_(1, State.RUNNING, round=3)
    assert lasts(now(), found)
    assert lasts(now(gone[0]), found)
    assert lasts(now(gone[1]), found)
    assert not lasts(now(*gone), found)
    assert not lasts(now(waits(0, [4], round=4), gone[1]), found)
    assert not lasts(now(waits(0, [9], round=3), gone[1]), found)
    done, clients = is_(4, State.FINISHED), (client(0, round=3), client(1, round=3))
    assert not lasts(now(*clients, done), found)
    assert lasts(now(clients[0], done), found)


# what is said


def status(*phases: Phase, rounds: int = 10, **in_rounds: int) -> FleetStatus:
    found = FleetStatus("s", "simulated", "fedavg", rounds)
    found.nodes = {n: NodeStatus(n, phase=phase, round=in_rounds.get(f"n{n}", 3)) for n, phase in enumerate(phases)}
    return found


GO = Phase.RUNNING
CASES: dict[str, tuple[list[NodeNow], list[str]]] = {
    "two are paused": (
        [is_(0, State.PAUSED, round=2), is_(1, State.PAUSED, round=4)],
        ["nodes 0 and 1 are paused and never resumed, in rounds 2 to 4 of 10"],
    ),
    "one is stopped and one is paused": (
        [is_(0, State.STOPPED, round=2), is_(1, State.PAUSED, round=4)],
        [
            "node 1 is paused and never resumed, in round 4 of 10",
            "node 0 is stopped: no answer comes any more, in round 2 of 10",
        ],
    ),
    "two are stopped": (
        [is_(0, State.STOPPED, round=2), is_(1, State.STOPPED, round=2)],
        ["nodes 0 and 1 are stopped: no answer comes any more, in round 2 of 10"],
    ),
    "a pause that ends": (
        [is_(0, State.PAUSED, round=2, back_ns=9), is_(1, State.RUNNING, round=5)],
        ["nodes 0 and 1 had not finished when the run ended: rounds 2 to 5 of 10"],
    ),
    "one is idle": (
        [client(0, round=2), is_(1, State.RUNNING, round=5)],
        ["node 1 had not finished when the run ended: round 5 of 10"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_still_ran_is_told_by_what_it_did(case: str) -> None:
    nodes, said = CASES[case]
    ended = status(GO, GO, Phase.FINISHED, Phase.DIED, Phase.FINISHED)
    snapshot = fleet(*nodes, is_(2, State.RUNNING), is_(3, State.RUNNING), SERVER_DONE)
    assert unfinished(ended, None, (), snapshot) == said


@pytest.mark.parametrize("named", ["roots", "culprits", "behind"])
def test_whom_a_finding_names_in_any_part_is_not_told_again(named: str) -> None:
    ended = status(GO, GO, GO, Phase.CRASHED, n0=1, n1=2, n2=3, n3=7)
    snapshot = fleet(*(is_(n, State.RUNNING, round=n + 1) for n in range(3)), is_(3, State.CRASHED))
    found = Finding(cause=Cause.DEADLOCK, roots=(8,))
    left = "node 2 had not finished when the run ended: round 3 of 10"
    crashed = "node 3, the server, crashed in round 7 of 10 and did not return: clients had no rounds after that"
    assert unfinished(ended, 3, [found, replace(found, **{named: (0, 1)})], snapshot) == [left, crashed]
    assert unfinished(ended, 3, [replace(found, **{named: (0, 1, 3)})], snapshot) == [left]
    assert unfinished(ended, 3, [], None) == [crashed]
    assert unfinished(ended, 2, [], None) == []


def test_nobody_left_is_nothing_to_say() -> None:
    assert not_ended({}, 5) == []
    assert not_ended({3: 1, 2: 1}, 5) == ["nodes 2 and 3 had not finished when the run ended: round 1 of 5"]
