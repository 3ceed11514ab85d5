"""Mutations of a trial's faults (other times, other nodes), and priority schedules.

In a priority schedule (probabilistic concurrency testing) the nodes are put in a drawn order. Scenario events of the
kind `delay` delay each node's messages by the node's place in this order (0, 1, ...) times a step, which is a drawn
duration. At d - 1 drawn moments, each a round of a node, that node moves to the last place for the rest of the run. So
messages closer together than a step arrive in the order of the places. The step is between a nanosecond, which only
orders messages that would arrive at the same time, and the length with which the last place has the longest delay that
the scenario allows.

The bound: let a failure need d events of different nodes in some order, each less than a step from the next, among n
nodes of k rounds. Then a schedule causes it with a probability of at least 1 / (n (n k)^(d-1)): the node of the first
event must have the right one of n places, and each of d - 1 changes the right one of n k moments. (Burckhardt et al.
2010, with rounds of nodes in place of a thread's steps.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeAlias

from netdfl.core.types import NodeId
from netdfl.core.units import format_time, parse_time_ns
from netdfl.explore.edits import ON_LINKS, ON_NODES
from netdfl.explore.faults import Baseline, rounded
from netdfl.explore.trial import Event

Renaming: TypeAlias = Sequence[NodeId]
"""A permutation of the nodes: the new number of each node, at the index of its old number."""
_LENGTHS = (0.25, 0.5, 0.8, 1.25, 2, 4)
_NODES = ("crash", "pause", "slow_down")


def moved(event: Event, course: Baseline, rng: Random) -> Event:
    """Return a fault event with one random change: moved by some rounds or to a nearby time, or of another length."""
    changed = dict(event)
    keys = [key for key in ("at_round", "at", "for", "by", "restart_after") if key in event]
    key = rng.choice(keys) if keys else ""
    if key == "at_round":
        changed[key] = max(0, min(course.rounds - 1, event[key] + rng.choice((-2, -1, 1, 2))))
    elif key == "at":
        near = parse_time_ns(event[key]) + rng.gauss(0, 1) * rng.choice((0.1, 1)) * course.round_ns
        changed[key] = format_time(rounded(max(1, near)))
    elif key:
        changed[key] = format_time(rounded(parse_time_ns(event[key]) * rng.choice(_LENGTHS)))
    return changed


def later(event: Event, rounds: int, course: Baseline) -> Event:
    """Return a fault event moved by `rounds` rounds, within the rounds of the run `course`."""
    changed = dict(event)
    if "at_round" in event:
        changed["at_round"] = at = max(0, min(course.rounds - 1, event["at_round"] + rounds))
        if "for_rounds" in event:
            changed["for_rounds"] = min(event["for_rounds"], course.rounds - at)
    elif parse_time_ns(event.get("at", "0s")):
        changed["at"] = format_time(max(1, parse_time_ns(event["at"]) + rounds * course.round_ns))
    return changed


def aligned(event: Event, other: Event, rng: Random) -> Event:
    """Return the fault `event` moved to the time of `other`, or to its node, or both, or neither, at random."""
    found = dict(event)
    when = next((key for key in ("at_round", "at") if key in other), "")
    if rng.random() < 0.7 and when in event:
        found[when] = other[when]
    nodes = next((other[key] for key in _NODES if key in other), None)
    mine = next((key for key in _NODES if key in event), None)
    if mine is not None and nodes is not None and rng.random() < 0.5:
        found[mine] = nodes
    return found


def renamed(event: Event, names: Renaming) -> Event:
    """Return a fault event with its nodes renumbered by the permutation `names`."""
    found = dict(event)
    for key in event:
        if key == "partition":
            found[key] = [sorted(names[int(node)] for node in part) for part in event[key]]
        elif key in ON_LINKS or key in ON_NODES:
            text = re.sub(r"\d+", lambda match: str(names[int(match[0])]), str(event[key]))
            found[key] = int(text) if text.isdigit() else text
    return found


def symmetries(course: Baseline) -> list[Renaming]:
    """Return permutations of the nodes that preserve the graph of messages: rotations, reflections, swaps of two."""
    edges = {(m.src, m.dst) for m in course.messages}
    return [names for names in _renamings(course.nodes) if {(names[src], names[dst]) for src, dst in edges} == edges]


def _renamings(nodes: int) -> Iterator[Renaming]:
    for sign in (1, -1):
        for by in range(nodes):
            if (sign, by) != (1, 0):
                yield [(sign * node + by) % nodes for node in range(nodes)]
    for one in range(nodes):
        for other in range(one):
            yield [other if node == one else one if node == other else node for node in range(nodes)]


def draw_schedule(course: Baseline, depth: int, most_ns: int, rng: Random) -> list[Event]:
    """Draw a priority schedule: events that delay each node's messages by a drawn priority, by at most `most_ns`.

    The priority of one node changes at each of `depth` - 1 drawn rounds.
    """
    places = list(range(course.nodes))
    rng.shuffle(places)
    widest = most_ns / (course.nodes + depth)
    if depth < 1 or widest < 1:
        return []
    step_ns = math.exp(rng.uniform(0, math.log(widest)))
    events = [_delay(node, place * step_ns, {"at": "0s"}) for node, place in enumerate(places) if place]
    moments = [(rng.randrange(course.nodes), rng.randrange(course.rounds)) for _ in range(depth - 1)]
    for last, (node, round) in enumerate(sorted(moments, key=lambda moment: moment[1])):
        to = course.nodes + last
        until = {"at_round": round, "for_rounds": course.rounds - round}
        events.append(_delay(node, (to - places[node]) * step_ns, until))
        places[node] = to
    return events


def is_priority(event: Event) -> bool:
    """Return whether an event delays all of a node's messages, as a priority schedule does, and is not a fault."""
    return str(event.get("delay", "")).endswith("->*")


def _delay(node: int, ns: float, when: Event) -> Event:
    return {**when, "delay": f"{node}->*", "by": format_time(rounded(ns))}
