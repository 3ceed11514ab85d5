"""Edits that make a scenario smaller, on plain values: fewer events, nodes, links and keys, shorter times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import reduce
from itertools import combinations, product
from typing import Any, TypeAlias

from netdfl.core.types import Edge, Json
from netdfl.core.units import format_time, parse_time_ns
from netdfl.explore.rows import MessageRow

Plain: TypeAlias = dict[str, Any]
"""A scenario as nested dicts, lists and plain values, with all short forms written out."""
ON_LINKS = ("link", "drop", "delay", "heal", "flap", "random")
ON_NODES = ("crash", "restart", "join", "pause", "resume", "slow_down", "node", "churn")
_ROUNDS = ("at_round", "for_rounds")
_NAMING = ("kind", "step", "attempt", "incarnation", "number")
_TIMES = ("for", "by", "restart_after", "at")
MOST_PAIRED = 8
MOST_TOGETHER = 3
LEAST_NS = 1_000_000
"""Nanoseconds: no time in a scenario is made shorter than this, as people would see no difference."""


def with_events(plain: Plain, events: Sequence[Json]) -> Plain:
    """Return the scenario with `events` as its only events."""
    return {**plain, "events": [dict(event) for event in events]}


def fewer_events(plain: Plain) -> Iterator[Plain]:
    """Yield the scenario with two of its events removed, or replaced by one, for each pair of events.

    One event replaces two that are alike except for their rounds, and lasts from the first to the last of these rounds.
    With more than `MOST_PAIRED` events, no pairs are tried.
    """
    for pair in combinations(plain["events"], 2) if len(plain["events"]) <= MOST_PAIRED else ():
        rest = [event for event in plain["events"] if event not in pair]
        yield with_events(plain, rest)
        if (lasting := _lasting(*pair)) is not None:
            yield with_events(plain, [*rest, lasting])


def _lasting(one: Json, other: Json) -> Plain | None:
    """Return one event that lasts from the first to the last round of two events.

    None if they differ in more than their rounds, or are scheduled by time and not by round.
    """
    what, same = ({key: event[key] for key in event if key not in _ROUNDS} for event in (one, other))
    if what != same or not all("at_round" in event for event in (one, other)):
        return None
    first = min(one["at_round"], other["at_round"])
    ends = max(event["at_round"] + event.get("for_rounds", 1) for event in (one, other))
    return {"at_round": first, "for_rounds": ends - first, **what}


# nodes and links


def fewer_nodes(plain: Plain) -> Iterator[Plain]:
    """Yield the scenario with half of the clients, with a few fewer, and with one fewer."""
    for many in dict.fromkeys((plain["nodes"] // 2, plain["nodes"] // 4, 2)):
        smaller: Plain | None = plain
        for _ in range(many):
            smaller = None if smaller is None else without_node(smaller, smaller["nodes"] - 1)
        if smaller is not None and many > 1:
            yield smaller
    for node in reversed(range(plain["nodes"])):
        if (without := without_node(plain, node)) is not None:
            yield without


def without_node(plain: Plain, gone: int) -> Plain | None:
    """Return the scenario without client number `gone`, the later nodes renumbered; None if that is impossible."""
    if plain["nodes"] < 2 or plain.get("groups") or gone >= plain["nodes"]:
        return None
    moved = deepcopy(plain)
    moved["nodes"] -= 1
    try:
        events = (_without_node(event, gone) for event in plain["events"])
        moved["events"] = [event for event in events if event is not None]
        links = {_rename(selector, gone): rules for selector, rules in plain.get("links", {}).items()}
        moved["links"] = {selector: rules for selector, rules in links.items() if selector is not None}
    except ValueError:
        return None
    edges = moved["topology"].get("edges")
    if edges:
        left = [edge for edge in edges if gone not in edge]
        moved["topology"]["edges"] = [[_moved(end, gone) for end in edge] for edge in left]
    return moved


def _without_node(event: Json, gone: int) -> Plain | None:
    new = dict(event)
    for key in event:
        if key in ON_LINKS or key in ON_NODES:
            named = _rename(str(event[key]), gone)
            if named is None:
                return None
            new[key] = int(named) if named.isdigit() else named
        elif key == "partition":
            parts = [[_moved(int(node), gone) for node in part if int(node) != gone] for part in event[key]]
            if not all(parts):
                return None
            new[key] = parts
    return new


def _rename(text: str, gone: int) -> str | None:
    """Renumber the nodes in the link or node selector `text`; None if it names the removed node `gone`.

    Raises ValueError for ranges.
    """
    if ".." in text or "," in text:
        raise ValueError(text)
    if str(gone) in re.findall(r"\d+", text):
        return None
    return re.sub(r"\d+", lambda match: str(_moved(int(match[0]), gone)), text)


def _moved(node: int, gone: int) -> int:
    return node - (node > gone)


def with_edges(plain: Plain, edges: Sequence[Edge]) -> Plain:
    """Return the scenario on a graph of exactly these edges, undirected if every edge has its reverse."""
    both = all(edge[::-1] in edges for edge in edges)
    listed = [list(edge) for edge in edges if not both or edge[0] < edge[1]]
    kept = {key: plain["topology"][key] for key in ("weights", "selection") if key in plain["topology"]}
    topology = {**kept, "kind": "edge_list", "edges": listed} | ({} if both else {"directed": True})
    return {**plain, "topology": topology}


# rounds and times


def with_rounds(plain: Plain, rounds: int) -> Plain:
    """Return the scenario with only `rounds` rounds; events of later rounds are left out, longer ones are shortened."""
    events = []
    for event in plain["events"]:
        if event.get("at_round", 0) >= rounds:
            continue
        left = rounds - event.get("at_round", 0)
        events.append({**event, "for_rounds": min(event["for_rounds"], left)} if "for_rounds" in event else event)
    return with_events({**plain, "rounds": rounds}, events)


def earlier(plain: Plain) -> Iterator[Plain]:
    """Yield the scenario with earlier events: all moved, so that the first is in round 0 or 1, or a single one moved.

    Events scheduled by time are moved to one of the first rounds.
    """
    events = plain["events"]
    first = min((event["at_round"] for event in events if "at_round" in event), default=0)
    for to in (0, 1):
        if first > to:
            by = first - to
            yield with_events(plain, [{**e, "at_round": e["at_round"] - by} if "at_round" in e else e for e in events])
    for place, event in enumerate(events):
        for to in dict.fromkeys((0, 1, event.get("at_round", 0) - 1)):
            if 0 <= to < event.get("at_round", 0):
                yield _with(plain, place, {**event, "at_round": to})
        yield from (_with(plain, place, by_round) for by_round in _by_rounds(event))
    yield from _together(plain)


def _together(plain: Plain) -> Iterator[Plain]:
    """Yield the scenario with its two or three events scheduled by time moved together into the first rounds."""
    forms = [[event, *_by_rounds(event)] for event in plain["events"]]
    if 1 < sum(len(each) > 1 for each in forms) <= MOST_TOGETHER:
        yield from (with_events(plain, events) for events in product(*forms) if list(events) != plain["events"])


def _by_rounds(event: Json) -> Iterator[Plain]:
    """Yield versions of an event scheduled by time in which one of the first rounds replaces the time."""
    if "at" not in event or "partition" in event or str(event.get("state")) in ("down_hold", "down_reset"):
        return
    left = {key: value for key, value in event.items() if key not in ("at", "for" if "link" in event else "")}
    for round in range(3):
        yield {"at_round": round, **({"for_rounds": 1} if "link" in event else {}), **left}


def shorter(plain: Plain) -> Iterator[Plain]:
    """Yield the scenario with one event shortened or its time rounded, or without one of the event's keys."""
    for place, event in enumerate(plain["events"]):
        for key in (key for key in (*_NAMING, "mode", "state", "for_rounds") if key in event):
            if key != "state" or "link" not in event:
                yield _with(plain, place, {name: value for name, value in event.items() if name != key})
        if event.get("for_rounds", 1) > 1:
            yield _with(plain, place, {**event, "for_rounds": event["for_rounds"] // 2})
        for key in (key for key in _TIMES if key in event):
            ns = parse_time_ns(event[key])
            for less in dict.fromkeys((ns // 10, ns // 2, _round_down(ns), _round_down(ns, digits=2))):
                if LEAST_NS <= less < ns:
                    yield _with(plain, place, {**event, key: format_time(less)})


def _round_down(ns: int, digits: int = 1) -> int:
    """Return `ns` rounded down to this number of digits."""
    unit = int(10 ** max(0, len(str(ns)) - digits))
    return ns // unit * unit


def _with(plain: Plain, place: int, event: Mapping[str, object]) -> Plain:
    return with_events(plain, [*plain["events"][:place], event, *plain["events"][place + 1 :]])


def single_delays(event: Json, messages: Sequence[MessageRow]) -> Iterator[Plain]:
    """Yield events that delay single messages, by round and link, for an event that delays all of a node's messages."""
    node, first = int(str(event["delay"]).partition("->")[0]), event.get("at_round", 0)
    sent = {(m.round, m.dst) for m in messages if m.src == node and m.round >= max(first, 0)}
    for round, to in sorted(sent):
        yield {"at_round": round, "delay": f"{node}->{to}", "by": event["by"]}


# keys

Path: TypeAlias = tuple[str, ...]
_NEEDED = ("schema", "name", "nodes", "rounds", "algorithm", "topology", "task", "world", "events", "expect")
_CHOICES = ("kind", "name", "dist", "model")
STUDIED = ("algorithm", "wait", "delivery", "compression", "failure_detector", "expect")
"""Keys of a scenario that shrinking does not change, because another value would make it a different failure."""


def keys_of(plain: Plain, but: Sequence[str] = (), path: Path = ()) -> Iterator[Path]:
    """Yield the paths of keys that might be removed from a scenario, outer ones first, except top-level keys in `but`.

    Only keys below `path` are visited.
    """
    here = _at(plain, path)
    for key, value in here.items():
        if not path and key in but:
            continue
        if key not in (_CHOICES if path else _NEEDED):
            yield (*path, key)
        if isinstance(value, dict) and (*path, key) != ("expect",):
            yield from keys_of(plain, but, (*path, key))


def without_key(plain: Plain, path: Path) -> Plain | None:
    """Return the scenario without the key at `path`; None if it has no such key any more."""
    without = deepcopy(plain)
    try:
        del _at(without, path[:-1])[path[-1]]
    except KeyError:
        return None
    return without


def _at(plain: Plain, path: Path) -> Plain:
    return reduce(lambda here, key: here[key], path, plain)
