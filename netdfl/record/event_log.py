"""The event log of a simulated run: every message's time, fate and content, and every metric, as one hash.

An entry is a line of text, written at a virtual instant. Entries of one instant are put in the order of
a keyed hash of what they are about (edge, kind, epoch, round, step, attempt; or node, round, name), so
the hash does not depend on the order in which equal times were worked through.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, repeat, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Protocol, TypeAlias

from xxhash import xxh3_64_intdigest, xxh3_128

from netdfl.core.clock import Clock
from netdfl.core.types import Message, NodeId, Payload, Scalar
from netdfl.record.base import MessageRow, Store, Waited

MOST_ENTRIES = 1000
_Entry: TypeAlias = "tuple[int, MessageRow, str] | tuple[int, str, str]"
"""(when, a message's row, its digest) or (when, a metric, its value); a row becomes text with many others."""
_at = itemgetter(0)


class Lines(Protocol):
    """Where the lines of a kept log go."""

    def write(self, text: str, /) -> object:
        """Take lines."""
        ...


class EventLog:
    """Hashes entries as they come; `kept`, if given, gets their lines too."""

    def __init__(self, clock: Clock, seed: int, kept: Lines | None = None) -> None:
        """`seed` keys the order within an instant."""
        self._clock, self._seed, self._kept = clock, seed, kept
        self._hash = xxh3_128()
        self._entries: list[_Entry] = []
        self._most = MOST_ENTRIES

    def message(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: str) -> None:
        """One message's end."""
        self.row((message[:7], nbytes, sent_ns, arrived_ns, fate), message[7])

    def row(self, row: MessageRow, payload: Payload) -> None:
        """One message's end, as the store takes it, and what was in it."""
        self._add((self._clock.now_ns(), row, payload.digest or content_digest(payload)))

    def rows(self, messages: Sequence[Message], rows: Sequence[MessageRow]) -> None:
        """What `row` does of each, at one instant."""
        now = self._clock.now_ns()
        digests = [message[7].digest or content_digest(message[7]) for message in messages]
        self._entries += zip(repeat(now), rows, digests, strict=False)
        self._write_past(now)

    def metric(self, node: NodeId | None, round: int, name: str, value: float) -> None:
        """One number."""
        self._add((self._clock.now_ns(), f"metric {node} {round} {name}", float(value).hex()))

    def _add(self, entry: _Entry) -> None:
        self._entries.append(entry)
        if len(self._entries) >= self._most:
            self._write_past(entry[0])

    def _write_past(self, now: int) -> None:
        """Write what is of instants before `now`, once it is much."""
        if len(self._entries) >= self._most:
            over = bisect_left(self._entries, now, key=_at)
            self._digest(over)
            self._most = len(self._entries) + MOST_ENTRIES

    def _digest(self, count: int) -> None:
        """Write the first `count` entries, which are all of their instants."""
        text = "".join(_lines(self._entries[:count], self._seed))
        del self._entries[:count]
        self._hash.update(text.encode())
        if self._kept is not None:
            self._kept.write(text)

    def hexdigest(self) -> str:
        """The hash of all entries so far, 32 hex digits."""
        self._digest(len(self._entries))
        return self._hash.hexdigest()


def _lines(entries: Iterable[_Entry], seed: int) -> Iterator[str]:
    """The entries as text, those of an instant in the order of their keyed hashes."""
    for at_ns, same in groupby(entries, _at):
        told = [  # in one go: there is one for each message of a run
            (xxh3_64_intdigest(row.encode(), seed), row, rest)
            if isinstance(row, str)
            else (
                xxh3_64_intdigest((about := f"message {row[0][0]}->{row[0][1]} {_names(row[0][2:])}").encode(), seed),
                about,
                f"{row[1]} {row[2]} {row[3]} {row[4]} {rest}",
            )
            for _, row, rest in same
        ]
        if len(told) > 1:
            told.sort()
        for _, about, rest in told:
            yield f"{at_ns} {about} {rest}\n"


@lru_cache(maxsize=64)
def _names(head: tuple[str, int, int, int, int]) -> str:
    """What an edge calls its message: most of an instant are of one kind, round and step."""
    kind, epoch, round, step, attempt = head
    return f"{kind} {epoch}.{round}.{step}.{attempt}"


def content_digest(payload: Payload) -> str:
    """A digest of a payload's names, shapes, bytes and metadata, computed once per payload."""
    if payload.digest is None:
        digest = xxh3_128(repr(dict(payload.meta)).encode())
        for name, array in payload.arrays.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array.data)
        payload.digest = digest.hexdigest()
    return payload.digest


class LoggingRecorder:
    """A `Recorder` that writes to a store and to the event log."""

    def __init__(self, store: Store, log: EventLog) -> None:
        """Tell both."""
        self._store, self._log = store, log

    def message(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: str) -> None:
        """One message and its fate."""
        row = (message[:7], nbytes, sent_ns, arrived_ns, fate)
        self._store.row(row)
        self._log.row(row, message[7])

    def messages(self, messages: Sequence[Message], rows: Sequence[MessageRow]) -> None:
        """The ends of messages at one instant."""
        self._store.rows(rows)
        self._log.rows(messages, rows)

    def metric(self, at_ns: int, node: NodeId | None, round: int, name: str, value: float) -> None:
        """One number of one round."""
        self._store.metric(at_ns, node, round, name, value)
        self._log.metric(node, round, name, value)

    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Scalar) -> None:
        """Something that happened; not part of the log."""
        self._store.event(at_ns, node, round, kind, **details)

    def wait(self, waited: Waited) -> None:
        """A wait that is over; not part of the log, which has the messages."""
        self._store.wait(waited)

    def flush(self) -> None:
        """Make the store durable."""
        self._store.flush()


def first_difference(one: Path, other: Path) -> str | None:
    """The first entry in which two kept logs differ, in words; None where they are equal."""
    with one.open() as first, other.open() as second:
        for number, (a, b) in enumerate(zip_longest(first, second), start=1):
            if a != b:
                return f"entry {number}: {_words(a)} in the first run, {_words(b)} in the second"
    return None


def _words(line: str | None) -> str:
    return "nothing" if line is None else repr(line.strip())
