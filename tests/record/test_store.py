"""Rows in, rows out: exact, whole after a kill, and readable by the usual tools."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.fates import Fate, FateReason
from netdfl.core.types import Kind, Message, Payload
from netdfl.record.run import Run
from netdfl.record.store import StoreWriter
from tests.record.outcomes import outcome_of

LONGEST_NS = 2**22 * 10**9


def message(src: int = 0, dst: int = 1, round: int = 0) -> Message:
    return Message(src, dst, Kind.DATA, 0, round, 0, 0, Payload())


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@given(sent=st.integers(-LONGEST_NS, LONGEST_NS), arrived=st.none() | st.integers(0, LONGEST_NS))
def test_times_keep_every_nanosecond(tmp_path_factory: pytest.TempPathFactory, sent: int, arrived: int | None) -> None:
    directory = tmp_path_factory.mktemp("times")
    with StoreWriter(directory, "000") as writer:
        writer.outcome(outcome_of(message(), 10, sent, arrived, Fate.read("delivered")))
    text = (directory / "store/messages-000.jsonl").read_text()
    row = json.loads(text, parse_float=lambda number: int(number.replace(".", "")))
    assert (row["sent_s"], row["arrived_s"]) == (sent, arrived)


def test_a_message_row_holds_every_field(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, "003") as writer:
        writer.outcome(
            outcome_of(
                Message(3, 5, Kind.ACK, 1, 12, 2, 4, Payload()),
                777,
                1_000_000_001,
                None,
                Fate.dropped(FateReason('a "word"')),
            )
        )
    assert lines(tmp_path / "store/messages-003.jsonl") == [
        {
            "src": 3,
            "dst": 5,
            "kind": "ack",
            "epoch": 1,
            "round": 12,
            "step": 2,
            "attempt": 4,
            "nbytes": 777,
            "sent_s": 1.000000001,
            "arrived_s": None,
            "fate": 'dropped:a "word"',
        }
    ]


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_finite_number_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, value: float) -> None:
    directory = tmp_path_factory.mktemp("numbers")
    with StoreWriter(directory, "fleet") as writer:
        writer.metrics(0, None, 0, {"train_loss": value})
    assert lines(directory / "store/metrics-fleet.jsonl")[0]["value"] == value


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    with StoreWriter(tmp_path, "fleet") as writer:
        for round, value in enumerate((0.5, float("nan"), float("inf"), -float("inf"), 2.0)):
            writer.metrics(round * 10**9, None, round, {"test_loss": value})
    return tmp_path / "store/metrics-fleet.jsonl"


def test_numbers_that_are_not_finite_are_null_to_every_reader(metrics: Path) -> None:
    duck = [row[0] for row in duckdb.sql(f"SELECT value FROM '{metrics}'").fetchall()]
    polar = pl.read_ndjson(metrics)["value"]
    panda = pd.read_json(metrics, lines=True)["value"]
    assert duck == polar.to_list() == [0.5, None, None, None, 2.0]
    assert polar.dtype == pl.Float64
    assert panda.isna().tolist() == [False, True, True, True, False]


def test_details_are_an_object_to_every_reader(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, "fleet") as writer:
        writer.event(0, None, 0, "start")
        writer.event(10**9, 3, 4, "missing", awaited=[1, 2], bound=float("inf"))
    path = tmp_path / "store/events-fleet.jsonl"
    expected = {"awaited": [1, 2], "bound": None}
    assert lines(path)[1]["details"] == expected
    assert pd.read_json(path, lines=True)["details"][1] == expected
    assert pl.read_ndjson(path)["details"][1] == expected
    assert duckdb.sql(f"SELECT details.awaited FROM '{path}' WHERE round = 4").fetchall() == [([1, 2],)]


def test_rows_are_seen_after_a_flush_and_not_before(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, "000")
    run = Run(tmp_path)
    writer.outcome(outcome_of(message(), 10, 0, 1, Fate.read("delivered")))
    assert run.rows("SELECT count(*) FROM messages") == [(0,)]
    writer.flush()
    assert run.rows("SELECT count(*) FROM messages") == [(1,)]
    writer.close()


def test_a_full_buffer_is_written_without_a_flush(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, "000")
    for round in range(2000):
        writer.metrics(0, 0, round, {"train_loss": 1.0})
    written = lines(tmp_path / "store/metrics-000.jsonl")
    assert 0 < len(written) < 2000
    writer.close()
    assert [row["round"] for row in lines(tmp_path / "store/metrics-000.jsonl")] == list(range(2000))


def test_a_restarted_node_goes_on_after_its_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "store/messages-000.jsonl"
    with StoreWriter(tmp_path, "000") as writer:
        writer.outcome(outcome_of(message(round=1), 10, 0, 1, Fate.read("delivered")))
    with path.open("a") as file:
        file.write('{"src":0,"dst":1,"ki')
    with StoreWriter(tmp_path, "000") as writer:
        writer.outcome(outcome_of(message(round=2), 10, 0, 1, Fate.read("delivered")))
    assert [row["round"] for row in lines(path)] == [1, 2]


@pytest.mark.parametrize("torn", ['{"src":0', '{"src":0,"dst":1,"kind":"data","epoch":0,"round":7', "x" * 200_000])
def test_a_file_that_is_one_torn_row_starts_anew(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "store/messages-000.jsonl"
    path.parent.mkdir()
    path.write_text(torn)
    with StoreWriter(tmp_path, "000") as writer:
        writer.outcome(outcome_of(message(round=2), 10, 0, 1, Fate.read("delivered")))
    assert [row["round"] for row in lines(path)] == [2]


ENDLESS = """
import sys
from netdfl.core.fates import Fate
from netdfl.core.types import Kind, MessageId, StepId
from netdfl.core.outcome import Outcome
from netdfl.record.store import StoreWriter
writer = StoreWriter(sys.argv[1], "000")
round = int(sys.argv[2])
while True:
    id = MessageId(Kind.DATA, 0, StepId(round, 0), 0, 0)
    writer.outcome(Outcome(((0, 1),), id, 10, round, None, Fate.read("dropped:loss")))
    round += 1
    if round % 100 == 0:
        writer.flush()
        print(round, flush=True)
