"""Large tables become Parquet when a run has ended: every row is read once, whenever that is stopped or looked at."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import netdfl
from netdfl.core.errors import InputError
from netdfl.core.fates import Fate
from netdfl.core.outcome import Outcome
from netdfl.core.types import Kind, MessageId, StepId
from netdfl.exports.export import export_table as export
from netdfl.record import layout
from netdfl.record.run import Run, open_run
from netdfl.record.segments import pieces, roll_up
from netdfl.record.store import StoreWriter
from netdfl.report.html import render
from netdfl.report.words import remarks
from netdfl.scenario.load import loads
from netdfl.study.outcome import rows as study_rows
from tests.agreeing import agreeing

FAULTS = """
wait: {deadline: 100ms}
links: {default: {latency: 5ms, loss: 10%}}
events: [{crash: 1, at: 30ms, restart_after: 40ms}]
"""
SCENARIO = agreeing("rolled", 4, 10, FAULTS)
ALL_ROWS = "SELECT * FROM messages ORDER BY ALL"


class Killed(BaseException):
    """Nothing more is done."""


def make(path: Path, writers: int = 3, first: int = 0) -> Run:
    path.mkdir(exist_ok=True)
    (path / "scenario.yaml").write_text("name: rolled\n")
    for node in range(writers):
        with StoreWriter(path, f"{node:03d}") as store:
            for round in range(first, first + 20):
                edges, id = ((node, (node + 1) % writers),), MessageId(Kind.DATA, 0, StepId(round, 0), 0, 0)
                store.outcome(Outcome(edges, id, 10, 1000 * round, 1000 * round + 7, Fate.DELIVERED))
            store.event(5, node, first, "crash", why="test")
    return open_run(path)


def names(path: Path) -> set[str]:
    return {file.name for file in (path / "store").iterdir()}


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.soak), 4])
def test_a_roll_that_is_killed_anywhere_loses_and_doubles_nothing(
    each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stop in itertools.count(step=each):
        run = make(tmp_path / str(stop))
        rows = run.rows(ALL_ROWS)
        left = iter(range(stop))

        def dying(work: Callable[..., Any], left: Any = left) -> Callable[..., Any]:
            def do(self: Path, *args: Any, **kwargs: Any) -> Any:
                if next(left, None) is None:
                    raise Killed
                return work(self, *args, **kwargs)

            return do

        killed = False
        with monkeypatch.context() as patch:
            for name in ("rename", "unlink"):
                patch.setattr(Path, name, dying(getattr(Path, name)))
            try:
                roll_up(run.path / "store", 10, 1)
            except Killed:
                killed = True
        assert run.rows(ALL_ROWS) == rows, (stop, names(run.path))
        roll_up(run.path / "store", 10, 1)
        assert run.rows(ALL_ROWS) == rows, stop
        assert len(run.rows("FROM events")) == 3
        assert not any(name.startswith("messages-") for name in names(run.path))
        if not killed:
            assert stop > 10
            return


@pytest.mark.parametrize("name", ["lr=0.1", "src=7/run", "glob[1]*?", "it's {a,b}"])
def test_lines_and_segments_are_read_together_wherever_the_run_lies(name: str, tmp_path: Path) -> None:
    """DuckDB takes names for patterns, and makes a column of each `key=value` in a path."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    roll_up(make(path).path / "store", 10, 1)
    both = make(path, first=20)
    assert pieces(path / "store", "messages").segments
    assert pieces(path / "store", "messages").lines
    assert sorted(both.rows("SELECT src, round FROM messages")) == [(src, n) for src in range(3) for n in range(40)]


def test_no_file_is_read_with_columns_of_its_path() -> None:
    """Whatever reads files by DuckDB turns off the columns that it makes of `key=value` in a path."""
    package = Path(netdfl.__file__).parent
    readers = {
        file: found
        for file in package.rglob("*.py")
        if (found := re.findall(r"(?<!def )(?<!_)\bread_(?:csv|json|parquet)\(", file.read_text(encoding="utf-8")))
    }
    assert len(readers) >= 2
    for file, found in readers.items():
        assert file.read_text(encoding="utf-8").count("hive_partitioning") >= len(found), file


def test_small_tables_stay_lines(tmp_path: Path) -> None:
    run = make(tmp_path)
    assert run.roll_up() == ""
    assert not pieces(tmp_path / "store", "messages").segments


def test_who_reads_while_it_is_rolled_up_reads_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path)
    rows = run.rows(ALL_ROWS)

    def listed_too_early(store: Path, table: Any) -> Any:
        found = pieces(store, table)
        if table == "messages":
            roll_up(store, 10, 1)
        return found

    monkeypatch.setattr(layout, "pieces", listed_too_early)
    assert run.rows(ALL_ROWS) == rows
    assert "messages.1.parquet" in names(tmp_path)


