"""What the schedule does to links is in the table of events, when it came, whoever ran the fleet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netdfl.core.clock import NS_PER_S
from netdfl.core.rng import Streams
from netdfl.exports.export import export_table as export
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.record.directory import RunDirectory
from netdfl.record.run import Run, open_run
from netdfl.record.store import StoreWriter

ROUND_S = 1.0
EVENTS = (
    {"at": "2.5s", "for": "3s", "partition": [["0..1"], ["2..3"]]},
    {"at_round": 4, "for_rounds": 2, "link": "0->1", "loss": 1.0},
    {"at": "7s", "link": "2--3", "latency": "x2"},
    {"at": "60s", "crash": 1},
    {"at": "60s", "for": "1s", "link": "0->1", "state": "down_drop"},
)
ROWS = "SELECT at_s, round, kind, details FROM events WHERE node IS NULL ORDER BY at_s, kind"


def fleet(path: Path, rounds: int = 10) -> Run:
    """A fleet of four whose rounds take a second; node 1 takes a tenth more for each."""
    directory = RunDirectory.create(path, "q", 1, out=path / "run")
    directory.write("scenario.yaml", "")
    directory.write_events([event.to_json() for event in compile_events(EVENTS, Facts(4, Streams(1), rounds=99))])
    for node in range(4):
        took = 1.1 if node == 1 else 1.0
        with StoreWriter(directory.path, f"{node:03d}") as writer:
            for round in range(rounds):
                writer.metrics(int((round + 1) * took * NS_PER_S), node, round, {"round_s": took})
    return open_run(directory.path)


def test_a_partition_is_one_event_with_its_end(tmp_path: Path) -> None:
    found = [row for row in fleet(tmp_path).rows(ROWS) if row[2].startswith("partition")]
    assert [row[:3] for row in found] == [(2.5, 2, "partition"), (5.5, 5, "partition_ends")]
    assert json.loads(found[0][3]) == {"entry": 0, "where": "0..1 | 2..3", "change": "state down_drop"}


def test_a_change_by_rounds_lasts_from_the_first_node_that_begins_to_the_last_that_ends(tmp_path: Path) -> None:
    found = [row for row in fleet(tmp_path).rows(ROWS) if '"entry":1' in row[3]]
    assert [row[:3] for row in found] == [(4.0, 4, "link"), (pytest.approx(6.6), 6, "link_ends")]


def test_what_the_run_ended_before_is_not_there(tmp_path: Path) -> None:
    assert {json.loads(row[3])["entry"] for row in fleet(tmp_path).rows(ROWS)} == {0, 1, 2}


def test_the_rows_follow_a_run_that_goes_on(tmp_path: Path) -> None:
    run = fleet(tmp_path, rounds=3)
    assert [row[2] for row in run.rows(ROWS)] == ["partition"]
    with StoreWriter(run.path, "000") as writer:
        writer.event(6 * NS_PER_S, 0, 3, "missing", awaited=[2])
    assert [row[2] for row in run.rows(ROWS)] == ["partition", "partition_ends"]


def test_they_are_exported_with_the_rest(tmp_path: Path) -> None:
    run = fleet(tmp_path)
    lines = export(run, "events", "jsonl", tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["partition", "link", "partition_ends", "link_ends", "link"]


def test_a_damaged_schedule_is_as_good_as_none(tmp_path: Path) -> None:
    run = fleet(tmp_path)
    (run.path / "events.jsonl").write_text('{"action": "set", "source": "x"}\n{"action": "set"\n[1]\n')
    assert open_run(run.path).rows(ROWS) == []


def test_a_trace_of_many_changes_is_read_in_one_go(tmp_path: Path) -> None:
    run = fleet(tmp_path)
    change = {"action": "set", "entry": "trace", "source": 0, "where": "0->1", "change": "rate 1"}
    lines = (json.dumps(change | {"at_ns": number * 1000}) for number in range(20_000))
    (run.path / "events.jsonl").write_text("\n".join(lines))
    assert open_run(run.path).rows("SELECT count(*) FROM events WHERE kind = 'trace'") == [(20_000,)]


def test_a_run_is_exported_as_often_as_one_likes(tmp_path: Path) -> None:
    """Each export has a database of its own."""
    run = fleet(tmp_path)
    exported = [export(run, "events", "csv", tmp_path / f"{number}.csv").read_text() for number in range(4)]
    assert exported[0].count("partition") == 2
    assert exported == exported[:1] * 4
    assert [row[2] for row in run.rows(ROWS)].count("partition") == 1


def test_what_is_written_after_a_time_in_memory_is_read(tmp_path: Path) -> None:
    run = fleet(tmp_path, rounds=3)
    with run.held():
        assert [row[2] for row in run.rows(ROWS)] == ["partition"]
        with StoreWriter(run.path, "new") as writer:
            writer.metrics(9 * NS_PER_S, 3, 8, {"round_s": ROUND_S})
        assert [row[2] for row in run.rows(ROWS)] == ["partition"]
    assert {"partition_ends", "latency"} & {row[2] for row in run.rows(ROWS)} == {"partition_ends"}
