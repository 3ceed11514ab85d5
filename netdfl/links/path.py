"""A path: the stages of one directed edge, and the fusion of stages that makes paths fast.

The order is fixed: the sender's uplink, then the link's state, loss, duplicate, corrupt, rate with its queue, latency,
reorder, then the receiver's downlink, then the checksum that finds detected corruption. So a lost message or packet
takes no time of the serializer, and a damaged one takes all of its time.

Relies on: `Stage.advance`, which returns at entry when a message or packet leaves; only `Duplicate` is treated
separately, since its copies continue independently.

Why: A stage that delays costs an entry of the calendar. Fused stages cost one for all of them, with the same outcomes.
Stages stay apart where another link shares one, or where a change must find the messages or packets in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar, TypeAlias

from netdfl.core.types import Edge
from netdfl.links.rules.base import DROPPED, Departure, Drop, LinkEvent, LinkRule, Stage, StageOutcome, Transit
from netdfl.links.rules.disorder import Duplicate


class FusedStage(Stage):
    """Several stages of one link combined into one, which computes a message's way through all of them at entry.

    The outcomes equal the outcomes of the single stages, except for the order among messages that leave one stage in
    the same nanosecond. Changes are accepted for the stages before the first one that delays: a change of a later stage
    would have to find the messages in flight, so `channel.py` does not fuse a link with such changes.
    """

    __slots__ = ("_copying", "stages")
    instant: ClassVar[bool] = False

    def __init__(self, stages: Sequence[Stage]) -> None:
        """Merge `stages`, which no other path shares."""
        self.stages = tuple(stages)
        self._copying = any(isinstance(stage, Duplicate) for stage in self.stages)

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Pass the message or packet `unit` through all stages at once; return its outcome: departure, drop or hold."""
        if self._copying:
            return self._go(unit, now_ns, 0)
        at_ns = now_ns
        for stage in self.stages:
            after_ns = stage.advance(unit, at_ns)
            if after_ns < at_ns:
                return (Drop(unit, stage.reason),) if after_ns == DROPPED else ()
            at_ns = after_ns
        return (Departure(unit, at_ns),)

    def _go(self, unit: Transit, at_ns: int, first: int) -> Sequence[StageOutcome]:
        for place in range(first, len(self.stages)):
            stage = self.stages[place]
            if isinstance(stage, Duplicate):
                copies = stage.copies(unit)
                return [outcome for copy in copies for outcome in self._go(copy, at_ns, place + 1)]
            after_ns = stage.advance(unit, at_ns)
            if after_ns < at_ns:
                return (Drop(unit, stage.reason),) if after_ns == DROPPED else ()
            at_ns = after_ns
        return (Departure(unit, at_ns),)

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a change to the stages before the first that delays; return the outcomes of messages that it releases.

        Such a message or packet, which a stage held until now, passes through all stages that follow its own.
        """
        instant = next((p for p, stage in enumerate(self.stages) if not stage.instant), len(self.stages))
        outcomes: list[StageOutcome] = []
        for place in reversed(range(instant)):
            for outcome in self.stages[place].changed(event, now_ns):
                if isinstance(outcome, Departure):
                    outcomes += self._go(outcome.unit, outcome.at_ns, place + 1)
                else:
                    outcomes.append(outcome)
        return outcomes


INSTANT_CHANGES = frozenset({"state", "loss", "duplicate", "corrupt"})
"""The rules whose changes a fused stage accepts, except for a `down_reset`, which must find the messages in flight."""


Fuse: TypeAlias = Callable[[Sequence[Stage]], tuple[LinkRule, ...]]
"""A function that combines the stages of one link into as few as possible, so that a message passes them faster."""


def fuse(stages: Sequence[Stage]) -> tuple[LinkRule, ...]:
    """Combine `stages`, which no other path shares, into at most one stage; none if `stages` is empty."""
    return (FusedStage(stages),) if len(stages) > 1 else tuple(stages)


_places = lru_cache(range)


class Path:
    """The stages of one directed edge, in the order in which messages or packets pass them.

    `own` are the stages of the link itself, without the uplink and the downlink of the nodes.
    """

    __slots__ = ("edge", "own", "stages")

    def __init__(
        self,
        edge: Edge,
        own: Sequence[LinkRule],
        uplink: LinkRule | None = None,
        downlink: LinkRule | None = None,
        last: Sequence[LinkRule] = (),
    ) -> None:
        """Put `own` between the uplink and the downlink of the nodes; the stages `last` follow at the receiver."""
        first = () if uplink is None else (uplink,)
        self.edge = edge
        self.own = _places(len(first), len(first) + len(own))
        self.stages: tuple[LinkRule, ...] = tuple(own)  # which links that are alike share
        if first or downlink is not None or last:
            self.stages = (*first, *own, *(() if downlink is None else (downlink,)), *last)

    def changed(self, event: LinkEvent, now_ns: int) -> list[StageOutcome]:
        """Apply a change to the link's own stages, from last to first; return the outcomes of messages in them.

        In this order, a message that one stage releases meets the new values of the stages after it.
        """
        return [outcome for place in reversed(self.own) for outcome in self.stages[place].changed(event, now_ns)]
