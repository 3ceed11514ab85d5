"""One directed edge as a link engine drives it: its path, and how much of that is computed in advance.

Most paths can be computed when a message enters: nobody shares their stages, and no event of the schedule will want
back what they let go. Then a message costs no unit of its own: one unit per edge stands for each in turn, and a path
that always takes the same time is not even asked. What this saves is in `docs/performance.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from netdfl.core.types import Edge
from netdfl.links.path import Fused, Path
from netdfl.links.rules.base import Stage
from netdfl.links.rules.disorder import Corrupt, Duplicate
from netdfl.links.rules.latency import Latency

UNKNOWN = -1


class PathPlan(NamedTuple):
    """How an engine drives a path, up to stage `stop`; where that is not the end, another engine goes on there.

    `at_once` are the stages that are asked one after another when a message enters; None: the message has to enter
    each stage when it gets there. `delay_ns` is what they always come to, else `UNKNOWN`. `retiming` are the places of
    stages in which units share something.
    """

    stop: int
    at_once: Sequence[Stage] | None = None
    delay_ns: int = UNKNOWN
    retiming: Sequence[int] = ()

    @classmethod
    def computed(cls, path: Path, *, changing: bool) -> PathPlan:
        """Compute what can be; with `changing`, events will change stages while units are in them."""
        at_once = _stages(path, changing)
        return cls.stage_by_stage(path)._replace(
            at_once=at_once, delay_ns=UNKNOWN if at_once is None else _delay_ns(at_once)
        )

    @classmethod
    def stage_by_stage(cls, path: Path, stop: int | None = None) -> PathPlan:
        """Let each message enter each stage when it gets there. `stop` None is the end of the path."""
        retiming = [place for place, stage in enumerate(path.stages) if hasattr(stage, "retimed")]
        return cls(len(path.stages) if stop is None else stop, retiming=retiming)


def _stages(path: Path, changing: bool) -> Sequence[Stage] | None:
    if len(path.own) != len(path.stages):
        return None
    stages: list[Stage] = []
    for stage in path.stages:
        if isinstance(stage, Fused):
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
    """One directed edge: its path, how it is driven, and its half of each order key.

    `spare` is the engine's unit that stands for each message whose way is computed.
    """

    __slots__ = ("edge", "order_key", "path", "plan", "spare")

    def __init__(self, edge: Edge, path: Path, plan: PathPlan, order_key: int = 0) -> None:
        """Let nothing be under way."""
        self.edge, self.path, self.plan, self.order_key = edge, path, plan, order_key
        self.spare: Any = None

    def rests(self, now_ns: int) -> bool:
        """Whether its stages remember nothing, so that an edge made anew would do as this one does."""
        at_once = self.plan.at_once
        return self.plan.delay_ns >= 0 or (at_once is not None and all([stage.rests(now_ns) for stage in at_once]))
