"""Sends units through links by the engine, under a schedule, and tells what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from netdfl.core.types import MessageId, StepId
from netdfl.links.channel import Links
from netdfl.links.edge_state import EdgeState, PathPlan
from netdfl.links.engine import Arrival, InFlight, LinkEngine, Order, by_order_key
from netdfl.links.path import Path
from netdfl.links.rules.base import Transit
from netdfl.links.rules.keyed_random import edge_order_key, message_order_key
from netdfl.links.schedule.events import CompiledEvent


class UnitEnd(NamedTuple):
    """The end of a unit: it arrived at `at_ns`, or was dropped then for a `reason`."""

    at_ns: int
    unit: Transit
    reason: str | None = None


class LinkRun:
    """Units on their paths. Each path's stages are entered one by one, unless it is `computed`."""

    def __init__(self, seed: int = 0, *, order: Order = by_order_key, computed: bool = False) -> None:
        self.seed, self.computed = seed, computed
        self.ends: list[UnitEnd] = []
        self.engine: LinkEngine[EdgeState, Transit] = LinkEngine(self._arrived, self._dropped, order)
        self._edges: dict[tuple[tuple[int, int], int], EdgeState] = {}

    def _arrived(self, arrivals: Sequence[Arrival[EdgeState, Transit]], at_ns: int) -> None:
        ordered = by_order_key(list(arrivals)) if self.computed else arrivals
        self.ends += [UnitEnd(at_ns, unit or content) for _, _, content, unit in ordered]

    def _dropped(self, unit: InFlight[EdgeState, Transit], reason: str, at_ns: int) -> None:
        self.ends.append(UnitEnd(at_ns, unit.alone, reason))

    def _edge(self, path: Path, unit: Transit) -> EdgeState:
        key = (unit.src, unit.dst), id(path)
        if key not in self._edges:
            plan = PathPlan.computed(path, changing=False) if self.computed else PathPlan.stage_by_stage(path)
            self._edges[key] = EdgeState(key[0], path, plan, edge_order_key(self.seed, *key[0]))
        return self._edges[key]

    def enter(self, path: Path, unit: Transit, now_ns: int) -> None:
        """Put `unit` on `path` now."""
        edge, id = self._edge(path, unit), _id(unit)
        self.engine.enter(edge, unit, id, unit.nbytes, edge.order_key ^ message_order_key(self.seed, id), now_ns)

    def submit(self, path: Path, unit: Transit, at_ns: int) -> None:
        """Put `unit` on `path` at a time to come."""
        edge, id = self._edge(path, unit), _id(unit)
        in_flight = InFlight.of(edge, unit, id, unit.nbytes, edge.order_key ^ message_order_key(self.seed, id))
        self.engine.resume(in_flight, 0, at_ns)

    def finish(self) -> list[UnitEnd]:
        """Let all that is under way end, but for units that a link holds for ever."""
        self.engine.run(1 << 62)
        return self.ends


def _id(unit: Transit) -> MessageId:
    return MessageId(unit.kind, 0, StepId(unit.round, unit.step), 0, unit.attempt)


def drive(
    links: Links, events: Sequence[CompiledEvent], sent: Iterable[tuple[int, Transit]], seed: int = 0
) -> list[UnitEnd]:
    """Send each unit at its time through `links` under the clocked `events`; the fates, in order of time.

    At one moment, scheduled events come before units. Units that a link holds for ever have no fate.
    """
    run = LinkRun(seed)
    for at_ns, unit in sent:
        run.submit(links.path(unit.src, unit.dst), unit, at_ns)
    for event in events:
        if event.at_ns is not None:
            run.engine.run(event.at_ns - 1)
            run.engine.change(links.apply(event, event.at_ns), event.at_ns)
    return run.finish()
