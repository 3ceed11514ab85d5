"""Traces for other programs: a timeline with rows for each node, and arrows for messages.

Perfetto's own form is protobuf. Its schema is large and its package is needed for nothing else, so the few fields in
use are written here by their numbers; a test reads the result with Perfetto's classes. JSON trace events open in
`chrome://tracing`, and in Perfetto too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping

from netdfl.core.types import NodeId
from netdfl.exports.course import FIGURES, FLEET, CounterValue, TraceInstant, TraceSpan, Track, TrackLane
from netdfl.transport.wire import varint

_SEQUENCE = 1
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_EXPLICIT = 3
_COUNTERS = 1 << 40


def packets(name: str, nodes: int, course: Iterable[TraceSpan | TraceInstant | CounterValue]) -> Iterator[bytes]:
    """Yield the Perfetto trace of the run `name` as encoded packets; `course` has the run's activities and events."""
    yield _described(FLEET, f"fleet {name}", _number(11, _EXPLICIT))
    for number, figure in enumerate(FIGURES):
        track = _number(1, _COUNTERS + number) + _text(2, figure) + _bytes(8, b"")
        yield _packet(_bytes(60, track + _number(5, uuid(FLEET)) + _number(12, number)))
    for node in range(nodes):
        order = _number(5, uuid(FLEET)) + _number(12, len(FIGURES) + node) + _number(11, _EXPLICIT)
        does = Track(node, TrackLane.DOES)
        yield _described(does, f"node {node}", order)
        for lane in (TrackLane.ROUNDS, TrackLane.MESSAGES):
            yield _described(Track(node, lane), lane.name.lower(), _number(5, uuid(does)) + _number(12, lane))
    yield from _in_order(course)


def _in_order(course: Iterable[TraceSpan | TraceInstant | CounterValue]) -> Iterator[bytes]:
    """Yield the trace packets of events in order of time; at one moment, ends precede begins."""
    made: list[tuple[int, int, int, bytes]] = []
    for number, each in enumerate(course):
        if isinstance(each, TraceSpan):
            made.append((each.begin_ns, 1, number, _event(each.track, _BEGIN, each.begin_ns, each.name, each)))
            order = 2 if each.end_ns == each.begin_ns else 0
            made.append((each.end_ns, order, number, _event(each.track, _END, each.end_ns)))
        elif isinstance(each, TraceInstant):
            made.append((each.at_ns, 1, number, _event(each.track, _INSTANT, each.at_ns, each.name, each)))
        else:
            value = _key(44, _FIXED64) + struct.pack("<d", each.value)
            event = _number(9, _COUNTER) + _number(11, _COUNTERS + FIGURES.index(each.name)) + value
            made.append((each.at_ns, 1, number, _packet(_number(8, each.at_ns) + _bytes(11, event))))
    made.sort(key=lambda each: each[:3])
    return (packet for *_, packet in made)


def _event(track: Track, kind: int, at_ns: int, name: str = "", of: TraceSpan | TraceInstant | None = None) -> bytes:
    event = _number(9, kind) + _number(11, uuid(track))
    if name:
        event += _text(23, name)
    if of is not None:
        event += b"".join(_annotated(key, value) for key, value in of.details.items())
    if isinstance(of, TraceInstant):
        for field, flow in ((47, of.leaves), (48, of.comes)):
            event += b"" if flow is None else _key(field, _FIXED64) + struct.pack("<Q", flow)
    return _packet(_number(8, max(0, at_ns)) + _bytes(11, event))


def _annotated(key: str, value: object) -> bytes:
    told = value if isinstance(value, str) else json.dumps(value)
    return _bytes(4, _text(10, key) + _text(6, told))


def _described(track: Track, name: str, more: bytes) -> bytes:
    """Return a trace packet that names a row of the timeline; `more` has the encoded fields of the row's place."""
    return _packet(_bytes(60, _number(1, uuid(track)) + _text(2, name) + more))


def pid_of(node: NodeId | None) -> int:
    """Return the process id of a node in a trace; 1 is the fleet's."""
    return 1 if node is None else node + 2


def tid_of(track: Track) -> int:
    """Return the thread id of a track in a trace, different from all process ids."""
    return (1 << 24) + len(TrackLane) * pid_of(track.node) + track.lane


def uuid(track: Track) -> int:
    """Return the unique id of a track, which is a row of the timeline, in a Perfetto trace."""
    return (1 << 32) + tid_of(track)


def _packet(inner: bytes) -> bytes:
    return _bytes(1, inner + _number(10, _SEQUENCE))


def _key(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, _BYTES) + varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


_SHOWN_US = 0.001
"""The length in µs of the activity that is drawn where a message departs or arrives.

The message's arrow needs an activity at each of its ends.
"""


def json_lines(name: str, nodes: int, course: Iterable[TraceSpan | TraceInstant | CounterValue]) -> Iterator[str]:
    """Yield the trace of the run `name` as JSON text, piece by piece."""
    yield '{"displayTimeUnit": "ms", "traceEvents": [\n'
    separator = ""
    for event in (*_named(None, f"fleet {name}"), *(e for n in range(nodes) for e in _named(n, f"node {n}"))):
        yield separator + json.dumps(event)
        separator = ",\n"
    for each in course:
        for event in _events(each):
            yield separator + json.dumps(event)
    yield "\n]}\n"


def _events(each: TraceSpan | TraceInstant | CounterValue) -> Iterator[Mapping[str, object]]:
    if isinstance(each, CounterValue):
        head = {"ph": "C", "pid": pid_of(None), "ts": _us(each.at_ns)}
        yield head | {"name": each.name, "args": {each.name: each.value}}
    elif isinstance(each, TraceSpan):
        span = {"ph": "X", "ts": _us(each.begin_ns), "dur": _us(each.end_ns - each.begin_ns)}
        yield _at(each.track) | span | {"name": each.name, "args": dict(each.details)}
    elif each.leaves is None and each.comes is None:
        instant = {"ph": "i", "s": "t", "ts": _us(each.at_ns)}
        yield _at(each.track) | instant | {"name": each.name, "args": dict(each.details)}
    else:
        at = _at(each.track) | {"ts": _us(each.at_ns)}
        yield at | {"ph": "X", "dur": _SHOWN_US, "name": each.name, "args": dict(each.details)}
        flow = {"name": "message", "cat": "message", "id": each.comes if each.leaves is None else each.leaves}
        yield at | flow | ({"ph": "s"} if each.leaves is not None else {"ph": "f", "bp": "e"})


def _named(node: NodeId | None, name: str) -> Iterator[Mapping[str, object]]:
    pid = pid_of(node)
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
    for lane in TrackLane if node is not None else (FLEET.lane,):
        what = lane.name.lower() if node is not None else "events"
        yield _at(Track(node, lane)) | {"ph": "M", "name": "thread_name", "args": {"name": what}}


def _at(track: Track) -> dict[str, object]:
    return {"pid": pid_of(track.node), "tid": tid_of(track)}


def _us(ns: int) -> float:
    return ns / 1000
