"""Kinds of faults that drawn fleets showed, in small fleets: what is waited for to its end, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

import netdfl
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.why import ReasonKind
from netdfl.explore.execute import Executor, ExploredRun

BASE: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "to-the-end",
    "seed": 5,
    "nodes": 4,
    "rounds": 5,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 2},
    "algorithm": "dpsgd",
    "topology": "ring",
    "wait": {"for": "all", "deadline": "none"},
    "delivery": "plain",
    "failure_detector": {"kind": "none"},
    "links": {"default": {"latency": "2ms"}},
    "evaluation": {"every": 1000},
}
STAR = {"algorithm": "fedavg", "topology": "star"}
BEATS = {"kind": "heartbeat", "every": "400ms", "misses": 3}
AGAIN = {"kind": "acknowledged", "timeout": "20ms", "attempts": 20}


def run(**keys: Any) -> ExploredRun:
    ended = Executor().run(netdfl.load(BASE | keys))
    assert not ended.broke, ended.broke
    return ended


def left(ended: ExploredRun) -> list[Finding]:
    return [stall for stall in ended.stalls if not stall.over]


def whys(ended: ExploredRun) -> dict[tuple[int, int], ReasonKind]:
    return {(each.waiter, each.source): each.why for stall in left(ended) for each in stall.grounds.reasons}


# what ends by the scenario is waited for


@pytest.mark.parametrize(
    "outage",
    [
        {"pause": 1, "for": "30s"},
        {"link": "4->1", "state": "down_hold", "for": "30s"},
        {"link": "1->4", "state": "down_hold", "for": "30s"},
    ],
    ids=str,
)
def test_a_client_out_of_reach_at_its_servers_end_has_its_rounds_once_that_is_over(outage: dict[str, Any]) -> None:
    ended = run(**STAR, wait={"for": {"quorum": 3}, "deadline": "none"}, events=[{"at": "16ms"} | outage])
    assert (ended.verdict, ended.reasons) == ("done", ())


def test_a_message_still_on_its_way_to_a_client_at_its_servers_end_is_waited_for() -> None:
    late = {"at_round": 1, "delay": "4->1", "by": "30s"}
    ended = run(**STAR, wait={"for": {"quorum": 3}, "deadline": "none"}, events=[late])
    assert (ended.verdict, ended.reasons) == ("done", ())


@pytest.mark.parametrize("loss", [{"loss": 1}, {"state": "down_drop"}], ids=str)
def test_what_is_sent_again_is_sent_again_once_its_link_loses_it_no_more(loss: dict[str, Any]) -> None:
    ill = {"at": "9ms", "for": "16s", "link": "1->2"} | loss
    ended = run(wait={"for": "all", "deadline": "none", "on_stall": "resend"}, events=[ill])
    assert ended.verdict == "done", ended.reasons
    assert {stall.ended_by for stall in ended.stalls if stall.permanent} == {"resend"}


def test_no_run_waits_for_a_link_that_loses_each_copy_for_good() -> None:
    ill = {"at": "9ms", "link": "1->2", "loss": 1}
    ended = run(wait={"for": "all", "deadline": "none", "on_stall": "resend"}, events=[ill])
    assert (ended.verdict, len(left(ended))) == ("fail", 1)


def test_a_wait_that_two_things_hold_up_is_skipped_past_both() -> None:
    """Node 0 is gone for good, and node 1's sums of round 2 are lost: they wait for it, and then in a circle."""
    events = [{"at": "32ms", "crash": 0}, {"at_round": 2, "for_rounds": 2, "link": "1->2", "loss": 1}]
    ended = run(
        nodes=5,
        rounds=4,
        algorithm="sgp",
        topology={"kind": "exponential"},
        delivery="running_sums",
        wait={"for": "all", "deadline": "none", "on_stall": "skip"},
        events=events,
    )
    assert (ended.verdict, left(ended)) == ("done", [])


# nothing is waited for longer than it takes


def test_beats_that_came_before_a_life_began_were_not_lost_to_it() -> None:
    events = [{"at": "14ms", "crash": 1, "restart_after": "7s"}, {"at_round": 2, "drop": "0->3"}]
    ended = run(failure_detector=BEATS, events=events)
    assert ended.verdict == "fail"
    assert ended.length_ns < 20 * 10**9


# what is told


def test_a_request_whose_later_copy_came_is_not_lost() -> None:
    """All four ask the next in a ring, in which nobody answers while it asks."""
    algorithm = {"name": "ad_psgd", "order": "successor", "bipartite": False}
    events = [{"at": "5ms", "for": "1900ms", "link": "1->2", "state": "down_drop"}]
    ended = run(algorithm=algorithm, delivery=AGAIN, events=events)
    assert [(stall.cause, stall.roots) for stall in left(ended)] == [(Cause.DEADLOCK, (0, 1, 2, 3))]


