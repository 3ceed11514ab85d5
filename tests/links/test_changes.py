"""What the schedule does to links, told: a partition once with its end, a trace of thousands of changes once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netdfl.core.rng import Streams
from netdfl.links.schedule.changes import Change, link_changes
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts


def told(*entries: dict[str, Any]) -> list[tuple[str, str]]:
    changes: list[Change] = link_changes(compile_events(entries, Facts(8, Streams(1), rounds=50)))
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


def test_what_changes_often_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("\n".join(map(str, range(1, 2000, 7))))
    trace = {"from": "0s", "to": "100s", "trace": "0->1", "file": str(tmp_path / "trace")}
    assert told(trace) == [("0s to 100s", "trace 0->1, 1,000 times")]
    flap = {"from": "0s", "to": "9s", "flap": "0..3->4", "up": "1s", "down": "500ms"}
    assert told(flap) == [("0s to 8s", "flap 0..3->4: state down_drop, 6 times")]


def test_places_that_are_many_are_counted() -> None:
    ((_, words),) = told({"from": "0s", "to": "60s", "random": "0..7->0..7", "up": "1s", "down": "1s"})
    assert words.startswith("random 56 places: state down_drop, ")
