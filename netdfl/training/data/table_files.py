"""The reader of tables in files: CSV in the forms in which people have it, and Parquet."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from netdfl.core.errors import DatasetError
from netdfl.core.files import literal_path
from netdfl.core.given_files import UTF16_MARKS, ending_of, given_bytes, given_text

if TYPE_CHECKING:
    from netdfl.training.data.columns import Columns

_MARKS, _HEAD = ",;\t|", 1 << 16


def read_table(file: str, target: str) -> Columns:
    """Read a CSV or Parquet file. Raises DatasetError.

    If the column name `target` is in the first line of a CSV file, this line is taken as the header.
    """
    import duckdb

    from netdfl.training.data.columns import Columns

    is_text = ending_of(file) != ".parquet"
    try:
        with _in_utf8(file) as plain:
            relation = (
                _read_csv(plain, target)
                if is_text
                else duckdb.read_parquet(literal_path(file), hive_partitioning=False)
            )
            found = Columns(relation.fetchnumpy(), Path(file).name, as_text=is_text)
    except (duckdb.Error, ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        known = _mistake(file) if is_text else ""
        raise DatasetError(known or f"{file} can't be read as a table: {' '.join(str(error).split())[:400]}") from error
    if not any(len(values) for values in found.by_name.values()):
        below, known = (", below a line with the columns' names", _mistake(file)) if is_text else ("", "")
        raise DatasetError(known or f"{file} has no rows: give it one for each example{below}")
    return found


def _read_csv(file: str, target: str) -> Any:
    """Read a CSV file by DuckDB, with the delimiter of its first line, so `1,5;2,5` is two numbers with commas.

    If the column name `target` is in this line, it is taken as the header; else DuckDB decides.
    """
    import duckdb

    with (gzip.open if file.lower().endswith(".gz") else open)(file, "rb") as stream:
        head = stream.read(_HEAD).decode("utf-8-sig", errors="replace")
    blank, first, mark = _first_line(head)
    known = {"delimiter": mark} if mark in first else {}
    header = {"header": True} if target in next(csv.reader([first], delimiter=mark), ()) else {}
    # short rows have empty cells; beside line breaks in quotes DuckDB pads them only where it does not read in parallel
    plain = {"sample_size": -1, "skiprows": blank, "null_padding": True, "parallel": False, "hive_partitioning": False}
    return duckdb.read_csv(literal_path(file), **plain, **known, **header)


def _first_line(text: str) -> tuple[int, str, str]:
    """Return the number of blank lines before the first other one, this line, and its most likely delimiter."""
    lines = text.splitlines()
    blank = next((place for place, line in enumerate(lines) if line.strip()), len(lines))
    first = lines[blank] if blank < len(lines) else ""
    return blank, first, max(_MARKS, key=re.sub(r'"[^"]*"', "", first).count)


def _mistake(file: str) -> str:
    """Return a sentence on what keeps a CSV file from being read, with its place and a remedy; empty if unknown."""
    try:
        content = given_bytes(file)
        if b"\0" in content and not content.startswith(UTF16_MARKS):
            return f"{file} is no text: save the table as CSV in UTF-8, or as Parquet"
        text = given_text(file)
    except ValueError as error:
        return str(error)
    _, first, mark = _first_line(text[:_HEAD])
    rows = csv.reader(StringIO(text), delimiter=mark)
    with suppress(csv.Error):
        width = len(next(csv.reader([first], delimiter=mark), ()))
        for row in rows:
            if len(row) > width:
                return (
                    f"{file}: line {rows.line_num} has {len(row)} cells, and the first line {width}: "
                    f"put cells that hold {mark!r} in quotes"
                )
    return ""


@contextmanager
def _in_utf8(file: str) -> Iterator[str]:
    """Yield the file itself, or a UTF-8 copy if it is in UTF-16, which DuckDB can't read."""
    with open(file, "rb") as stream:
        if stream.read(2) not in UTF16_MARKS:
            yield file
            return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / Path(file).name
        copy.write_text(given_text(file), encoding="utf-8")
        yield str(copy)
