"""The tables of a run's store in one database: views over its files, or copies of these in memory.

A view reads its files whenever it is asked, so views are made anew only where the store has other files than before,
or, with scheduled changes, where these have grown: the run may have reached more of the changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.record.database import COUNTED, TABLES, TOTALS, RowFiles, TableName, TotalsName, view
from netdfl.record.scheduled import ScheduledChange, put_scheduled, put_script
from netdfl.record.segments import pieces, size

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_HELD = 1 << 28
"""Tables with more bytes of JSON lines than this are not copied into memory by `hold`."""
Files = Mapping[TableName | TotalsName, RowFiles]


class Layout:
    """The tables of one run's store in one database, with scheduled link changes among the events."""

    def __init__(
        self,
        database: DuckDBPyConnection,
        store: Path,
        num_nodes: int,
        script: Sequence[ScheduledChange],
        *,
        sampled: bool,
    ) -> None:
        """Prepare to create tables in `database`; create none yet.

        `script` has the scheduled link changes. `sampled`: whether the store has files of totals, which count every
        message.
        """
        self.database = database
        self._store, self._num_nodes = store, num_nodes
        self._tables: Sequence[TableName | TotalsName] = (*TABLES, *TOTALS) if sampled else TABLES
        self._scripted = bool(script)
        self._laid_out: object = None
        if script:
            put_script(database, script)

    def refresh(self) -> None:
        """Create the tables from the store's current files.

        Raises:
            duckdb.Error: a file is damaged, or was converted meanwhile.
            FileNotFoundError: the same.
        """
        files = self._find()
        wanted = (files, _sizes(files) if self._scripted else ())
        if wanted != self._laid_out:
            self._laid_out = None  # until all are there
            self._create({table: view(table, files[table], self._num_nodes) for table in self._tables})
            self._laid_out = wanted

    def hold(self) -> None:
        """Create the tables, and copy each of up to MOST_HELD bytes into memory. Raises the errors of `refresh`."""
        files, views = self._find(), {}
        self._laid_out = None
        for table in self._tables:
            views[table] = view(table, files[table], self._num_nodes)
            if size(files[table]) <= MOST_HELD:
                self.database.execute(f"CREATE OR REPLACE TEMP TABLE held_{table} AS {views[table]}")
                views[table] = f"FROM held_{table}"
        self._create(views)

    def release(self) -> None:
        """Drop the tables that `hold` copied into memory; `refresh` creates the tables again."""
        for table in self._tables:
            self.database.execute(f"DROP TABLE IF EXISTS held_{table}")

    def _find(self) -> Files:
        return {table: pieces(self._store, table) for table in self._tables}

    def _create(self, views: Mapping[TableName | TotalsName, str]) -> None:
        """Create a view for each query in `views`, and for each table of totals that has no files."""
        counted = [(totals, COUNTED[totals]) for totals in TOTALS if totals not in views]
        for table, query in (*views.items(), *counted):
            self.database.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS {query}")
        if self._scripted:
            put_scheduled(self.database, views["events"])
            self.database.execute(f"CREATE OR REPLACE TEMP VIEW events AS {views['events']} UNION ALL FROM scheduled")


def _sizes(files: Files) -> Sequence[tuple[Path, int]]:
    """Return the files of metrics and events with their sizes in bytes: they tell which changes a run has reached."""
    tables: tuple[TableName, ...] = ("metrics", "events")
    return [(file, file.stat().st_size) for table in tables for of in files[table] for file in of]
