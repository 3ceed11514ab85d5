"""Kinds of faults that drawn fleets showed, in small fleets: who returns, who is left behind, what is told of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from stall_terms import ANSWERED, DEADLINE, RESEND
from stall_terms import BEATS as HEARTBEATS

import netdfl
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.why import ReasonKind
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.supervisor.stalls import StallWatch, settings_of

BASE: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "going-on",
    "seed": 5,
    "nodes": 5,
    "rounds": 6,
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
ORACLE = {"kind": "oracle"}
BEATS = {"kind": "heartbeat", "every": "500ms", "misses": 4}
STAR = {"algorithm": "fedavg", "topology": "star"}


def run(**keys: Any) -> ExploredRun:
    ended = Executor().run(netdfl.load(BASE | keys))
    assert not ended.broke, ended.broke
    return ended


def left(ended: ExploredRun) -> list[Finding]:
    return [stall for stall in ended.stalls if not stall.over]


def reasons(ended: ExploredRun) -> dict[tuple[int, int], ReasonKind]:
    return {(each.waiter, each.source): each.why for stall in left(ended) for each in stall.grounds.reasons}


def crash(node: int, at: str, after: str, **more: str) -> dict[str, Any]:
    return {"at": at, "crash": node, "restart_after": after} | more


@pytest.mark.parametrize(
    ("lasting", "ends"), [({"at_round": 2, "for_rounds": 1}, False), ({"at": "24ms", "for": "300ms"}, True)]
)
def test_a_stall_ends_by_itself_only_if_some_copy_can_pass(lasting: dict[str, Any], ends: bool) -> None:
    ended = run(delivery="acknowledged", events=[{**lasting, "link": "1->2", "loss": 1}])
    assert bool(left(ended)) is not ends
    told = [stall.text for stall in ended.stalls]
    assert all("ends by itself" in text for text in told) if ends else not any("by itself" in text for text in told)
    assert ends or all("sent again" not in text for text in told)


# who returns


@pytest.mark.parametrize("graph", ["ring", "full", "directed_ring"])
@pytest.mark.parametrize("after", ["40ms", "3s"])
@pytest.mark.parametrize("method", ["dpsgd", "sgp"])
def test_who_returns_is_sent_nothing_for_rounds_that_began_without_it_and_waits_for_nothing(
    graph: str, after: str, method: str
) -> None:
    if graph == "directed_ring" and method == "dpsgd":
        return
    slow = [{"at_round": 4, "for_rounds": 1, "slow_down": 0, "factor": 30}]
    ended = run(
        algorithm=method, topology=graph, failure_detector=ORACLE, rounds=8, events=[crash(2, "14ms", after), *slow]
    )
    assert (ended.verdict, [stall.text for stall in left(ended)]) == ("done", [])


def test_two_that_return_one_after_the_other_leave_each_other_out() -> None:
    events = [crash(1, "14ms", "50ms"), crash(2, "30ms", "90ms")]
    ended = run(topology="full", failure_detector=ORACLE, rounds=20, events=events)
    assert ended.verdict == "done", ended.reasons


def test_what_a_life_had_read_is_not_awaited_again_by_the_next() -> None:
    """Overlapping rounds read messages of later rounds before they wait for them."""
    ended = run(
        algorithm={"name": "overlap_sgp", "tau": 2},
        topology="full",
        delivery={"kind": "acknowledged", "timeout": "60ms", "attempts": 3},
        wait={"for": "any", "deadline": "none"},
        rounds=4,
        events=[crash(3, "25ms", "25ms", rejoin="replay")],
    )
    assert (ended.verdict, [stall.text for stall in left(ended)]) == ("done", [])


def test_who_returns_with_no_round_left_still_answers() -> None:
    algorithm = {"name": "ad_psgd", "order": "successor", "bipartite": True}
    again = {"kind": "acknowledged", "timeout": "200ms", "attempts": 5}
    events = [{"at_round": 4, "crash": 2, "restart_after": "80ms", "state": "lost"}]
    ended = run(nodes=4, algorithm=algorithm, delivery=again, events=events, rounds=5)
    assert (ended.verdict, [stall.text for stall in left(ended)]) == ("done", [])


# who is left behind


def test_a_client_under_a_deadline_has_its_rounds_after_its_servers_end() -> None:
    """It was taken for gone while it was cut off, and waits for what is not sent any more: a deadline each round."""
    cut = {"at": "14ms", "for": "4s", "partition": [[0], [1, 2, 3, 4, 5]], "mode": "down_drop"}
    wait = {"for": {"quorum": 3}, "deadline": "3s"}
    ended = run(**STAR, failure_detector=BEATS, wait=wait, events=[cut])
    ends = [each for each in ended.rows.measured if each.name == "round_s" and each.node == 0 and each.round == 5]
    assert (ended.verdict, len(ends)) == ("done", 1), ended.reasons


def test_a_client_with_a_long_deadline_is_named_where_the_run_ends_without_it() -> None:
    cut = {"at": "14ms", "partition": [[0], [1, 2, 3, 4, 5]], "mode": "down_drop"}
    ended = run(**STAR, wait={"for": {"quorum": 3}, "deadline": "1h"}, events=[cut])
    assert ended.verdict == "fail"
    assert any("node 0" in reason for reason in ended.reasons)


def test_a_client_whose_server_still_sends_again_has_the_time_for_it_however_long() -> None:
    """Every attempt is lost; the server gives up after 94 s, and only then is the client's wait skipped."""
    ended = run(
        **STAR,
        delivery={"kind": "acknowledged", "timeout": "200ms", "attempts": 20},
        wait={"for": {"quorum": 3}, "deadline": "none", "on_stall": "skip"},
        events=[{"at_round": 0, "drop": "5->2"}],
    )
    assert ended.verdict == "done", ended.reasons


