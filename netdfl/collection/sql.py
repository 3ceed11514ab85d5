"""SQL over all runs of a folder: it reads the tables of their records, and can open nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdfl.collection.filters import as_number
from netdfl.collection.finding import check_folder, runs_below
from netdfl.collection.rows import RunRow, read_rows
from netdfl.core.errors import InputError, NetdflError
from netdfl.core.files import check_plain
from netdfl.record.database import (
    COLUMNS,
    MOST_NODES,
    TABLES,
    TOTALS,
    RowFiles,
    TableName,
    TotalsName,
    closed_database,
    counted_of_many,
    quoted,
    view_of_many,
)
from netdfl.record.forms import SIZE, read_form
from netdfl.record.sampling import SAMPLING, SAMPLING_FORM, Sampling
from netdfl.record.segments import pieces
from netdfl.record.store import STORE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

RUNS: Mapping[str, str] = {
    "run": "VARCHAR",
    "started": "TIMESTAMP",
    "state": "VARCHAR",
    "verdict": "VARCHAR",
    "reasons": "VARCHAR",
    "name": "VARCHAR",
    "world": "VARCHAR",
    "algorithm": "VARCHAR",
    "nodes": "BIGINT",
    "rounds": "BIGINT",
    "seed": "BIGINT",
    "accuracy": "DOUBLE",
    "loss": "DOUBLE",
    "error": "DOUBLE",
    "nbytes": "BIGINT",
    "duration_s": "DOUBLE",
    "virtual_duration_s": "DOUBLE",
    "stalls": "BIGINT",
    "tags": "VARCHAR[]",
    "note": "VARCHAR",
    "archived": "BOOLEAN",
}
KEYS: Mapping[str, str] = {"run": "VARCHAR", "key": "VARCHAR", "value": "VARCHAR", "number": "DOUBLE"}
FILES: Mapping[str, str] = {"file": "VARCHAR", "run": "VARCHAR", "num_nodes": "INTEGER"}
SCHEMA: Mapping[str, Mapping[str, str]] = {
    "runs": RUNS,
    "keys": KEYS,
    **{table: {"run": "VARCHAR", **COLUMNS[table]} for table in (*TABLES, *TOTALS)},
}
"""The columns of each table that a query can read, with their types."""
ABOUT: Mapping[str, str] = {
    "runs": "a row for each run; accuracy, loss and error are the last of the average model",
    "keys": "the keys of each scenario, and modules, files and packages in which runs differ; number is a value that "
    "is one, in seconds, bytes or bits a second",
    "metrics": "numbers by round and node; a node of null is the fleet, a value of null was not finite",
    "events": "what happened; details are JSON",
    "waits": "waits that took time",
    "messages": "the fate of each message that has a row; runs with `record: {messages: ...}` keep some of them",
    "resources": "what each process took, every two seconds of real time; cpu_s since it began, gpu_bytes of PyTorch",
    "link_totals": "counts of all messages by link and fate, those without a row too",
    "round_totals": "counts of all messages by kind, life of the sender, round and fate; until_s: when the last ended",
}
SAMPLED = "sampled_runs"
"""The name of the table of runs that recorded rows for some of their messages, and only counts of the others."""
MEMORY = "1GiB"


PART = 10_000


class QueryResult:
    """The answer of a query, computed when it is read."""

    def __init__(self, database: DuckDBPyConnection, sql: str) -> None:
        """Prepare to run `sql`, which was checked to be one SELECT."""
        self._database, self._sql = database, sql
        self.columns: Sequence[str] = list(database.sql(sql).columns)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the answer, of which only some are in memory at a time."""
        found = self._database.execute(self._sql)
        while part := found.fetchmany(PART):
            yield from part

    def write_parquet(self, target: Path) -> None:
        """Write the rows of the answer to the Parquet file `target`."""
        self._database.execute(f"CREATE OR REPLACE TEMP VIEW answer AS {self._sql}")
        options = "FORMAT parquet, USE_TMP_FILE false"
        self._database.execute(f"COPY (FROM answer) TO {quoted(str(target.resolve()))} ({options})")


@contextmanager
def asked(root: Path, sql: str, *, memory: str = MEMORY, writes: Path | None = None) -> Iterator[QueryResult]:
    """Yield the answer of one SELECT over the tables of `SCHEMA`, for all runs at or below `root`.

    The query can read only the records of these runs, write only the file `writes`, and take at most `memory`, such as
    `2GB`. Runs that can't be read are left out of all tables except `runs`.

    Raises:
        InputError: There is no such folder, the text is not one SELECT, or it can't be answered.
    """
    import duckdb

    folder = check_folder(root)
    rows = read_rows(runs_below(folder), folder)
    wanted = _wanted(sql)
    sound = {row.place: row.path for row in rows if wanted and _is_sound(row.path)}
    sampled = [place for place, path in sound.items() if not _records_all(path)]
    stores = {table: {place: pieces(path / STORE, table) for place, path in sound.items()} for table in wanted}
    files = [file for of in stores.values() for each in of.values() for part in each for file in part]
    try:
        database = closed_database([*files, *([writes.resolve()] if writes is not None else [])], memory)
    except duckdb.Error as error:
        raise InputError(f"a memory limit of {memory!r} can't be set; write it like 512MiB or 2GB") from error
    with database:
        try:
            _fill(database, rows)
            _make(database, SAMPLED, {"run": "VARCHAR"}, [[place] for place in sampled])
            for table in wanted:
                _lay_out(database, table, stores[table], sound)
            _check_select(database, sql)
            yield QueryResult(database, sql)
        except duckdb.Error as error:
            raise InputError(f"the query can't be answered: {_told(error, memory)}") from error