def test_stalls_that_become_one_are_not_over() -> None:
    """Nodes lack what no sender meant for them, first some and then others, as those return that may have sent it."""
    events = [
        {"at": "23.7ms", "crash": 3, "restart_after": "3635.8ms", "state": "lost"},
        {"at_round": 3, "crash": 1, "restart_after": "5431ms", "state": "lost"},
    ]
    ended = run(
        seed=277,
        nodes=8,
        rounds=7,
        world={"kind": "simulated", "compute": "11.5ms"},
        links={"default": {"latency": "17.3ms"}},
        algorithm="sgp",
        topology={"kind": "full", "selection": {"kind": "random_k", "k": 2, "known": False}},
        wait={"for": {"quorum": 3}, "deadline": "none", "announce": False},
        events=events,
    )
    assert [stall.text for stall in ended.stalls if stall.permanent and stall.over] == []
    assert min(stall.found_ns for stall in left(ended)) < 4 * 10**9


def test_who_was_called_gone_is_named_no_more() -> None:
    """Node 0's messages and beats are all lost; the others' went to a life of the server that ended with them."""
    ended = run(
        **STAR,
        rounds=3,
        seed=925,
        world={"kind": "simulated", "compute": "7ms"},
        failure_detector={"kind": "heartbeat", "every": "457.6ms", "misses": 5},
        links={"default": {"latency": "5.4ms"}, "0->4": {"loss": 1}},
        events=[{"at": "36.9ms", "crash": 4, "restart_after": "102.6ms"}],
    )
    assert whys(ended) == {(4, node): ReasonKind.RECEIVER_RESTARTED for node in (1, 2, 3)}


@pytest.mark.parametrize("outage", ["crash", "pause"])
def test_of_two_outages_for_good_that_of_the_node_is_told(outage: str) -> None:
    """Whether its links are down or not, who is down sends nothing."""
    cut = {"at": "16ms", "partition": [[2], [0, 1, 3]], "mode": "down_hold"}
    ended = run(events=[{"at": "15ms", outage: 2}, cut])
    assert {whys(ended)[1, 2], whys(ended)[3, 2]} == {ReasonKind.CRASHED if outage == "crash" else ReasonKind.PAUSED}


@pytest.mark.parametrize(
    ("pause", "told"), [({}, ReasonKind.PAUSED), ({"for": "60s"}, ReasonKind.PAUSED), ({"for": "20s"}, ReasonKind.CUT)]
)
def test_of_two_outages_that_hold_a_copy_back_the_longer_one_is_told(pause: dict[str, str], told: ReasonKind) -> None:
    """Node 2 would send again what was lost, if it went on and its link were up."""
    cut = {"at": "9ms", "for": "40s", "link": "2->1", "state": "down_drop"}
    ended = run(delivery=AGAIN | {"timeout": "400ms"}, events=[cut, {"at": "15ms", "pause": 2} | pause])
    reasons = [reason for stall in ended.stalls for reason in stall.grounds.reasons]
    assert next(each.why for each in reasons if (each.waiter, each.source) == (1, 2)) is told


def test_what_was_sent_and_held_before_its_sender_went_down_is_cut_off() -> None:
    cut = {"at": "9ms", "partition": [[2], [0, 1, 3]], "mode": "down_hold"}
    ended = run(events=[cut, {"at": "20ms", "pause": 2}])
    assert {whys(ended)[1, 2], whys(ended)[3, 2]} == {ReasonKind.CUT}


@pytest.mark.parametrize("outage", ["crash", "pause"])
def test_what_its_receiver_missed_as_it_was_down_is_lost_whatever_becomes_of_its_sender(outage: str) -> None:
    events = [{"at": "5ms", "crash": 1, "restart_after": "1s"}, {"at": "30ms", outage: 0}]
    ended = run(events=events)
    assert whys(ended)[1, 0] is ReasonKind.RECEIVER_DOWN


def test_who_was_left_out_of_a_round_is_told_so_whatever_came_later() -> None:
    """Node 1 is down when rounds 2 and 3 begin, and again for round 5: those are two absences, not one."""
    hub = {"nodes": 3, "topology": "full", "rounds": 8, "wait": {"for": {"quorum": 1}, "deadline": "none"}}
    absences = [
        {"at": "14ms", "crash": 1, "restart_after": "31ms", "rejoin": "replay"},
        {"at": "49ms", "crash": 1, "restart_after": "20ms", "rejoin": "replay"},
    ]
    ended = run(**hub, delivery=AGAIN, failure_detector={"kind": "oracle"}, events=absences)
    assert whys(ended) == {(1, node): ReasonKind.TAKEN_FOR_GONE for node in (0, 2)}


def test_a_message_that_an_ended_life_took_is_told_though_its_sender_is_down() -> None:
    late = {"at_round": 0, "delay": "2->1", "by": "20ms"}
    events = [{"at": "13ms", "crash": 0}, {"at": "15ms", "crash": 1, "restart_after": "8ms"}, late]
    ended = run(topology="full", nodes=3, events=events)
    assert whys(ended)[1, 0] is ReasonKind.RECEIVER_RESTARTED


