"""The database that reads a run's tables: it opens the files of that run's store and nothing else.

A run directory may come from anybody. What stands in its files reaches a query as a typed parameter, never as
text; and should text of theirs become SQL all the same, it can't open other files, load extensions or undo this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from netdfl.core.fates import Fate

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TableName: TypeAlias = Literal["messages", "metrics", "events", "waits"]
TABLES: Sequence[TableName] = get_args(TableName)

COLUMNS: Mapping[TableName, Mapping[str, str]] = {
    "messages": {
        "src": "INTEGER",
        "dst": "INTEGER",
        "kind": "VARCHAR",
        "epoch": "INTEGER",
        "round": "INTEGER",
        "step": "INTEGER",
        "attempt": "INTEGER",
        "nbytes": "BIGINT",
        "sent_s": "DOUBLE",
        "arrived_s": "DOUBLE",
        "fate": "VARCHAR",
    },
    "metrics": {"at_s": "DOUBLE", "node": "INTEGER", "round": "INTEGER", "name": "VARCHAR", "value": "DOUBLE"},
    "events": {"at_s": "DOUBLE", "node": "INTEGER", "round": "INTEGER", "kind": "VARCHAR", "details": "JSON"},
    "waits": {
        "node": "INTEGER",
        "round": "INTEGER",
        "step": "INTEGER",
        "kind": "VARCHAR",
        "since_s": "DOUBLE",
        "until_s": "DOUBLE",
        "deadline_s": "DOUBLE",
        "ended": "VARCHAR",
        "last_src": "INTEGER",
        "missing": "JSON",
    },
}

MOST_NODES = 1_000_001
"""As many as a scenario may have, with a server."""
MOST_S = 1e9
MOST_NBYTES = 1 << 50
_LOCKED = ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access")


def connect(store: Path, writes: Path | None = None) -> DuckDBPyConnection:
    """Open an empty database that may read the folder `store`, and write the file `writes`, and no other."""
    import duckdb

    database = duckdb.connect()
    database.execute(f"SET allowed_directories = [{quoted(str(store))}, {_literal(store)}]")
    if writes is not None:
        database.execute(f"SET allowed_paths = [{quoted(str(writes))}]")
    for option in _LOCKED:
        database.execute(f"SET {option} = false")
    database.execute("SET enable_progress_bar = false")  # of a slow query: it would stand amid what a command prints
    database.execute("SET lock_configuration = true")
    return database


def view(table: TableName, files: Iterable[Path], num_nodes: int) -> str:
    """The query whose rows are the table's: those of `files` that are whole, and of nodes below `num_nodes`.

    A torn line is read as a row of nulls; so is a number that its column can't hold.
    """
    columns, paths = COLUMNS[table], ", ".join(_literal(file) for file in files)
    if not paths:
        return "SELECT " + ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns.items()) + " WHERE false"
    types = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
    read = f"read_json([{paths}], format = 'newline_delimited', columns = {{{types}}}, ignore_errors = true)"
    sound = _SOUND[table].format(n=num_nodes)
    return f"SELECT {_SELECTED[table]} FROM {read} WHERE round IS NOT NULL AND {sound}"


_SELECTED: Mapping[TableName, str] = {
    "messages": "* REPLACE (if(abs(arrived_s) <= 1e9, arrived_s, NULL) AS arrived_s)",
    "metrics": "* REPLACE (if(isfinite(value), value, NULL) AS value)",
    "events": "*",
    "waits": "* REPLACE (if(abs(deadline_s) <= 1e9, deadline_s, NULL) AS deadline_s)",
}
_SOUND: Mapping[TableName, str] = {
    "messages": f"src >= 0 AND src < {{n}} AND dst >= 0 AND dst < {{n}} AND abs(sent_s) <= {MOST_S} "
    f"AND nbytes BETWEEN 0 AND {MOST_NBYTES} AND kind IS NOT NULL "
    f"AND split_part(fate, ':', 1) IN {tuple(fate.value for fate in Fate)} "
    "AND epoch >= 0 AND step >= 0 AND attempt >= 0",
    "metrics": f"(node IS NULL OR (node >= 0 AND node < {{n}})) AND abs(at_s) <= {MOST_S} AND name IS NOT NULL",
    "events": f"(node IS NULL OR (node >= 0 AND node < {{n}})) AND abs(at_s) <= {MOST_S} AND kind IS NOT NULL",
    "waits": f"node >= 0 AND node < {{n}} AND abs(since_s) <= {MOST_S} AND abs(until_s) <= {MOST_S} AND step >= 0 "
    "AND kind IS NOT NULL AND ended IS NOT NULL AND (last_src IS NULL OR (last_src >= 0 AND last_src < {n}))",
}


def quoted(text: str) -> str:
    """A literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _literal(file: Path) -> str:
    """A path as a literal, with the characters of a glob pattern taken as they are."""
    return quoted(str(file).replace("[", "[[]").replace("*", "[*]").replace("?", "[?]"))
