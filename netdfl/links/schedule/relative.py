"""The check of relative changes, such as `rate: x0.5`: each needs a value that it multiplies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netdfl.links.schedule.events import CompiledEvent, is_relative, name_nodes
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import RELATIVE_KEYS


def multiply_nothing(events: Sequence[CompiledEvent], facts: Facts) -> Iterator[tuple[int, str]]:
    """Yield each entry with a relative change that surely changes nothing: its index, and a text about the fault.

    `events` are all of the schedule, in order. A relative change multiplies what the scenario's links say of the rule
    (`facts.says`), or what another event has set before and not ended. Where any of its links may have such a value,
    nothing is yielded.
    """
    found: dict[tuple[int, str], CompiledEvent] = {}
    by_clock: dict[int, CompiledEvent] = {}
    absolute = {event.source: event for event in events if any(_gives(event, key) for key in RELATIVE_KEYS)}
    by_round = [event for event in absolute.values() if event.at_round is not None]
    acting: set[tuple[int, str]] = set()
    for event in events:
        if event.action == "unset":
            by_clock.pop(event.source, None)
        for key, change in event.parameters.items() if event.action == "set" else ():
            if is_relative(change):
                before = [*by_clock.values(), *by_round] if event.at_round is None else absolute.values()
                found.setdefault((event.source, key), event)
                if any(_gives(other, key) and _meets(other, event) for other in before):
                    acting.add((event.source, key))
            elif event.at_round is None and key in RELATIVE_KEYS and _gives(event, key):
                by_clock[event.source] = event
    for (source, key), event in found.items():
        if (source, key) not in acting and not facts.says(event, key):
            yield source, _what(event, key)


def _gives(event: CompiledEvent, key: str) -> bool:
    """Return whether `event` sets the rule `key` to a value of its own, which a relative change can multiply."""
    change = event.parameters.get(key)
    return change not in (None, "none") and not is_relative(change)


def _meets(one: CompiledEvent, other: CompiledEvent) -> bool:
    """Return whether two events may act on the same link, the same node's up- or downlink, or the same core link."""
    if one.core or other.core:
        return bool(one.core and other.core)
    return not set(one.nodes).isdisjoint(other.nodes) or any(a.meets(b) for a in one.blocks for b in other.blocks)


def _what(event: CompiledEvent, key: str) -> str:
    place = f"node {name_nodes(event.nodes)}" if event.nodes else event.where
    scale, under = event.parameters[key]["scale"], "underlay.links" if event.core else "links"
    what = f"{key}: x{scale:g} changes nothing, as no {key} is given for {place}"
    return f"{what}; give the {key} itself, or one for it under {under}"