def test_a_client_that_asks_for_a_model_has_the_time_for_it() -> None:
    events = [crash(3, "14ms", "500ms", state="lost"), {"at": "20ms", "drop": "3->5", "kind": "fetch"}]
    ended = run(**STAR, failure_detector=ORACLE, events=events)
    rejoined = [each.at_ns for each in ended.rows.events if each.kind == "rejoin"]
    assert (ended.verdict, len(rejoined)) == ("done", 1), ended.reasons
    assert rejoined[0] > 20 * 10**9


# what is told


def test_who_was_taken_for_gone_is_told_also_once_it_is_heard_again() -> None:
    """The others finish without node 0, and hear it again when its pause is over."""
    hub = {"nodes": 3, "topology": {"kind": "edge_list", "edges": [[0, 1], [0, 2]]}}
    events = [{"at": "27ms", "pause": 0, "for": "6s"}]
    ended = run(**hub, wait={"for": {"quorum": 1}, "deadline": "none"}, failure_detector=BEATS, events=events)
    assert reasons(ended) == {(0, 1): ReasonKind.TAKEN_FOR_GONE, (0, 2): ReasonKind.TAKEN_FOR_GONE}


def test_who_is_past_a_step_of_the_same_round_is_no_hope() -> None:
    """Node 4 returns to the first step of a round in whose second one the others stand, and lacks what it had taken."""
    events = [{"at_round": 1, "drop": "2->1"}, crash(4, "60ms", "100ms")]
    steps = {"name": "dfedsam_mgs", "gossip_steps": 2}
    ended = run(algorithm=steps, topology="full", failure_detector=ORACLE, events=events)
    told = reasons(ended)
    assert told[1, 2] is ReasonKind.LOST
    assert {whom for waiter, whom in told if waiter == 4} == {0, 1, 2, 3}


def test_a_link_that_is_reset_is_named_by_its_entry() -> None:
    """The message was under way when it came to that."""
    reset = {"at": "35ms", "for": "5ms", "link": "1->2", "state": "down_reset"}
    ended = run(events=[{"at_round": 5, "crash": 4}, reset])
    lost = [each for stall in left(ended) for each in stall.grounds.reasons if each.why is ReasonKind.LOST]
    assert [(each.edge, each.loss, each.event) for each in lost] == [((1, 2), "reset", 1)]


@pytest.mark.parametrize(
    ("back", "why"), [({}, ReasonKind.CRASHED), ({"restart_after": "8s"}, ReasonKind.CRASHED), (None, ReasonKind.CUT)]
)
def test_of_two_outages_the_longer_one_is_told(back: dict[str, str] | None, why: ReasonKind) -> None:
    crashes = [] if back is None else [{"at": "15ms", "crash": 2} | back]
    cut = {"at": "16ms", "for": "5s", "partition": [[2], [0, 1, 3, 4]], "mode": "down_hold"}
    ended = run(events=[*crashes, cut])
    first = next(each for stall in ended.stalls for each in stall.grounds.reasons if each.source == 2)
    assert first.why is why


