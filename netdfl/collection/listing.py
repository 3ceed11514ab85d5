"""The list of the runs in a folder: filtered, sorted, and grouped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdfl.collection.filters import Filter, Names, as_number
from netdfl.collection.finding import runs_below
from netdfl.collection.keys import NOT_GROUPED
from netdfl.collection.rows import DURATIONS, RunRow, Value, metric_names, read_rows
from netdfl.collection.varied import varied
from netdfl.core.errors import InputError

COUNTED = ("accuracy", "loss", "error", "nbytes", *DURATIONS)
"""The columns of the list of runs, such as accuracy, of which a group of runs shows the mean."""
MOST_OWN = 3
"""The most metrics of tasks, such as `test_mae`, that a list shows as columns, unless others are chosen."""

IN_COLUMNS = ("algorithm.name", "world.kind", "nodes", "rounds")
"""Keys of scenarios that a row of the list has as columns anyway."""
MOST_KEYS = 4
"""The most keys with differing values that a list shows as columns, unless others are chosen."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A request for a list of runs.

    Attributes:
        filter: conditions and words that the runs must meet, as people type them.
        sort: the column or key by which the runs are sorted.
        down: sort the largest, or newest, first.
        by: the column or key by which the runs are grouped; empty for no groups.
        archived: list archived runs, too.
        columns: the columns and keys to show; empty for the usual ones. For groups, the figures whose means are shown.
    """

    filter: str = ""
    sort: str = "started"
    down: bool = True
    by: str = ""
    archived: bool = False
    columns: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """The runs with the same value of the key `by`: their number, verdicts, and the means of `figures`."""

    value: str
    rows: Sequence[RunRow]
    figures: Sequence[str] = COUNTED
    by: str = ""

    def mean(self, figure: str) -> float | None:
        """Return the mean of the column `figure`, such as accuracy, over the runs that have it; None where none has."""
        found = [value for row in self.rows if isinstance(value := row.value(figure), int | float)]
        return sum(found) / len(found) if found else None

    @property
    def verdicts(self) -> dict[str, int]:
        """The number of runs of each verdict."""
        told = [row.verdict for row in self.rows]
        return {verdict: told.count(verdict) for verdict in sorted(set(told))}

    @property
    def differ(self) -> Sequence[str]:
        """The keys in which the runs differ, so that a mean is over runs of several values of each."""
        return varied([row.keys for row in self.rows if row.keys], ("name", self.by)).telling

    def to_json(self) -> dict[str, Any]:
        """Return the group as JSON data, for a page or another program."""
        means = {figure: self.mean(figure) for figure in self.figures}
        known = {"value": self.value, "runs": len(self.rows), "verdicts": self.verdicts, "differ": list(self.differ)}
        return {**known, **means}


@dataclass(frozen=True, slots=True)
class RunList:
    """The runs that were asked for, in order.

    Attributes:
        rows: the rows of these runs.
        total: the number of all runs in the folder.
        num_archived: the number of archived runs that are left out.
        keys: the keys in which the scenarios of these runs differ, those with the most values first.
        implied: the differing keys that only the value of another key brings in, such as parameters of one algorithm.
        by: the full name of the column or key by which the runs are grouped; empty for no groups.
        columns: the full names of the columns and keys that were asked for; empty for the usual ones.
        metrics: the metrics that these runs have beside the columns, metrics of tasks first.
        hint: what the filter may have meant, if it selects no run; empty otherwise.
    """

    rows: Sequence[RunRow]
    total: int
    num_archived: int
    keys: Sequence[str]
    implied: Sequence[str] = ()
    by: str = ""
    columns: Sequence[str] = ()
    metrics: Sequence[str] = ()
    hint: str = ""

    @property
    def own_metrics(self) -> Sequence[str]:
        """The metrics of tasks that are columns unless others are chosen."""
        return [name for name in self.metrics if name.startswith("test_")][:MOST_OWN]

    @property
    def usual_keys(self) -> Sequence[str]:
        """The differing keys that are columns unless others are chosen."""
        return self.keys[:MOST_KEYS]

    def groups(self) -> list[Group]:
        """Return the groups, in the order of their values."""
        found: dict[str, list[RunRow]] = {}
        for row in self.rows:
            for value in _values(row, self.by):
                found.setdefault(value, []).append(row)
        figures = [*COUNTED, *self.metrics]
        return [Group(value, found[value], figures, self.by) for value in sorted(found, key=_order)]


def _values(row: RunRow, column: str) -> Iterator[str]:
    if column == "tags":
        yield from row.tags or ("–",)
        return
    value = row.value(column)
    yield "–" if value is None or value == "" else str(value)


def list_runs(root: Path, asked: ListRequest) -> RunList:
    """Return the list of the runs at or below `root` that the request `asked` selects.

    Raises InputError if the filter or a key does not fit the runs.
    """
    return select(read_rows(runs_below(root), root), asked)


def select(rows: Sequence[RunRow], asked: ListRequest) -> RunList:
    """Return the rows that the request `asked` selects, in its order.

    Raises InputError if its filter or a key does not fit the rows.
    """
    kept = [row for row in rows if asked.archived or not row.labels.archived]
    wanted = Filter.parse(asked.filter)
    chosen = wanted.chosen(kept)
    names = Names(kept)
    sort = names.whole(asked.sort) if kept else asked.sort
    by = names.whole(asked.by) if asked.by and kept else asked.by
    columns = [names.whole(each) if kept else each for each in asked.columns]
    for column in columns if by else ():
        if column not in (*COUNTED, *metric_names(kept)):
            raise InputError(f"groups have means of figures alone, and {column} is none; leave it out of the columns")
    keys, implied = varied([row.keys for row in chosen if row.keys], (*NOT_GROUPED, *IN_COLUMNS))
    ordered = in_order(chosen, sort, asked.down)
    hint = "" if chosen else wanted.hint(kept)
    return RunList(ordered, len(rows), len(rows) - len(kept), keys, implied, by, columns, metric_names(chosen), hint)


def in_order(rows: Sequence[RunRow], column: str, down: bool) -> list[RunRow]:
    """Return the rows sorted by a column, numbers by their size; rows without a value come last."""
    having = [row for row in rows if row.value(column) not in (None, "")]
    having.sort(key=lambda row: (_order(row.value(column)), row.place), reverse=down)
    return having + [row for row in rows if row.value(column) in (None, "")]


def _order(value: Value) -> tuple[bool, float, str]:
    number = as_number(str(value))
    return (number is None, 0.0 if number is None else number.value, str(value))
