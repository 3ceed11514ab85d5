"""SQL over the runs of a folder: what it answers, and what it can't reach."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import duckdb
import pytest

from netdfl.collection.labels import Labels, write_labels
from netdfl.collection.sql import ABOUT, SCHEMA, asked, table_words
from netdfl.collection.terminal import write_answer
from netdfl.core.errors import InputError
from netdfl.record.run import open_run
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.collection.conftest import SMALL, Plant


def rows(folder: Path, sql: str, **given: object) -> list[tuple[object, ...]]:
    with asked(folder, sql, **given) as found:  # type: ignore[arg-type]
        return list(found.rows())


def test_runs_and_keys_are_tables(plant: Plant, folder: Path) -> None:
    plant("a", lines={"delay: 5ms": "delay: 8ms"}, error=0.5)
    write_labels(plant("deep/b", at=60, error=None), Labels(("base",), "it's mine", True))
    assert rows(folder, "select run, error, tags, note, archived from runs order by run") == [
        ("a", 0.5, [], "", False),
        ("deep/b", None, ["base", "deep"], "it's mine", True),
    ]
    assert rows(folder, "select epoch(started)::bigint from runs order by 1") == [(1_700_000_000,), (1_700_000_060,)]
    keys = "select run, value, number from keys where key = 'links.default.latency.delay' order by run"
    assert rows(folder, keys) == [("a", "8ms", 0.008), ("deep/b", "5ms", 0.005)]


@pytest.mark.parametrize(
    "table", ["messages", "metrics", "events", "waits", "resources", "link_totals", "round_totals"]
)
def test_each_record_has_the_rows_of_every_run_with_its_name(plant: Plant, folder: Path, table: str) -> None:
    runs = [plant("a"), plant("b")]
    alone = open_run(runs[0]).rows(f"SELECT * FROM {table} ORDER BY ALL")
    for name in ("a", "b"):
        found = rows(folder, f"select * exclude (run) from {table} where run = '{name}' order by all")
        if table == "events":  # the changes of links by the schedule are worked out for one run alone
            found = [row for row in found if row in alone]
        assert found == alone
    columns = rows(folder, f"select column_name from (describe {table})")
    assert [name for (name,) in columns] == list(SCHEMA[table])


def test_totals_count_all_messages_of_runs_that_record_some_and_of_those_that_record_all(
    plant: Plant, folder: Path
) -> None:
    plant("all")
    some = plant("some")
    run(loads(SMALL, ["record.messages=per_link"]), out=folder / "sampled", page=False)
    (some / "record.json").write_text("{}")  # damaged, and taken for one that has every row
    sent = "select run, sum(messages), sum(nbytes) from {} group by run order by run"
    links, rounds = (rows(folder, sent.format(table)) for table in ("link_totals", "round_totals"))
    assert links == rounds
    assert [messages for _, messages, _ in links] == [24, 24, 24]
    assert rows(folder, "select run, count(*) from messages group by run order by run") == [("all", 24), ("some", 24)]
    both = "select count(*) from link_totals join resources using (run) where messages > 0"
    assert rows(folder, both)[0][0] > 0  # type: ignore[operator]


def test_rows_that_do_not_fit_their_own_run_are_left_out(plant: Plant, folder: Path) -> None:
    path = plant("a")
    with next((path / "store").glob("metrics*.jsonl")).open("a") as file:
        for node in (3, 4, -1):
            file.write(json.dumps({"at_s": 1, "node": node, "round": 0, "name": "planted", "value": 1}) + "\n")
        file.write('{"torn": ')
    assert rows(folder, "select node from metrics where name = 'planted'") == [(3,)]


def test_a_run_whose_folder_holds_a_link_is_in_no_table_but_runs(plant: Plant, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text('{"at_s": 1, "node": 0, "round": 0, "name": "secret", "value": 1}\n')
    (plant("evil") / "store/metrics-evil.jsonl").symlink_to(tmp_path / "secret.jsonl")
    plant("good")
    assert rows(folder, "select distinct run from metrics") == [("good",)]
    assert rows(folder, "select run from runs order by run") == [("evil",), ("good",)]


def test_a_segment_in_parquet_is_read_too(plant: Plant, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plant("a")
    before = rows(folder, "select * from messages order by all")
    monkeypatch.setattr("netdfl.record.segments.LEAST_BYTES", 1)
    assert open_run(path).roll_up() == ""
    assert list((path / "store").glob("messages*.parquet"))
    plant("b")
    assert rows(folder, "select * from messages where run = 'a' order by all") == before


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to 'made.csv'",
        "create table made (x int)",
        "attach 'made.db'",
        "insert into runs select * from runs",
        "set memory_limit = '9GB'",
        "install httpfs",
        "pragma database_list",
        "select 1; select 2",
        "",
        "-- nothing",
    ],
)
def test_only_one_select_is_a_query(plant: Plant, folder: Path, sql: str) -> None:
    plant("a")
    with pytest.raises(InputError, match="a query is one SELECT, such as"):
        rows(folder, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('{outside}')",
        "select * from '{outside}'",
        "select * from read_csv('{outside}')",
        "select * from glob('{folder}/*')",
        "select * from read_text('{folder}/a/result.json'), metrics",
    ],
)
def test_no_other_file_can_be_opened(plant: Plant, folder: Path, tmp_path: Path, sql: str) -> None:
    plant("a")
    (tmp_path / "outside.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="the query can't be answered: Permission Error"):
        rows(folder, sql.format(outside=tmp_path / "outside.csv", folder=folder))


def test_memory_has_a_bound(folder: Path) -> None:
    much = "select list(a.range) from range(1000000) a, range(1000) b"
    with pytest.raises(InputError, match="it takes more than 30MB of memory; ask for less, or raise --memory"):
        rows(folder, much, memory="30MB")
    with pytest.raises(InputError, match="'much' can't be set; write it like 512MiB or 2GB"):
        rows(folder, "select 1", memory="much")


def test_a_mistake_is_said_with_where_the_tables_are(folder: Path) -> None:
    with pytest.raises(InputError, match=r"Referenced column .nowhere. not found.*`netdfl query --tables`"):
        rows(folder, "select nowhere from runs")
    with pytest.raises(InputError, match="is no folder"):
        rows(folder / "none", "select 1")


def test_answers_as_text_csv_and_json(plant: Plant, folder: Path) -> None:
    plant("a", scenario='with, "comma"')
    sql = "select name, 1.5 as x, null as n, 'nan'::double as nan, started from runs"

    def written(form: str) -> str:
        with asked(folder, sql) as found:
            write_answer(found, form, out := StringIO())
            return out.getvalue()

    assert written("csv") == 'name,x,n,nan,started\n"with, ""comma""",1.5,,,2023-11-14 22:13:20\n'
    (row,) = json.loads(written("json"))
    assert row == {
        "name": 'with, "comma"', "x": "1.5", "n": None, "nan": None, "started": "2023-11-14 22:13:20"
    }  # fmt: skip
    assert written("text").splitlines()[1].split("  ")[0] == 'with, "comma"'
    with asked(folder, "select run from runs where false") as found:
        write_answer(found, "json", out := StringIO())
    assert json.loads(out.getvalue()) == []


def test_parquet_is_written_and_can_be_written_again(plant: Plant, folder: Path, tmp_path: Path) -> None:
    plant("a")
    target = tmp_path / "it's.parquet"
    for _ in range(2):
        with asked(folder, "select run, count(*) as n from messages group by run; -- end", writes=target) as found:
            found.write_parquet(target)
    ((run, number),) = duckdb.sql(f"select * from read_parquet([$${target}$$])").fetchall()
    assert (run, number) == ("a", len(rows(folder, "select src from messages")))


def test_every_table_is_explained() -> None:
    assert set(ABOUT) == set(SCHEMA)
    text = table_words()
    assert all(f"{name} {kind}" in text for columns in SCHEMA.values() for name, kind in columns.items())
