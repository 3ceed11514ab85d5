"""A folder of runs as a server shows it: each run has a name in its page's address."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from pydantic_core import to_json

from netdfl.collection.filters import Names
from netdfl.collection.finding import check_folder, is_run, runs_below
from netdfl.collection.labels import read_labels, write_labels
from netdfl.collection.listing import ListRequest, select
from netdfl.collection.rows import COLUMNS, RunRow, read_rows
from netdfl.collection.trash import throw_away
from netdfl.core.errors import InputError
from netdfl.record.directory import is_held
from netdfl.web.many import compare
from netdfl.web.orders import LabelOrder
from netdfl.web.tables import find_tables

ON_A_PAGE = 50
"""The number of runs, or of groups of runs, that the list shows on one page."""
MOST_CHOSEN = 200
"""The most columns that a request for a page of the list can choose."""


def _whole(rows: Sequence[RunRow], columns: Sequence[str]) -> dict[str, str]:
    """Return the full name of each of `columns` that some row has, without the columns that a row has anyway."""
    wanted = [column for column in columns if column not in COLUMNS][:MOST_CHOSEN]
    names, found = Names(rows if wanted else ()), {}
    for column in wanted:
        with suppress(InputError):
            found[column] = names.whole(column)
    return found


class RunFolder:
    """The runs that a server shows: one run, or all runs at any depth of a folder; symbolic links are not followed."""

    def __init__(self, root: Path) -> None:
        """Serve `root`. Raises InputError if there is no such folder."""
        self.root = check_folder(root)
        self._paths: dict[str, Path] = {}
        self.only = self.name_of(self.root) if is_run(self.root) else None
        self._look()

    def find(self, name: str) -> Path | None:
        """Return the directory of the run that pages call `name`; None if there is none."""
        if name not in self._paths:
            self._look()
        path = self._paths.get(name)
        return path if path is not None and is_run(path) else None

    def going_on(self) -> list[tuple[str, Path]]:
        """Return the runs that are still running, each as its path in the folder and its directory.

        If a single run is served, that run is returned even after its end.
        """
        self._look()
        if self.only is not None:
            return [(self.root.name, self.root)]
        return [(self.place_of(path), path) for path in self._paths.values() if is_held(path)]

    def listed(self, asked: ListRequest = ListRequest(), skip: int = 0) -> bytes:  # noqa: B008 - a frozen value
        """Return one page of the list of runs as JSON: the rows or groups from index `skip` on.

        The answer also has the columns and keys that can be chosen. If the filter in `asked` can't be read, the answer
        has the reason and the whole list. A column in `asked` that no run has is left empty.
        """
        self._look()
        rows, wrong = read_rows(self._paths.values(), self.root), ""
        chosen, asked = _whole(rows, asked.columns), replace(asked, columns=())
        try:
            found = select(rows, asked)
        except InputError as error:
            found, wrong = select(rows, ListRequest(archived=asked.archived)), str(error)
        groups = found.groups() if found.by else []
        keys = [*found.keys, *found.implied]
        shown = {**{key: key for key in keys}, **chosen}
        return to_json(
            {
                "runs": [] if found.by else [self._row(row, shown) for row in found.rows[skip : skip + ON_A_PAGE]],
                "groups": [
                    {**group.to_json(), "ids": [self.name_of(row.path) for row in group.rows[:ON_A_PAGE]]}
                    for group in groups[skip : skip + ON_A_PAGE]
                ],
                "ids": [self.name_of(row.path) for row in found.rows[: 2 * ON_A_PAGE]],
                "by": found.by,
                "found": len(groups) if found.by else len(found.rows),
                "total": found.total,
                "archived": found.num_archived,
                "columns": [name for name in COLUMNS if any(row.value(name) not in (None, "") for row in found.rows)],
                "metrics": found.metrics,
                "usual_metrics": found.own_metrics,
                "keys": keys,
                "usual_keys": found.usual_keys,
                "further_keys": found.keys[len(found.usual_keys) :],
                "all_keys": sorted({key for row in rows for key in row.keys}),
                "on_a_page": ON_A_PAGE,
                "wrong": wrong,
                "hint": found.hint,
            },
            inf_nan_mode="null",
        )

    def _row(self, row: RunRow, shown: Mapping[str, str]) -> dict[str, object]:
        keys = {name: row.value(key) for name, key in shown.items()}
        return {"id": self.name_of(row.path), **row.to_json(), "keys": keys}

    def tables(self) -> bytes:
        """Return the tables that sweeps and reproductions wrote into the folder, as JSON."""
        return to_json(find_tables(self.root, self.name_of), inf_nan_mode="null")

    def compared(self, names: Sequence[str]) -> bytes:
        """Return curves of several runs, and the differences of their scenarios, as JSON."""
        found = [(name, path) for name in names if (path := self.find(name)) is not None]
        return to_json(compare(found, self.root), inf_nan_mode="null")

    def label(self, name: str, order: LabelOrder) -> str:
        """Change the labels of the run that pages call `name`, and return its tags as text.

        Raises InputError if there is no such run, or the change is not possible.
        """
        path = self._named(name)
        labels = read_labels(path).changed(order.add, order.remove, order.note, order.archived)
        write_labels(path, labels)
        return ", ".join(labels.tags)

    def throw_away(self, name: str) -> Path:
        """Move a run to the folder's trash; return its new path. Raises InputError if that is not possible."""
        return throw_away(self._named(name), self.root).relative_to(self.root)

    def place_of(self, path: Path) -> str:
        """Return the path of a run within the folder."""
        return str(path.relative_to(self.root))

    def _named(self, name: str) -> Path:
        path = self.find(name)
        if path is None:
            raise InputError("there is no such run here; look again")
        return path

    def name_of(self, path: Path) -> str:
        """Return the name by which pages and addresses call the run at `path`: a hash of the path."""
        return sha256(os.fsencode(path)).hexdigest()[:16]

    def _look(self) -> None:
        self._paths = {self.name_of(path): path for path in runs_below(self.root)}
