"""Large tables of a finished run as Parquet: a tenth of the bytes, and read in a tenth of the time.

While a run goes on its rows are JSON lines, which a kill tears at the last at most and whose writers need no library.
When it has ended, each table with more than `LEAST_BYTES` of lines is rolled up into one Parquet file, a segment, that
pandas and polars open as it is:

1. every `messages-003.jsonl` becomes `messages-003.jsonl.1`;
2. the rows of all of these are written to `messages.1.part`, which becomes `messages.1.parquet`;
3. every `messages-*.jsonl.1` is removed.

A reader takes the segments, the lines, and numbered lines whose segment is not there. So wherever this is killed, every
row is read once: before 2 ends it is in its numbered lines, afterwards in the segment. The next roll completes what was
begun. A run that is resumed begins new lines, and its next segment is number 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from netdfl.record.database import TABLES, TOTALS, Pieces, TableName, TotalsName, connect, quoted, view

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LEAST_BYTES = 4 << 20
"""Smaller tables stay lines: some 25,000 messages, which a query reads in a few hundredths of a second."""
_NUMBERED = re.compile(r".*\.jsonl\.(\d{1,9})")
_SEGMENT = re.compile(r"[a-z_]+\.(\d{1,9})\.parquet")


class _Found(NamedTuple):
    """The files of a table: by their numbers segments and lines that are being rolled up, and other lines."""

    segments: dict[int, Path]
    rolling: dict[int, list[Path]]
    lines: list[Path]


def _find(store: Path, table: TableName | TotalsName) -> _Found:
    segments = {int(m[1]): file for file in store.glob(f"{table}.*.parquet") if (m := _SEGMENT.fullmatch(file.name))}
    rolling: dict[int, list[Path]] = {}
    for file in sorted(store.glob(f"{table}-*.jsonl.*")):
        if match := _NUMBERED.fullmatch(file.name):
            rolling.setdefault(int(match[1]), []).append(file)
    return _Found(segments, rolling, sorted(store.glob(f"{table}-*.jsonl")))


def pieces(store: Path, table: TableName | TotalsName) -> Pieces:
    """The files that hold a table's rows, each row once."""
    found = _find(store, table)
    left = [file for number, files in found.rolling.items() if number not in found.segments for file in files]
    return Pieces([*found.lines, *sorted(left)], [found.segments[number] for number in sorted(found.segments)])


def roll_up(
    store: Path, num_nodes: int, least_bytes: int | None = None, database: DuckDBPyConnection | None = None
) -> None:
    """Make segments of what lies in `store`, of tables with `least_bytes`; nobody may write there any more.

    It is done by `database`, one of `connect`, where there is one already.

    Raises:
        OSError: the disk refuses it; every row is still there.
        duckdb.Error: the same.
    """
    least_bytes = LEAST_BYTES if least_bytes is None else least_bytes
    with nullcontext(database) if database is not None else connect(store) as opened:
        for table in (*TABLES, *TOTALS):
            _complete(opened, store, table, num_nodes)
            found = _find(store, table)
            if _nbytes(found.lines) >= least_bytes:
                number = 1 + max([0, *found.segments])
                for file in found.lines:
                    file.rename(file.with_name(f"{file.name}.{number}"))
                _complete(opened, store, table, num_nodes)


def _complete(database: DuckDBPyConnection, store: Path, table: TableName | TotalsName, num_nodes: int) -> None:
    """Roll up the lines that have a number, and remove those that were."""
    found = _find(store, table)
    for number, files in found.rolling.items():
        if number not in found.segments:
            _write(database, store, table, number, files, num_nodes)
        for file in files:
            file.unlink()


def _write(
    database: DuckDBPyConnection,
    store: Path,
    table: TableName | TotalsName,
    number: int,
    files: Sequence[Path],
    num_nodes: int,
) -> None:
    part = store / f"{table}.{number}.part"
    rows = view(table, Pieces(files, ()), num_nodes)
    try:
        database.execute(f"COPY ({rows}) TO {quoted(str(part))} (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)")
        part.rename(store / f"{table}.{number}.parquet")
    finally:
        part.unlink(missing_ok=True)


def size(of: Pieces) -> int:
    """The bytes of its rows as lines, about."""
    return _nbytes(of.lines) + SHRUNK * _nbytes(of.segments)


SHRUNK = 10
"""How many times smaller a segment is, about."""


def _nbytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)