def test_a_sender_that_is_paused_for_good_keeps_what_it_would_send_again() -> None:
    events = [{"at": "5ms", "crash": 1, "restart_after": "1s"}, {"at": "12ms", "pause": 0}]
    ended = run(delivery=AGAIN, events=events)
    assert whys(ended)[1, 0] is ReasonKind.PAUSED


def test_who_is_paused_past_a_round_never_sent_its_message_of_that() -> None:
    events = [{"at": "14ms", "crash": 1, "restart_after": "60ms", "rejoin": "replay"}, {"at": "40ms", "pause": 0}]
    wait = {"for": {"quorum": 1}, "deadline": "none"}
    ended = run(nodes=3, topology="full", wait=wait, delivery=AGAIN, failure_detector={"kind": "oracle"}, events=events)
    assert whys(ended)[1, 0] is ReasonKind.TAKEN_FOR_GONE


def test_a_slow_fleet_ends_soon_after_the_last_of_those_that_can_end() -> None:
    """Who asks node 3, which is paused for good, gives it up after half a minute: so long a round takes."""
    ended = run(
        nodes=6,
        rounds=7,
        algorithm={"name": "ad_psgd", "order": "random", "bipartite": False},
        wait={"for": "all", "deadline": "auto"},
        failure_detector={"kind": "heartbeat", "every": "400ms", "misses": 5},
        events=[{"at": "35ms", "pause": 3}],
    )
    last_ns = max(each.at_ns for each in ended.rows.measured if each.name == "round_s")
    assert last_ns > 30 * 10**9
    assert ended.length_ns < last_ns + 5 * 10**9


def test_what_holds_up_a_node_behind_others_is_told_though_a_detector_may_yet_err() -> None:
    """One beat of node 4's was dropped, too: by that chance its next ones may be."""
    ended = run(
        nodes=5,
        topology="full",
        failure_detector={"kind": "heartbeat", "every": "150ms", "misses": 2},
        links={"default": {"latency": "2ms"}, "3->2": {"loss": 1}},
        events=[{"at_round": 2, "drop": "4->1"}, {"at_round": 2, "drop": "4->1", "kind": "heartbeat"}],
    )
    assert {whys(ended)[3, 2], whys(ended)[1, 4]} == {ReasonKind.TAKEN_FOR_GONE, ReasonKind.LOST}
    assert [stall.permanent for stall in left(ended) if 1 in stall.roots] == [False]


def test_nobody_waits_for_what_a_life_that_does_not_return_would_have_sent_again() -> None:
    """The server crashes before node 1, which took its last message, has acknowledged it, and so does node 1."""
    events = [{"at": "41ms", "crash": 4}, {"at": "44ms", "crash": 1, "restart_after": "100ms"}]
    slow = {"kind": "simulated", "compute": "20ms"}
    again = {"kind": "acknowledged", "timeout": "26ms", "attempts": 1}
    wait = {"for": "any", "deadline": "none"}
    ended = run(**STAR, world=slow, wait=wait, delivery=again, failure_detector={"kind": "oracle"}, events=events)
    assert [stall.grounds.alone for stall in left(ended)] == [None] * len(left(ended))
    assert whys(ended)[1, 4] is ReasonKind.RECEIVER_RESTARTED


def test_who_waits_for_anybody_leaves_out_nobody_that_a_detector_calls_gone() -> None:
    """Nobody knows who would have sent: what node 0 lacks is named of all, also of those that are silent."""
    alone = {"at": "5ms", "partition": [[0], [1, 2, 3]], "mode": "down_drop"}
    topology = {"kind": "full", "selection": {"kind": "random_k", "k": 1, "known": False}}
    wait = {"for": {"quorum": 3}, "deadline": "none", "announce": False}
    ended = run(algorithm="sgp", topology=topology, wait=wait, failure_detector=BEATS, events=[alone])
    assert ended.verdict == "fail"
    assert {source for waiter, source in whys(ended) if waiter == 0} == {1, 2, 3}


def test_who_was_skipped_holds_up_nobody_any_more() -> None:
    """A crash and a partition for two rounds of an exponential graph: circle after circle is ended by a skip each."""
    cut = {"at_round": 1, "for_rounds": 2, "partition": [[0, 1, 2, 4, 6], [3, 5]], "mode": "down_drop"}
    ended = run(
        nodes=7,
        rounds=3,
        algorithm="osgp",
        topology="exponential",
        links={"default": {"latency": "7.6ms"}},
        world={"kind": "simulated", "compute": "5.6ms"},
        wait={"for": "all", "deadline": "none", "on_stall": "skip"},
        events=[{"at": "27.2ms", "crash": 4}, cut],
    )
    assert ended.verdict == "done", ended.reasons
    assert {stall.ended_by for stall in ended.stalls if stall.permanent} == {"skip"}
