"""The enumeration of every schedule of faults within a bound: each is simulated, then extended by one more fault.

A schedule is a set of faults, and of orders of events due at one instant, sorted by time. The points of a run are the
moments at which a fault can act: a message sent, or an instant at which a node acts. A fault acts only after its point,
so the points before it are the same as in the run without it. Schedules with fewer faults and orders are run first, so
that the first one that violates a property is a smallest one. A schedule is answered once it is known to keep all
properties.

Two reductions leave out runs whose answer is known, and count their schedules as answered:

- A void fault changes nothing that a property depends on, so that the run with it has the answer of the run without it.
- Of schedules that differ only by a permutation of equivalent nodes, one is run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, product
from math import comb, prod
from typing import NamedTuple, TypeAlias

from netdfl.core.errors import InputError
from netdfl.core.forks import do_work, forked
from netdfl.prove.bound import FaultBound
from netdfl.prove.orders import OrderFinder, beside, count_orders, may_follow
from netdfl.prove.player import Play, Player
from netdfl.prove.points import FaultPoint, PointFinder
from netdfl.prove.properties import ProvenProperty, broken_by
from netdfl.prove.symmetry import SymmetryGroup

Counts: TypeAlias = tuple[int, ...]
"""A number of faults for each kind of fault in a bound, in the bound's order."""
CHUNK = 8
"""The number of schedules that a process receives at a time."""


class Prefix(NamedTuple):
    """The first faults of a schedule, in order.

    Attributes:
        faults: the faults, each of which has an effect.
        alike: the fault points at the instant of the last fault, as they were in the run without that fault.
        ways: for each number of void faults (faults without effect) by kind, in how many ways so many can be added.
    """

    faults: tuple[FaultPoint, ...] = ()
    alike: frozenset[FaultPoint] = frozenset()
    ways: Mapping[Counts, int] = {}


class PlayedPrefix(NamedTuple):
    """The outcome of a simulated run with the first faults of a schedule.

    Attributes:
        broken: the name of the property that it violates, and how; None: it violates none.
        points: the points at which a further fault can act, if it violates none.
        refused: whether its faults contradict each other, as two crashes of one node at one time do.
    """

    broken: tuple[str, str] | None = None
    points: tuple[FaultPoint, ...] = ()
    refused: bool = False


@dataclass(frozen=True)
class PrefixPlayer:
    """A runner of simulations with the first faults of schedules, which a fork can copy to other processes."""

    player: Player
    finder: PointFinder
    properties: Sequence[ProvenProperty]
    orders: OrderFinder | None = None
    seen: Callable[[Play], None] | None = None

    def play(self, prefix: Prefix, *, last: bool) -> PlayedPrefix:
        """Run the scenario with the faults of `prefix`; with `last`, find no points at which further faults can act."""
        try:
            play = self.player.play([fault.event for fault in prefix.faults])
        except InputError:
            if not prefix.faults:
                raise
            return PlayedPrefix(refused=True)
        if self.seen is not None:
            self.seen(play)
        broken = broken_by(play, self.properties)
        return PlayedPrefix(broken, () if last or broken else tuple(follow(prefix, self._points(play))))

    def _points(self, play: Play) -> Sequence[FaultPoint]:
        found = self.finder.points(play)
        return found if self.orders is None else sorted([*found, *self.orders.points(play)])


def follow(prefix: Prefix, points: Sequence[FaultPoint]) -> Iterator[FaultPoint]:
    """Yield the points at which a fault may be added to the first faults of a schedule, `prefix`.

    These are the points after the last fault of `prefix`, and the points at its instant that only this fault caused.
    """
    last = prefix.faults[-1] if prefix.faults else None
    for point in points:
        if last is None or point > last or (point.at_ns == last.at_ns and not _is_known(point, prefix)):
            if point.kind != "order" or may_follow(point, prefix.faults):
                yield point


def _is_known(point: FaultPoint, prefix: Prefix) -> bool:
    return point in prefix.alike or point in prefix.faults


@dataclass(frozen=True)
class AnsweredPart:
    """The part of an enumeration that an earlier, interrupted call answered, among sets of `depth` faults.

    Only faults with an effect are in these sets.

    Attributes:
        depth: the number of faults in each set.
        done: how many of these sets, from the first one on, were run.
        schedules: the number of schedules that these runs answer.
        refused: the number of further schedules that can't be run, because their faults contradict each other.
    """

    depth: int
    done: int
    schedules: int
    refused: int


