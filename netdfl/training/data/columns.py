"""Columns of tables with masks of their empty cells, from files, data frames, and Hugging Face datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOTHING = frozenset(("", "?", "-", "--", "na", "n/a", "#n/a", "nan", "null", "none", "nil"))
"""Texts, in lower case, that stand for an unknown number."""
_WHOLE = re.compile(r"\s*[+-]?\d{1,18}\s*")
_POINT = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?inf(inity)?\s*", re.IGNORECASE)
_COMMA = re.compile(r"\s*[+-]?(\d+(,\d*)?|,\d+|\d{1,3}(\.\d{3})+,\d+)([eE][+-]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")
_NUMBERS = (Real, Decimal, np.bool_)


@dataclass(frozen=True)
class Columns:
    """A table that was read from a file.

    Attributes:
        by_name: the array of each column, masked at empty cells.
        file: the path.
        as_text: whether numbers are in the file as text, as in CSV.
    """

    by_name: Mapping[str, Any]
    file: str
    as_text: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.by_name.values()), ()))


@dataclass(frozen=True)
class Column:
    """The cells of one column of a table.

    Attributes:
        values: the cells; undefined where they are empty.
        empty: whether each cell is empty.
        unlike: the reason why the cells are no numbers; empty for numbers.
        unsure: the reason why numbers are ambiguous; empty if they are not.
    """

    values: NDArray[Any]
    empty: NDArray[np.bool_]
    unlike: str = ""
    unsure: str = ""

    def only(self, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        """Return the values in the given rows, or in all if `rows` is None; masked at empty cells."""
        values, empty = (self.values, self.empty) if rows is None else (self.values[rows], self.empty[rows])
        return np.ma.masked_array(values, empty) if empty.any() else values


def is_frame(data: Any) -> bool:
    """Return whether `data` is a table of pandas or polars."""
    return hasattr(data, "columns") and hasattr(data, "dtypes") and hasattr(data, "__getitem__")


def is_hugging_face(data: Any) -> bool:
    """Return whether `data` is a `datasets.Dataset`."""
    return hasattr(data, "column_names") and hasattr(data, "features")


def columns_of(data: Any) -> dict[str, Column]:
    """Return the columns of a table by name; only scalar ones of a `datasets.Dataset`; none for other data."""
    if isinstance(data, Columns):
        return _of_file(data)
    if is_frame(data):
        return {str(name): _of_frame(data[name]) for name in data.columns}
    if is_hugging_face(data):
        return {name: _listed(data[name]) for name in data.column_names if is_scalar(shown(data, name))}
    return {}


def of_array(found: Any) -> Column:
    """Convert an array, which may be masked, to a `Column`."""
    return _column(np.ma.getdata(found), np.ma.getmaskarray(found))


def _of_frame(found: Any) -> Column:
    """Return the column of a data frame's series.

    With empty cells it is built from the single values, because numpy would turn whole numbers into real ones.
    """
    nothing = getattr(found, "isna", None) or getattr(found, "is_null", None)  # pandas, polars
    empty = np.zeros(len(found), np.bool_) if nothing is None else np.asarray(nothing(), np.bool_)
    return _column(_objects(found.to_list()) if empty.any() else np.asarray(found), empty)


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    found = np.empty(len(values), object)
    found[:] = list(values)
    return found


def _column(values: NDArray[Any], empty: NDArray[np.bool_]) -> Column:
    """Create a column from values: numbers, which may be Python objects, or anything else."""
    if values.ndim > 1:
        return Column(values, empty, f"arrays of shape {values.shape[1:]}")
    if values.dtype.kind == "f":
        empty = empty | np.isnan(values)
    if values.dtype.kind in "biuf":
        return Column(values, empty) if not empty.all() else Column(values, empty, "nothing in any row")
    if values.dtype.kind == "O":
        empty = empty | np.array([each is None or (isinstance(each, float) and each != each) for each in values], bool)
    if empty.all():
        return Column(values, empty, "nothing in any row")
    odd = next((row for row, cell in enumerate(values) if not empty[row] and not _is_number(cell)), None)
    if odd is not None:
        return Column(values, empty, f"{_kind(values[odd])}, {str(values[odd])!r:.40} in row {odd}")
    present = np.asarray(values[~empty].tolist())
    return Column(_spread(present if present.dtype.kind in "biuf" else present.astype(np.float64), empty), empty)


def _spread(present: NDArray[Any], empty: NDArray[np.bool_]) -> NDArray[Any]:
    values = np.zeros(len(empty), present.dtype)
    values[~empty] = present
    return values


def _is_number(cell: Any) -> bool:
    return isinstance(cell, _NUMBERS) and not isinstance(cell, np.timedelta64)


def _kind(value: Any) -> str:
    if isinstance(value, str | bytes):
        return "text"
    if isinstance(value, np.timedelta64 | timedelta):
        return "durations"
    return "dates" if isinstance(value, np.datetime64) or hasattr(value, "isoformat") else type(value).__name__


def shown(data: Any, name: str) -> Any:
    """Return the first non-empty value in a column of a `datasets.Dataset`; None if all are empty."""
    return next((value for row in range(len(data)) if (value := data[row][name]) is not None), None)


def is_scalar(value: Any) -> bool:
    """Return whether a cell is empty or holds a single number or word."""
    return value is None or isinstance(value, str | int | float)


def _listed(found: Sequence[Any]) -> Column:
    values = _objects(found)
    return _column(values, np.zeros(len(values), np.bool_))


def _of_file(data: Columns) -> dict[str, Column]:
    """Return the columns of a file; text columns of a CSV file are read as numbers if they are numbers."""
    found = {name: of_array(values) for name, values in data.by_name.items()}
    if not data.as_text:
        return found
    texts = {name: column for name, column in found.items() if _is_text(column)}
    by_comma = any(_decimal_comma(column) for column in texts.values())
    return found | {name: _read_text(column, by_comma) for name, column in texts.items()}


def _is_text(column: Column) -> bool:
    return column.values.dtype.kind in "OUT" and bool(column.unlike) and not column.empty.all()


def _words(column: Column) -> list[str]:
    """Return the distinct texts in the cells, without texts that stand for unknown values."""
    return [word for word in dict.fromkeys(map(str, column.values[~column.empty])) if not _says_nothing(word)]


def _says_nothing(word: str) -> bool:
    return word.strip().lower() in NOTHING


def _decimal_comma(column: Column) -> bool:
    """Return whether a column proves that its file has decimal commas.

    All its cells are numbers if a comma is the decimal mark, and in one of them it can't separate thousands.
    """
    words = _words(column)
    commas = [word for word in words if "," in word]
    return all(_COMMA.fullmatch(word) for word in words) and any(not _THOUSANDS.fullmatch(word) for word in commas)


def _read_text(column: Column, by_comma: bool) -> Column:
    """Read a text column as numbers; return the column itself if a cell is anything else.

    `by_comma` says that a column of the file proves decimal commas. Without that, a column with commas is unsure:
    `1,234` may be a thousand or one.
    """
    words = _words(column)
    pointed = all(_POINT.fullmatch(word) for word in words)
    if not words or not (pointed or all(_COMMA.fullmatch(word) for word in words)):
        return column if not words else replace(column, unlike=_odd(column, words))
    unsure = ""
    if not pointed and not by_comma:
        odd = next(word for word in words if "," in word)
        unsure = f"{odd!r}, which may be {odd.replace(',', '')} or {odd.replace(',', '.')}"
        unsure += ": write numbers with a decimal point, and thousands without a mark"
    empty = column.empty | np.array([_says_nothing(str(cell)) for cell in column.values], bool)
    number = int if all(_WHOLE.fullmatch(word) for word in words) else float
    plain = [str(cell) if pointed else str(cell).replace(".", "").replace(",", ".") for cell in column.values[~empty]]
    present = np.array([number(cell) for cell in plain])
    return Column(_spread(present, empty), empty, unsure=unsure)


def _odd(column: Column, words: Sequence[str]) -> str:
    """Describe the first cell that is not a number, with its row; `words` are the column's distinct texts."""
    word = next(word for word in words if not _POINT.fullmatch(word))
    row = next(row for row, cell in enumerate(column.values) if not column.empty[row] and str(cell) == word)
    return f"text, {word!r:.40} in row {row}"
