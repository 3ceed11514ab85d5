"""The schedule of an underlay with rerouting: when cuts take links of nodes down, and when routes change.

Without rerouting, a cut of a core link blocks the links of nodes that cross it for as long as it lasts. With rerouting,
routes are found again some time after a cut begins or ends. Messages then take the shortest paths over the core links
that are up; where there is none, they keep the old path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from netdfl.links.schedule.events import STANDING, CompiledEvent
from netdfl.links.selectors import Block
from netdfl.underlay.routes import Routes
from netdfl.underlay.underlay import Underlay

REROUTE = "reroute"


@dataclass(frozen=True, slots=True)
class _Cut:
    """One span of time, in ns, in which a core link is cut; for good if `end` is None."""

    event: CompiledEvent
    start: int
    end: int | None

    def holds(self, at_ns: int) -> bool:
        return self.start <= at_ns and (self.end is None or at_ns < self.end)


def rerouted(events: Sequence[CompiledEvent], underlay: Underlay) -> list[CompiledEvent]:
    """Return the schedule with each cut of a core link replaced by what it causes under rerouting.

    That is: links of nodes are down for a time, and routes change.

    Raises:
        ValueError: A cut is given by rounds, or is healed by an event of its own; the text begins with the event's
            place.
    """
    wait = underlay.reroute_ns
    cuts = list(_cuts(events))
    if wait is None or not cuts:
        return list(events)
    _check(events, cuts)
    changes = {at for cut in cuts for at in (cut.start, cut.end) if at is not None}
    epochs = _epochs(cuts, sorted(changes), wait, underlay)
    moments = sorted(changes | {event.at_ns or 0 for event, _ in epochs})
    found = [event for event in events if event.entry != "cut"] + [event for event, _ in epochs]
    for cut in cuts:
        found += _as_it_acts(cut, moments, [(event.at_ns or 0, routes) for event, routes in epochs], underlay)
    return sorted(found, key=lambda event: event.order)


def cut_times(events: Sequence[CompiledEvent]) -> list[tuple[str, int, int | None]]:
    """Return each cut that is given by time: the core link's name as written, begin and end in ns (None: for good).

    `events` is the schedule before `rerouted`, which replaces these cuts.
    """
    return [(cut.event.core, cut.start, cut.end) for cut in _cuts(events) if cut.event.at_round is None]


def _cuts(events: Sequence[CompiledEvent]) -> Iterator[_Cut]:
    of_cuts = [event for event in events if event.entry == "cut"]
    for place, event in enumerate(of_cuts):
        if event.action == "set":
            later = of_cuts[place + 1 :] if event.cause != STANDING else []
            ends = (each.at_ns for each in later if each.action == "unset" and each.source == event.source)
            yield _Cut(event, event.at_ns or 0, next(ends, None))


def _check(events: Sequence[CompiledEvent], cuts: Sequence[_Cut]) -> None:
    for cut in cuts:
        if cut.event.at_round is not None:
            raise ValueError(f"events[{cut.event.source}]: underlay.reroute needs a clock; give the cut at: 20s")
    heals = [event.source for event in events if event.entry == "heal"]
    if heals and any(cut.end is None for cut in cuts):
        remedy = "give the cut an end itself, like for: 10s"
        raise ValueError(f"events[{heals[0]}]: with underlay.reroute, heal does not end a cut; {remedy}")


def _epochs(
    cuts: Sequence[_Cut], changes: Sequence[int], wait: int, underlay: Underlay
) -> list[tuple[CompiledEvent, Routes]]:
    """Return the changes of routes, each as an event with the routes that hold from then on.

    Routes change `wait` ns after each time in `changes`, if the cuts that last then make them differ.
    """
    found, before = [], underlay.routes_without(())
    for at_ns in changes:
        because = next(cut for cut in cuts if at_ns in (cut.start, cut.end))
        now = at_ns + wait
        without = sorted(
            {link.name for cut in cuts if cut.holds(now) for link in underlay.network.named(cut.event.core)}
        )
        routes = underlay.routes_without(without)
        event = CompiledEvent("set", because.event.source, at_ns=now, entry=REROUTE, core=because.event.core)
        if _differ(before, routes, underlay):
            found.append((replace(event, parameters={"without": without}), routes))
        before = routes
    return found


def _differ(before: Routes, after: Routes, underlay: Underlay) -> bool:
    sites = sorted(underlay.nodes_of)
    return any(underlay.between(a, b, before) != underlay.between(a, b, after) for a in sites for b in sites)


def _as_it_acts(
    cut: _Cut, moments: Sequence[int], epochs: Sequence[tuple[int, Routes]], underlay: Underlay
) -> Iterator[CompiledEvent]:
    """Yield the events that a cut causes: links of nodes are down for as long as their route crosses the cut core link.

    `moments` are the times at which something may change; `epochs` are the routes, each with the time in ns from which
    it holds.
    """
    links = underlay.network.named(cut.event.core)
    spans: list[tuple[int, tuple[Block, ...]]] = []
    for at_ns in [at for at in moments if cut.holds(at)]:
        routes = next((routes for since, routes in reversed(epochs) if since <= at_ns), None)
        blocks = underlay.over(links, routes)
        if not spans or spans[-1][1] != blocks:
            spans.append((at_ns, blocks))
    for place, (start, blocks) in enumerate(spans):
        end = spans[place + 1][0] if place + 1 < len(spans) else cut.end
        if blocks:
            cause = STANDING if end is None else cut.event.source
            event = replace(cut.event, at_ns=start, cause=cause, blocks=blocks)
            yield event
            if end is not None:
                yield replace(event, action="unset", at_ns=end, parameters={})
