"""What is told of a stall agrees with itself: one reason, one end, one listing, and the times of its sentence."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stall_terms import BASE, SKIP, gossip, server
from wait_graphs import fleet, is_, lost, waits

from netdfl.diagnosis.diagnose import diagnose
from netdfl.diagnosis.ending import lasts
from netdfl.diagnosis.finding import Cause
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, EdgeNow, State
from netdfl.diagnosis.watch import FindingHistory
from netdfl.explore.execute import Executor
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.selectors import Block
from netdfl.record.directory import RunDirectory
from netdfl.record.status import Phase
from netdfl.running.supervise import supervise
from netdfl.scenario.load import loads

SECOND = 10**9


def told(keys: Any, out: Path, *settings: str) -> tuple[list[dict[str, Any]], set[int]]:
    """The stalls, and who did not come to its end."""
    scenario = loads(json.dumps(BASE | dict(keys)), ["=".join(each.split(": ", 1)) for each in settings])
    outcome = supervise(scenario, RunDirectory.create(out, "it", 0))
    left = {i for i, node in outcome.status.nodes.items() if node.phase is not Phase.FINISHED}
    return [dict(each) for each in (*outcome.stalled["deadlocks"], *outcome.stalled["stalls"])], left


CUT_OFF = server(
    "a client is cut off, taken for gone, and left",
    rounds=4,
    failure_detector={"kind": "heartbeat", "every": "100ms", "misses": 3},
    events=[{"at": "20ms", "for": "6s", "partition": [[0], [1, 2, 3, 4]], "mode": "down_hold"}],
).keys


def test_what_was_never_sent_is_not_held_up_by_a_link(tmp_path: Path) -> None:
    found, left = told(CUT_OFF, tmp_path / "before")
    (one,) = (each for each in found if not each["over"])
    assert (one["cause"], one["roots"], one["culprits"], left) == ("deadlock", [0], [4], {0})
    assert "node 4, which took node 0 for gone and did not send it" in one["text"]
    assert "until" not in one["text"]
    assert one["remedies"] == [SKIP]
    assert told(CUT_OFF, tmp_path / "after", SKIP)[1] == set()


@pytest.mark.parametrize("heals_ns", [None, 5 * SECOND])
@pytest.mark.parametrize("fate", [AwaitedFate.NEVER, AwaitedFate.MISSED])
def test_no_end_is_told_of_what_has_none(fate: AwaitedFate, heals_ns: int | None) -> None:
    nodes = waits(0, {1: AwaitedMessage(fate)}), is_(1, State.RUNNING, round=4)
    (found,) = diagnose(fleet(*nodes, edges={(1, 0): EdgeNow(up=False, heals_ns=heals_ns)}), patience_ns=SECOND)
    assert found.permanent
    assert "is past that round" in found.what
    assert "down" not in found.what


def test_a_stall_for_good_is_listed_once_while_others_go_on() -> None:
    """Node 3 is held for good. The others go on, and become so slow that nobody is looked at for a while."""
    slow = [{"at_round": 100, "for_rounds": 60, "slow_down": node, "factor": 100} for node in (0, 1)]
    lose = [{"at_round": 5, "link": f"{src}->3", "loss": 1} for src in (2, 4)]
    wait = {"for": {"quorum": 1}, "deadline": "none"}
    case = gossip("held for good", rounds=400, wait=wait, events=[*lose, *slow])
    run = Executor().run(loads(json.dumps(BASE | dict(case.keys))))
    held = [stall for stall in run.stalls if stall.permanent]
    assert [(stall.roots, stall.over) for stall in held] == [((3,), False)]
    assert held[0].found_ns < 3 * SECOND < held[0].seen_ns


def test_a_stall_for_good_stays_one_when_its_reason_becomes_another() -> None:
    watch = FindingHistory()
    gone = is_(1, State.CRASHED, back_ns=None)
    for snapshot in (
        fleet(waits(0, {1: lost(1, 0), 2: AwaitedMessage()}), is_(1, State.RUNNING), is_(2, State.RUNNING)),
        fleet(
            waits(0, {1: lost(1, 0, "failed:gone"), 2: AwaitedMessage()}), gone, is_(2, State.CRASHED), at_ns=2 * SECOND
        ),
    ):
        watch.take(diagnose(snapshot, patience_ns=SECOND), partial(lasts, snapshot))
    assert watch.closed == []
    assert [(each.cause, each.found_ns, each.seen_ns) for each in watch.open] == [
        (Cause.UNREACHABLE, SECOND, 2 * SECOND)
    ]


def test_a_longer_patience_ends_no_stall() -> None:
    watch, now = FindingHistory(), fleet(waits(0, [1]), is_(1, State.RUNNING), at_ns=4 * SECOND)
    for patience_ns in (SECOND, 9 * SECOND, SECOND):
        watch.take(diagnose(now, patience_ns=patience_ns), partial(lasts, now))
    assert (len(watch.open), watch.closed) == (1, [])
    gone_on = fleet(is_(0, State.RUNNING, round=1), is_(1, State.RUNNING), at_ns=5 * SECOND)
    watch.take([], partial(lasts, gone_on))
    assert ([each.over for each in watch.closed], watch.open) == ([True], [])


def test_a_stall_for_good_that_may_end_after_all_stays_one_stall() -> None:
    """A detector may yet call the sender gone for a while, and then may not: one listing, whose wait lasts."""
    watch = FindingHistory()
    stuck, may_end = (
        fleet(waits(0, {1: lost(1, 0)}, undecided=undecided), is_(1, State.RUNNING), detector="heartbeat")
        for undecided in ((), (1,))
    )
    told = []
    for snapshot in (stuck, may_end, stuck):
        watch.take(diagnose(snapshot, patience_ns=9 * SECOND), partial(lasts, snapshot))
        told.append([each.permanent for each in watch.open])
    assert (told, watch.closed) == ([[True], [False], [True]], [])


def test_a_suspicion_that_no_look_confirms_is_dropped() -> None:
    watch, now = FindingHistory(), fleet(waits(0, {1: lost(1, 0)}), is_(1, State.RUNNING))
    watch.take([replace(each, suspected=True) for each in diagnose(now, patience_ns=SECOND)])
    assert watch.open
    watch.take([], partial(lasts, now))
    assert (watch.open, watch.closed) == ([], [])


def test_a_client_with_nothing_left_to_do_is_in_no_stall_any_more() -> None:
    watch, waiting = FindingHistory(), waits(0, [1], essential=True)
    cut = {(1, 0): EdgeNow(up=False, heals_ns=9 * SECOND)}
    working = fleet(waiting, is_(1, State.RUNNING), edges=cut, at_ns=4 * SECOND)
    watch.take(diagnose(working, patience_ns=SECOND), partial(lasts, working))
    assert [each.cause for each in watch.open] == [Cause.UNREACHABLE]
    idle = fleet(waiting, is_(1, State.FINISHED, round=5), edges=cut, at_ns=5 * SECOND)
    watch.take([], partial(lasts, idle))
    assert (watch.open, [each.over for each in watch.closed]) == ([], [True])


def test_a_node_that_fetches_a_model_is_not_at_work(tmp_path: Path) -> None:
    events = [
        {"at": "35ms", "crash": 1, "restart_after": "100ms", "state": "lost"},
        {"at": "0s", "drop": "*->1", "kind": "model"},
    ]
    found, _ = told(gossip("nobody's model comes", events=events).keys, tmp_path)
    (fetches,) = (each for each in found if each["cause"] == "straggler")
    assert fetches["text"].startswith("node 1 has been asking for a model in place of the one that it lost for 2")
    assert "at work" not in fetches["text"]
    assert [each["why"] for each in fetches["reasons"]] == ["fetching", "fetching"]


def test_at_the_instant_of_a_healing_nothing_is_late(tmp_path: Path) -> None:
    """The fleet is looked at after two seconds, when all that a partition held is on its way."""
    held = {"at": "30ms", "for": "1970ms", "partition": [[0, 1], [2, 3, 4]], "mode": "down_hold"}
    case = gossip("healed", topology="full", links={"default": {"latency": "5ms"}}, events=[held]).keys
    assert told(case, tmp_path / "healed") == ([], set())
    longer, left = told(case | {"events": [held | {"for": "5s"}]}, tmp_path / "longer")
    assert ([each["cause"] for each in longer], left) == (["unreachable"], set())


def test_what_came_up_with_its_link_counts_from_then() -> None:
    block = (Block(frozenset([0]), frozenset([1])),)
    down, up = (
        CompiledEvent(action, 0, at_ns=at_ns, cause=0, blocks=block, parameters=changes)
        for action, at_ns, changes in (("set", 10, {"state": "down_hold"}), ("unset", 30, {}))
    )
    outages = Outages([down, up])
    assert [outages.healed_ns((0, 1), sent_ns, 40) for sent_ns in (5, 15, 30, 35)] == [30, 30, 30, 35]
    assert outages.healed_ns((0, 1), 5, 20) == 5
    assert outages.healed_ns((1, 0), 5, 40) == 5


def test_the_times_of_a_stall_are_those_of_its_sentence(tmp_path: Path) -> None:
    """Looked at again and again: it was found at the first look, and its sentence is of the last."""
    events = [{"at": "35ms", "for": "15ms", "slow_down": 2, "factor": 500}]
    found, _ = told(gossip("a straggler", events=events).keys, tmp_path)
    (one,) = found
    assert one["found_s"] < one["seen_s"]
    lasted_s, began_s, seen_s = map(
        float, re.findall(r"for ([\d.]+) s;.* Since ([\d.]+) s, last seen so at ([\d.]+) s", one["text"])[0]
    )
    assert (began_s, seen_s) == (one["began_s"], one["seen_s"])
    assert lasted_s == pytest.approx(seen_s - 4 * 0.011, abs=0.01)


def test_a_stall_of_one_look_says_no_second_time() -> None:
    (found,) = diagnose(fleet(waits(0, [1]), is_(1, State.RUNNING), at_ns=4 * SECOND), patience_ns=SECOND)
    assert "seen" not in found.text
    assert "last seen so at 4 s" in replace(found, found_ns=SECOND).text
