"""The contract of a link rule: one stage of a path, entered by events, in integer nanoseconds.

A path is: the sender's uplink, the link's own stages, the receiver's downlink. Uplinks and downlinks
belong to nodes and are shared by their links, so a stage is entered when a unit arrives at it and
never computed ahead of a shared one. The same rules act on messages above gRPC, on messages in the
simulated world, and on packets below TCP: what passes is a `Transit`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

from netdfl.core.fates import LOSS, RESET, FateReason
from netdfl.core.types import Json, Kind, NodeId

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Transit:
    """A unit on its way over one directed edge, a message or a packet, by all that a rule may know of it.

    Its luck is keyed by (kind, round, step, attempt, copy) on its edge, so two algorithms meet the same channel. `copy`
    is 0 for the original and counts duplicates. `corrupted` units are delivered damaged or dropped at the receiver, as
    the rule that damaged them says. A rule that keeps a unit may rely on its identity alone: where a whole path is
    computed at once, one unit stands for many.
    """

    src: NodeId
    dst: NodeId
    kind: Kind
    round: int
    step: int
    attempt: int
    nbytes: int
    copy: int = 0
    corrupted: bool = False

    @property
    def of_round(self) -> int:
        """The round that it is of: -1, none, for a heartbeat, whose `round` is its number."""
        return -1 if self.kind is Kind.HEARTBEAT else self.round


@dataclass(slots=True, eq=False)
class Departure:
    """`unit` leaves the stage at `at_ns`.

    It replaces an earlier departure of the same unit from the same stage. A unit that the stage holds without a known
    end (a link that is down and holds) has no departure until the stage gives it one.
    """

    unit: Transit
    at_ns: int


@dataclass(slots=True, eq=False)
class Dropped:
    """`unit` ends here. `reason` is one word for the record: `loss`, `queue`, `down`, `corrupt`."""

    unit: Transit
    reason: FateReason


@dataclass(slots=True, eq=False)
class Held:
    """`unit` stays in the stage until the stage says more; an earlier departure of it is void."""

    unit: Transit


StageOutcome = Departure | Dropped | Held

DROPPED = -(1 << 62)
HELD = -(1 << 63)
LONG_AGO = -(1 << 80)
"""Before every moment, in nanoseconds or in parts of them."""


LinkEvent: TypeAlias = Json
"""A scheduled change of a stage: the parameters that it sets, by name, already in base units."""


class LinkRule(Protocol):
    """One stage of a path. Its parameters are validated where it is built."""

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Take `unit` at `now_ns`; say what leaves and when. Empty: held until `changed` says more."""
        ...

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a scheduled change; say what becomes of what the stage holds."""
        ...


class Retiming(LinkRule, Protocol):
    """A stage in which units share something, so that one that begins or ends moves the others.

    `enter` says at most that the unit is dropped; departures come from `retimed` and `changed`, and may concern any
    unit in the stage. A stage may stand for several places of a path at once (an uplink, a core link and a downlink),
    and several paths may have it.
    """

    def left(self, unit: Transit, now_ns: int) -> None:
        """Forget `unit`, whose departure has come."""
        ...

    def retimed(self, now_ns: int) -> Sequence[StageOutcome]:
        """Say when units leave now, once for all that entered, left or changed at this instant."""
        ...


class Stage:
    """A rule whose units leave one by one: a time, or that one is dropped or held.

    `advance` is the fast form of `enter`, for `fuse`: it returns the time at which `unit` leaves
    (never before `now_ns`), `DROPPED`, or `HELD`. It keeps no record of what is in flight, so a
    stage that is fused can't take back what it let go; `enter` can. `reason` is what a drop is
    recorded as; `instant` says that units leave at the time when they enter, or never.
    """

    __slots__ = ()
    reason: ClassVar[FateReason] = LOSS
    instant: ClassVar[bool] = True

    def advance(self, unit: Transit, now_ns: int) -> int:
        """The time at which `unit` leaves, `DROPPED` or `HELD`."""
        raise NotImplementedError

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Take `unit` at `now_ns`; say what leaves and when."""
        at_ns = self.advance(unit, now_ns)
        if at_ns >= now_ns:
            return (Departure(unit, at_ns),)
        return (Dropped(unit, self.reason),) if at_ns == DROPPED else ()

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a scheduled change; say what becomes of what the stage holds."""
        return ()

    def rests(self, now_ns: int) -> bool:
        """Whether it remembers nothing that matters from now on: one made anew would do as it does."""
        return False


def resets(event: LinkEvent) -> bool:
    """True where `event` resets the link, so that every stage of it loses what it holds."""
    return event.get("state") == "down_reset"


class Delaying(Stage):
    """A stage that knows when a unit leaves as soon as it enters; a reset drops those that have not left."""

    __slots__ = ("_limit", "_under_way")
    instant: ClassVar[bool] = False

    def __init__(self) -> None:
        self._under_way: list[tuple[int, Transit]] = []
        self._limit = 64

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Take `unit` at `now_ns`; those that left are forgotten at amortised constant cost."""
        at_ns = self.advance(unit, now_ns)
        if at_ns == DROPPED:
            return (Dropped(unit, self.reason),)
        self._under_way.append((at_ns, unit))
        if len(self._under_way) > self._limit:
            self._under_way = [entry for entry in self._under_way if entry[0] > now_ns]
            self._limit = 64 + 2 * len(self._under_way)
        return (Departure(unit, at_ns),)

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Drop everything that has not left by `now_ns` at a reset, in order of entry."""
        if not resets(event):
            return ()
        units, self._under_way = self._under_way, []
        return [Dropped(unit, RESET) for at_ns, unit in units if at_ns > now_ns]

    def rests(self, now_ns: int) -> bool:
        """See `Stage`: where all has left."""
        return all(at_ns <= now_ns for at_ns, _ in self._under_way)


class ByRound(Generic[T]):
    """How `at_round` acts on a link without a clock: values by the round of messages; None where the clock's stands."""

    __slots__ = ("_starts", "_values")

    def __init__(self, pieces: Sequence[tuple[int, T | None]]) -> None:
        """Each piece is (first round, value) and lasts until the next one's first round."""
        self._starts = [start for start, _ in pieces]
        self._values = [value for _, value in pieces]

    def at(self, round: int) -> T | None:
        """The value for a message of `round`."""
        place = bisect_right(self._starts, round)
        return self._values[place - 1] if place else None
