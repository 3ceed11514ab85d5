"""What the schedule does to links, told: a partition once with its end, a trace of thousands of changes once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netdfl.core.rng import Streams
from netdfl.links.schedule.changes import LinkChange, link_changes
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts


def told(*entries: dict[str, Any]) -> list[tuple[str, str]]:
    changes: list[LinkChange] = link_changes(compile_events(entries, Facts(8, Streams(1), rounds=50)))
    return [(change.when, change.words) for change in changes]


def test_a_partition_is_told_once_with_its_end() -> None:
    parted = {"at": "20s", "for": "10s", "partition": [["0..3"], ["4..6"], ["7"]]}
    assert told(parted) == [("20s to 30s", "partition 0..3 | 4..6 | 7: state down_drop")]
    assert told({"at": "1s", "partition": [["0..3"], ["4..7"]], "one_way": True}) == [
        ("from 1s", "partition 0..3->4..7: state down_drop")
    ]


def test_changes_by_rounds_and_of_nodes() -> None:
    found = told(
        {"at_round": 4, "for_rounds": 2, "link": "0--1", "loss": 1.0},
        {"at": "1s", "for": "2s", "node": 3, "uplink": "x0.5"},
    )
    assert found == [("1s to 3s", "node 3: uplink x0.5"), ("round 4 to 5", "link 0--1: loss 1.0")]


def test_rules_are_told_as_a_scenario_writes_them_without_defaults() -> None:
    rules: dict[str, tuple[str, object, str]] = {
        "a rate": ("rate", {"kind": "serial", "rate": "2000000bit", "burst": "0B", "queue": None}, "rate 2Mbit"),
        "a burst": ("rate", {"rate": "2500bit", "burst": "15000B"}, "rate 2.5kbit (burst 15kB)"),
        "a loss": ("loss", {"model": "bernoulli", "probability": 0.05}, "loss 5%"),
        "bursts": (
            "loss",
            {"model": "gilbert_elliott", "p": 0.02, "r": 0.3, "loss_bad": 1.0},
            "loss gilbert_elliott (p 0.02, r 0.3)",
        ),
        "a mean": (
            "latency",
            {"dist": "exponential", "mean": "50ms", "order": "fifo"},
            "latency exponential (mean 50ms)",
        ),
        "named": (
            "loss",
            {"model": "drop_list", "messages": [{"round": 1}, {"round": 2}]},
            "loss drop_list (messages 2)",
        ),
        "none": ("loss", "none", "loss none"),
    }
    for key, rule, words in rules.values():
        assert told({"at": "1s", "link": "0->1", key: rule}) == [("from 1s", f"link 0->1: {words}")]


def test_a_change_that_is_over_is_named_by_its_values_where_others_have_its_place() -> None:
    entries = {"at": "1s", "link": "0->1", "rate": "1Mbit"}, {"at": "1s", "partition": [["0..3"], ["4..7"]]}
    found = link_changes(compile_events(entries, Facts(8, Streams(1), rounds=50)))
    assert [change.name for change in found] == ["link 0->1: rate 1Mbit", "partition 0..3 | 4..7"]


def test_what_changes_often_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("\n".join(map(str, range(1, 2000, 7))))
    trace = {"from": "0s", "to": "100s", "trace": "0->1", "file": str(tmp_path / "trace")}
    assert told(trace) == [("0s to 100s", "trace 0->1, 1,000 times")]
    flap = {"from": "0s", "to": "9s", "flap": "0..3->4", "up": "1s", "down": "500ms"}
    assert told(flap) == [("0s to 8s", "flap 0..3->4: state down_drop, 6 times")]


def test_places_that_are_many_are_counted() -> None:
    ((_, words),) = told({"from": "0s", "to": "60s", "random": "0..7->0..7", "up": "1s", "down": "1s"})
    assert words.startswith("random 56 places: state down_drop, ")


def test_a_change_by_rounds_that_repeats_ends_where_it_says_each_time() -> None:
    loss = {"at_round": 0, "for_rounds": 2, "every_rounds": 20, "link": "0--1", "loss": 1.0}
    found = told(loss, {"at_round": 9, "link": "0->1", "loss": 0.5})
    once = "link 0--1: loss 1.0"
    assert found == [
        *[("round 0 to 1", once), ("round 9 on", "link 0->1: loss 0.5"), ("round 20 to 21", once)],
        ("round 40 to 41", once),
    ]


def test_up_to_four_changes_of_an_entry_are_told_each_and_what_one_of_them_lasts_all_do(tmp_path: Path) -> None:
    flap = {"from": "0s", "flap": "0->4", "up": "1s", "down": "500ms"}
    four = told(flap | {"to": "6s"})
    assert [when for when, _ in four] == ["0s to 500ms", "1.5s to 2s", "3s to 3.5s", "4.5s to 5s"]
    assert {words for _, words in four} == {"flap 0->4: state down_drop"}
    assert told(flap | {"to": "7s"}) == [("0s to 6.5s", "flap 0->4: state down_drop, 5 times")]
    rows = "".join(f"{2 * n + 1},{2 * n + 2},0,4\n" for n in range(4))
    (tmp_path / "plan").write_text(f"start_s,end_s,src,dst\n{rows}")
    plan = {"at": "0s", "contact_plan": "0->4", "directed": True, "file": str(tmp_path / "plan")}
    assert told(plan) == [("from 0s", "contact_plan 0->4: state down_drop, 5 times")]
