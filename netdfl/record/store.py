"""The store: rows as JSON lines, readable while the run goes on; a `kill -9` tears at most the last.

Four tables lie in `RUN/store/`, each in a file per writer (`messages-003.jsonl` is node 3's):
- `messages`: src, dst, kind, epoch, round, step, attempt, nbytes, sent_s, arrived_s, fate
- `metrics`: at_s, node, round, name, value
- `events`: at_s, node, round, kind, details (an object)
- `waits`: node, round, step, kind, since_s, until_s, deadline_s, ended, last_src, missing (a list)
A fifth, `resources`, is written by `netdfl.record.resources`, beside every recorder.
Where not every message is recorded (`netdfl.record.sampling`), two more tables hold counts over all messages; rows
of one link, or of one round, add up:
- `link_totals`: src, dst, fate, messages, nbytes
- `round_totals`: kind, epoch, round, fate, messages, nbytes, until_s
When the run has ended, large tables become Parquet (`netdfl.record.segments`).
Times are seconds since the fleet's common start, exact to the nanosecond. A null `node` is the fleet,
a null `arrived_s` a message that never arrived. A null `value` is a number that was not finite: JSON
has no NaN, and text in its place would turn the column of numbers into a column of strings in polars.

Relies on: `O_APPEND`, and one writer for each file: a flush adds whole rows in one write.

Why: The record of a run that died is the most wanted one. Lines need no footer, so the file is whole after any flush,
and readers may look while the run goes on. Values wait as they are and become text together, because consecutive
messages share most of their text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from netdfl.core.errors import RunError
from netdfl.core.fates import Fate
from netdfl.core.files import open_whole
from netdfl.core.outcome import Outcome
from netdfl.core.types import NodeId, Payload, Scalar
from netdfl.record.base import WaitRecord
from netdfl.record.plain_json import dump_json
from netdfl.record.sampling import EVERYTHING, GROWN, Sampling

STORE = "store"
FLUSH_ROWS = 512
"""Number of rows that are appended together: some 64 KB."""

_quote = lru_cache(maxsize=1024)(json.dumps)


Row = TypeVar("Row")
LinkKey: TypeAlias = tuple[NodeId, NodeId, Fate]
"""The messages on one link that ended alike, such as all lost ones: (src, dst, fate)."""
RoundKey: TypeAlias = tuple[str, int, int, Fate]
"""The messages of one kind and round that ended alike: (kind, number of the sender's restarts, round, fate)."""
MOST_TOTALS = 50_000
"""The most totals by link that are held in memory; when there are so many, all are written, grown or not."""
Figures: TypeAlias = tuple[int, NodeId | None, int, Mapping[str, float]]
"""Metrics of one round: time (ns), node, round, and values by metric name. Each value becomes a row."""


class RowTable(Generic[Row]):
    """A file of rows. Values are buffered, converted to lines together, and appended as whole lines.

    A buffered value may stand for several rows.
    """

    __slots__ = ("_fd", "_left", "_lines", "_num", "_path", "_rows")

    def __init__(self, path: Path, lines: Callable[[Sequence[Row]], Iterable[str]]) -> None:
        self._path, self._lines = path, lines
        self._fd: int | None = None
        self._rows: list[Row] = []
        self._num, self._left = 0, b""

    def add(self, row: Row, num: int = 1) -> None:
        """Buffer a value (`row`) that will be written as `num` rows of the file."""
        self._rows.append(row)
        self._num += num
        if self._num >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Append the buffered rows in one write. Rows that could not be written stay buffered."""
        if not self._rows and not self._left:
            return
        data = self._left = self._left + "".join(self._lines(self._rows)).encode()
        self._rows, self._num = [], 0
        try:
            if self._fd is None:
                self._fd = open_whole(self._path)
            written = os.write(self._fd, data)
            while written < len(data):
                written = self._write_rest(data, written)
        except OSError as exc:
            raise RunError(
                f"the record can't be written to {self._path}: {exc.strerror}; "
                "what was written before is kept, free some space and run again"
            ) from exc
        self._left = b""

    def _write_rest(self, data: bytes, written: int) -> int:
        """Continue after an incomplete write; if that fails, remove the torn row and keep the rest for later."""
        assert self._fd is not None
        try:
            return written + os.write(self._fd, data[written:])
        except OSError:
            whole = data.rfind(b"\n", 0, written) + 1
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - (written - whole))
            self._left = data[whole:]
            raise

    def close(self) -> None:
        """Flush the buffered rows, and close the file."""
        try:
            self.flush()
        finally:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None


class _SecondsText(dict[int | None, str]):
    """A cache from times in ns to their text in seconds, because many rows share the same instant.

    Nine decimals of a division give back every nanosecond of a run of up to 48 days.
    """

    def __missing__(self, at_ns: int | None) -> str:
        text = self[at_ns] = "null" if at_ns is None else f"{at_ns / 1e9:.9f}"
        return text


def _message_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the JSON lines of messages. Consecutive `outcomes` often differ only in their edges, and share text."""
    at, lines = _SecondsText(), []
    last: object = None
    text = ""
    for outcome in outcomes:
        rest = outcome[1:]
        if rest != last:
            last, text = rest, _outcome_text(outcome, at)
        lines += [f'{{"src":{src},"dst":{dst},{text}' for src, dst in outcome.edges]
    return lines


def _outcome_text(outcome: Outcome, at: Mapping[int | None, str]) -> str:
    """Return the part of a JSON line that all messages of an outcome share; `at` turns times in ns into text."""
    _, (kind, epoch, (round, step), _, attempt), nbytes, sent, arrived, fate = outcome
    return (
        f'"kind":"{kind._value_}","epoch":{epoch},"round":{round},"step":{step},"attempt":{attempt},'
        f'"nbytes":{nbytes},"sent_s":{at[sent]},"arrived_s":{at[arrived]},"fate":{_quote(fate.text)}}}\n'
    )


def _metric_lines(rows: Sequence[Figures]) -> list[str]:
    """Return the JSON lines of metrics. Metrics of one node and round share all text except their names and values."""
    at, lines = _SecondsText(), []
    for at_ns, node, round, figures in rows:
        head = f'{{"at_s":{at[at_ns]},"node":{"null" if node is None else node},"round":{round},"name":'
        lines += [
            f'{head}{_quote(name)},"value":{repr(float(value)) if value - value == 0 else "null"}}}\n'
            for name, value in figures.items()
        ]
    return lines


def _wait_lines(rows: Sequence[WaitRecord]) -> list[str]:
    at = _SecondsText()
    return [
        f'{{"node":{wait.node},"round":{wait.round},"step":{wait.step},"kind":"{wait.kind._value_}",'
        f'"since_s":{at[wait.since_ns]},"until_s":{at[wait.until_ns]},"deadline_s":{at[wait.deadline_ns]},'
        f'"ended":"{wait.ended._value_}","last_src":{"null" if wait.last_src is None else wait.last_src},'
        f'"missing":{list(wait.missing)}}}\n'
        for wait in rows
    ]


def _link_lines(rows: Sequence[tuple[LinkKey, Sequence[int]]]) -> list[str]:
    return [
        f'{{"src":{src},"dst":{dst},"fate":{_quote(fate.text)},"messages":{messages},"nbytes":{nbytes}}}\n'
        for (src, dst, fate), (messages, nbytes) in rows
    ]


def _round_lines(rows: Sequence[tuple[RoundKey, Sequence[int]]]) -> list[str]:
    at = _SecondsText()
    return [
        f'{{"kind":{_quote(kind)},"epoch":{epoch},"round":{round},"fate":{_quote(fate.text)},"messages":{messages},'
        f'"nbytes":{nbytes},"until_s":{at[until_ns]}}}\n'
        for (kind, epoch, round, fate), (messages, nbytes, until_ns) in rows
    ]


class MessageTable(RowTable[Outcome]):
    """The table of messages, with a row for each message."""

    def __init__(self, store: Path, name: str) -> None:
        super().__init__(store / f"messages-{name}.jsonl", _message_lines)

    def outcome(self, outcome: Outcome) -> None:
        """Buffer how messages ended (`outcome`), as one row for each message, that is, for each of its edges."""
        edges = outcome.edges
        if len(edges) <= FLUSH_ROWS:
            self.add(outcome, len(edges))
            return
        for first in range(0, len(edges), FLUSH_ROWS):  # not more at once than stays in the processor's cache
            some = edges[first : first + FLUSH_ROWS]
            self.add(outcome._replace(edges=some), len(some))


class _SampledMessages:
    """The table of messages when only some are recorded, with totals of all messages and their bytes.

    Totals are kept by link and by round and written several times a run; readers add up what was written. Those of a
    round also hold the time of its last message.
    """

    def __init__(self, store: Path, name: str, sampling: Sampling) -> None:
        self._rows = MessageTable(store, name)
        self._link_rows = RowTable(store / f"link_totals-{name}.jsonl", _link_lines)
        self._round_rows = RowTable(store / f"round_totals-{name}.jsonl", _round_lines)
        self._sampling = sampling
        self._links: dict[LinkKey, list[int]] = {}
        self._rounds: dict[RoundKey, list[int]] = {}
        self._counted, self._written = 0, False

    def outcome(self, outcome: Outcome) -> None:
        edges, id = outcome.edges, outcome.id
        if outcome.fate == Fate.DELIVERED and not id.attempt:
            edges = [edge for edge in edges if self._sampling.keeps(*edge, *id.at)]
        if edges:
            self._rows.outcome(outcome._replace(edges=edges))
        self._count(outcome)
        if len(self._links) >= MOST_TOTALS:
            self._write_totals()

    def _count(self, outcome: Outcome) -> None:
        """Add messages that ended alike to the totals, one for each edge of `outcome`."""
        edges, id, nbytes, sent_ns, arrived_ns, fate = outcome
        links, num = self._links, len(edges)
        self._counted += num
        for src, dst in edges:
            link = links.get((src, dst, fate))
            if link is None:
                links[src, dst, fate] = [1, nbytes]
            else:
                link[0] += 1
                link[1] += nbytes
        until_ns = sent_ns if arrived_ns is None else arrived_ns
        of = self._rounds.setdefault((id.kind, id.incarnation, id.at.round, fate), [0, 0, until_ns])
        of[0] += num
        of[1] += num * nbytes
        of[2] = max(of[2], until_ns)

    def _write_totals(self) -> None:
        for link in self._links.items():
            self._link_rows.add(link)
        for round in self._rounds.items():
            self._round_rows.add(round)
        self._links.clear()
        self._rounds.clear()
        self._counted, self._written = 0, True

    def flush(self) -> None:
        """Append the buffered rows, and the totals: first at once, then each time that they have grown enough."""
        if self._counted and (not self._written or self._counted >= GROWN * len(self._links)):
            self._write_totals()
        for table in (self._rows, self._link_rows, self._round_rows):
            table.flush()

    def close(self) -> None:
        self._write_totals()
        _close(self._rows, self._link_rows, self._round_rows)


def _close(*tables: RowTable[Any] | _SampledMessages) -> None:
    """Close all tables, the last first. Raises the RunError of the first whose last rows can't be written."""
    with ExitStack() as closing:
        for table in tables:
            closing.callback(table.close)


class StoreWriter:
    """A `Recorder` that appends to `DIR/store/*-<name>.jsonl`.

    There is one writer per name, used from one thread. A restarted node continues its predecessor's files.
    Flushed rows survive the death of the process (not a power cut: nothing is fsynced).
    """

    def __init__(self, directory: Path | str, name: str, sampling: Sampling = EVERYTHING) -> None:
        """Write below the run directory `directory`; `name` is `003` for node 3, or `fleet`.

        `sampling` chooses the messages that get a row.
        """
        store = Path(directory) / STORE
        try:
            store.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise RunError(f"the record's directory {store} can't be made: {exc.strerror}") from exc
        self._messages = MessageTable(store, name) if sampling.is_all else _SampledMessages(store, name, sampling)
        self._metrics = RowTable(store / f"metrics-{name}.jsonl", _metric_lines)
        self._events: RowTable[str] = RowTable(store / f"events-{name}.jsonl", iter)
        self._waits = RowTable(store / f"waits-{name}.jsonl", _wait_lines)
        self._tables: tuple[RowTable[Any] | _SampledMessages, ...] = (
            self._messages,
            self._metrics,
            self._events,
            self._waits,
        )

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload] = ()) -> None:
        """Record how messages ended, without their contents. Raises RunError if the buffer can't be written."""
        self._messages.outcome(outcome)

    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        """Record metrics, as null if not finite. Raises RunError if the buffer can't be written."""
        self._metrics.add((at_ns, node, round, figures), len(figures))

    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Scalar) -> None:
        """Record one event. Raises RunError if the buffer can't be written."""
        self._events.add(
            f'{{"at_s":{at_ns / 1e9:.9f},"node":{"null" if node is None else node},"round":{round},'
            f'"kind":{_quote(kind)},"details":{dump_json(details)}}}\n'
        )

    def wait(self, waited: WaitRecord) -> None:
        """Record a wait that is over. Raises RunError if the buffer can't be written."""
        self._waits.add(waited)

    def flush(self) -> None:
        """Append all buffered rows as whole lines. Raises RunError if they can't be written."""
        for table in self._tables:
            table.flush()

    def close(self) -> None:
        """Write the buffered rows and close the files. Raises RunError if the last rows can't be written."""
        _close(*self._tables)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
