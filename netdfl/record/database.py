"""The database that reads a run's tables: it can open the files of that run's store and no others.

A run directory may come from anybody. Its contents reach a query as typed parameters, never as text. Should such
text become SQL all the same, it can't open other files, load extensions or undo these restrictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from netdfl.core.fates import FateKind
from netdfl.core.files import check_name, literal_path
from netdfl.core.process import cores

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TableName: TypeAlias = Literal["messages", "metrics", "events", "waits", "resources"]
TABLES: Sequence[TableName] = get_args(TableName)
TotalsName: TypeAlias = Literal["link_totals", "round_totals"]
TOTALS: Sequence[TotalsName] = get_args(TotalsName)
"""The tables of message counts, which include messages without a row in a record that holds only a sample of them."""


def _columns(text: str) -> Mapping[str, str]:
    """Return the types of columns by name, parsed from `name TYPE, name TYPE`."""
    return dict(column.split() for column in text.split(", "))


COLUMNS: Mapping[TableName | TotalsName, Mapping[str, str]] = {
    "messages": _columns(
        "src INTEGER, dst INTEGER, kind VARCHAR, epoch INTEGER, round INTEGER, step INTEGER, attempt INTEGER, "
        "nbytes BIGINT, sent_s DOUBLE, arrived_s DOUBLE, fate VARCHAR"
    ),
    "metrics": _columns("at_s DOUBLE, node INTEGER, round INTEGER, name VARCHAR, value DOUBLE"),
    "events": _columns("at_s DOUBLE, node INTEGER, round INTEGER, kind VARCHAR, details JSON"),
    "waits": _columns(
        "node INTEGER, round INTEGER, step INTEGER, kind VARCHAR, since_s DOUBLE, until_s DOUBLE, deadline_s DOUBLE, "
        "ended VARCHAR, last_src INTEGER, missing JSON"
    ),
    "resources": _columns(
        "at_s DOUBLE, process VARCHAR, node INTEGER, pid BIGINT, cpu_s DOUBLE, memory_bytes BIGINT, gpu_bytes BIGINT"
    ),
    "link_totals": _columns("src INTEGER, dst INTEGER, fate VARCHAR, messages BIGINT, nbytes BIGINT"),
    "round_totals": _columns(
        "kind VARCHAR, epoch INTEGER, round INTEGER, fate VARCHAR, messages BIGINT, nbytes BIGINT, until_s DOUBLE"
    ),
}
MOST_NODES = 1_000_001
"""The most nodes that a scenario may have, its server included."""
MOST_S = 1e9
MOST_NBYTES = 1 << 50
LEAST_MEMORY = 1 << 29
MEMORY_A_BYTE = 32
"""Bytes of memory allowed per byte of a store, on top of `LEAST_MEMORY`: a row takes at least 3 bytes on disk."""
MOST_THREADS = 4
"""The most threads of a database. To read JSON lines, however few, a thread takes 64 MiB: 16 filled `LEAST_MEMORY`."""
_LOCKED = ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access")


def connect(store: Path, writes: Path | None = None) -> DuckDBPyConnection:
    """Open an empty database that may read only the folder `store`, and write only the file `writes`.

    Raises InputError if the name of `store` is not UTF-8.
    """
    check_name(store.absolute())
    memory = f"{most_memory(store) >> 10}KiB"
    return _restricted(memory, [str(store), literal_path(store)], [] if writes is None else [str(writes)])


def most_memory(store: Path) -> int:
    """Return the bytes of memory that a database may take to read the tables of a store.

    This depends on the size of the files, as few bytes on disk can stand for very many rows.
    """
    return LEAST_MEMORY + MEMORY_A_BYTE * sum(file.stat().st_size for file in store.glob("*") if file.is_file())


def closed_database(files: Sequence[Path], memory: str) -> DuckDBPyConnection:
    """Open an empty database that may open `files` and nothing else, and takes at most `memory`, like `1GiB`."""
    return _restricted(memory, [], [str(file) for file in files])


def _restricted(memory: str, folders: Sequence[str], files: Sequence[str]) -> DuckDBPyConnection:
    """Open an empty database that can open only files in `folders` and the `files`; this limit can't be lifted."""
    import duckdb

    database = duckdb.connect()
    database.execute(f"SET memory_limit = {quoted(memory)}")
    database.execute(f"SET allowed_directories = [{', '.join(map(quoted, folders))}]")
    database.execute(f"SET allowed_paths = [{', '.join(map(quoted, files))}]")
    database.execute(f"SET threads = {min(cores(), MOST_THREADS)}")
    database.execute("SET temp_directory = ''")  # it spills to no disk
    for option in _LOCKED:
        database.execute(f"SET {option} = false")
    _hide_progress(database)
    database.execute("SET lock_configuration = true")
    return database


