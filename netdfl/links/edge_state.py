"""One directed edge in a link engine: its path, and how much of the path is computed in advance.

Relies on: `PathPlan`, made once for all links that share their stages, and a schedule that is known before the run.

Why: Most paths can be computed when a message enters: no other path shares their stages, and no event of the schedule
will change a message that has left a stage. Then a message needs no object of its own: one object per edge stands for
each message in turn, and no stage is called where the path's delay is constant. `docs/performance_log.md` has the gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from netdfl.core.types import Edge
from netdfl.links.path import FusedStage, Path
from netdfl.links.rules.base import Stage
from netdfl.links.rules.disorder import Corrupt, Duplicate
from netdfl.links.rules.latency import Latency

UNKNOWN = -1


class PathPlan(NamedTuple):
    """The plan by which an engine drives a path.

    Attributes:
        stop: the index of the stage before which the engine stops; another engine may continue there.
        at_once: the stages that compute a message's way one after another when it enters the path. None: the message
            enters each stage when it gets there.
        delay_ns: the delay of the whole path if it is constant, else `UNKNOWN`.
        retiming: the indices of the stages that may later change when the messages or packets in them leave.
    """

    stop: int
    at_once: Sequence[Stage] | None = None
    delay_ns: int = UNKNOWN
    retiming: Sequence[int] = ()

    @classmethod
    def computed(cls, path: Path, *, changing: bool) -> PathPlan:
        """Return a plan that computes as much of `path` in advance as possible.

        `changing`: scheduled events may change stages while messages or packets are in them.
        """
        at_once = _stages(path, changing)
        return cls.stage_by_stage(path)._replace(
            at_once=at_once, delay_ns=UNKNOWN if at_once is None else _delay_ns(at_once)
        )

    @classmethod
    def stage_by_stage(cls, path: Path, stop: int | None = None, first: int = 0) -> PathPlan:
        """Return a plan by which messages enter each stage when they reach it, from stage `first` to before `stop`.

        If `stop` is None, the plan goes to the end of the path.
        """
        retiming = [place for place, stage in enumerate(path.stages) if place >= first and hasattr(stage, "retimed")]
        return cls(len(path.stages) if stop is None else stop, retiming=retiming)


def _stages(path: Path, changing: bool) -> Sequence[Stage] | None:
    if len(path.own) != len(path.stages):
        return None
    stages: list[Stage] = []
    for stage in path.stages:
        if isinstance(stage, FusedStage):
            stages += stage.stages
        elif isinstance(stage, Stage) and not changing:
            stages.append(stage)
        else:
            return None
    return None if any(isinstance(stage, Duplicate | Corrupt) for stage in stages) else tuple(stages)


def _delay_ns(stages: Sequence[Stage]) -> int:
    if not stages:
        return 0
    stage = stages[0]
    if len(stages) > 1 or not isinstance(stage, Latency) or stage.rounds is not None:
        return UNKNOWN
    return stage.delay.constant_ns if stage.delay.quantile is None and stage.scale == 1.0 else UNKNOWN


class EdgeState:
    """One directed edge in a link engine, with the edge's part of the order keys of its messages.

    Attributes:
        edge: the sender and the receiver.
        path: the stages of the edge.
        plan: how the engine drives the path.
        order_key: the part of a message's order key that the edge gives (`rules/keyed_random.py`).
        spare: the object that stands for each message in turn, where the path is computed in advance.
    """

    __slots__ = ("edge", "order_key", "path", "plan", "spare")

    def __init__(self, edge: Edge, path: Path, plan: PathPlan, order_key: int = 0) -> None:
        """Start with no message under way."""
        self.edge, self.path, self.plan, self.order_key = edge, path, plan, order_key
        self.spare: Any = None

    def rests(self, now_ns: int) -> bool:
        """Return whether the stages have no state that matters, so that the edge can be discarded and made again."""
        at_once = self.plan.at_once
        return self.plan.delay_ns >= 0 or (at_once is not None and all([stage.rests(now_ns) for stage in at_once]))
