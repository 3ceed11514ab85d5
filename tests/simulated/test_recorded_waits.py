"""Every wait that took time is a row: how long, the deadline in force, and what ended it."""

from __future__ import annotations

from pathlib import Path

from netdfl.record.run import Run
from netdfl.running.run import run
from netdfl.scenario.load import loads

FLEET = """
schema: netdfl/1
name: waits
nodes: 3
rounds: 3
world: {kind: simulated, compute: 1s}
task: quadratic
algorithm: {name: dpsgd, lr: 0.1}
topology: ring
"""
ROWS = "SELECT node, round, since_s, until_s, deadline_s, ended, last_src, missing FROM waits ORDER BY round, node"


def waits(tmp_path: Path, *more: str) -> Run:
    return run(loads("".join([FLEET, *more])), out=tmp_path / "run", page=False).run


def test_a_wait_is_recorded_with_what_came_last(tmp_path: Path) -> None:
    found = waits(tmp_path, "links: {default: {latency: 10ms}, '2->0': {latency: 30ms}}\nwait: {deadline: 5s}\n")
    first = found.rows(ROWS)[:3]
    assert first[0] == (0, 0, 1.0, 1.03, 5.0, "came", 2, "[]")
    assert [row[3] for row in first] == [1.03, 1.01, 1.01]


def test_a_wait_that_ended_by_its_deadline_names_who_was_missing(tmp_path: Path) -> None:
    lost = (
        "links: {default: {latency: 10ms}, '2->0': {latency: 10ms, loss: {model: drop_list, messages: [{round: 1}]}}}\n"
    )
    found = waits(tmp_path, lost, "wait: {deadline: 5s}\n")
    (row,) = [row for row in found.rows(ROWS) if row[5] != "came"]
    assert row == (0, 1, 2.01, 7.01, 5.0, "deadline", 1, "[2]")


def test_what_had_come_already_is_no_wait(tmp_path: Path) -> None:
    found = waits(tmp_path, "wait: {deadline: none}\n")
    assert found.rows(ROWS) == []
