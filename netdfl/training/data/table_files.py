"""The reader of tables in files: CSV in the forms in which people have it, and Parquet."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from netdfl.core.errors import DatasetError
from netdfl.core.files import literal_path
from netdfl.core.given_files import UTF16_MARKS, ending_of, given_text

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
            return Columns(relation.fetchnumpy(), Path(file).name, as_text=is_text)
    except duckdb.Error as error:
        raise DatasetError(f"{file} can't be read as a table: {' '.join(str(error).split())[:400]}") from error


def _read_csv(file: str, target: str) -> Any:
    """Read a CSV file by DuckDB, with the delimiter of its first line, so `1,5;2,5` is two numbers with commas.

    If the column name `target` is in this line, it is taken as the header; else DuckDB decides.
    """
    import duckdb

    with (gzip.open if file.lower().endswith(".gz") else open)(file, "rb") as stream:
        head = stream.read(_HEAD).decode("utf-8-sig", errors="replace")
    lines = head.splitlines()
    blank = next((place for place, line in enumerate(lines) if line.strip()), 0)
    first = lines[blank] if lines else ""
    mark = max(_MARKS, key=re.sub(r'"[^"]*"', "", first).count)
    known = {"delimiter": mark} if mark in first else {}
    header = {"header": True} if target in next(csv.reader([first], delimiter=mark), ()) else {}
    # short rows have empty cells; beside line breaks in quotes DuckDB pads them only where it does not read in parallel
    plain = {"sample_size": -1, "skiprows": blank, "null_padding": True, "parallel": False, "hive_partitioning": False}
    return duckdb.read_csv(literal_path(file), **plain, **known, **header)


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