def _wanted(sql: str) -> Sequence[TableName | TotalsName]:
    """Return the tables that a query names, after `messages` if one of them is computed from that table."""
    named = [table for table in (*TABLES, *TOTALS) if re.search(rf"\b{table}\b", sql, re.IGNORECASE)]
    counts = "messages" not in named and any(table in TOTALS for table in named)
    return ["messages", *named] if counts else named


def _is_sound(path: Path) -> bool:
    try:
        check_plain(path)
    except (NetdflError, OSError):
        return False
    return True


def _records_all(path: Path) -> bool:
    """Return whether a run recorded a row for every message; a run without a readable file about sampling did."""
    try:
        found = read_form(path / SAMPLING, SAMPLING_FORM)
        return found is None or Sampling.of(found["messages"]).is_all
    except (InputError, ValueError):
        return True


def _check_select(database: DuckDBPyConnection, sql: str) -> None:
    from duckdb import StatementType

    found = database.extract_statements(sql)
    if len(found) != 1 or found[0].type != StatementType.SELECT:
        raise InputError('a query is one SELECT, such as "select name, avg(accuracy) from runs group by name"')


def _told(error: Exception, memory: str) -> str:
    from duckdb import OutOfMemoryException

    if isinstance(error, OutOfMemoryException):
        return f"it takes more than {memory} of memory; ask for less, or raise --memory"
    return f"{' '.join(str(error).partition('LINE 1')[0].split())}; `netdfl query --tables` shows the tables"


def _fill(database: DuckDBPyConnection, rows: Sequence[RunRow]) -> None:
    """Create the tables `runs` and `keys` of a database from the rows of a list of runs."""
    _make(database, "runs", RUNS, [_of_run(row) for row in rows])
    _make(database, "keys", KEYS, [_of_key(row.place, key, text) for row in rows for key, text in row.keys.items()])


def _make(database: DuckDBPyConnection, table: str, types: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
    """Create a table with `rows`, which are passed by columns, because each row on its own would take milliseconds."""
    database.execute(f"CREATE TEMP TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in types.items())})")
    if rows:
        parts = [f"unnest(?::{kind}[]) AS {name}" for name, kind in types.items()]
        columns = [list(column) for column in zip(*rows, strict=True)]
        database.execute(f"INSERT INTO {table} SELECT {', '.join(parts)}", columns)


def _of_run(row: RunRow) -> list[object]:
    told: dict[str, object] = {**row.facts, "run": row.place, "started": row.started or None, "tags": list(row.tags)}
    told |= {"state": row.state, "verdict": row.verdict, "reasons": row.value("reasons")}
    told |= {"note": row.labels.note, "archived": row.labels.archived}
    return [told.get(name) for name in RUNS]


def _of_key(place: str, key: str, text: str) -> list[object]:
    number = as_number(text)
    return [place, key, text, None if number is None else number.value]


def _lay_out(
    database: DuckDBPyConnection,
    table: TableName | TotalsName,
    stores: Mapping[str, RowFiles],
    sound: Mapping[str, Path],
) -> None:
    """Create the view `table` over the record files of all runs.

    `stores` has the record files of each run, by the run's path in the folder; `sound` has the directories of these
    runs.
    """
    sizes = {place: _num_nodes(sound[place]) for place in stores}
    files = [(str(file), place, sizes[place]) for place, of in stores.items() for part in of for file in part]
    _make(database, f"files_of_{table}", FILES, files)
    every = RowFiles(
        [file for found in stores.values() for file in found.lines],
        [file for found in stores.values() for file in found.segments],
    )
    view = view_of_many(table, every, f"files_of_{table}")
    if table == "link_totals" or table == "round_totals":
        view = f"{view} UNION ALL {counted_of_many(table, SAMPLED)}"
    database.execute(f"CREATE TEMP VIEW {table} AS {view}")


def _num_nodes(path: Path) -> int:
    try:
        size = read_form(path / "graph.json", SIZE)
    except InputError:
        return 0
    return MOST_NODES if size is None else size["num_nodes"]


def table_words() -> str:
    """Return the tables and their columns as text."""
    parts = []
    for table, columns in SCHEMA.items():
        told = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        parts.append(f"{table}: {ABOUT[table]}\n    {told}")
    return "\n".join(parts)
