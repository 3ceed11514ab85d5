"""The run directory: made once, written whole, opened at any time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import duckdb
import pytest

from netdfl.core.errors import InputError, RunError
from netdfl.core.fates import Fate
from netdfl.core.types import Kind, Message, Payload
from netdfl.exports.export import export as export_anything
from netdfl.exports.export import export_table as export
from netdfl.record.base import WaitEnd, WaitRecord
from netdfl.record.database import COLUMNS, TableName, connect
from netdfl.record.directory import LOCK, RunDirectory, hold
from netdfl.record.resources import ResourceLog
from netdfl.record.run import Run, open_run
from netdfl.record.store import StoreWriter
from netdfl.report.html import write_report
from tests.record.outcomes import outcome_of


def started(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path, "quickstart", 7, out=tmp_path / "run")
    directory.write("scenario.yaml", "nodes: 2\n")
    return directory


def test_the_latest_link_follows_the_newest_run_of_a_scenario(tmp_path: Path) -> None:
    paths = [RunDirectory.create(tmp_path, "quickstart", 7).path for _ in range(3)]
    assert len(set(paths)) == 3
    assert all(path.parent == tmp_path / "quickstart" and "-7" in path.name for path in paths)
    assert (tmp_path / "quickstart/latest").resolve() == paths[-1]


def test_a_folder_in_place_of_the_latest_link_is_refused(tmp_path: Path) -> None:
    """A copy that followed the link leaves one, and who opens it would see an old run."""
    (tmp_path / "quickstart" / "latest").mkdir(parents=True)
    with pytest.raises(InputError, match=r"quickstart/latest is a folder, and should be a link to the newest run"):
        RunDirectory.create(tmp_path, "quickstart", 0)
    assert [each.name for each in (tmp_path / "quickstart").iterdir()] == ["latest"]


def test_a_disk_without_links_has_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    assert RunDirectory.create(tmp_path, "quickstart", 0).path.is_dir()


def test_an_out_directory_may_be_new_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new/below", "empty"):
        assert RunDirectory.create(tmp_path, "q", 1, out=tmp_path / name).path == tmp_path / name
    assert not (tmp_path / "q").exists()


def test_overwriting_replaces_an_ended_run_and_nothing_else(tmp_path: Path) -> None:
    def again(path: Path) -> Path:
        return RunDirectory.create(tmp_path, "q", 1, out=path, overwrite=True).path

    run, mine = tmp_path / "run", tmp_path / "mine"
    assert again(run) == run
    for name in (LOCK, "scenario.yaml", "result.json"):
        (run / name).write_text("")
    with hold(run), pytest.raises(InputError, match="still going on"):
        again(run)
    assert (run / "result.json").exists()
    assert again(run) == run
    assert not list(run.iterdir())
    mine.mkdir()
    (mine / "scenario.yaml").write_text("precious")
    with pytest.raises(InputError, match="is not an empty directory"):
        again(mine)
    assert (mine / "scenario.yaml").read_text() == "precious"


@pytest.mark.parametrize("out", [None, "runs"])
def test_a_folder_whose_name_is_not_utf_8_is_refused_before_anything_is_done(tmp_path: Path, out: str | None) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    with pytest.raises(InputError, match=r"\\udcff.*is not UTF-8; rename"):
        RunDirectory.create(folder, "q", 1, out=out and folder / out)
    assert not folder.exists()
    folder.mkdir()
    with pytest.raises(InputError, match=r"\\udcff.*is not UTF-8; rename"):
        connect(folder)


AS_IN_JUPYTER = """
import sys, types
kernel = types.ModuleType("IPython")
kernel.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": 1})
sys.modules.update(IPython=kernel, ipywidgets=None)
import duckdb
try:
    duckdb.connect().execute("SET enable_progress_bar = false")
except duckdb.Error as error:
    print("ipywidgets" in str(error))
