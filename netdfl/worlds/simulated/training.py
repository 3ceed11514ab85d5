"""Local rounds in virtual time: each ends at its modeled time; all are computed when the first one is due.

    submitted ──the first of all is due──▶ computed with the others ──its own time comes──▶ done
        └──paused──▶ due later by the pause

Relies on: local rounds of different nodes not touching each other, and timers that fire in the order of their names.

Why: The result of a round is needed only when it ends. So all rounds under way wait until the first of them is due, and
are then computed as one batch, which is faster than one after another. Their results are kept until each one's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from netdfl.core.clock import Clock, Timer
from netdfl.core.types import NodeId
from netdfl.node.worker import Compute, settle
from netdfl.training.alone import CallOutcome

T = TypeVar("T")


@dataclass(eq=False)
class Job:
    """One local round of a node that has begun and not ended in virtual time.

    Attributes:
        node: the node.
        work: computes the round.
        due_ns: the virtual time in ns at which the round ends.
        done: the future that the node awaits.
        timer: the timer for `due_ns`.
        outcome: the result of `work`, or the error that ended it; None before it has run.
        paused_ns: since when the node is paused; None: it is not.
    """

    node: NodeId
    work: Callable[[], Any]
    due_ns: int
    done: asyncio.Future[Any]
    timer: Timer
    outcome: CallOutcome | None = None
    paused_ns: int | None = None


class Training:
    """All local rounds that have begun and not ended in a simulated fleet, at most one per node."""

    def __init__(self, clock: Clock, compute: Compute, *, at_once: bool) -> None:
        """Compute rounds by `compute`, in batches of all that were submitted when the first one is due.

        `at_once`: compute a round that takes no virtual time at once, because a batch would not be faster.
        """
        self._clock, self._compute, self.at_once = clock, compute, at_once
        self._jobs: dict[NodeId, Job] = {}

    async def run(self, node: NodeId, round: int, takes_ns: int, work: Callable[[], T]) -> T:
        """Compute a node's local round by calling `work`; return the result after `takes_ns` of virtual time."""
        due_ns = self._clock.now_ns() + takes_ns
        name = ("train", node, round)
        timer = self._clock.call_at(due_ns, name, partial(self._due, node))
        job = Job(node, work, due_ns, asyncio.get_running_loop().create_future(), timer)
        self._jobs[node] = job
        try:
            result: T = await job.done
            return result
        finally:
            job.timer.cancel()
            if self._jobs.get(node) is job:
                del self._jobs[node]

    def pause(self, node: NodeId) -> None:
        """Suspend the local round of `node`."""
        job = self._jobs.get(node)
        if job is not None and job.paused_ns is None and not job.done.done():
            job.paused_ns = self._clock.now_ns()
            job.timer.cancel()

    def resume(self, node: NodeId) -> None:
        """Continue the local round of `node`, which ends later by the length of the pause."""
        job = self._jobs.get(node)
        if job is not None and job.paused_ns is not None:
            now = self._clock.now_ns()
            job.due_ns += now - job.paused_ns
            job.paused_ns = None
            job.timer = self._clock.call_at(job.due_ns, ("train", node, -1), partial(self._due, node))

    def _due(self, node: NodeId) -> None:
        job = self._jobs[node]
        if job.outcome is None:
            batch = [each for each in self._jobs.values() if each.outcome is None]
            outcomes = self._compute([each.work for each in batch])
            for each, outcome in zip(batch, outcomes, strict=True):
                each.outcome = outcome
        assert job.outcome is not None
        settle(job.done, *job.outcome)


@dataclass(eq=False)
class VirtualWorker:
    """A node's worker in virtual time: local rounds take their modeled time, other work takes none.

    `training` computes the local rounds, `time_ns(node, round)` is the duration of one, and `round` returns the node's
    present round.
    """

    node: NodeId
    training: Training
    time_ns: Callable[[NodeId, int], int]
    round: Callable[[], int]
    factor: float = 1.0
    cpu_s: float | None = None

    async def run(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """Return the result of `function(*args)`: at once or, for a local round, at the end of its modeled time.

        `what` names the kind of work; local rounds are `train`.
        """
        if what != "train":
            return function(*args)
        round_ = self.round()
        takes_ns = round(self.factor * self.time_ns(self.node, round_))
        if not takes_ns and self.training.at_once:
            await asyncio.sleep(0)  # without it a node sends before others have read; runs took longer
            return function(*args)
        work = partial(function, *args) if args else function
        return await self.training.run(self.node, round_, takes_ns, work)

    def is_short(self, numel: int) -> bool:
        """Return true: work on `numel` numbers may always run inline, because it takes no virtual time."""
        return True

    def pause(self) -> None:
        """Suspend the node's local round."""
        self.training.pause(self.node)

    def resume(self) -> None:
        """Continue the node's local round, which ends later by the length of the pause."""
        self.training.resume(self.node)
