"""The reader of tables as examples: choice of inputs, treatment of empty cells, and notices about both.

Tables are CSV and Parquet files, data frames of pandas or polars, and `datasets.Dataset` of Hugging Face. Rows are
counted from 0, as in `train[0]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from netdfl.core.errors import DatasetError
from netdfl.training.data.columns import NOTHING, Column, is_frame
from netdfl.training.data.dataset import Missing
from netdfl.training.data.examples import Examples, Samples, targets

_MOST_NAMED = 12


@dataclass(frozen=True)
class ColumnRequest:
    """A user's choice of columns in a table.

    Attributes:
        target: the column to predict; None: not named.
        inputs: the columns that it is predicted from; None: all other columns of numbers.
        missing: the treatment of empty cells.
        classes: the sorted class names of a text target, of training and test data together.
        settled_by: the name of the table whose columns of numbers are the `inputs`; empty: the user named them.
    """

    target: str | None
    inputs: Sequence[str] | None
    missing: Missing = "refuse"
    classes: Sequence[str] = ()
    settled_by: str = ""

    def settled(self, first: ReadExamples) -> ColumnRequest:
        """Return the request for all other tables: if the user named no inputs, the input columns of `first`."""
        if self.inputs is not None or not first.inputs:
            return self
        return replace(self, inputs=first.inputs, settled_by=first.name)

    def expected(self) -> str:
        """Return what a column that holds no numbers should hold instead, and a remedy, for error texts."""
        if not self.settled_by:
            return "expected numbers: encode it"
        return f"expected numbers, as {self.settled_by} has there: mend it, or set inputs"


@dataclass(frozen=True)
class ReadExamples:
    """Examples that were read from a user's data.

    Attributes:
        examples: the examples.
        rows: their indices in the data, if some rows are left out.
        notes: remarks for the user.
        columns: the columns of the table, by name.
        name: the name of the data in error texts.
        inputs: the names of the input columns of a table.
        kinds: the kind of each input tensor as given, such as bytes; empty for tables.
    """

    examples: Examples
    rows: NDArray[np.int64] | None = None
    notes: Sequence[str] = ()
    columns: Mapping[str, Column] = field(default_factory=dict)
    name: str = ""
    inputs: Sequence[str] = ()
    kinds: tuple[str, ...] = ()


def from_table(columns: Mapping[str, Column], asked: ColumnRequest, what: str) -> ReadExamples:
    """Return the examples of a table, with the target and inputs that the user chose (`asked`).

    Raises DatasetError for empty cells, and missing or non-numeric columns; its message calls the table `what`.
    """
    names = list(columns)
    target = target_of(asked, names, what)
    usual = [name for name in names if name != target and not columns[name].unlike]
    if not usual and asked.inputs is None:
        raise DatasetError(f"{what} has no column of numbers beside {target}: {_some(_left_out(columns, target, []))}")
    inputs = inputs_of(asked, usual, names, what)
    for name in (target, *inputs):
        if columns[name].unsure:
            raise DatasetError(f"{what}: the column {name!r} holds {columns[name].unsure}")
    for name in inputs:
        if columns[name].unlike:
            raise DatasetError(f"{what}: the column {name!r} holds {columns[name].unlike}, {asked.expected()}")
    rows = _kept(columns, target, inputs, asked.missing, what)
    x = np.stack([_filled(columns[name])[rows].astype(np.float32) for name in inputs], 1)
    y = columns[target].values[rows]
    if asked.classes:
        y = np.searchsorted(asked.classes, y.astype(str))
    y = y.astype(np.int64) if y.dtype.kind in "bu" else y
    whole = len(rows) == len(columns[target].values)
    unknown = [f"{word!r}" for word in asked.classes if word.strip().lower() in NOTHING]
    notes = [] if asked.inputs is not None else [_said(columns, target, inputs, what)]
    gone = len(columns[target].values) - len(rows)
    notes += [] if whole else [f"{what}: {gone} row{'s' * (gone > 1)} with empty cells left out"]
    if unknown:
        notes.append(
            f"{what}: {target} has the class {_some(unknown)}: where that says that nothing is known, leave it empty"
        )
    if asked.missing == "mean" and (filled := [name for name in inputs if columns[name].empty.any()]):
        notes.append(f"{what}: empty cells of {_some(filled)} have the mean of their column")
    return ReadExamples(
        Samples(torch.from_numpy(x), targets(y)), None if whole else rows, notes, columns, inputs=inputs
    )


def classes_in(tables: Mapping[str, Mapping[str, Column]], target: str | None) -> list[str]:
    """Return the sorted words of a text target over all tables, so that each class has the same number in all.

    Raises DatasetError if the target is words in some tables and numbers in others.
    """
    there = {what: table[target] for what, table in tables.items() if target is not None and target in table}
    columns = {what: column for what, column in there.items() if not column.empty.all()}
    words = [what for what, column in columns.items() if column.unlike]
    numbers = [what for what, column in columns.items() if not column.unlike]
    if words and numbers:
        told = f"the column {target!r} of {words[0]} holds {columns[words[0]].unlike}, and that of {numbers[0]} numbers"
        raise DatasetError(f"{told}: write the target alike in all tables")
    return sorted({str(cell) for what in words for cell in columns[what].values[~columns[what].empty]})


def in_one_order(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return `parts`, where data frames in pairs (inputs, targets) have their columns in the order of the first pair.

    Raises DatasetError for a data frame that does not have the same columns.
    """
    found, first = dict(parts), dict[int, tuple[str, list[Any]]]()
    for what, data in parts.items():
        if isinstance(data, tuple | list) and len(data) == 2 and any(map(is_frame, data)):
            found[what] = tuple(_ordered(each, first, place, what) for place, each in enumerate(data))
    return found