from pathlib import Path
from netdfl.record.database import connect
print(connect(Path("/")).execute("SELECT 1").fetchall())
"""
"""DuckDB takes a program without a file, in which IPython has a kernel, for a notebook."""


def test_a_store_opens_in_jupyter_without_ipywidgets() -> None:
    done = subprocess.run([sys.executable, "-c", AS_IN_JUPYTER], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[:2] == ["True", "[(1,)]"], done.stderr


def test_an_out_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    for out in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(InputError, match="is not an empty directory"):
            RunDirectory.create(tmp_path, "q", 1, out=out)
    assert (tmp_path / "mine.txt").read_text() == "keep me"


def test_a_place_where_no_directory_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.*--out"):
        RunDirectory.create(tmp_path / "file", "q", 1)


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    directory = started(tmp_path)
    for number in (1, 2):
        directory.write_json("fleet.json", {"round": number, "loss": float("nan")})
    directory.write_events([{"at_s": 1.0, "crash": 4}, {"at_s": 2.0, "restart": 4}])
    run = open_run(directory.path)
    assert run.fleet == {"round": 2, "loss": None}
    assert len((directory.path / "events.jsonl").read_text().splitlines()) == 2
    assert not list(directory.path.glob(".*"))


def test_a_file_that_cannot_be_written_breaks_the_run_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, real = started(tmp_path), os.open
    monkeypatch.setattr("netdfl.core.files.os.open", lambda path, *how: real("/dev/full", os.O_WRONLY))
    with pytest.raises(RunError, match=r"result\.json can't be written: No space left"):
        directory.write_json("result.json", {"verdict": "pass"})


def test_what_is_no_run_is_refused_with_a_remedy(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"is not a run.*name the directory"):
            open_run(path)


def test_a_run_just_begun_has_empty_tables_and_no_result(tmp_path: Path) -> None:
    directory = started(tmp_path)
    StoreWriter(directory.path, "000").close()
    (directory.path / "store/messages-001.jsonl").touch()
    run = open_run(directory.path)
    for table in get_args(TableName):
        relation = run.query(f"FROM {table}")
        assert relation.columns == list(COLUMNS[table])
        assert relation.fetchall() == []
    assert (run.finished, run.fleet, run.graph, run.partition) == (False, None, None, None)
    assert run.scenario_text == "nodes: 2\n"
    with pytest.raises(InputError, match=r"no result\.json yet"):
        _ = run.result


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    directory = started(tmp_path)
    directory.write("result.json", "{")
    with pytest.raises(InputError, match=r"result\.json is damaged"):
        _ = open_run(directory.path).result


@pytest.mark.parametrize("name", ["plain", "with 'quotes'", "glob[1]*?", "ünïcode"])
def test_the_tables_gather_the_files_of_all_writers(tmp_path: Path, name: str) -> None:
    directory = RunDirectory.create(tmp_path, "q", 1, out=tmp_path / name)
    directory.write("scenario.yaml", "")
    for node in range(3):
        with StoreWriter(directory.path, f"{node:03d}") as writer:
            writer.metrics(node, node, 5, {"train_loss": float(node)})
    rows = open_run(directory.path).rows("SELECT node, value FROM metrics ORDER BY node")
    assert rows == [(0, 0.0), (1, 1.0), (2, 2.0)]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_row_is_skipped_wherever_it_is_torn(tmp_path: Path, cut: int) -> None:
    directory = started(tmp_path)
    with StoreWriter(directory.path, "000") as writer:
        for round in range(3):
            writer.outcome(
                outcome_of(Message(0, 1, Kind.DATA, 0, round, 0, 0, Payload()), 9, 0, 1, Fate.read("delivered"))
            )
    path = directory.path / "store/messages-000.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    rounds = open_run(directory.path).rows("SELECT round FROM messages ORDER BY round")
    # A row that lacks only its line's end is whole.
    assert rounds == [(0,), (1,), (2,)][: 3 if cut == 1 else 2]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    directory = started(tmp_path)
    with StoreWriter(directory.path, "000") as writer:
        for round in (1, 0):
            writer.outcome(
                outcome_of(
                    Message(0, 1, Kind.DATA, 0, round, 0, 0, Payload()), 9, round, None, Fate.read("dropped:loss, late")
                )
            )
            writer.metrics(round, None, round, {"test_loss": float("inf") if round else 0.1})
            writer.event(round, 0, round, "missing", awaited=[1, 2])
            writer.wait(WaitRecord(0, round, 0, Kind.DATA, round, 9, None, WaitEnd.DEADLINE, None, (1, 2)))
    moments = iter((0.5, 2.5))
    log = ResourceLog(directory.path, "000", "node 0", lambda: next(moments), node=0)
    log.take()
    log.close()
    return open_run(directory.path)


OFTEN = ("messages", "events")
"""Of these tables CI reads back every format, of the others one."""


@pytest.mark.parametrize(
    ("table", "format"),
    [
        pytest.param(table, format, marks=[] if table in OFTEN or format == "csv" else [pytest.mark.soak])
        for table in get_args(TableName)
        for format in ("csv", "jsonl", "parquet")
    ],
)
def test_an_export_reads_back_as_the_table_in_order_of_time(
    run: Run, tmp_path: Path, table: TableName, format: str
) -> None:
    path = export(run, table, format, tmp_path / f"it's.{format}")
    reader = {"csv": duckdb.read_csv, "jsonl": duckdb.read_json, "parquet": duckdb.read_parquet}[format]
    back = reader(str(path))
    assert back.columns == list(COLUMNS[table])
    plain = ", ".join(name for name in COLUMNS[table] if name not in ("details", "missing"))
    order = "at_s" if table == "resources" else "round"
    assert back.select(plain).fetchall() == run.query(f"SELECT {plain} FROM {table} ORDER BY {order}").fetchall()


def test_exported_details_and_lists_are_json(run: Run, tmp_path: Path) -> None:
    line = export(run, "events", "jsonl", tmp_path / "e.jsonl").read_text().splitlines()[0]
    assert json.loads(line)["details"] == {"awaited": [1, 2]}
    line = export(run, "waits", "jsonl", tmp_path / "w.jsonl").read_text().splitlines()[0]
    assert json.loads(line)["missing"] == [1, 2]


def test_an_export_that_cannot_be_made_says_why(run: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'xlsx' is no format of events; choose one of csv, jsonl, parquet"):
        export_anything(run, "events", "xlsx", str(tmp_path / "e"))
    with pytest.raises(InputError, match="can't be written"):
        export(run, "events", "csv", tmp_path / "nowhere/e.csv")


@pytest.mark.parametrize("name", ["result.json", "fleet.json"])
def test_a_run_whose_rows_are_gone_is_not_read_as_one_that_did_nothing(name: str, tmp_path: Path) -> None:
    path = started(tmp_path).path
    (path / "result.json").write_text("{}")
    (path / "report.html").write_text("good")
    assert open_run(path).rows("SELECT count(*) FROM messages") == [(0,)], "nothing had happened"
    (path / name).write_text('{"messages": {"sent": 5}, "rounds_done": 3}')
    with pytest.raises(InputError, match=r"store has no rows, though the run recorded some: .* bring them back"):
        write_report(path)
    with pytest.raises(InputError, match="store has no rows"):
        export(open_run(path), "metrics", "csv", tmp_path / "metrics.csv")
    assert (path / "report.html").read_text() == "good"
