"""A trace as JSON trace events, which `chrome://tracing` opens, and Perfetto too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from netdfl.core.types import NodeId
from netdfl.exports.course import FLEET, LANES, Figure, Instant, Span, Track
from netdfl.exports.perfetto import pid_of, tid_of

_SHOWN_US = 0.001
"""What a message's end lasts: an arrow needs a span at either end."""


def lines(name: str, nodes: int, course: Iterable[Span | Instant | Figure]) -> Iterator[str]:
    """The trace of the run `name` as text, piece by piece."""
    yield '{"displayTimeUnit": "ms", "traceEvents": [\n'
    separator = ""
    for event in (*_described(None, f"fleet {name}"), *(e for n in range(nodes) for e in _described(n, f"node {n}"))):
        yield separator + json.dumps(event)
        separator = ",\n"
    for each in course:
        for event in _events(each):
            yield separator + json.dumps(event)
    yield "\n]}\n"


def _events(each: Span | Instant | Figure) -> Iterator[Mapping[str, object]]:
    if isinstance(each, Figure):
        head = {"ph": "C", "pid": pid_of(None), "ts": _us(each.at_ns)}
        yield head | {"name": each.name, "args": {each.name: each.value}}
    elif isinstance(each, Span):
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


def _described(node: NodeId | None, name: str) -> Iterator[Mapping[str, object]]:
    pid = pid_of(node)
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
    for lane in LANES if node is not None else (FLEET.lane,):
        what = LANES[lane] if node is not None else "events"
        yield _at(Track(node, lane)) | {"ph": "M", "name": "thread_name", "args": {"name": what}}


def _at(track: Track) -> dict[str, object]:
    return {"pid": pid_of(track.node), "tid": tid_of(track)}


def _us(ns: int) -> float:
    return ns / 1000