@dataclass
class ProofProgress:
    """The progress of an enumeration of schedules.

    Attributes:
        schedules: the number of schedules that are answered, which means known to keep all properties.
        played: the number of simulated runs made for them.
        refused: the number of further schedules that can't be run, because their faults contradict each other.
        levels: the number of sets of first faults with 0, 1, ... faults.
        done: how many sets of each of these sizes are answered.
        broken: the faults of the first run that violates a property, the property, and how; None: none so far.
        stopped: why the enumeration ended early; empty if it did not.
        inner: the numbers of answered and of refused schedules, without those of the largest sets.
    """

    schedules: int = 0
    played: int = 0
    refused: int = 0
    levels: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    broken: tuple[tuple[FaultPoint, ...], str, str] | None = None
    stopped: str = ""
    inner: tuple[int, int] = (0, 0)

    def last_level(self, depth: int) -> AnsweredPart | None:
        """Return the answered part among sets of `depth` faults, if these are the largest; None if none is answered."""
        if len(self.done) != depth + 1 or not self.done[-1]:
            return None
        schedules, refused = self.inner
        return AnsweredPart(depth, self.done[-1], self.schedules - schedules, self.refused - refused)


Show: TypeAlias = Callable[[ProofProgress], None]


@dataclass
class Enumeration:
    """An enumeration of the schedules of faults within `bound`.

    `void` and `symmetries` switch on its reductions, which run fewer schedules with the same answer. `most` is the
    number of schedules after which it stops, `jobs` the number of processes. `answered` is the part that an earlier,
    interrupted enumeration answered.
    """

    bound: FaultBound
    prefix_player: PrefixPlayer
    symmetries: SymmetryGroup = field(default_factory=SymmetryGroup)
    void: bool = True
    most: int = 1_000_000
    jobs: int = 1
    answered: AnsweredPart | None = None
    _ordered: set[tuple[FaultPoint, ...]] = field(default_factory=set)

    def run(self, ends_s: float | None = None, show: Show = lambda progress: None) -> ProofProgress:
        """Run schedules until a property is violated, all are answered, or the monotonic clock reaches `ends_s`.

        Schedules with the most faults that an earlier enumeration answered (see `answered`) are not run again.
        """
        progress, kinds = ProofProgress(), tuple(self.bound.most)
        self._ordered.clear()
        root = Prefix(ways={(0,) * len(kinds): 1})
        level: list[tuple[Prefix, PlayedPrefix]] = []
        try:
            with _processes(self.prefix_player, self.jobs) as play_all:
                for depth in count():
                    before = level
                    tasks = [root] if not depth else [each for found in before for each in self._children(*found)]
                    progress.levels.append(len(tasks))
                    progress.done.append(0)
                    progress.inner = progress.schedules, progress.refused
                    level = []
                    if not tasks or not self._play(tasks, depth, play_all, level, progress, ends_s, show):
                        break
                    if self._is_last(depth):
                        break
                    if depth == 0 and level:
                        self._refuse_many(level[0][1].points)
        except KeyboardInterrupt:
            progress.stopped = "interrupted"
        return progress

    def _is_last(self, depth: int) -> bool:
        """Return whether nothing can be added to `depth` faults: the bound permits no more, and no orders are tried."""
        return depth == self.bound.faults and self.prefix_player.orders is None

    def _play(
        self,
        tasks: Sequence[Prefix],
        depth: int,
        play_all: PlayAll,
        level: list[tuple[Prefix, PlayedPrefix]],
        progress: ProofProgress,
        ends_s: float | None,
        show: Show,
    ) -> bool:
        """Run the scenario with each of `tasks`, sets of `depth` faults; return whether to continue with larger sets.

        Runs to which a further fault can be added are appended to `level`.
        """
        last, known = self._is_last(depth), 0
        if last and self.answered is not None:
            known = progress.done[-1] = self.answered.done
            progress.schedules += self.answered.schedules
            progress.refused += self.answered.refused
        for prefix, played in zip(tasks[known:], play_all(tasks[known:], last), strict=True):
            progress.played += 1
            if played.broken is not None:
                progress.broken = (prefix.faults, *played.broken)
                return False
            self._count(prefix, played, progress)
            if not last and not played.refused:
                level.append((prefix, played))
            show(progress)
            if last and progress.done[-1] == len(tasks):
                return True
            if ends_s is not None and time.monotonic() >= ends_s:
                progress.stopped = "its time is over"
            elif progress.schedules > self.most:
                progress.stopped = f"it met more than {self.most:,} schedules"
            if progress.stopped:
                return False
        return True

    def _count(self, prefix: Prefix, played: PlayedPrefix, progress: ProofProgress) -> None:
        """Add to `progress` the schedules that the run with the first faults `prefix` (outcome `played`) answers."""
        progress.done[-1] += 1
        if played.refused:
            progress.refused += 1
            return
        ways = prefix.ways
        for point in self._allowed(prefix, played.points):
            if self._is_void(point):
                ways = self._with_one(ways, prefix, point)
        progress.schedules += sum(ways.values()) * self.symmetries.stands_for(prefix.faults)

    def _children(self, prefix: Prefix, played: PlayedPrefix) -> Iterator[Prefix]:
        """Yield `prefix`, the first faults of a schedule, once for each further fault with an effect, extended by it.

        Each comes with the numbers of ways in which void faults, which change nothing, can be added before that fault.
        """
        ways = prefix.ways
        for point in self._allowed(prefix, played.points):
            if self._is_void(point):
                ways = self._with_one(ways, prefix, point)
                continue
            faults = beside(point, prefix.faults)
            if len(faults) <= len(prefix.faults) and self._is_repeated(faults):
                continue
            left = {counts: many for counts, many in ways.items() if self._fits(faults, counts)}
            if left and self.symmetries.stands_for(faults):
                alike = frozenset(each for each in played.points if each.at_ns == point.at_ns)
                if prefix.faults and prefix.faults[-1].at_ns == point.at_ns:
                    alike |= prefix.alike
                yield Prefix(faults, alike, left)

    def _is_repeated(self, faults: tuple[FaultPoint, ...]) -> bool:
        """Return whether this set of faults was reached before, by adding the same faults in another order."""
        known = faults in self._ordered
        self._ordered.add(faults)
        return known

    def _is_void(self, point: FaultPoint) -> bool:
        return self.void and point.void

    def _allowed(self, prefix: Prefix, points: Sequence[FaultPoint]) -> Iterator[FaultPoint]:
        full = {kind for kind, most in self.bound.most.items() if _num(prefix.faults, kind) >= most}
        return (point for point in points if point.kind not in full)

    def _with_one(self, ways: Mapping[Counts, int], prefix: Prefix, point: FaultPoint) -> Mapping[Counts, int]:
        """Return `ways` with the additional ways that arise because a void fault can also act at `point`.

        Void faults change nothing that a property depends on; `ways` counts how they can be added to `prefix`.
        """
        found, place = dict(ways), [*self.bound.most, "order"].index(point.kind)
        for counts, many in ways.items():
            more = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
            if self._fits(prefix.faults, more):
                found[more] = found.get(more, 0) + many
        return found

    def _fits(self, faults: Sequence[FaultPoint], counts: Counts) -> bool:
        most = self.bound.most.items()
        return all(_num(faults, kind) + void <= many for (kind, many), void in zip(most, counts, strict=True))

    def _refuse_many(self, points: Sequence[FaultPoint]) -> None:
        """Raise InputError if the `points` of the run without faults already give too many schedules."""
        num = {kind: sum(point.kind == kind for point in points) for kind in self.bound.most}
        ranges = (range(most + 1) for most in self.bound.most.values())
        total = sum(prod(comb(num[kind], k) for kind, k in zip(num, ks, strict=True)) for ks in product(*ranges))
        total *= count_orders(points)
        if total > self.most:
            raise InputError(
                f"these are at least {total:,} schedules; allow fewer faults, orders, nodes or rounds, or give --most "
                f"{total}"
            )


def _num(faults: Sequence[FaultPoint], kind: str) -> int:
    return sum(fault.kind == kind for fault in faults)


# processes

PlayAll: TypeAlias = Callable[[Sequence[Prefix], bool], Iterator[PlayedPrefix]]


@contextmanager
def _processes(prefix_player: PrefixPlayer, jobs: int) -> Iterator[PlayAll]:
    """Yield a function that simulates schedules on `jobs` processes, in order. Raises RunError if a process dies."""
    if jobs == 1:
        yield lambda tasks, last: (prefix_player.play(each, last=last) for each in tasks)
        return

    def play(prefix: Prefix, last: bool) -> PlayedPrefix:
        return prefix_player.play(prefix, last=last)

    with forked(play, jobs, "a process of the proof died: out of memory?") as pool:
        yield lambda tasks, last: pool.map(do_work, tasks, [last] * len(tasks), chunksize=CHUNK)