"""


@pytest.mark.parametrize("kills", [(1, 9), pytest.param((0, 1, 4, 9), marks=pytest.mark.soak)], ids=len)
def test_a_killed_writer_leaves_whole_rows_and_all_that_it_flushed(kills: tuple[int, ...], tmp_path: Path) -> None:
    path, flushed = tmp_path / "store/messages-000.jsonl", 0
    for kill in kills:
        command = [sys.executable, "-c", ENDLESS, str(tmp_path), str(flushed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(1 + 7 * kill):
                flushed = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            flushed = max([flushed, *(int(line) for line in process.stdout if line.endswith("\n"))])
        # A kill inside of a write may tear the row at the very end: it has no newline, and whoever reads skips it.
        whole, _, _ = path.read_text().rpartition("\n")
        rounds = [json.loads(line)["round"] for line in whole.splitlines()]
        assert set(range(flushed)) <= set(rounds)
        assert Run(tmp_path).rows("SELECT count(*) FROM messages") == [(len(rounds),)]


LIMITED = """
import resource, sys
from netdfl.core.errors import RunError
from netdfl.record.store import StoreWriter
writer = StoreWriter(sys.argv[1], "fleet")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    for round in range(100):
        writer.metrics(0, None, round, {"test_loss": 1.0})
    writer.flush()
except RunError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(open(sys.argv[1] + "/store/metrics-fleet.jsonl").read(), end="")
    writer.close()
"""


def test_a_disk_that_fills_within_a_write_loses_and_tears_no_row(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    before = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 0 < len(before) <= 1000
    assert before.endswith("}\n")
    after = (tmp_path / "store/metrics-fleet.jsonl").read_text()
    assert after.startswith(before)
    assert [json.loads(line)["round"] for line in after.splitlines()] == list(range(100))
