"""The chain of causes, in histories that no simulation gives: clocks that differ, rows that are missing."""

from __future__ import annotations

import math

import pytest

from netdfl.record.critical_path import Leg, Standstill, TimeUse, critical_path
from netdfl.record.history import EndedRound, History, LagReason, NodeOutage, TimedWait
from netdfl.record.time_spent import NodeLag


def waiting(since: float, until: float, src: int | None, sent: float | None, **more: object) -> TimedWait:
    row = TimedWait((), since, until, 0, "data", "came", src, sent, sent, None if sent is None else until)
    return row._replace(**more)  # type: ignore[arg-type]


def total(path: list[Leg], cause: TimeUse) -> float:
    return math.fsum(leg.seconds for leg in path if leg.cause is cause)


def test_clocks_that_disagree_end_in_a_path_that_adds_up() -> None:
    """Each message seems to be sent after it arrived: the chain must not go round in circles."""
    waits = {0: [waiting(1.0, 2.0, 1, 2.5)], 1: [waiting(1.0, 2.0, 0, 2.5)]}
    rounds = {node: [EndedRound(0.0, 2.0, 0, 1.0)] for node in (0, 1)}
    path = critical_path(History(waits, rounds, {}), 2.0)
    assert math.fsum(leg.seconds for leg in path) == pytest.approx(2.0)
    assert total(path, TimeUse.COMPUTE) == 1.0


def test_a_message_that_nobody_recorded_counts_as_links() -> None:
    path = critical_path(History({0: [waiting(1.0, 3.0, 1, None)]}, {0: [EndedRound(0.0, 3.0, 0, 1.0)]}, {}), 3.0)
    assert [(leg.cause, leg.seconds) for leg in path] == [(TimeUse.LINKS, 2.0), (TimeUse.COMPUTE, 1.0)]


def test_a_crash_between_two_sendings_is_no_resending() -> None:
    waits = {0: [waiting(1.0, 9.5, 1, 9.0, first_sent=1.0)]}
    rounds = {0: [EndedRound(0.0, 9.5, 0, 1.0)], 1: [EndedRound(8.0, 9.0, 0, 1.0)]}
    path = critical_path(History(waits, rounds, {1: [NodeOutage(1.5, 8.0, LagReason.CRASH)]}), 9.5)
    assert (total(path, TimeUse.LINKS), total(path, TimeUse.RESENDING), total(path, TimeUse.BEHIND)) == (0.5, 0.0, 6.5)


def test_a_run_without_an_ended_round_has_no_path() -> None:
    assert critical_path(History({}, {}, {}), 5.0) == []


def test_a_round_that_most_nodes_stood_through_names_nobody_slow() -> None:
    rounds = {node: [EndedRound(0.0, 2.0, 0, 2.0)] for node in range(3)}
    outages = {node: [NodeOutage(0.0, 2.0, LagReason.PAUSE)] for node in (0, 1)}
    path = critical_path(History({}, rounds, outages), 2.0)
    assert [(leg.cause, leg.seconds) for leg in path] == [(TimeUse.COMPUTE, 2.0)]


def test_a_message_that_lay_at_a_process_that_did_not_run_was_not_on_a_link() -> None:
    """Node 0 sent at 1 s, node 1 was stopped from 1 s to 9 s, as a debugger or a scheduler does."""
    stops = {1: [NodeOutage(1.0, 9.0, LagReason.STOPPED)]}
    rounds = {1: [EndedRound(0.0, 9.2, 0, 0.5)], 0: [EndedRound(0.0, 1.0, 0, 1.0)]}
    waits = {1: [waiting(0.5, 9.2, 0, 1.0, arrived=9.2)]}
    path = critical_path(History(waits, rounds, stops), 9.2)
    behind = [(leg.nodes, leg.why, leg.seconds) for leg in path if leg.cause is TimeUse.BEHIND]
    assert behind == [((1,), LagReason.STOPPED, 8.0)]
    assert total(path, TimeUse.LINKS) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("stood", "behind", "rest"),
    [((1.0, 9.0), 8.0, 1.0), ((-5.0, 2.0), 2.0, 7.0), ((0.0, 99.0), 9.0, 0.0), ((20.0, 30.0), 0.0, 9.0)],
)
@pytest.mark.parametrize("why", [LagReason.STOPPED, LagReason.SILENT])
def test_who_can_not_send_to_a_process_that_stands_still_waits_for_it(
    why: LagReason, stood: tuple[float, float], behind: float, rest: float
) -> None:
    """Node 0 trains for 1 s of 10 and waits for no message: its send finds the mailbox of node 1 full."""
    outages = {
        1: [NodeOutage(*stood, why)],
        2: [NodeOutage(4.0, 4.5, LagReason.STOPPED), NodeOutage(0.0, 10.0, LagReason.CRASH)],
    }
    path = critical_path(History({}, {0: [EndedRound(0.0, 10.0, 0, 1.0)]}, outages), 10.0)
    found = [(leg.nodes, leg.why, leg.seconds) for leg in path if leg.cause is TimeUse.BEHIND]
    assert found == [((1,), why, behind) if behind else ((2,), LagReason.STOPPED, 0.5)]
    assert total(path, TimeUse.REST) == (rest if behind else rest - 0.5)
    assert total(path, TimeUse.COMPUTE) == 1.0


