"""Scheduled events from files: contact plans, Mahimahi traces, absences of nodes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from netdfl.core.given_files import given_text
from netdfl.core.types import Edge, Json, NodeId
from netdfl.core.units import TimeNs, parse_time_ns
from netdfl.links.rules.mahimahi import OPPORTUNITY_BYTES, read_trace
from netdfl.links.schedule.compiling import Compiled, DownMode, Entry, check_positive
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Span
from netdfl.links.selectors import Block

T = TypeVar("T")


def contact_plan(
    entry: Entry, /, *, contact_plan: str, file: str, directed: bool = False, mode: DownMode = "down_drop"
) -> Compiled:
    """Keep links down except for the contacts in a CSV file; a link without a contact stays down.

    Columns `start`, `end`, `src`, `dst`; times with a unit, or headed `start_s`, `end_s`, counted from when the event
    begins. Both directions unless `directed`.
    """
    selected, contacts = entry.links(contact_plan), _read_contacts(file, entry.facts.num_nodes, directed)
    for edge in contacts:
        if edge not in selected:
            raise ValueError(f"{file} has contacts of {edge[0]}->{edge[1]}, which is not in {contact_plan}; widen that")
    for span in entry.when:
        if span.by_round:
            raise ValueError("a contact plan is in time and can't go by rounds; use at: 0s")
        together: dict[tuple[tuple[int, int | None], ...], dict[NodeId, set[NodeId]]] = {}
        for src, dst in selected:
            gaps = tuple(_gaps(sorted(contacts.get((src, dst), ())), span))
            together.setdefault(gaps, {}).setdefault(src, set()).add(dst)
        for gaps, links in together.items():
            blocks = [Block(frozenset((src,)), frozenset(dst)) for src, dst in links.items()]
            for start, end in gaps:
                yield from entry.set_links(Span(start, end), blocks, {"state": mode})


def _gaps(contacts: Sequence[tuple[int, int]], span: Span) -> Iterator[tuple[int, int | None]]:
    """Yield the parts of `span` without a contact (a time at which a link is up), as (begin, end).

    Contact times count from the start of `span`.
    """
    down = span.start
    for start, end in contacts:
        begin = span.start + start if span.end is None else min(span.start + start, span.end)
        if begin > down:
            yield down, begin
        down = max(down, span.start + end)
    if span.end is None or down < span.end:
        yield down, span.end


def trace(entry: Entry, /, *, trace: str, file: str, interval: TimeNs = 100_000_000) -> Compiled:
    """Set the rate of links from a trace of Mahimahi's or Pensieve's, as its mean over each interval, over and over.

    For every single opportunity of the trace give the link `rate: {kind: mahimahi}` instead.
    """
    blocks, source = entry.links(trace).blocks, entry.source
    check_positive(interval=interval)
    times, period_ns = read_trace(file)
    if not times or times[-1] <= 0:
        raise ValueError(f"the trace {file} is empty; expected at least one line with a time in ms above 0")
    num_intervals = -(-period_ns // interval)
    bits = [0] * num_intervals
    for at_ns in times:
        bits[min(at_ns // interval, num_intervals - 1)] += 8 * OPPORTUNITY_BYTES
    for span in entry.when:
        stop = entry.end_of(span)
        for place, start in enumerate(range(span.start, stop, interval)):
            rate_bps = bits[place % num_intervals] * 1e9 / interval
            changes = {"rate": {"kind": "serial", "rate": rate_bps}}
            yield CompiledEvent("set", source, at_ns=start, cause=source, blocks=blocks, parameters=changes)
        yield CompiledEvent("unset", source, at_ns=stop, cause=source, blocks=blocks)


def _rows(file: str, read: Callable[[Json], T], columns: str) -> Iterator[tuple[str, T]]:
    """Yield `file:line` and the result of `read` for each row of a CSV file; `columns` names those expected.

    Raises ValueError for a bad row.
    """
    for number, row in enumerate(csv.DictReader(given_text(file).splitlines(), skipinitialspace=True), start=2):
        try:
            yield f"{file}:{number}", read(row)
        except (KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"{file}:{number}: {exc}; expected the columns {columns}") from exc


def _read_contacts(file: str, num_nodes: int, directed: bool) -> dict[Edge, list[tuple[int, int]]]:
    contacts: dict[Edge, list[tuple[int, int]]] = {}
    for where, (start, end, edge) in _rows(file, _contact, "start_s, end_s, src, dst"):
        if start >= end or edge[0] == edge[1] or not all(0 <= n < num_nodes for n in edge):
            raise ValueError(f"{where}: expected 0 <= start < end and two nodes of 0 to {num_nodes - 1}")
        for each in (edge,) if directed else (edge, edge[::-1]):
            contacts.setdefault(each, []).append((start, end))
    if not contacts:
        raise ValueError(f"the contact plan {file} is empty; expected a row for each contact")
    return contacts


def _contact(row: Json) -> tuple[int, int, Edge]:
    return _time(row, "start"), _time(row, "end"), (int(row["src"]), int(row["dst"]))


def _time(row: Json, name: str) -> int:
    return parse_time_ns(row[name]) if name in row else parse_time_ns(row[f"{name}_s"] + "s")


def absences_of(file: str, entry: Entry, nodes: Sequence[NodeId]) -> Iterator[tuple[NodeId, int, int | None]]:
    """Yield the absences of `nodes` within the entry's spans, read from a CSV file; end None: the node stays away.

    Raises ValueError for a file that is not in this form, and where a node would leave twice.
    """
    absences = _read_absences(file, entry.facts.num_nodes)
    for span in entry.when:
        if span.by_round:
            raise ValueError("absences in a file are in time and can't go by rounds; use at: 0s")
        stop = span.end if span.end is not None else entry.facts.end_ns
        for node in nodes:
            for leave, join in absences.get(node, ()):
                start, end = span.start + leave, None if join is None else span.start + join
                if stop is None or start < stop:
                    yield node, start, min((each for each in (end, span.end) if each is not None), default=None)


def _read_absences(file: str, num_nodes: int) -> dict[NodeId, list[tuple[int, int | None]]]:
    found: dict[NodeId, list[tuple[int, int | None]]] = {}
    for where, (node, leave, join) in _rows(file, _absence, "node, leave_s, join_s"):
        if not 0 <= node < num_nodes or (join is not None and join <= leave):
            raise ValueError(f"{where}: expected a node of 0 to {num_nodes - 1} and 0 <= leave < join")
        found.setdefault(node, []).append((leave, join))
    if not found:
        raise ValueError(f"the churn trace {file} is empty; expected a row for each absence")
    for node, absences in found.items():
        absences.sort(key=lambda absence: absence[0])
        for (_, join), (leave, _) in pairwise(absences):
            if join is None or leave <= join:
                raise ValueError(f"{file}: node {node} leaves at {leave / 1e9:g} s, and is away then already")
    return found


def _absence(row: Json) -> tuple[NodeId, int, int | None]:
    returns = row.get("join") or row.get("join_s")
    return int(row["node"]), _time(row, "leave"), _time(row, "join") if returns else None