def test_a_request_that_a_life_took_which_has_ended_is_told() -> None:
    algorithm = {"name": "ad_psgd", "order": "successor", "bipartite": False}
    ended = run(nodes=4, algorithm=algorithm, topology="full", events=[crash(0, "25ms", "3s", rejoin="replay")])
    assert reasons(ended) == {(3, 0): ReasonKind.RECEIVER_RESTARTED}


def test_of_what_a_life_took_no_later_loss_is_blamed() -> None:
    """Node 1 crashes with node 0's message of round 0; that of round 1 fails as it is down, as does node 2's first."""
    late = {"at_round": 0, "delay": "2->1", "by": "30ms"}
    ended = run(topology="full", nodes=3, rounds=4, events=[late, crash(1, "20ms", "1s")])
    whys = {pair: why for pair, why in reasons(ended).items() if pair[0] == 1}
    assert whys == {(1, 0): ReasonKind.RECEIVER_RESTARTED, (1, 2): ReasonKind.RECEIVER_DOWN}


REMEDIES: Mapping[str, tuple[dict[str, Any], set[str]]] = {
    "a detector by heartbeats is there": (
        {"failure_detector": BEATS, "events": [{"at": "14ms", "crash": 2}], "topology": "full"},
        {HEARTBEATS},
    ),
    "what is sent again is waited for under auto, too": (
        {
            "delivery": {"kind": "acknowledged", "timeout": "900ms", "attempts": 5},
            "events": [{"at": "14ms", "for": "6s", "link": "1->2", "loss": 1}],
        },
        {DEADLINE, RESEND},
    ),
    "a pause ends sooner than anybody is given up": (
        {"events": [{"at": "14ms", "for": "5s", "pause": 2}]},
        {DEADLINE, HEARTBEATS},
    ),
    "acknowledgements are there": (
        {
            "delivery": {"kind": "acknowledged", "timeout": "20ms", "attempts": 1},
            "events": [{"at": "14ms", "for": "1s", "link": "1->2", "loss": 1}],
        },
        {ANSWERED},
    ),
    "nobody is left out where nobody knows who will send": (
        {
            "nodes": 3,
            "algorithm": "sgp",
            "topology": {"kind": "full", "selection": {"kind": "random_k", "k": 2, "known": False}},
            "wait": {"for": {"quorum": 2}, "deadline": "none", "announce": False},
            "events": [{"at_round": 0, "crash": 1}],
        },
        {HEARTBEATS},
    ),
}


@pytest.mark.parametrize("case", REMEDIES)
def test_no_remedy_is_named_that_does_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, useless = REMEDIES[case]
    assert not useless & remedies(monkeypatch, keys)


@pytest.mark.parametrize(("lasts", "helps"), [("9s", True), ("12s", False)])
@pytest.mark.parametrize("outage", ["node", "link"])
def test_acknowledgements_are_named_where_messages_are_sent_again_for_long_enough(
    outage: str, lasts: str, helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 4 is paused for longer than either lasts, so that a look comes when it is over."""
    node, link = {"crash": 2, "restart_after": lasts}, {"link": "1->2", "state": "down_drop", "for": lasts}
    events = [{"at": "40ms"} | (node if outage == "node" else link), {"at": "41ms", "for": "15s", "pause": 4}]
    assert (ANSWERED in remedies(monkeypatch, {"events": events})) == helps
    assert (run(delivery="acknowledged", events=events).verdict == "done") == helps


def remedies(monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]) -> set[str]:
    """What is named in all stalls of a run."""
    inner, allows = StallWatch.__init__, settings_of(netdfl.load(BASE | keys))

    def watching(self: StallWatch, *parts: Any) -> None:
        inner(self, *parts)
        self.allows = allows  # runs in memory name no remedies by themselves

    monkeypatch.setattr(StallWatch, "__init__", watching)
    ended = run(**keys)
    assert ended.stalls
    return {remedy for stall in ended.stalls for remedy in stall.remedies}