def _hide_progress(database: DuckDBPyConnection) -> None:
    """Turn off DuckDB's progress bar for slow queries, which would appear amid a command's output.

    If progress is off already, set nothing: in Jupyter without ipywidgets DuckDB refuses even that setting.
    """
    if database.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        database.execute("SET enable_progress_bar = false")


class RowFiles(NamedTuple):
    """The files with a table's rows: JSON lines, and segments as Parquet files."""

    lines: Sequence[Path]
    segments: Sequence[Path]


def view(table: TableName | TotalsName, pieces: RowFiles, num_nodes: int) -> str:
    """Return an SQL query for the rows of `table` in the files `pieces`, limited to nodes below `num_nodes`.

    An incomplete line is read as a row of nulls; a number that does not fit its column is read as null.
    """
    read = _read(table, pieces, "")
    return _SELECTED[table].format(f"({read}) WHERE {_sound(table, num_nodes)}")


def view_of_many(table: TableName | TotalsName, pieces: RowFiles, files: str) -> str:
    """Return an SQL query for the rows of `table` of several runs, with an additional column `run`.

    `files` is a table with the columns file, run and num_nodes: the run of each file, and that run's number of nodes.
    """
    read = f"SELECT {files}.run, {files}.num_nodes, of.* FROM ({_read(table, pieces, ', filename = true')}) AS of"
    rows = f"({read} JOIN {files} ON {files}.file = of.filename) WHERE {_sound(table, 'num_nodes')}"
    if table in TOTALS:
        return _by_run(_SELECTED[table].format(rows))
    return f"SELECT * EXCLUDE (num_nodes, filename) FROM ({_SELECTED[table].format(rows)})"


def counted_of_many(table: TotalsName, but: str) -> str:
    """Return an SQL query for the message totals `table` of each run, counted from the rows of a table `messages`.

    Runs listed in the table named by `but` are left out.
    """
    return _by_run(_SELECTED[table].format(_EACH.removesuffix(")") + f" WHERE run NOT IN (SELECT run FROM {but}))"))


def _by_run(totals: str) -> str:
    """Return an SQL query that takes the sums of the query `totals` for each value of the column `run`."""
    return f"SELECT run, {totals.removeprefix('SELECT ')}"


def _sound(table: TableName | TotalsName, num_nodes: int | str) -> str:
    sound = [_SOUND[table].format(n=num_nodes), *(["round IS NOT NULL"] if "round" in COLUMNS[table] else [])]
    return " AND ".join(sound)


def _read(table: TableName | TotalsName, pieces: RowFiles, more: str) -> str:
    """Return an SQL query for all rows in the files `pieces`.

    `more` is empty, or the option `, filename = true`, which adds a column `filename` with each row's file.
    """
    columns, name = COLUMNS[table], ", filename" if more else ""
    parts = []
    if pieces.lines:
        types = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
        parts.append(
            f"FROM read_json({_literals(pieces.lines)}, format = 'newline_delimited', columns = {{{types}}}, "
            f"ignore_errors = true, hive_partitioning = false{more})"
        )
    if pieces.segments:
        cast = ", ".join(f"TRY_CAST({name} AS {kind}) AS {name}" for name, kind in columns.items())
        parts.append(
            f"SELECT {cast}{name} FROM read_parquet({_literals(pieces.segments)}, union_by_name = true, "
            f"hive_partitioning = false{more})"
        )
    if not parts:
        empty = ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns.items())
        parts.append(f"SELECT {empty}{', NULL::VARCHAR AS filename' if more else ''} WHERE false")
    return " UNION ALL ".join(parts)


