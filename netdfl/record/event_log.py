"""The event log of a simulated run: every message's times, content and end (lost or not), and all metrics, as one hash.

An entry is a line of text, written at a virtual instant. Entries of one instant are sorted by a keyed hash of their
subject (edge, kind, epoch, round, step, attempt; or node, round, name). So the hash does not depend on the order in
which events of equal time were handled.

Relies on: a virtual clock: entries of one instant come together, and no entry comes late.

Why: One number shows whether two runs are the same run, which is what a repeatable simulation promises. Contents are
part of it as digests, so a changed vector is seen even where all times agree. Text is made for many entries at once,
long after the event: written one by one, it was a large part of what a message cost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from xxhash import xxh3_64_intdigest, xxh3_128

from netdfl.core.clock import Clock
from netdfl.core.fates import FATE_TEXTS
from netdfl.core.outcome import Outcome
from netdfl.core.types import NodeId, Payload
from netdfl.record.base import Store

MOST_ENTRIES = 1000
SOME = 512
FEW = 50
"""Up to this number of entries, sorting by Python is faster than by numpy."""
_Told: TypeAlias = tuple[list[int], list[str]]
"""Entries of one instant: the keyed hashes of their subjects, and their lines."""
_Tell: TypeAlias = "Callable[[Any, Any, int, int, _Told], None]"
_Group: TypeAlias = tuple[int, _Tell, object, object]
"""A group of entries: the instant, the function that writes them, and its first two arguments.

Groups become text later, many at a time.
"""
_at = itemgetter(0)


class Lines(Protocol):
    """A destination for the text of an event log, such as an open file."""

    def write(self, text: str, /) -> object:
        """Write text that consists of whole lines."""


class EventLog:
    """A running hash over a simulated run's messages and metrics; `kept`, if given, receives them as text, too."""

    def __init__(self, clock: Clock, seed: int, kept: Lines | None = None) -> None:
        """Start with an empty log; `seed` keys the hash by which entries of one instant of `clock` are ordered."""
        self._clock, self._seed, self._kept = clock, seed, kept
        self._hash = xxh3_128()
        self._groups: list[_Group] = []
        self._num, self._most = 0, MOST_ENTRIES

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Add how messages ended, such as delivered or lost.

        `payloads` has their contents, in the order of `outcome.edges`.
        """
        digests = [payload.digest or content_digest(payload) for payload in payloads]
        self._add(len(digests), _messages, outcome, digests)

    def metrics(self, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        """Add metrics of a `node` or (None) the fleet in one round; the caller must not change `figures` afterwards."""
        self._add(len(figures), _metrics, (node, round), figures)

    def _add(self, num: int, tell: _Tell, about: object, rest: object) -> None:
        now = self._clock.now_ns()
        self._groups.append((now, tell, about, rest))
        self._num += num
        if self._num >= self._most:  # write what is of instants before this one
            self._digest(bisect_left(self._groups, now, key=_at))
            self._most = self._num + MOST_ENTRIES

    def _digest(self, count: int) -> None:
        """Hash the first `count` groups of entries, which must end at the end of an instant."""
        lines: list[str] = []
        told: _Told = ([], [])
        instant = 0
        for at_ns, tell, about, rest in self._groups[:count]:
            if at_ns != instant:
                lines += _in_order(told)
                told, instant = ([], []), at_ns
            tell(about, rest, at_ns, self._seed, told)
        lines += _in_order(told)
        del self._groups[:count]
        self._num -= len(lines)
        text = "".join(lines)
        self._hash.update(text.encode())
        if self._kept is not None:
            self._kept.write(text)

    def hexdigest(self) -> str:
        """Return the hash of all entries so far, as 32 hex digits."""
        self._digest(len(self._groups))
        return self._hash.hexdigest()


def _in_order(told: _Told) -> list[str]:
    """Return the log's lines of one instant, sorted by keyed hashes of their subjects (the message or the metric)."""
    hashes, lines = told
    if len(lines) < 2:
        return lines
    if len(lines) > FEW:
        keys = np.array(hashes, np.uint64)
        order = keys.argsort()
        if np.diff(keys[order]).all():  # no two have the same: then the lines decide
            return [lines[place] for place in order.tolist()]
    return [line for _, line in sorted(zip(hashes, lines, strict=True))]


def _messages(outcome: Outcome, digests: Sequence[str], at_ns: int, seed: int, told: _Told) -> None:
    edges, (kind, incarnation, (round, step), _, attempt), nbytes, sent_ns, arrived_ns, fate = outcome
    id = f"{kind._value_} {incarnation}.{round}.{step}.{attempt}"
    ends = f" {nbytes} {sent_ns} {arrived_ns} {FATE_TEXTS[fate]} "
    if len(digests) == 1:  # as below, without its lists
        ((src, dst),) = edges
        one = f"message {src}->{dst} {id}"
        told[0].append(xxh3_64_intdigest(one.encode(), seed))
        told[1].append(f"{at_ns} {one}{ends}{digests[0]}\n")
        return
    at = f"{at_ns} "
    for first in range(0, len(digests), SOME):  # not more at once than stays in the processor's cache
        some = slice(first, first + SOME)
        about = [f"message {src}->{dst} {id}" for src, dst in edges[some]]
        told[0].extend([xxh3_64_intdigest(each.encode(), seed) for each in about])
        told[1].extend([f"{at}{each}{ends}{digest}\n" for each, digest in zip(about, digests[some], strict=True)])


def _metrics(of: tuple[NodeId | None, int], figures: Mapping[str, float], at_ns: int, seed: int, told: _Told) -> None:
    at, head = f"{at_ns} ", f"metric {of[0]} {of[1]} "
    about = [head + name for name in figures]
    told[0].extend([xxh3_64_intdigest(each.encode(), seed) for each in about])
    told[1].extend([f"{at}{each} {float(x).hex()}\n" for each, x in zip(about, figures.values(), strict=True)])


def content_digest(payload: Payload) -> str:
    """Compute a digest of a payload's names, shapes, bytes and metadata, and keep it with the payload; return it."""
    digest = xxh3_128(repr(dict(payload.meta)).encode())
    for name, array in payload.arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    payload.digest = found = digest.hexdigest()
    return found


class LoggingRecorder:
    """A `Recorder` that writes to both a store and an event log; events and waits go only to the store."""

    def __init__(self, store: Store, log: EventLog) -> None:
        """Record to `store` and `log`."""
        self._store, self._log = store, log
        self.event, self.wait, self.flush = store.event, store.wait, store.flush

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Record how messages ended, such as delivered or lost.

        `payloads` has their contents, in the order of `outcome.edges`.
        """
        self._store.outcome(outcome, payloads)
        self._log.outcome(outcome, payloads)

    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        """Record the metrics of one round, by their names in `figures`, in the store and in the event log."""
        self._store.metrics(at_ns, node, round, figures)
        self._log.metrics(node, round, figures)


def first_difference(one: Path, other: Path) -> str | None:
    """Return a text with the first entry in which two event logs, saved as files, differ; None if they are equal."""
    with one.open() as first, other.open() as second:
        for number, (a, b) in enumerate(zip_longest(first, second), start=1):
            if a != b:
                return f"entry {number}: {_words(a)} in the first run, {_words(b)} in the second"
    return None


def _words(line: str | None) -> str:
    return "nothing" if line is None else repr(line.strip())