def test_who_goes_on_writes_lines_beside_the_segment(tmp_path: Path) -> None:
    run = make(tmp_path)
    roll_up(tmp_path / "store", 10, 1)
    make(tmp_path, first=20)
    with (tmp_path / "store" / "messages-001.jsonl").open("a") as file:
        file.write('{"src":1,"ds')
    rows = run.rows(ALL_ROWS)
    assert len(rows) == 3 * 40
    roll_up(tmp_path / "store", 10, 1)
    assert {"messages.1.parquet", "messages.2.parquet"} <= names(tmp_path)
    assert run.rows(ALL_ROWS) == rows


def test_a_segment_opens_elsewhere(tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    make(tmp_path)
    roll_up(tmp_path / "store", 10, 1)
    file = tmp_path / "store" / "messages.1.parquet"
    assert polars.read_parquet(file)["nbytes"].sum() == 600
    try:
        frame = pandas.read_parquet(file)
    except ImportError:
        return  # pandas without an engine for Parquet
    assert frame["arrived_s"].max() == pytest.approx(19.007e-6)


def test_a_damaged_segment_is_named(tmp_path: Path) -> None:
    run = make(tmp_path)
    roll_up(tmp_path / "store", 10, 1)
    file = tmp_path / "store" / "messages.1.parquet"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(InputError, match="store is damaged"):
        run.rows(ALL_ROWS)


@pytest.mark.parametrize(
    "query", ["SELECT 1 AS src", "SELECT src, dst FROM range(3) t(src), range(3) u(dst)", "SELECT 'x' AS messages"]
)
def test_a_foreign_segment_is_refused(query: str, tmp_path: Path) -> None:
    run = make(tmp_path)
    _segment(tmp_path, query)
    with pytest.raises(InputError, match="store is damaged"):
        run.rows(ALL_ROWS)


def test_rows_of_a_segment_that_can_not_be_are_left_out(tmp_path: Path) -> None:
    run = make(tmp_path)
    (tmp_path / "graph.json").write_text('{"num_nodes": 10, "edges": []}')
    row = "{} AS src, 1 AS dst, 'data' AS kind, 0 AS epoch, 0 AS round, 0 AS step, 0 AS attempt, {} AS nbytes, "
    row += "{} AS sent_s, NULL AS arrived_s, {} AS fate"
    wrong = [
        ("'text'", "1", "0.5", "'delivered'"),
        ("'11'", "1", "0.5", "'delivered'"),
        ("'1'", "-1", "0.5", "'delivered'"),
        ("'1'", "1", "'NaN'::DOUBLE", "'delivered'"),
        ("'1'", "1", "0.5", "'; DROP TABLE messages'"),
    ]
    right = ("'1'", "1", "0.5", "'dropped:loss'")
    _segment(tmp_path, " UNION ALL ".join(f"SELECT {row.format(*values)}" for values in (*wrong, right)))
    assert run.rows("SELECT count(*) FROM messages") == [(61,)]
    assert run.rows("SELECT src, fate FROM messages WHERE fate <> 'delivered'") == [(1, "dropped:loss")]


def _segment(path: Path, query: str) -> None:
    import duckdb

    duckdb.sql(f"COPY ({query}) TO '{path / 'store' / 'messages.7.parquet'}' (FORMAT parquet)")


def test_what_is_made_of_a_run_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = netdfl.run(loads(SCENARIO), out=tmp_path / "lines", page=False)
    monkeypatch.setattr("netdfl.record.segments.LEAST_BYTES", 1)
    rolled = netdfl.run(loads(SCENARIO), out=tmp_path / "rolled", page=False)
    assert not list((tmp_path / "rolled" / "store").glob("*.jsonl"))
    changes = {"duration_s": 0.0}
    assert rolled.result | changes == lines.result | changes
    for table in ("metrics", "events"):
        key = repr
        assert sorted(study_rows(rolled.path, table), key=key) == sorted(study_rows(lines.path, table), key=key)
    for table in ("messages", "waits", "events"):
        written = [export(each.run, table, "csv", tmp_path / f"{table}.csv").read_text() for each in (lines, rolled)]
        assert sorted(written[0].splitlines()) == sorted(written[1].splitlines())
    assert "rolled" in render(rolled.run)


def test_where_the_disk_refuses_a_segment_the_lines_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **more: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("netdfl.record.run.roll_up", refused)
    finished = netdfl.run(loads(SCENARIO), out=tmp_path / "run", page=False)
    assert finished.result["verdict"] == "done"
    assert "the record stays JSON lines: No space left on device" in list(remarks(finished.result))


def test_few_bytes_that_stand_for_very_many_are_not_held_in_memory(tmp_path: Path) -> None:
    """Two thousand rows with one long text, which Parquet stores once."""
    run = open_run(netdfl.run(loads(SCENARIO), out=tmp_path, page=False).path)
    file = tmp_path / "store" / "events.7.parquet"
    details = "'{\"x\": \"' || repeat('x', 800000) || '\"}' AS details"
    row = f"0.0 AS at_s, 0 AS node, 0 AS round, 'odd' AS kind, {details}"
    duckdb.sql(f"COPY (SELECT {row} FROM range(2000)) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
    assert file.stat().st_size < 1 << 20
    with pytest.raises(InputError, match=r"stands for more than can be read in \S+ MiB of memory"), run.held():
        pass
