"""A run's tables as files that other programs read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from netdfl.core.errors import InputError
from netdfl.record.database import TABLES, TableName, quoted
from netdfl.record.run import Run

ExportFormat: TypeAlias = Literal["csv", "jsonl", "parquet"]

_OPTIONS: Mapping[ExportFormat, str] = {
    "csv": "FORMAT csv, HEADER true",
    "jsonl": "FORMAT json, ARRAY false",
    "parquet": "FORMAT parquet",
}
ORDER: Mapping[TableName, str] = {
    "messages": "sent_s, src, dst, round, step, attempt",
    "metrics": "at_s, node NULLS FIRST, round, name",
    "events": "at_s, node NULLS FIRST, round, kind",
    "waits": "until_s, node, round, step",
}


def export(run: Run, table: TableName, format: ExportFormat, out: Path | str) -> Path:
    """Write one table, in order of time, to the file `out`, and return its path.

    Raises:
        InputError: no such table or format, or `out` can't be written.
    """
    for given, known, what in ((table, TABLES, "table"), (format, get_args(ExportFormat), "format")):
        if given not in known:
            raise InputError(f"{given!r} is no {what} of a run; choose one of {', '.join(known)}")
    import duckdb

    target = Path(out).absolute()
    options = f"{_OPTIONS[format]}, USE_TMP_FILE false"
    try:
        run.copy(f"COPY (FROM {table} ORDER BY {ORDER[table]}) TO {quoted(str(target))} ({options})", target)
    except duckdb.Error as exc:
        raise InputError(f"{out} can't be written: {str(exc).splitlines()[0]}") from exc
    return Path(out)