@pytest.mark.parametrize(("cpu", "why"), [(None, LagReason.SLOW), (15.0, LagReason.SLOW), (1.1, LagReason.BUSY)])
def test_who_waits_for_a_processor_is_not_told_as_slow(cpu: float | None, why: LagReason) -> None:
    rounds = {node: [EndedRound(0.0, 1.0, 0, 1.0)] for node in range(3)} | {4: [EndedRound(0.0, 16.0, 0, 16.0, cpu)]}
    path = critical_path(History({}, rounds, {}), 16.0)
    assert [(leg.nodes, leg.why, leg.seconds) for leg in path if leg.cause is TimeUse.BEHIND] == [((4,), why, 15.0)]


@pytest.mark.parametrize(
    ("round", "cause"), [(3, TimeUse.BEHIND), (4, TimeUse.LOST)], ids=["sent nothing", "sent, and it was lost"]
)
def test_what_a_sender_kept_back_was_not_lost(round: int, cause: TimeUse) -> None:
    """Node 1 had taken node 0 for gone at 0.5 s; it had sent for round 4 all the same."""
    waits = {0: [TimedWait((1,), 1.0, 3.0, round, "data", "lost", None, None, None, None)]}
    rounds = {0: [EndedRound(0.0, 3.0, round, 1.0)], 1: [EndedRound(0.0, 1.0, round, 1.0)]}
    path = critical_path(History(waits, rounds, {}, {(1, 0): 0.5}, {(1, 0, 4)}), 3.0)
    assert total(path, cause) == 2.0
    assert all(leg.why is LagReason.SENT_NOTHING for leg in path if leg.cause is TimeUse.BEHIND)


@pytest.mark.parametrize(("ended", "cause"), [("skipped", TimeUse.SKIPPED), ("lost", TimeUse.LOST)])
def test_a_stall_that_was_skipped_is_no_loss(ended: str, cause: TimeUse) -> None:
    waits = {0: [TimedWait((1,), 1.0, 3.0, 3, "data", ended, None, None, None, None)]}
    rounds = {0: [EndedRound(0.0, 3.0, 3, 1.0)], 1: [EndedRound(0.0, 1.0, 3, 1.0)]}
    legs = critical_path(History(waits, rounds, {}), 3.0)
    assert [(leg.seconds, leg.nodes) for leg in legs if leg.cause is cause] == [(2.0, (1,))]


def test_a_node_is_behind_by_the_outage_that_took_it_longest() -> None:
    """Node 1 did not run for 40 s, and crashed for one: at 60 s it is ten rounds behind."""
    outages = {1: [NodeOutage(5.0, 45.0, LagReason.STOPPED), NodeOutage(50.0, 51.0, LagReason.CRASH)]}
    rounds = {
        0: [EndedRound(float(i), i + 1.0, i, 0.1) for i in range(20)],
        1: [EndedRound(0.0, 5.0, 9, 0.1), EndedRound(51.0, 60.0, 10, 0.1), EndedRound(60.0, 61.0, 19, 0.1)],
    }
    first = critical_path(History({}, rounds, outages), 61.0)[0]
    assert (first.cause, first.nodes, first.why) == (TimeUse.BEHIND, (1,), LagReason.STOPPED)


