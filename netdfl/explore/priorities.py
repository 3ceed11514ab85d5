"""Priority-based schedules: which node's messages come late, as `delay` events (probabilistic concurrency testing).

Every node has a drawn priority, and what it sends comes later by its place times a step. At d - 1 drawn moments, each
a node's round, that node goes to the last place of all for the rest of the run. So things that lie closer together
than a step happen in the order of priorities, and a step is drawn from a nanosecond, which only decides between equal
times, up to the longest delay that the scenario wants.

The bound: let a failure need d things of different nodes in some order, each less than a step from the next, among n
nodes of k rounds. Then a schedule brings it about with a probability of at least 1 / (n (n k)^(d-1)): the first thing's
node must have the right one of n places, and each of d - 1 changes the right one of n k moments. (Burckhardt et al.
2010, with rounds of nodes in the place of a thread's steps.)
"""

from __future__ import annotations

import math
from random import Random

from netdfl.core.units import format_time
from netdfl.explore.faults import Course, rounded
from netdfl.explore.trial import Event


def draw_schedule(course: Course, depth: int, most_ns: int, rng: Random) -> list[Event]:
    """One schedule of `depth`, that delays nothing by more than `most_ns`."""
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


def bound(nodes: int, rounds: int, depth: int) -> float:
    """The least probability with which a schedule of `depth` shows a failure of that depth; see above."""
    return 1 / float(nodes * (nodes * rounds) ** (depth - 1))


def is_priority(event: Event) -> bool:
    """Whether an event is of a schedule of priorities, and no fault."""
    return str(event.get("delay", "")).endswith("->*")


def _delay(node: int, ns: float, when: Event) -> Event:
    return {**when, "delay": f"{node}->*", "by": format_time(rounded(ns))}
