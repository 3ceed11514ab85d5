"""Counts of randomly drawn faults that had an effect in a simulated run.

A crash of a node that had ended before, or an outage of a link in which no message was lost or delayed, proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from netdfl.core.fates import DOWN, LOSS, RESET, SCRIPTED, Fate
from netdfl.core.types import Edge, Json
from netdfl.core.units import parse_time_ns
from netdfl.explore.execute import ExploredRun
from netdfl.explore.mutations import is_priority
from netdfl.explore.rows import MessageRow
from netdfl.explore.trial import Event
from netdfl.scenario.build import build_underlay

Acted: TypeAlias = dict[str, tuple[int, int]]
"""For each kind of fault, how many faults were drawn at random, and how many of them had an effect on a run."""
SCHEDULE = "schedule"
"""The name under which delays that set priorities between nodes (see `mutations`) are counted as one kind of fault."""
_NAMES = {
    "link": "cut",
    "partition": "partition",
    "pause": "pause",
    "slow_down": "slow",
    "drop": "loss",
    "delay": "delay",
    "cut": "core",
    "core": "core",
}
_DROPPED = (Fate.dropped(DOWN).text, Fate.dropped(RESET).text)


def acted_of(run: ExploredRun, events: Sequence[Event]) -> Acted:
    """Count, for each kind of fault among the randomly drawn `events`, all faults and those with an effect in `run`."""
    drawn, acted = Counter[str](), Counter[str]()
    for event in events:
        kind = kind_of(event)
        drawn[kind] += 1
        acted[kind] += _acts(run, event)
    return {kind: (drawn[kind], acted[kind]) for kind in drawn}


def added(one: Acted, other: Acted) -> Acted:
    """Add two tables of counts, kind by kind."""
    sums = {kind: (one.get(kind, (0, 0)), other.get(kind, (0, 0))) for kind in {**one, **other}}
    return {kind: (a[0] + b[0], a[1] + b[1]) for kind, (a, b) in sums.items()}


def kind_of(event: Event) -> str:
    """Return the kind of a randomly drawn fault, by its name in the scenario's `explore.rates`."""
    if "crash" in event:
        lost = "crash_lost" if event.get("state") == "lost" else "crash_kept"
        return lost if "restart_after" in event else "crash"
    if is_priority(event):
        return SCHEDULE
    return next(kind for key, kind in _NAMES.items() if key in event)


def _acts(run: ExploredRun, event: Event) -> bool:
    for key in ("crash", "pause", "slow_down"):
        if key in event:
            return any(
                e.kind == key and e.node == event[key] and _is_at(event, e.at_ns, e.round) for e in run.rows.events
            )
    if "drop" in event:
        return any(m.fate == Fate.dropped(SCRIPTED).text and _is_named(event, "drop", m) for m in run.rows.messages)
    if "delay" in event:
        return any(_is_named(event, "delay", m) for m in run.rows.messages)
    if "cut" in event or "core" in event:
        return any(_is_changed(event, m) for m in _over_core(run, str(event.get("cut", event.get("core")))))
    return any(_is_cut(event, m) for m in run.rows.messages)


def _is_at(event: Event, at_ns: int, round: int) -> bool:
    if "at_round" in event:
        return bool(round == event["at_round"])
    return at_ns == parse_time_ns(event["at"])


_IDENTITY = ("step", "attempt", "incarnation")


def _is_named(event: Event, action: str, message: MessageRow) -> bool:
    """Return whether a fault that names messages, such as a scripted loss or delay, names this message.

    `action` is the key of the event that holds the link, such as `drop`.
    """
    src, _, dst = str(event[action]).partition("->")
    if str(message.src) != src or dst not in ("*", str(message.dst)) or not _is_in_rounds(event, message.round):
        return False
    kind = event.get("kind", "data" if action == "drop" else message.kind)
    said = zip(_IDENTITY, (message.step, message.attempt, message.epoch), strict=True)
    return bool(kind == message.kind and all(event.get(key, value) == value for key, value in said))


def _is_in_rounds(event: Event, round: int) -> bool:
    first = event.get("at_round")
    return first is None or bool(first <= round < first + event.get("for_rounds", 1))


def _over_core(run: ExploredRun, core_link: str) -> Iterator[MessageRow]:
    """Yield the messages of `run` whose route crosses this core link, in one of the directions that its name covers."""
    underlay = build_underlay(run.scenario)
    blocks = () if underlay is None else underlay.crossing(core_link)
    return (m for m in run.rows.messages if any((m.src, m.dst) in block for block in blocks))


def _is_changed(event: Json, message: MessageRow) -> bool:
    """Return whether `event`, a cut or change of a core link, affected this message, whose route crosses that link."""
    if "cut" in event:
        return _is_held(event, message)
    begin, end = _span(event)
    if "loss" in event:
        return message.fate == Fate.dropped(LOSS).text and begin <= message.sent_ns < end
    return message.sent_ns < end and (message.arrived_ns is None or message.arrived_ns > begin)


def _span(event: Json) -> tuple[int, int]:
    begin = parse_time_ns(event["at"])
    return begin, begin + parse_time_ns(event["for"])


def _is_cut(event: Json, message: MessageRow) -> bool:
    """Return whether `event`, an outage of a link or a network partition, lost or held back this message."""
    if not _is_between(event, (message.src, message.dst)) or not _is_in_rounds(event, message.round):
        return False
    return message.fate in _DROPPED if "at_round" in event else _is_held(event, message)


def _is_held(event: Json, message: MessageRow) -> bool:
    """Return whether `event`, an outage with a start time and a duration, lost or held back this message."""
    begin, end = _span(event)
    if message.sent_ns >= end:
        return False
    if message.arrived_ns is None:
        return message.fate in (*_DROPPED, Fate.IN_FLIGHT.text)
    holds = "down_hold" in (event.get("state"), event.get("mode"))
    return holds and begin <= message.sent_ns  # what was under way before comes in its time


def _is_between(event: Json, edge: Edge) -> bool:
    if "link" in event:
        return f"{edge[0]}->{edge[1]}" == str(event["link"])
    sides = [{int(node) for node in side} for side in event["partition"]]
    return not any(set(edge) <= side for side in sides)
