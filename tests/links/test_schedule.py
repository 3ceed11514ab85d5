"""Schedules: what compiles, to what, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from netdfl.core.rng import Streams
from netdfl.links.schedule.active_changes import EffectiveValue, Overlays, effective
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts

S = 10**9
GROUPS = {"core": [0, 1], "edge": [2, 3, 4, 5]}


def facts(end_ns=100 * S, rounds=50) -> Facts:
    return Facts(6, Streams(7), GROUPS, end_ns, rounds)


def compiled(*entries, **kwargs) -> list[CompiledEvent]:
    return compile_events(entries, facts(**kwargs))


def times(events):
    return [(e.action, e.at_ns / S) for e in events]


def test_windows_begin_and_end():
    for entry in (
        {"at": "20s", "for": "10s", "partition": [["0..2"], [3, "4..5"]]},
        {"from": "20s", "to": "30s", "partition": [["0..2"], ["3..5"]]},
    ):
        start, end = compiled(entry)
        assert times([start, end]) == [("set", 20), ("unset", 30)]
        assert start.parameters == {"state": "down_drop"}
        cut = {(a, b) for block in start.blocks for a, b in block.edges()}
        assert cut == {(a, b) for a in range(6) for b in range(6) if (a < 3) != (b < 3)}
        assert (end.cause, end.blocks) == (start.cause, start.blocks)


def test_one_way_partitions_cut_one_direction():
    (event,) = compiled({"at": "1s", "partition": ["core", "edge"], "one_way": True, "mode": "down_hold"})
    assert {edge for block in event.blocks for edge in block.edges()} == {(a, b) for a in (0, 1) for b in range(2, 6)}


def test_what_repeats_or_flaps_is_an_event_each_time():
    events = compiled({"every": "30s", "for": "5s", "link": "0->1", "loss": "50%"})
    assert times(events) == [(a, t + d) for t in (30, 60, 90) for a, d in (("set", 0), ("unset", 5))]
    events = compiled({"at": "10s", "every": "30s", "count": 2, "crash": 4, "restart_after": "5s"})
    assert times(events) == [("crash", 10), ("restart", 15), ("crash", 40), ("restart", 45)]
    events = compiled({"from": "0s", "to": "10s", "flap": "0--1", "down": "1s", "up": "3s"})
    assert times(events) == [(a, t + d) for t in (0, 4, 8) for a, d in (("set", 0), ("unset", 1))]


def test_rounds_act_on_messages_of_rounds_and_on_nodes_that_begin_them():
    loss, crash, restart = compiled(
        {"at_round": 10, "for_rounds": 5, "link": "0->1", "loss": "50%"},
        {"at_round": 30, "crash": "4..5", "restart_after": "5s", "state": "lost"},
    )
    assert (loss.at_round, loss.until_round, loss.at_ns) == (10, 15, None)
    assert (crash.at_round, crash.nodes, crash.parameters) == (30, (4, 5), {"state": "lost"})
    assert (restart.action, restart.at_round, restart.after_ns) == ("restart", 30, 5 * S)


def test_relative_changes_and_nodes():
    up, slow, end, back = compiled(
        {"at": "1s", "node": "core", "uplink": "x0.5"},
        {"at": "2s", "for": "1s", "link": "core->edge", "latency": "x2", "rate": "1Mbit"},
        {"at": "9s", "node": "core", "uplink": "5Mbit"},
    )
    assert (up.nodes, up.parameters) == ((0, 1), {"uplink": {"scale": 0.5}})
    assert slow.parameters == {"latency": {"scale": 2.0}, "rate": "1Mbit"}
    assert (end.action, back.parameters) == ("unset", {"uplink": "5Mbit"})


def test_random_outages_come_from_named_streams():
    entry = {"from": "0s", "to": "90s", "random": "0--1", "up": "5s", "down": "2s"}
    alone = compiled(entry)
    shifted = compiled(entry, {"at": "3s", "pause": 2, "for": "1s"})
    assert [e for e in shifted if e.blocks] == alone
    one, other = ([e.at_ns for e in alone if edge in e.blocks[0]] for edge in ((0, 1), (1, 0)))
    assert len(one) > 4
    assert one != other
    assert compile_events([entry], Facts(6, Streams(8), GROUPS, 100 * S)) != alone


def test_churn_pairs_every_crash_with_a_restart():
    events = compiled({"from": "0s", "churn": "edge", "up": "10s", "down": "3s", "state": "lost"})
    for node in GROUPS["edge"]:
        actions = [e.action for e in events if e.nodes == (node,)]
        assert actions == ["crash", "restart"] * (len(actions) // 2)
        assert actions


def test_contact_plans_hold_links_down_between_contacts(tmp_path):
    plan = tmp_path / "plan.csv"
    plan.write_text("start_s,end_s,src,dst\n1,2,0,1\n4,6,0,1\n")
    events = compiled({"from": "10s", "to": "20s", "contact_plan": "0--1", "file": str(plan)})
    assert times(events) == [("set", 10), ("unset", 11), ("set", 12), ("unset", 14), ("set", 16), ("unset", 20)]
    events = compiled(
        {"at": "10s", "contact_plan": "core->core", "file": str(plan), "mode": "down_hold", "directed": True}
    )
    assert times(events)[-1] == ("set", 16)
    assert ("set", 10) in times([e for e in events if (1, 0) in e.blocks[0]])


def test_mahimahi_traces_become_rates(tmp_path):
    file = tmp_path / "trace"
    file.write_text("10\n20\n150\n")
    events = compiled({"from": "0s", "to": "300ms", "trace": "0->1", "file": str(file)})
    assert [e.parameters["rate"]["rate"] for e in events[:-1]] == [240_000, 120_000, 240_000]
    assert times(events)[-1] == ("unset", 0.3)


def test_cooked_traces_become_rates_too(tmp_path):
    (tmp_path / "trace").write_text("0 1\n0.1 1.2\n0.2 2.4\n0.3 0\n")
    events = compiled({"from": "0s", "to": "600ms", "trace": "0->1", "file": str(tmp_path / "trace")})
    rates = [event.parameters["rate"]["rate"] for event in events[:-1]]
    assert rates[:3] == rates[3:]
    assert rates[:3] == pytest.approx(
        [1.2e6, 2.4e6, 0], abs=0.13e6
    )  # a packet of 1500 bytes falls into one or the next


def test_a_schedule_is_sorted_flat_and_goes_through_json():
    events = compiled(
        {"at_round": 3, "link": "default", "loss": "1%"},
        {"at": "30s", "for": "10s", "slow_down": "core", "factor": 3},
        {"at": "20s", "for": "10s", "partition": ["core", "edge"]},
        {"at": "50s", "pause": 2, "for": "1s"},
    )
    assert times(events[:-1]) == [
        ("set", 20),
        ("unset", 30),
        ("slow_down", 30),
        ("slow_down", 40),
        ("pause", 50),
        ("resume", 51),
    ]
    assert events[-1].at_round == 3
    for event in events:
        said = event.to_json()
        assert json.loads(json.dumps(said)) == said
        assert [said["action"], said.get("at_ns"), said.get("at_round")] == [event.action, event.at_ns, event.at_round]


@pytest.mark.parametrize(
    ("entries", "index", "message"),
    [
        ([{"at": "100s", "crash": 1}], 0, "after the end"),
        ([{"at_round": 50, "crash": 1}], 0, "after the end"),
        ([{"at": "10s", "every": "40s", "count": 9, "crash": 1}], 0, "after the end"),
        ([{"at": "-1s", "crash": 1}], 0, "positive time|is negative"),
        ([{"from": "9s", "to": "3s", "link": "0->1", "loss": 1}], 0, "heal before it breaks"),
        ([{"at": "5s", "link": "0->1", "state": "down_drop"}, {"at": "4s", "heal": "0->1"}], 1, "heals before"),
        ([{"at": "5s", "restart": 3}, {"at": "9s", "crash": 3}], 0, "restart node 3"),
        ([{"at": "5s", "resume": 3}], 0, "resume node 3"),
        ([{"at": "5s", "link": "0->1", "rate": "0bit"}], 0, "nothing ends that"),
        ([{"at": "5s", "node": 1, "uplink": "x0"}], 0, "nothing ends that"),
        ([{"at": "5s", "link": "0->1", "loss": "150%"}], 0, "probability"),
        ([{"at": "5s", "link": "0->1", "loss": "x2"}], 0, "relative"),
        ([{"at": "5s", "link": "0->9", "loss": "1%"}], 0, "no node 9"),
        ([{"at": "5s", "link": "0->1"}], 0, "changes nothing"),
        ([{"crash": 1}], 0, "does not say when"),
        ([{"at": "5s", "at_round": 3, "crash": 1}], 0, "mixes time and rounds"),
        ([{"at_round": 3, "link": "0->1", "for": "5s", "loss": "1%"}], 0, "for_rounds"),
        ([{"at_round": 3, "link": "0->1", "state": "down_hold"}], 0, "needs a clock"),
        ([{"at_round": 3, "link": "0->1", "rate": "0bit"}], 0, "for ever"),
        ([{"at_round": 3, "for_rounds": 2, "crash": 1}], 0, "begins none"),
        ([{"at": "5s", "every": "2s", "for": "3s", "link": "0->1", "loss": "1%"}], 0, "longer than every"),
        ([{"at": "5s", "partition": [["0..3"], ["3..5"]]}], 0, "node 3 is in two groups"),
        ([{"at": "5s", "partition": [["0..3"]]}], 0, "two groups or more"),
        ([{"at": "5s", "partition": ["cor", "edge"]}], 0, "did you mean core"),
        (
            [
                {"at": "5s", "for": "9s", "partition": [[0, 1], [2, 3]]},
                {"at": "8s", "for": "9s", "partition": [[0, 2], [1, 3]]},
            ],
            1,
            "contradicts",
        ),
        (
            [
                {"at": "5s", "for": "9s", "partition": [[0, 1], [2, 3]]},
                {"at": "8s", "partition": [[0], [3]], "mode": "down_hold"},
            ],
            1,
            "one mode",
        ),
        ([{"at": "1s", "for": "2s", "pause": 1}, {"at": "2s", "for": "3s", "pause": [1, 2]}], 1, r"events\[0\].*join"),
        ([{"at": "1s", "for": "2s", "pause": 1}, {"at": "2s", "resume": 1}], 1, "says itself when it ends"),
        ([{"at": "1s", "pause": 1}, {"at": "2s", "resume": 1}, {"at": "3s", "resume": 1}], 2, "not paused then"),
        (
            [
                {"at": "1s", "for": "5s", "pause": 1},
                {"at": "2s", "for": "1s", "crash": 1},
                {"at": "5s", "pause": 1},
            ],
            0,
            r"end for node 1 what events\[2\] began at 5s",
        ),
        (
            [
                {"at": "0s", "for": "2s", "slow_down": 1, "factor": 4},
                {"at": "1s", "for": "9s", "slow_down": 1, "factor": 4},
            ],
            1,
            "at 1s it would slow down node 1 in the midst",
        ),
        (
            [{"at": "0s", "slow_down": 1, "factor": 4}, {"at": "1s", "for": "9s", "slow_down": 1, "factor": 2}],
            1,
            "in the midst",
        ),
        (
            [
                {"at_round": 1, "for_rounds": 4, "slow_down": 1, "factor": 4},
                {"at_round": 3, "for_rounds": 4, "slow_down": 1, "factor": 4},
            ],
            1,
            "at round 3",
        ),
        ([{"at": "1s", "crash": 1}, {"at": "2s", "crash": 1}], 1, "in the midst"),
        ([{"at_round": 3, "crash": 1}, {"at_round": 4, "crash": 1}], 1, "in the midst"),
        ([{"at": "1s", "every": "2s", "count": 3, "crash": 1, "restart_after": "3s"}], 0, "before it begins again"),
        ([{"at": "1s", "crash": 1}, {"at": "2s", "restart": 1}, {"at": "3s", "restart": 1}], 2, "not crashed then"),
        ([{"at": "1s", "crash": 1, "restart_after": "5s"}, {"at": "2s", "restart": 1}], 1, "says itself"),
        (
            [
                {"from": "0s", "to": "9s", "churn": "edge", "up": "1s", "down": "1s"},
                {"at": "20ms", "for": "1ms", "crash": [1, 2]},
            ],
            1,
            r"node 2 crashes and returns at random times then, by events\[0\]",
        ),
        ([{"at": "1s", "for": "1s", "crash": 1, "restart_after": "2s"}], 0, "give one of them"),
        ([{"at": "1s", "to": "3s", "crash": 1, "restart_after": "2s"}], 0, "give one of them"),
        ([{"at_round": 1, "for": "3s", "crash": 1, "restart_after": "2s"}], 0, "give one of them"),
        *[([{"at": "1s", action: []}], 0, "names no node") for action in ("crash", "restart", "pause", "resume")],
        ([{"at": "1s", "node": [], "uplink": "1Mbit"}], 0, "names no node"),
        ([{"at": "1s", "link": "[]->1", "loss": 1}], 0, "names no links"),
        ([{"at": "1s", "for": "1s", "link": "0->1", "state": "up"}], 0, "changes nothing"),
        ([{"at_round": 1, "for_rounds": 1, "link": "0->1", "state": "up"}], 0, "changes nothing"),
    ],
)
def test_what_can_not_be_is_refused_by_entry(entries, index, message):
    with pytest.raises(ScheduleError, match=message) as caught:
        compiled(*entries)
    assert [place for place, _ in caught.value.problems] == [index]


def test_empty_files_are_refused(tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("")
    for entry in ({"trace": "0->1"}, {"contact_plan": "0->1"}):
        with pytest.raises(ScheduleError, match="is empty"):
            compiled({"from": "0s", "to": "9s", "file": str(empty), **entry})


def test_every_mistake_is_named_at_once():
    with pytest.raises(ScheduleError) as caught:
        compiled({"at": "100s", "crash": 1}, {"at": "1s", "crash": 1}, {"at": "1s", "crash": 77})
    assert [place for place, _ in caught.value.problems] == [0, 2]


def test_partitions_that_refine_each_other_or_take_turns_are_fine():
    compiled(
        {"at": "5s", "for": "9s", "partition": [[0, 1], [2, 3]]},
        {"at": "8s", "for": "9s", "partition": [[0], [1], [2, 3]]},
        {"at": "17s", "for": "2s", "partition": [[0, 2], [1, 3]]},
    )


def test_faults_that_take_turns_on_a_node_are_fine():
    compiled(
        {"at": "3s", "for": "2s", "pause": 1},
        {"at": "1s", "for": "2s", "pause": 1},
        {"at": "1s", "for": "9s", "pause": 2},
        {"at": "0s", "slow_down": 1, "factor": 4},
        {"at": "1s", "slow_down": 1, "factor": 3},
        {"at": "5s", "slow_down": 1, "factor": 1},
        {"at": "6s", "for": "1s", "slow_down": 1, "factor": 2},
        {"at": "10s", "crash": 1},
        {"at": "12s", "restart": 1},
        {"at": "12s", "for": "1s", "crash": 3},
        {"at": "13s", "for": "1s", "crash": 3},
        {"at": "14s", "pause": 4},
        {"at": "15s", "for": "1s", "crash": 4},
        {"at": "17s", "for": "1s", "pause": 4},
        {"at_round": 3, "for": "1s", "crash": 5},
        {"at_round": 4, "for": "1s", "crash": 5},
        {"from": "20s", "to": "30s", "churn": [1], "up": "1s", "down": "1s"},
    )


def test_relative_changes_that_overlap_multiply_and_each_ends_alone():
    overlays, seen = Overlays(), []
    for event in compiled(
        {"at": "0s", "for": "10s", "link": "0->1", "latency": "x2"},
        {"at": "5s", "for": "10s", "link": "0..2->1", "latency": "x3"},
    ):
        overlays.apply(event)
        seen.append(effective({"latency": EffectiveValue(None)}, overlays.on_link((0, 1)))["latency"].scale)
    assert seen == [2, 6, 3, 1]


def test_at_one_moment_what_slows_ends_before_what_slows_begins():
    begins, ends = {"at": "2s", "for": "2s"}, {"at": "0s", "for": "2s"}
    events = compiled({**begins, "slow_down": 1, "factor": 3}, {**ends, "slow_down": 1, "factor": 4})
    assert [event.parameters["factor"] for event in events] == [4, 1, 3, 1]


@pytest.mark.parametrize("entry", [{"flap": "0->1", "up": "1s", "down": "1s"}, {"churn": 1, "up": "1s", "down": "1s"}])
def test_repetition_needs_an_end(entry):
    with pytest.raises(ScheduleError, match="to: 60s"):
        compiled({"from": "0s", **entry}, end_ns=None)
    assert compiled({"from": "0s", "to": "9s", **entry}, end_ns=None)


def churned(tmp_path: Path, text: str, **more: object) -> list[tuple[str, int | None, tuple[int, ...]]]:
    file = tmp_path / "churn.csv"
    file.write_text(text)
    entry = {"at": "1s", "churn": "*", "file": str(file), **more}
    return [(e.action, e.at_ns, e.nodes) for e in compile_events([entry], Facts(4, Streams(0), end_ns=100 * 10**9))]


def test_nodes_come_and_go_as_a_trace_says(tmp_path: Path) -> None:
    text = "node,leave_s,join_s\n2,4,5.5\n0,0,2\n2,7,\n3,200,300\n"
    assert churned(tmp_path, text) == [
        ("crash", 10**9, (0,)),
        ("restart", 3 * 10**9, (0,)),
        ("crash", 5 * 10**9, (2,)),
        ("restart", 65 * 10**8, (2,)),
        ("crash", 8 * 10**9, (2,)),
    ]


@pytest.mark.parametrize(
    ("text", "more", "told"),
    [
        ("node,leave_s,join_s\n2,4,5\n2,4.5,6\n", {}, "node 2 leaves at 4.5 s, and is away then already"),
        ("node,leave_s,join_s\n9,4,5\n", {}, "churn.csv:2: expected a node of 0 to 3"),
        ("node,leave_s,join_s\n1,5,4\n", {}, "churn.csv:2: expected a node of 0 to 3 and 0 <= leave < join"),
        ("node,at\n1,5\n", {}, "expected the columns node, leave_s, join_s"),
        ("node,leave_s,join_s\n", {}, "is empty"),
        ("node,leave_s,join_s\n1,4,5\n", {"up": "5s", "down": "1s"}, "by chance"),
    ],
)
def test_a_churn_trace_that_cannot_be_is_refused(tmp_path: Path, text: str, more: dict[str, object], told: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(told)):
        churned(tmp_path, text, **more)
