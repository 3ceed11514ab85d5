"""Contradictions among schedule entries about one node, such as the restart of a node that never crashed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from netdfl.core.types import NodeId
from netdfl.core.units import format_time
from netdfl.links.schedule.events import CompiledEvent

Conflict: TypeAlias = tuple[int, str]
"""The index of a schedule entry, and a text about its fault."""

_ENDS = {"crash": "restart", "pause": "resume", "slow_down": "slow_down"}
_DONE = {"crash": "crashed", "pause": "paused", "slow_down": "slowed down"}


def node_conflicts(events: Iterable[CompiledEvent]) -> Iterable[Conflict]:
    """Return each entry's first contradiction about a node, if it is certain before the run.

    Times can't be compared with rounds before the run. So for each kind of fault on one node, events by the clock are
    compared with each other if there are no others, and events by rounds likewise. `events` are in order of time.
    """
    mine: defaultdict[tuple[NodeId, str], list[CompiledEvent]] = defaultdict(list)
    for event in events:
        for begin, end in _ENDS.items():
            if event.action in (begin, end) or (event.action, begin) == ("crash", "pause"):
                for node in event.nodes:
                    mine[node, begin].append(event)
    found: dict[int, str] = {}
    for (node, begin), its in sorted(mine.items()):
        for index, what in _conflicts(node, begin, its):
            found.setdefault(index, what)
    return found.items()


def before_joining(events: Sequence[CompiledEvent]) -> Iterator[Conflict]:
    """Yield the first entry that lets a node join twice or, if none does, that acts on a node before it has joined."""
    joins: dict[NodeId, CompiledEvent] = {}
    for event in (event for event in events if event.action == "join"):
        for node in event.nodes:
            if (first := joins.setdefault(node, event)) is not event:
                what = f"at {_when(event)} node {node} would join, which joins by events[{first.source}] at"
                yield event.source, f"{what} {_when(first)} already; a node joins once: crash and restart say the rest"
                return
    for event in (event for event in events if event.action in _WHILE_THERE):
        for node in event.nodes:
            if node in joins and _is_before(event, joins[node]):
                what = f"at {_when(event)} it would {event.action.replace('_', ' ')} node {node}, which joins at"
                yield event.source, f"{what} {_when(joins[node])} only; move it behind the join"
                return


_WHILE_THERE = ("crash", "restart", "pause", "resume", "slow_down")


def _is_before(event: CompiledEvent, join: CompiledEvent) -> bool:
    """Return whether `event` happens at or before the moment of `join`, by which a node joins late.

    Times and rounds can't be compared.
    """
    if event.at_ns is not None and join.at_ns is not None:
        return event.at_ns <= join.at_ns
    return event.at_round is not None and join.at_round is not None and event.at_round <= join.at_round


def _conflicts(node: NodeId, begin: str, events: Sequence[CompiledEvent]) -> Iterator[Conflict]:
    begun = [event for event in events if event.action == begin and not event.ends]
    ending = {event.source for event in events if event.ends} & {event.source for event in begun}
    in_rounds_alone = all(event.at_round is not None and not event.after_ns for event in events)
    if all(event.at_round is None for event in events) or (begin == "slow_down" and in_rounds_alone):
        yield from _in_order(node, begin, events, ending)
    elif begin != "slow_down" and all(event.at_round is not None for event in events):
        for first, then in pairwise(begun):
            if first.at_round == then.at_round or first.source not in ending:
                yield then.source, _again(node, first, then)
                return


def _in_order(node: NodeId, begin: str, events: Sequence[CompiledEvent], ending: set[int]) -> Iterator[Conflict]:
    """Yield the first conflict among scheduled faults of one kind on one node, such as a second crash before a restart.

    Args:
        node: the node.
        begin: the action that begins a fault of this kind, such as `crash`.
        events: the events of this kind on the node, in order.
        ending: the entries whose faults have a scheduled end.
    """
    now: CompiledEvent | None = None
    for event in events:
        by_itself = now is not None and bool({event.source, now.source} & ending)
        if event.action == "crash" != begin:
            now = None  # a pause ends with the life
        elif not event.ends:
            if now is not None and (by_itself or begin != "slow_down"):
                yield event.source, _again(node, now, event)
                return
            now = event
        elif now is None:
            if begin != "slow_down" and event.source not in ending:
                what = f"it would {event.action} node {node} at {_when(event)}, which is not {_DONE[begin]} then"
                yield event.source, f"{what}; move it behind a {begin}"
                return
        else:
            if by_itself and event.source != now.source:
                what = f"at {_when(event)} it would end for node {node} what events[{now.source}] began at {_when(now)}"
                yield event.source, f"{what}, and one of them says itself when it ends; let one entry say it all"
                return
            now = None


def _again(node: NodeId, first: CompiledEvent, then: CompiledEvent) -> str:
    """Return the error text for the fault `then`, which begins while the earlier fault `first` still lasts."""
    done, what = _DONE[then.action], f"at {_when(then)} it would {then.action.replace('_', ' ')} node {node}"
    if first.source == then.source:
        return f"{what}, which it has {done} at {_when(first)} already; let it end before it begins again"
    whole = f"{what} in the midst of events[{first.source}], which did so at {_when(first)}"
    return f"{whole}; join them to one entry, or give them other times"


def _when(event: CompiledEvent) -> str:
    return f"round {event.at_round}" if event.at_ns is None else format_time(event.at_ns)
