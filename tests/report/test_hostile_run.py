"""A run directory that somebody gives you: its report, tables and files are read, and do nothing else."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import InputError, NetdflError
from netdfl.exports.export import export_table as export
from netdfl.record.directory import RunDirectory
from netdfl.record.run import Run, open_run
from netdfl.record.store import StoreWriter
from netdfl.report.data.sections import stalls
from netdfl.report.data.stalled import stalls as stalls_data
from netdfl.report.html import render, write_report


@pytest.fixture(scope="session")
def small(fabricate: Callable[..., Run]) -> Path:
    return fabricate(nodes=3, rounds=3, dead=None, classes=2).path


@pytest.fixture
def given(small: Path, tmp_path: Path) -> Path:
    """A run of three nodes with a stall, to be changed."""
    path = tmp_path / "given"
    shutil.copytree(small, path)
    return path


def change(path: Path, change: Callable[[Any], None]) -> None:
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


@pytest.mark.parametrize("place", ["began_s", "found_s"])
def test_text_in_place_of_a_time_is_no_sql(given: Path, tmp_path: Path, place: str) -> None:
    target = tmp_path / "written.csv"
    evil = f"1 LIMIT 0) TO '{target}'; COPY (SELECT 1) TO '{target}'; SELECT (1"
    for text in (evil, f"1; COPY (SELECT 42) TO '{target}'; --"):
        change(given / "stalls/000.json", lambda kept, text=text: kept["finding"].__setitem__(place, text))
        with pytest.raises(InputError, match=rf"000\.json is damaged: finding\.{place}"):
            write_report(given)
        assert not target.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{outside}'",
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM read_text('{store}/../../secret')",
        "SELECT * FROM glob('{secret}*')",
        "ATTACH '{outside}'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET allowed_directories = ['/']",
        "INSTALL httpfs",
        "LOAD '{outside}'",
        "IMPORT DATABASE '{outside}'",
    ],
)
def test_a_query_has_no_way_out_of_the_run(given: Path, tmp_path: Path, sql: str) -> None:
    secret, outside = tmp_path / "secret", tmp_path / "outside"
    secret.write_text("secret")
    run = open_run(given)
    text = sql.format(secret=secret, outside=outside, store=given / "store")
    with pytest.raises(InputError, match="the query can't be made"):
        run.query(text).fetchall()
    with pytest.raises(InputError, match="the query can't be made"):
        run.rows(text)
    assert not outside.exists()


LINKS = [".report.html.tmp", "report.html"]


@pytest.mark.parametrize("name", LINKS)
def test_no_report_is_written_through_a_planted_link(given: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "profile"
    target.write_text("mine")
    (given / name).symlink_to(target)
    with pytest.raises(InputError, match=rf"{name} is a link"):
        write_report(given)
    assert target.read_text() == "mine"
    RunDirectory(given).write("report.html", "a page")
    assert target.read_text() == "mine"
    assert (given / "report.html").read_text() == "a page"


PLACES = ("store/metrics-x.jsonl", "graph.json", "stalls/001.json", "models/000.safetensors")


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        pytest.param(place, kind, marks=[] if kind == "link" or place == PLACES[0] else [pytest.mark.soak])
        for place in PLACES
        for kind in ("link", "folder", "pipe", "device")
    ],
)
def test_what_is_no_plain_file_is_not_opened(given: Path, tmp_path: Path, place: str, kind: str) -> None:
    path = given / place
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    (tmp_path / "other").mkdir()
    match kind:
        case "link":
            path.symlink_to("/etc/hostname")
        case "folder":
            path.symlink_to(tmp_path / "other", target_is_directory=True)
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
    for use in (open_run, write_report):
        with pytest.raises(InputError, match=f"{path.name} is (a link|no plain file)"):
            use(given)


def test_rows_are_not_appended_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "profile"
    target.write_text("mine\n")
    (tmp_path / "store").mkdir()
    (tmp_path / "store/metrics-fleet.jsonl").symlink_to(target)
    writer = StoreWriter(tmp_path, "fleet")
    writer.metrics(0, None, 0, {"test_loss": 1.0})
    with pytest.raises(NetdflError, match="can't be written"):
        writer.close()
    assert target.read_text() == "mine\n"


ROWS = {
    "messages": {"src": 0, "dst": 1, "kind": "data", "epoch": 0, "round": 0, "step": 0, "attempt": 0, "nbytes": 1}
    | {"sent_s": 0.1, "arrived_s": 0.2, "fate": "delivered"},
    "metrics": {"at_s": 0.1, "node": 0, "round": 0, "name": "round_s", "value": 1.0},
    "events": {"at_s": 0.1, "node": 0, "round": 0, "kind": "missing", "details": {"awaited": [1], "src": 1}},
    "waits": {"node": 0, "round": 0, "step": 0, "kind": "data", "since_s": 0.1, "until_s": 0.2, "deadline_s": 2.0}
    | {"ended": "came", "last_src": 1, "missing": [1]},
}
WORDS: list[Any] = [
    4294967295,
    -1,
    1 << 70,
    1e300,
    "'; COPY (SELECT 1) TO 'x'; --",
    "$\\frac{$ <script>",
    None,
    [],
    {},
    True,
]


def odd_rows() -> Iterator[tuple[str, str]]:
    for table, row in ROWS.items():
        for column in row:
            for word in WORDS:
                yield table, json.dumps(row | {column: word})
    for column, inner in (("awaited", [4294967295, "x", None]), ("src", 4294967295), ("reason", {"a": []})):
        for kind in ("missing", "died", "refused", "given_up", "crash", "restart", "rejoin", "not_finite", "stall"):
            yield "events", json.dumps(ROWS["events"] | {"kind": kind, "details": {column: inner}})
    yield "events", '{"at_s":1e999,"node":0,"round":0,"kind":"died","details":' + "[" * 500 + "]" * 500 + "}"
    yield "metrics", '{"at_s":0.1,"node":0,"round":0,"name":"train_s","value":1e999}'
    yield "metrics", '{"at_s":0.1,"node":'


def test_rows_that_no_node_wrote_leave_a_report(given: Path) -> None:
    for number, (table, row) in enumerate(odd_rows()):
        with (given / f"store/{table}-{number % 4}.jsonl").open("a") as file:
            file.write(row + "\n")
    (given / "stalls/000.json").unlink()
    page = render(open_run(given))
    assert page.count("<script") == 2  # the data and the page's own
    for table in ROWS:
        export(open_run(given), table, "csv", given.parent / f"{table}.csv")


READERS: dict[str, Callable[[Run], object]] = {
    "graph.json": lambda run: run.graph,
    "partition.json": lambda run: run.partition,
    "fleet.json": lambda run: run.fleet,
    "result.json": render,
    "stalls/000.json": stalls_data,
}
BROKEN = ["", "{", "[]", "null", "7", "[" * 10_000, "\x00", '{"num_nodes": 1e9, "rounds": -1}']


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the page, only what reads `result.json`."""
    monkeypatch.setattr("netdfl.report.data.whole.SECTIONS", (stalls,))
    monkeypatch.setattr("netdfl.report.data.whole.links", lambda run: {"src": [], "dst": []})
    for part in ("messages", "node_matrices", "time_by_node", "spreads", "waits", "stalls", "events"):
        monkeypatch.setattr(f"netdfl.report.data.whole.{part}", lambda *args: {})


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", READERS)
def test_files_that_are_cut_or_of_another_kind_are_named(given: Path, name: str) -> None:
    for text in BROKEN:
        (given / name).write_text(text)
        with pytest.raises(InputError, match=rf"{Path(name).name} is damaged|{given.name} can't be shown"):
            READERS[name](open_run(given))
    (given / name).write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not text"):
        READERS[name](open_run(given))