@pytest.mark.parametrize("ended", ["gone", "lost", "skipped"])
def test_a_wait_was_for_the_outage_that_took_most_of_it(ended: str) -> None:
    """Node 1 did not run for 8 s; its crash, right after that, ended the wait of node 0."""
    outages = {1: [NodeOutage(1.0, 9.0, LagReason.STOPPED), NodeOutage(9.5, 12.0, LagReason.CRASH)]}
    waits = {0: [TimedWait((1,), 1.0, 9.6, 3, "data", ended, None, None, None, None)]}
    rounds = {0: [EndedRound(0.0, 9.6, 3, 1.0)], 1: [EndedRound(0.0, 1.0, 2, 1.0)]}
    path = critical_path(History(waits, rounds, outages), 9.6)
    assert [(leg.nodes, leg.why) for leg in path if leg.cause is TimeUse.BEHIND] == [((1,), LagReason.STOPPED)]


STALLED = {node: [EndedRound(float(i), i + 1.0, i, 1.0) for i in range(6 - node)] for node in range(4)}


@pytest.mark.parametrize(
    ("outages", "last"),
    [
        ({}, Leg(TimeUse.END, 4.0, (2,))),
        ({3: [NodeOutage(2.5, math.inf, LagReason.CRASH)]}, Leg(TimeUse.BEHIND, 4.0, (3,), LagReason.CRASH)),
        ({3: [NodeOutage(1.5, 1.6, LagReason.PAUSE)]}, Leg(TimeUse.END, 4.0, (2,))),
    ],
    ids=["lost", "crashed", "paused before"],
)
def test_who_waits_in_the_stall_at_the_end_is_not_behind(outages: dict[int, list[NodeOutage]], last: Leg) -> None:
    """Node 2 waits for node 3 in vain, and the others behind it; node 2 is two rounds behind node 0."""
    stall = {"roots": [2], "culprits": [3], "behind": [0, 1], "over": False}
    history = History({}, STALLED, outages)
    assert critical_path(history, 10.0, Standstill.of([stall]))[0] == last
    over = Standstill.of([stall | {"over": True}])
    assert critical_path(history, 10.0, over) == critical_path(history, 10.0)
    assert critical_path(history, 10.0)[0].rounds >= 2


def test_a_pause_long_ago_makes_nobody_in_the_stall_behind() -> None:
    """Node 3 was paused for a while, and ended its last round after all others, which now wait in the same stall."""
    rounds = STALLED | {3: [EndedRound(0.0, 1.0, 0, 1.0), EndedRound(7.0, 8.0, 1, 1.0)]}
    history = History({}, rounds, {3: [NodeOutage(1.5, 2.0, LagReason.PAUSE)]})
    stall = {"roots": [3], "culprits": [2], "behind": [0, 1]}
    assert any(leg.nodes == (3,) and leg.rounds for leg in critical_path(history, 8.0))
    assert not any(leg.rounds for leg in critical_path(history, 8.0, Standstill.of([stall])))


@pytest.mark.parametrize(
    ("why", "rounds", "words"),
    [
        (LagReason.BUSY, 0, "had to wait for a processor: its machine was busy"),
        (LagReason.SLOW, 0, "took up to 16 times as long to compute as the median node"),
        (LagReason.STOPPED, 0, "did not run: its process was stopped, or its machine busy"),
        (LagReason.STOPPED, 9, "did not run for a while and was up to 9 rounds behind"),
        (LagReason.SILENT, 0, "answered no more: its process stood still, or its event loop was blocked"),
        (LagReason.SILENT, 9, "answered no more and was up to 9 rounds behind"),
        (LagReason.SENT_NOTHING, 0, "believed that the nodes that waited were gone, and sent them nothing"),
        (LagReason.CRASH, 19, "had crashed and was up to 19 rounds behind"),
        (LagReason.GONE, 0, "was believed to be gone"),
        (LagReason.UNKNOWN, 3, "was up to 3 rounds behind"),
    ],
)
def test_why_a_node_was_waited_for_is_said_in_its_own_words(why: LagReason, rounds: int, words: str) -> None:
    behind = NodeLag(4)
    behind.add(Leg(TimeUse.BEHIND, 3.0, (4,), why, rounds, times=16.0))
    assert behind.words() == f"3 s waiting for node 4, which {words}"
