"""A run opened for reading: its tables and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from netdfl.core.errors import InputError, expect
from netdfl.core.files import check_plain, read_plain
from netdfl.core.installing import pip_install
from netdfl.record.database import MOST_NODES, TABLES, connect, most_memory
from netdfl.record.directory import EVENTS
from netdfl.record.forms import (
    FLEET,
    GRAPH,
    PARTITION,
    RESULT,
    SIZE,
    UNDERLAY,
    FleetForm,
    GraphForm,
    PartitionForm,
    UnderlayForm,
    read_form,
)
from netdfl.record.layout import Layout
from netdfl.record.sampling import EVERYTHING, SAMPLING, SAMPLING_FORM, Sampling
from netdfl.record.scheduled import ScheduledChange, read_script
from netdfl.record.segments import has_rows, roll_up
from netdfl.record.store import STORE

if TYPE_CHECKING:
    import numpy as np
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from numpy.typing import NDArray

    from netdfl.record.plots import Plots

T = TypeVar("T")
MOST_TRIES = 3
"""How often to try to list and read the files: between the two, another process may convert them to segments."""
Parameters: TypeAlias = Sequence[object] | Mapping[str, object]


class Run:
    """A finished or unfinished run: its tables as DuckDB relations, its files as plain data.

    A relation reads the store anew when it is evaluated: `run.metrics.df()` for pandas, `run.metrics.fetchall()`.
    Rows come in no particular order; an incomplete last line of a file is skipped.
    """

    def __init__(self, path: Path) -> None:
        """Read the run directory `path`; `open_run` checks it first."""
        self.path = path
        self._held = False

    @cached_property
    def _layout(self) -> Layout:
        return self._open()

    @property
    def _connection(self) -> DuckDBPyConnection:
        return self._layout.database

    @property
    def plot(self) -> Plots:
        """Figures of this run by matplotlib: `run.plot.accuracy()`, `.links()`, `.waits(at=3.2)`, `.timeline()`."""
        from netdfl.record.plots import Plots

        return Plots(self)

    def _repr_html_(self) -> str:
        """Return the run's name, verdict and reasons as HTML, which a notebook displays."""
        result = self.result if self.finished else {}
        head = f"<b>{escape(str(result.get('scenario', self.path.name)))}</b> {escape(str(self.path))}"
        told = [str(result.get("verdict", "no result yet")), *map(str, result.get("reasons", ()))]
        return f"<p>{head}</p><p>{escape('; '.join(told))}</p>"

    @property
    def messages(self) -> DuckDBPyRelation:
        """Each message and how it ended: src, dst, kind, epoch, round, step, attempt, nbytes, sent_s, arrived_s, fate.

        `sampling` says which messages have a row.
        """
        return self.query("FROM messages")

    @property
    def metrics(self) -> DuckDBPyRelation:
        """Metrics in long form: at_s, node (null: the fleet), round, name, value (null: not finite)."""
        return self.query("FROM metrics")

    @property
    def events(self) -> DuckDBPyRelation:
        """Events: at_s, node (null: the fleet), round, kind, details (JSON)."""
        return self.query("FROM events")

    @property
    def waits(self) -> DuckDBPyRelation:
        """Waits that took time: node, round, step, kind, since_s, until_s, deadline_s, ended, last_src, missing."""
        return self.query("FROM waits")

    @property
    def resources(self) -> DuckDBPyRelation:
        """Samples of the resources of processes: at_s, process, node, pid, cpu_s, memory_bytes, gpu_bytes.

        There is a row every two seconds of real time, even if the run's time is virtual; `cpu_s` counts from the
        beginning of the process, and `node` is the first of its nodes (null: no node).
        """
        return self.query("FROM resources")

    def query(self, sql: str, parameters: Parameters = ()) -> DuckDBPyRelation:
        """Return the relation of a query over the tables `messages`, `metrics`, `events`, `waits` and `resources`.

        `link_totals` (src, dst, fate, messages, nbytes) and `round_totals` (kind, epoch, round, fate, messages, nbytes,
        until_s) count all messages, also those without a row in a sampled record.
        `parameters` are the values of `?` or `$name`. Nothing but the run's store can be read or written.
        """
        _check_query(sql, parameters)
        with self._reading():
            if not self._held:
                self._layout.refresh()
            found = self._connection.sql(sql, params=parameters or None)
            expect(found is not None, "the query", sql, "one that gives rows, such as SELECT ... FROM messages")
        return found if find_spec("pandas") else cast("DuckDBPyRelation", WithoutPandas(found))

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return all rows of an SQL query over the tables. Raises InputError if the store is damaged."""
        _check_query(sql, parameters)
        return self._read(lambda: self._connection.execute(sql, parameters or None).fetchall())

    def columns(self, sql: str, parameters: Parameters = ()) -> dict[str, NDArray[np.float64]]:
        """Return the columns of an SQL query as float arrays, NaN for null.

        Raises InputError if the store is damaged.
        """
        import numpy as np

        _check_query(sql, parameters)
        found = self._read(lambda: self._connection.execute(sql, parameters or None).fetchnumpy())
        return {name: np.ma.filled(np.ma.asarray(column, dtype=float), np.nan) for name, column in found.items()}

    def _read(self, work: Callable[[], T], *, hold: bool = False) -> T:
        """Return the result of `work`, which queries the tables; create the tables first, unless `held` loaded them."""
        import duckdb

        with self._reading():
            for left in reversed(range(MOST_TRIES)):
                try:
                    if hold:
                        self._layout.hold()
                    elif not self._held:
                        self._layout.refresh()
                    return work()
                except (duckdb.IOException, FileNotFoundError):
                    if self._held or not left:
                        raise
            raise AssertionError

    @contextmanager
    def held(self) -> Iterator[None]:
        """Load the tables once; queries within the context do not see rows that are written meanwhile.

        Raises:
            InputError: the store is damaged.
        """
        if self._held:
            yield
            return
        self._read(lambda: None, hold=True)
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self._layout.release()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except (duckdb.Error, FileNotFoundError) as exc:
            if isinstance(exc, duckdb.OutOfMemoryException):
                most = f"{most_memory(self.path / STORE) >> 20:,} MiB"
                raise InputError(
                    f"{self.path / STORE} stands for more than can be read in {most} of memory, which is enough for a "
                    "record of its size: it is damaged, or the query asks for too much at once"
                ) from exc
            told = " ".join(str(exc).partition("\nLINE")[0].split())
            if isinstance(exc, duckdb.Error) and self._is_sound():
                raise InputError(f"the query can't be made: {told}; the tables are {', '.join(TABLES)}") from exc
            raise InputError(f"{self.path / STORE} is damaged: {told}") from exc

    def _is_sound(self) -> bool:
        """Return whether all tables can be read, so that an error is the fault of the query."""
        import duckdb

        try:
            for table in TABLES:
                self._connection.execute(f"SELECT count(COLUMNS(*)) FROM {table}").fetchall()
        except duckdb.Error:
            return False
        return True

    def roll_up(self) -> str:
        """Convert large tables to Parquet segments after the run.

        Return the reason if that failed, else an empty text.
        """
        import duckdb

        try:
            roll_up(self.path / STORE, self._num_nodes, database=self._connection)
        except (OSError, duckdb.Error) as error:
            return str(error).splitlines()[0]
        return ""

    def copy(self, sql: str, target: Path) -> None:
        """Run an SQL COPY statement over the tables that writes the file `target`."""
        layout = self._open(target)
        with layout.database as database:
            layout.refresh()
            database.execute(sql)

    def _open(self, writes: Path | None = None) -> Layout:
        """Open a database for the store, which may write the file `writes`."""
        store = self.path / STORE
        if not has_rows(store):
            self._refuse_emptied()
        sampled = not self.sampling.is_all
        return Layout(connect(store, writes), store, self._num_nodes, self._script, sampled=sampled)

    def _refuse_emptied(self) -> None:
        """Raise InputError if the run recorded messages or rounds: its emptied store must not pass for an empty run."""
        if not self.finished:
            return
        if self.result.get("messages", {}).get("sent") or (self.fleet or {}).get("rounds_done"):
            raise InputError(
                f"{self.path / STORE} has no rows, though the run recorded some: its files were moved or removed; "
                "bring them back, or run its scenario.yaml anew"
            )

    @cached_property
    def _script(self) -> Sequence[ScheduledChange]:
        return read_script(self.path / EVENTS)

    @cached_property
    def _num_nodes(self) -> int:
        size = read_form(self.path / "graph.json", SIZE)
        return MOST_NODES if size is None else size["num_nodes"]

    @cached_property
    def sampling(self) -> Sampling:
        """The rule by which messages get a row; `link_totals` and `round_totals` count all messages."""
        found = read_form(self.path / SAMPLING, SAMPLING_FORM)
        return EVERYTHING if found is None else Sampling.of(found["messages"])

    @property
    def finished(self) -> bool:
        """Whether the run has ended and left its result."""
        return (self.path / "result.json").is_file()

    @property
    def result(self) -> dict[str, Any]:
        """The contents of `result.json`. Raises InputError if the run has not ended."""
        result = read_form(self.path / "result.json", RESULT)
        if result is None:
            raise InputError(f"{self.path} has no result.json yet: the run is still going on, or it was killed")
        return result

    @property
    def scenario_text(self) -> str:
        """The scenario as it ran, with all defaults filled in."""
        return read_plain(self.path / "scenario.yaml")

    @property
    def fleet(self) -> FleetForm | None:
        """The last contents of `fleet.json`: every node's process id, address, round.

        None if there is no such file yet.
        """
        return read_form(self.path / "fleet.json", FLEET)

    @property
    def graph(self) -> GraphForm | None:
        """The contents of `graph.json`: num_nodes, edges [[src, dst], ...], directed, server, kind, weights.

        None if absent.
        """
        return read_form(self.path / "graph.json", GRAPH)

    @property
    def underlay(self) -> UnderlayForm | None:
        """The contents of `underlay.json`: sites, core links, routes; None without an underlay."""
        return read_form(self.path / "underlay.json", UNDERLAY)

    @property
    def num_nodes(self) -> int:
        """The number of nodes in the graph; without a graph, the number of nodes with metrics."""
        if (graph := self.graph) is not None:
            return graph["num_nodes"]
        ((most,),) = self.rows("SELECT max(node) FROM metrics")
        return 0 if most is None else int(most) + 1

    @property
    def partition(self) -> PartitionForm | None:
        """The contents of `partition.json`: names of the `classes`, `counts` by client and class; None if absent."""
        return read_form(self.path / "partition.json", PARTITION)


def _check_query(sql: object, parameters: object) -> None:
    expect(isinstance(sql, str) and sql.strip(), "the query", sql, "SQL, such as 'SELECT fate, count(*) FROM messages'")
    fits = isinstance(parameters, Mapping | list | tuple)
    expect(fits, "parameters", parameters, "a list of what ? stands for, or a mapping of what $name does")


class WithoutPandas:
    """A DuckDB relation for use without pandas: methods that return data frames raise an error."""

    def __init__(self, relation: DuckDBPyRelation) -> None:
        """Wrap `relation`."""
        self._relation = relation

    def __getattr__(self, name: str) -> object:
        """Return the relation's attribute. Raises InputError for a method that needs pandas."""
        if name in ("df", "fetchdf", "fetch_df", "to_df"):
            raise InputError(f".{name}() gives a data frame of pandas, which is not installed: {pip_install('pandas')}")
        return getattr(self._relation, name)

    def __repr__(self) -> str:
        """Return the relation's table as text."""
        return repr(self._relation)


def open_run(path: Path | str) -> Run:
    """Open a run directory, finished or not.

    Raises:
        InputError: there is no run at `path`, or it holds a file that is not a plain one.
    """
    if not isinstance(path, str | Path):
        raise InputError(f"{str(path)[:80]!r} is no run: expected the path of a run directory")
    directory = Path(path)
    if not (directory / "scenario.yaml").is_file():
        found = "has no scenario.yaml" if directory.is_dir() else "is no directory"
        raise InputError(
            f"{path} is not a run: it {found}; name the directory that `netdfl run` printed, "
            "for example runs/quickstart/latest"
        )
    check_plain(directory)
    return Run(directory.resolve())