def _ordered(data: Any, first: dict[int, tuple[str, list[Any]]], place: int, what: str) -> Any:
    if not is_frame(data):
        return data
    whose, names = first.setdefault(place, (what, list(data.columns)))
    for one, other, there in ((what, whose, names), (whose, what, list(data.columns))):
        if lacking := [name for name in there if name not in (data.columns if one == what else names)]:
            raise DatasetError(f"{one} has no column {lacking[0]!r}, which {other} has: give both the same columns")
    return data[names]


def target_of(asked: ColumnRequest, names: Sequence[str], what: str) -> str:
    """Return the name of the column to predict: the user's choice in `asked`, one of the columns `names`.

    Raises DatasetError if there is none; its message calls the table `what`.
    """
    if asked.target in names:
        return str(asked.target)
    said = "names no column to predict" if asked.target is None else f"has no column {asked.target!r}"
    raise DatasetError(f"{what} {said}: set target to one of {', '.join(names)}")


def inputs_of(asked: ColumnRequest, usual: list[str], names: Sequence[str], what: str) -> list[str]:
    """Return the names of the input columns: the user's choice in `asked`, or else `usual`, all columns of numbers.

    Raises DatasetError for a name that is not in `names`; its message calls the table `what`.
    """
    inputs = usual if asked.inputs is None else list(asked.inputs)
    if missing := [name for name in inputs if name not in names]:
        if asked.settled_by:
            remedy = "add it, or set inputs to columns that all tables have"
            raise DatasetError(f"{what} has no column {missing[0]!r}, an input in {asked.settled_by}: {remedy}")
        raise DatasetError(f"{what} has no column {missing[0]!r}: set inputs to some of {', '.join(names)}")
    if not inputs:
        raise DatasetError(f"{what} has no column of numbers beside the target: set inputs")
    return inputs


def refuse_empty(empty: NDArray[np.bool_], name: str, what: str, remedy: str) -> None:
    """Raise DatasetError if a cell of a needed column, called `name`, is empty.

    `empty` marks the empty cells. The message names the data (`what`), the first such row, and a `remedy`.
    """
    if empty.any():
        first, many = int(empty.argmax()), int(empty.sum())
        more = f", and so are {many - 1} more of {len(empty)}" if many > 1 else ""
        raise DatasetError(f"{what}: row {first} (counted from 0) is empty in column {name!r}{more}: {remedy}")


def _kept(
    columns: Mapping[str, Column], target: str, inputs: Sequence[str], missing: Missing, what: str
) -> NDArray[np.int64]:
    """Return the indices of the rows to train on: all, or those without empty cells if `missing` is `drop`.

    Raises DatasetError for empty cells that are not permitted; its message calls the table `what`.
    """
    if missing == "drop":
        keep = ~np.logical_or.reduce([columns[name].empty for name in (target, *inputs)])
        if not keep.any():
            raise DatasetError(f"{what} has no row without an empty cell: leave columns out by inputs")
        return np.flatnonzero(keep)
    refuse_empty(columns[target].empty, target, what, "fill it, or set missing: drop")
    for name in inputs if missing == "refuse" else ():
        remedy = "fill it, leave the column out by inputs, or set missing: drop (such rows) or mean (of the column)"
        refuse_empty(columns[name].empty, name, what, remedy)
    return np.arange(len(columns[target].values))


def _filled(column: Column) -> NDArray[Any]:
    """Return the column's numbers, with their mean in empty cells."""
    if not column.empty.any():
        return column.values
    present = column.values[~column.empty]
    return np.where(column.empty, present.astype(np.float64).mean() if len(present) else 0.0, column.values)


def _said(columns: Mapping[str, Column], target: str, inputs: Sequence[str], what: str) -> str:
    out = _left_out(columns, target, inputs)
    return f"{what}: {target} is predicted from {_some(inputs)}" + (f"; left out: {_some(out)}" if out else "")


def _left_out(columns: Mapping[str, Column], target: str, inputs: Sequence[str]) -> list[str]:
    return [f"{name} ({columns[name].unlike})" for name in columns if name != target and name not in inputs]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