def leaves(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of a JSON value: of a list, the first entry stands for all."""
    yield way
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*way, key))
    elif isinstance(value, list) and value:
        yield from leaves(value[0], (*way, 0))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.soak), 11])
@pytest.mark.parametrize("name", READERS)
def test_any_value_of_a_file_may_be_any_other(given: Path, name: str, each: int) -> None:
    """It is read, or there is a sentence: nothing else is raised, and no memory is asked for by a number in a file."""
    whole = json.loads((given / name).read_text())
    for number, way in list(enumerate(leaves(whole)))[::each]:
        holder = {"": json.loads(json.dumps(whole))}
        place: Any = holder
        for key in ("", *way)[:-1]:
            place = place[key]
        place[("", *way)[-1]] = WORDS[number % len(WORDS)]
        (given / name).write_text(json.dumps(holder[""]))
        with suppress(InputError):
            READERS[name](open_run(given))


def test_a_run_is_its_owners(tmp_path: Path) -> None:
    for path in (
        RunDirectory.create(tmp_path, "q", 1).path,
        RunDirectory.create(tmp_path, "q", 1, tmp_path / "o").path,
    ):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_events_of_links_that_nobody_wrote_are_listed_or_left_out(given: Path) -> None:
    rows = [
        {"entry": "1; DROP TABLE events", "where": "0->1"},
        {"entry": 3, "where": ["$x$"], "change": {"a": 1}},
        {"entry": 3, "where": "<b>" * 200, "change": None},
    ]
    kinds = "partition", "partition_ends", "partition_ends_ends"
    with StoreWriter(given, "evil") as writer:
        for number, (kind, details) in enumerate(zip(kinds, rows, strict=True)):
            writer.event(number, None, 0, kind, **details)  # type: ignore[arg-type]
    line = {"action": "set", "source": 0, "at_ns": 0, "entry": "'; --", "where": "$\\frac$", "change": "\x00"}
    (given / "events.jsonl").write_text(f'{{"action": "set", "source": -1}}\n{json.dumps(line)}\nnull\n')
    page = render(open_run(given))
    assert "<b><b>" not in page
    assert "$x$" in page
