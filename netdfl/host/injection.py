"""Fault injection: when the compiled schedule acts where nodes live, by the clock and by the rounds that they begin.

What an event does is the affair of who hosts the nodes: it is handed each event when its time has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from netdfl.core.clock import SCHEDULED, Clock, TimerName
from netdfl.core.types import NodeId
from netdfl.links.schedule.events import CompiledEvent

ON_NODES = ("crash", "pause", "resume", "slow_down")
"""What the schedule does to a node where it lives. A restart is the affair of who looks after it."""


def events_of(events: Sequence[CompiledEvent], node: NodeId) -> list[CompiledEvent]:
    """What the schedule does to `node` where it lives."""
    return [replace(event, nodes=(node,)) for event in events if node in event.nodes and event.action in ON_NODES]


def _unheeded(event: CompiledEvent, at_ns: int) -> None:
    """Nobody needs to know what is planned."""


class FaultInjection:
    """Hands every event to `happen` when its time has come.

    The events of one instant have one timer, so that they happen in the schedule's order.
    """

    def __init__(
        self,
        events: Sequence[CompiledEvent],
        clock: Clock,
        happen: Callable[[CompiledEvent], None],
        planned: Callable[[CompiledEvent, int], None] = _unheeded,
    ) -> None:
        """Prepare `events`; nothing happens before `begin`. `planned` is told of an event once its time is known."""
        self._clock, self._happen, self._planned = clock, happen, planned
        self._clocked = [event for event in events if event.at_ns is not None]
        self._by_round: dict[NodeId, list[CompiledEvent]] = {}
        for event in events:
            for node in event.nodes if event.at_round is not None else ():
                self._by_round.setdefault(node, []).append(replace(event, nodes=(node,)))

    def begin(self, after_round: int | None = None) -> None:
        """Set the timers. In a later life, rounds up to `after_round` have had their events, and so has the past.

        Of these the pace remains; when a past round began is not known, so a pace that it set for a time is over.
        """
        now = self._clock.now_ns()
        for node, events in self._by_round.items() if after_round is not None else ():
            past = [event for event in events if (event.at_round or 0) <= (after_round or 0)]
            self._by_round[node] = [event for event in events if event not in past]
            self._pace(past)
        for at_ns, group in groupby(self._clocked, key=lambda event: event.at_ns or 0):
            if after_round is None or at_ns > now:
                self._set(list(group), at_ns)
            else:
                self._pace(list(group))

    async def begin_round(self, node: NodeId, round: int) -> None:
        """`node` begins `round`: do, once, what is scripted for that."""
        events = self._by_round.get(node, [])
        due = [event for event in events if event.at_round == round]
        if not due:
            return
        self._by_round[node] = [event for event in events if event.at_round != round]
        now = self._clock.now_ns()
        for event in due:
            if event.action not in (*ON_NODES, "restart"):  # a node's rates then change as by the clock
                event = replace(event, at_round=None, at_ns=now + event.after_ns)
            if event.after_ns:
                self._set([event], now + event.after_ns)
            else:
                self._happen(event)
        await asyncio.sleep(0)  # where a crash or a pause takes hold

    def _set(self, events: Sequence[CompiledEvent], at_ns: int) -> None:
        for event in events:
            self._planned(event, at_ns)
        first = events[0]
        name: TimerName = (SCHEDULED, first.source, first.action, *first.nodes)
        self._clock.call_at(at_ns, name, partial(self._all_happen, events))

    def _all_happen(self, events: Sequence[CompiledEvent]) -> None:
        for event in events:
            self._happen(event)

    def _pace(self, past: Sequence[CompiledEvent]) -> None:
        self._all_happen([event for event in past if event.action == "slow_down"])
