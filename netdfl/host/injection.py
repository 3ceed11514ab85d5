"""Fault injection: the timing of scheduled events, by the clock or by the rounds that nodes begin.

The host of a node carries out each event; this module calls it when an event is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from netdfl.core.clock import SCHEDULED, Clock, Timer, TimerName
from netdfl.core.types import NodeId
from netdfl.links.schedule.events import CompiledEvent

ON_NODES = ("crash", "pause", "resume", "slow_down")
"""Scheduled actions that a node's own process carries out. A restart is left to its supervisor."""


def by_node(events: Sequence[CompiledEvent]) -> dict[NodeId, list[CompiledEvent]]:
    """Return the events that each node carries out: its own, and changes of links at the start of its rounds."""
    found: dict[NodeId, list[CompiledEvent]] = {}
    for event in events:
        if event.action in ON_NODES or (event.acts_on_links and event.at_round is not None):
            for node in event.nodes:
                found.setdefault(node, []).append(replace(event, nodes=(node,)))
    return found


class FaultInjection:
    """The timing of scheduled events of one node, or of the links: calls `happen` with each event when it is due.

    Events of one instant share one timer, so that they happen in the schedule's order.
    """

    def __init__(self, events: Sequence[CompiledEvent], clock: Clock, happen: Callable[[CompiledEvent], None]) -> None:
        """Prepare `events`; none happens before `begin` is called."""
        self._clock, self._happen = clock, happen
        self._clocked = [event for event in events if event.at_ns is not None]
        self._by_round = [event for event in events if event.at_round is not None]
        self._timers: list[Timer] = []
        self._due: list[tuple[int, CompiledEvent]] = []

    def due_ns(self, action: str) -> int | None:
        """Return the time of the next timed event with this action, in nanoseconds; None if there is none."""
        now = self._clock.now_ns()
        return min((at_ns for at_ns, event in self._due if event.action == action and at_ns > now), default=None)

    def begin(self, after_round: int | None = None) -> None:
        """Set the timers. After a restart of the node, skip events of rounds up to `after_round`, and past events.

        Of the skipped events, only lasting changes of the node's computing speed are carried out again. A slow-down of
        limited duration is not, because the time of its start is unknown.
        """
        now = self._clock.now_ns()
        if after_round is not None:
            past = [event for event in self._by_round if (event.at_round or 0) <= after_round]
            self._by_round = [event for event in self._by_round if event not in past]
            self._pace(past)
        for at_ns, group in groupby(self._clocked, key=lambda event: event.at_ns or 0):
            if after_round is None or at_ns > now:
                self._set(list(group), at_ns)
            else:
                self._pace(list(group))

    def end(self) -> None:
        """Cancel the timers of the node's own events, because the node has ended or crashed; events of links stay."""
        for timer in self._timers:
            timer.cancel()

    async def begin_round(self, round: int) -> None:
        """Carry out the events that are scheduled for the start of `round`, once."""
        due = [event for event in self._by_round if event.at_round == round]
        if not due:
            return
        self._by_round = [event for event in self._by_round if event.at_round != round]
        now = self._clock.now_ns()
        for event in due:
            if event.acts_on_links:  # a node's rates then change as by the clock
                event = replace(event, at_round=None, at_ns=now + event.after_ns)
            if event.after_ns:
                self._set([event], now + event.after_ns)
            else:
                self._happen(event)
        await asyncio.sleep(0)  # where a crash or a pause takes hold

    def _set(self, events: Sequence[CompiledEvent], at_ns: int) -> None:
        first = events[0]
        name: TimerName = (SCHEDULED, first.source, first.action, *first.nodes)
        timer = self._clock.call_at(at_ns, name, partial(self._all_happen, events))
        self._due += [(at_ns, event) for event in events if event.action in ON_NODES]
        if not first.acts_on_links:  # links go on without the node
            self._timers.append(timer)

    def _all_happen(self, events: Sequence[CompiledEvent]) -> None:
        for event in events:
            self._happen(event)

    def _pace(self, past: Sequence[CompiledEvent]) -> None:
        self._all_happen([event for event in past if event.action == "slow_down"])
