"""Large tables of a finished run as Parquet files: a tenth of the bytes, and ten times as fast to read.

While a run goes on, its rows are JSON lines: a kill tears at most the last one, and writers need no library. When the
run has ended, each table with more than `LEAST_BYTES` of lines is rolled up into one Parquet file, a segment, which
pandas and polars can open:
1. every `messages-003.jsonl` becomes `messages-003.jsonl.1`;
2. the rows of all numbered files are written to `messages.1.part`, which becomes `messages.1.parquet`;
3. every `messages-*.jsonl.1` is removed.
A reader takes the segments, the lines, and numbered lines whose segment does not exist. So a kill at any point leaves
every row to be read once: before the end of step 2 from its numbered lines, afterwards from the segment. The next
roll-up completes the interrupted one. A resumed run begins new lines, and its next segment has number 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from netdfl.record.database import TABLES, TOTALS, RowFiles, TableName, TotalsName, connect, quoted, view

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LEAST_BYTES = 4 << 20
"""Tables with fewer bytes stay JSON lines: some 25,000 messages, which a query reads in hundredths of a second."""
_NUMBERED = re.compile(r".*\.jsonl\.(\d{1,9})")
_SEGMENT = re.compile(r"[a-z_]+\.(\d{1,9})\.parquet")


class _TableFiles(NamedTuple):
    """The files of one table.

    Attributes:
        segments: Parquet files, by number.
        rolling: numbered line files that are being converted to the segment with that number.
        lines: other line files.
    """

    segments: dict[int, Path]
    rolling: dict[int, list[Path]]
    lines: list[Path]


def _find(store: Path, table: TableName | TotalsName) -> _TableFiles:
    segments = {int(m[1]): file for file in store.glob(f"{table}.*.parquet") if (m := _SEGMENT.fullmatch(file.name))}
    rolling: dict[int, list[Path]] = {}
    for file in sorted(store.glob(f"{table}-*.jsonl.*")):
        if match := _NUMBERED.fullmatch(file.name):
            rolling.setdefault(int(match[1]), []).append(file)
    return _TableFiles(segments, rolling, sorted(store.glob(f"{table}-*.jsonl")))


def pieces(store: Path, table: TableName | TotalsName) -> RowFiles:
    """Return the files with a table's rows, so that each row is read once even after an interrupted conversion."""
    found = _find(store, table)
    left = [file for number, files in found.rolling.items() if number not in found.segments for file in files]
    return RowFiles([*found.lines, *sorted(left)], [found.segments[number] for number in sorted(found.segments)])


def has_rows(store: Path) -> bool:
    """Return whether the folder with a run's record has any row."""
    found = (pieces(store, table) for table in (*TABLES, *TOTALS))
    return any(each.segments or any(file.stat().st_size for file in each.lines) for each in found)


def roll_up(
    store: Path, num_nodes: int, least_bytes: int | None = None, database: DuckDBPyConnection | None = None
) -> None:
    """Convert each table in `store` that has at least `least_bytes` of JSON lines to a Parquet file (a segment).

    `store` is the folder with the record of a run of `num_nodes` nodes, to which no process may write any more.
    `database`, a connection opened by `connect`, is used if given.

    Raises:
        OSError: the disk refuses; no row is lost.
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
    """Convert numbered line files that have no segment, and remove those that have one."""
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
    rows = view(table, RowFiles(files, ()), num_nodes)
    try:
        database.execute(f"COPY ({rows}) TO {quoted(str(part))} (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)")
        part.rename(store / f"{table}.{number}.parquet")
    finally:
        part.unlink(missing_ok=True)


def size(of: RowFiles) -> int:
    """Return the approximate size of a table's rows as JSON lines, in bytes."""
    return _nbytes(of.lines) + SHRUNK * _nbytes(of.segments)


SHRUNK = 10
"""Rough ratio of the bytes of JSON lines to the bytes of the segment that is made of them."""


def _nbytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)