_SELECTED: Mapping[TableName | TotalsName, str] = {
    "messages": "SELECT * REPLACE (if(abs(arrived_s) <= 1e9, arrived_s, NULL) AS arrived_s) FROM {}",
    "metrics": "SELECT * REPLACE (if(isfinite(value), value, NULL) AS value) FROM {}",
    "events": "SELECT * FROM {}",
    "waits": "SELECT * REPLACE (if(abs(deadline_s) <= 1e9, deadline_s, NULL) AS deadline_s) FROM {}",
    "resources": "SELECT * FROM {}",
    "link_totals": "SELECT src, dst, fate, sum(messages)::BIGINT AS messages, sum(nbytes)::BIGINT AS nbytes "
    "FROM {} GROUP BY ALL",
    "round_totals": "SELECT kind, epoch, round, fate, sum(messages)::BIGINT AS messages, "
    "sum(nbytes)::BIGINT AS nbytes, max(until_s) AS until_s FROM {} GROUP BY ALL",
}
_EACH = "(SELECT *, 1 AS messages, coalesce(arrived_s, sent_s) AS until_s FROM messages)"
COUNTED: Mapping[TotalsName, str] = {totals: _SELECTED[totals].format(_EACH) for totals in TOTALS}
"""Queries that count the totals from the table `messages`, for a run that records every message."""
_FATES = f"split_part(fate, ':', 1) IN {tuple(fate.value for fate in FateKind)}"
_COUNTS = f"messages BETWEEN 1 AND {MOST_NBYTES} AND nbytes BETWEEN 0 AND {MOST_NBYTES} AND {_FATES}"
_SOUND: Mapping[TableName | TotalsName, str] = {
    "messages": f"src >= 0 AND src < {{n}} AND dst >= 0 AND dst < {{n}} AND abs(sent_s) <= {MOST_S} "
    f"AND nbytes BETWEEN 0 AND {MOST_NBYTES} AND kind IS NOT NULL "
    f"AND {_FATES} AND epoch >= 0 AND step >= 0 AND attempt >= 0",
    "metrics": f"(node IS NULL OR (node >= 0 AND node < {{n}})) AND abs(at_s) <= {MOST_S} AND name IS NOT NULL",
    "events": f"(node IS NULL OR (node >= 0 AND node < {{n}})) AND abs(at_s) <= {MOST_S} AND kind IS NOT NULL",
    "waits": f"node >= 0 AND node < {{n}} AND abs(since_s) <= {MOST_S} AND abs(until_s) <= {MOST_S} AND step >= 0 "
    "AND kind IS NOT NULL AND ended IS NOT NULL AND (last_src IS NULL OR (last_src >= 0 AND last_src < {n}))",
    "resources": f"(node IS NULL OR (node >= 0 AND node < {{n}})) AND abs(at_s) <= {MOST_S} AND process IS NOT NULL "
    f"AND cpu_s BETWEEN 0 AND {MOST_S} AND (memory_bytes IS NULL OR memory_bytes BETWEEN 0 AND {MOST_NBYTES}) "
    f"AND (gpu_bytes IS NULL OR gpu_bytes BETWEEN 0 AND {MOST_NBYTES})",
    "link_totals": f"src >= 0 AND src < {{n}} AND dst >= 0 AND dst < {{n}} AND {_COUNTS}",
    "round_totals": f"kind IS NOT NULL AND epoch >= 0 AND abs(until_s) <= {MOST_S} AND {_COUNTS}",
}


def quoted(text: str) -> str:
    """Return `text` as a literal in SQL."""
    return "'" + text.replace("'", "''") + "'"


def _literals(files: Sequence[Path]) -> str:
    return f"[{', '.join(quoted(literal_path(file)) for file in files)}]"
