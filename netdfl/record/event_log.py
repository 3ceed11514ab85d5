"""The event log of a simulated run: every message's time, fate and content, and every metric, as one hash.

An entry is a line of text, written at a virtual instant. Entries of one instant are put in the order of
a keyed hash of what they are about (edge, kind, epoch, round, step, attempt; or node, round, name), so
the hash does not depend on the order in which equal times were worked through.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from xxhash import xxh3_64_intdigest, xxh3_128

from netdfl.core.clock import Clock
from netdfl.core.types import Message, NodeId, Payload, Scalar
from netdfl.record.base import Recorder

MOST_LINES = 1000


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
        self._at_ns = 0
        self._entries: list[tuple[str, str]] = []
        self._lines: list[str] = []

    def message(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: str) -> None:
        """One message's end."""
        m = message
        self._add(
            f"message {m.src}->{m.dst} {m.kind._value_} {m.epoch}.{m.round}.{m.step}.{m.attempt}",
            f"{nbytes} {sent_ns} {arrived_ns} {fate} {m.payload.digest or content_digest(m.payload)}",
        )

    def metric(self, node: NodeId | None, round: int, name: str, value: float) -> None:
        """One number."""
        self._add(f"metric {node} {round} {name}", float(value).hex())

    def _add(self, about: str, rest: str) -> None:
        now = self._clock.now_ns()
        if now != self._at_ns:
            self._end_instant()
            self._at_ns = now
        self._entries.append((about, rest))

    def _end_instant(self) -> None:
        entries, at_ns = self._entries, self._at_ns
        if len(entries) > 1:
            seed = self._seed
            entries.sort(key=lambda entry: (xxh3_64_intdigest(entry[0].encode(), seed), entry))
        self._lines += [f"{at_ns} {about} {rest}\n" for about, rest in entries]
        self._entries = []
        if len(self._lines) >= MOST_LINES:
            self._digest()

    def _digest(self) -> None:
        text, self._lines = "".join(self._lines), []
        self._hash.update(text.encode())
        if self._kept is not None:
            self._kept.write(text)

    def hexdigest(self) -> str:
        """The hash of all entries so far, 32 hex digits."""
        self._end_instant()
        self._digest()
        return self._hash.hexdigest()


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

    def __init__(self, store: Recorder, log: EventLog) -> None:
        """Tell both."""
        self._store, self._log = store, log

    def message(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: str) -> None:
        """One message and its fate."""
        self._store.message(message, nbytes, sent_ns, arrived_ns, fate)
        self._log.message(message, nbytes, sent_ns, arrived_ns, fate)

    def metric(self, at_ns: int, node: NodeId | None, round: int, name: str, value: float) -> None:
        """One number of one round."""
        self._store.metric(at_ns, node, round, name, value)
        self._log.metric(node, round, name, value)

    def event(self, at_ns: int, node: NodeId | None, round: int, kind: str, **details: Scalar) -> None:
        """Something that happened; not part of the log."""
        self._store.event(at_ns, node, round, kind, **details)

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
