"""The contract of a link rule: one stage of a path, which messages or packets enter, in integer nanoseconds.

A path is the sender's uplink, the link's own stages, and the receiver's downlink. An uplink or downlink belongs to a
node and is shared by its links, so a unit (a message or packet) enters a stage when it arrives there, and is never
computed ahead of a shared stage. The same rules act on messages above gRPC, on messages in the simulated world, and on
packets below TCP: each of these is a `Transit` to them.

Relies on: whole nanoseconds, units that enter in the order of time, and keyed draws in place of a generator's state.

Why: Rules know neither clocks nor messages, so the same rule acts in all worlds, and is tested by hand with numbers. An
outcome replaces an earlier one of its unit, because a new rate or a broken link moves what is under way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

from netdfl.core.fates import LOSS, RESET, FateReason
from netdfl.core.types import Json, Kind, NodeId

T = TypeVar("T")
ANY_NUMBER = -1
"""The `number` of a message or packet that matches an event whatever number the event names."""


@dataclass(slots=True, eq=False)
class Transit:
    """A unit (a message or a packet) on its way over one directed edge, with the data that rules may use.

    Random draws are keyed by (kind, round, step, attempt, copy) on the edge, so two algorithms meet the same channel.
    `incarnation` (how often the sender had restarted) and `number` (the place among the edge's messages that agree in
    all of that) make it unique. `number` is counted only where an event uses it. `copy` is 0 for the original and
    counts duplicates. `corrupted` units are delivered damaged or dropped at the receiver, as the rule that damaged them
    says. Where links are shared, `lost` is why the unit is dropped behind them (None: it is not). `share_bps` is the
    mean rate that it had on them, if it goes over TCP (None: it crossed none; 0: it took no time). A rule that keeps a
    unit may compare it only by identity: where a whole path is computed at once, one object stands for many units.
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
    incarnation: int = 0
    number: int = 0
    lost: FateReason | None = None
    share_bps: float | None = None

    @property
    def of_round(self) -> int:
        """The round of the message; -1 for a heartbeat, which uses the field `round` for its own number."""
        return -1 if self.kind is Kind.HEARTBEAT else self.round


@dataclass(slots=True, eq=False)
class Departure:
    """The outcome that the message or packet `unit` leaves the stage at `at_ns`.

    It replaces an earlier departure of the same `unit` from the same stage. While a stage holds a unit without a known
    end, as on a link that is down and holds, there is no departure.
    """

    unit: Transit
    at_ns: int


@dataclass(slots=True, eq=False)
class Drop:
    """The outcome that the message or packet `unit` is dropped in this stage; `reason` is recorded.

    Reasons are `loss`, `queue`, `down`, `corrupt` and others.
    """

    unit: Transit
    reason: FateReason


@dataclass(slots=True, eq=False)
class Hold:
    """The outcome that the message or packet `unit` stays in the stage until a later outcome.

    It cancels a departure announced before.
    """

    unit: Transit


StageOutcome = Departure | Drop | Hold

DROPPED = -(1 << 62)
HELD = -(1 << 63)
LONG_AGO = -(1 << 80)
"""A number below every time, in nanoseconds or in parts of nanoseconds."""


LinkEvent: TypeAlias = Json
"""A scheduled change of a stage: its new parameters by name, already in base units."""


class LinkRule(Protocol):
    """One stage of a path, such as a loss or a delay. Its parameters are checked where it is built."""

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Process the message or packet `unit`, which enters the stage; return its outcomes.

        If there are none, the stage holds it until `changed` releases it.
        """
        ...

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a scheduled change; return the outcomes for messages or packets in the stage."""
        ...


class RetimingStage(LinkRule, Protocol):
    """A stage whose messages share a capacity, so that the departure of each depends on the others.

    `enter` returns at most that a message is dropped; departures come from `retimed` and `changed`, and may concern any
    message in the stage. One stage may occur at several places of a path (uplink, core link and downlink) and in
    several paths.
    """

    def left(self, unit: Transit, now_ns: int) -> None:
        """Remove the message `unit` from the stage, because it has departed."""
        ...

    def withdraw(self, unit: Transit) -> None:
        """Remove the message `unit` from the stage, because it was taken off the link."""
        ...

    def retimed(self, now_ns: int) -> Sequence[StageOutcome]:
        """Return the new departures, computed once for all messages that entered, left or changed at this instant."""
        ...

    @property
    def again_ns(self) -> int | None:
        """The next instant at which departures change even if no message enters, leaves or changes; None: never."""
        ...


class Stage:
    """A stage that treats each message or packet independently: returns its departure time, drops it or holds it.

    `advance` is the fast form of `enter`, for `fuse`: it returns the departure of `unit`, a message or packet (never
    before `now_ns`), `DROPPED`, or `HELD`. It keeps no record of units in flight, so a fused stage can't call back a
    unit that it let go; `enter` can. `reason` is the recorded reason of a drop. `instant` says that units leave when
    they enter, or never.
    """

    __slots__ = ()
    reason: ClassVar[FateReason] = LOSS
    instant: ClassVar[bool] = True

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return the time at which the message or packet `unit` leaves, `DROPPED` or `HELD`."""
        raise NotImplementedError

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Process a message or packet that enters the stage; return its outcome: departure, drop or hold."""
        at_ns = self.advance(unit, now_ns)
        if at_ns >= now_ns:
            return (Departure(unit, at_ns),)
        return (Drop(unit, self.reason),) if at_ns == DROPPED else ()

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a scheduled change; return the outcomes for messages or packets in the stage."""
        return ()

    def rests(self, now_ns: int) -> bool:
        """Return whether the stage has no state that matters from `now_ns` on, so that a new one would act the same."""
        return False


def resets(event: LinkEvent) -> bool:
    """Return whether `event` resets the link (`down_reset`), at which each of its stages drops the messages in it."""
    return event.get("state") == "down_reset"


class DelayStage(Stage):
    """A stage that knows at entry when a message or packet will leave. A reset drops the ones that have not left.

    `_last_ns` is the latest departure so far, for stages in which no message or packet may overtake another.
    """

    __slots__ = ("_last_ns", "_limit", "_under_way")
    instant: ClassVar[bool] = False

    def __init__(self) -> None:
        self._under_way: list[tuple[int, Transit]] = []
        self._limit = 64
        self._last_ns = LONG_AGO

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Process a message or packet that enters; return its outcome, and discard records of ones that have left."""
        at_ns = self.advance(unit, now_ns)
        if at_ns == DROPPED:
            return (Drop(unit, self.reason),)
        self._under_way.append((at_ns, unit))
        if len(self._under_way) > self._limit:
            self._under_way = [entry for entry in self._under_way if entry[0] > now_ns]
            self._limit = 64 + 2 * len(self._under_way)
        return (Departure(unit, at_ns),)

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """At a reset of the link, drop every message or packet that has not left by `now_ns`, in order of entry."""
        if not resets(event):
            return ()
        units, self._under_way, self._last_ns = self._under_way, [], now_ns
        return [Drop(unit, RESET) for at_ns, unit in units if at_ns > now_ns]

    def rests(self, now_ns: int) -> bool:
        """Return whether all messages or packets have left, so that a new one can't overtake any."""
        return self._last_ns <= now_ns and all(at_ns <= now_ns for at_ns, _ in self._under_way)


class RoundValues(Generic[T]):
    """Values of a rule for messages of certain rounds, set by `at_round` events; None where the usual value applies."""

    __slots__ = ("_starts", "_values")

    def __init__(self, pieces: Sequence[tuple[int, T | None]]) -> None:
        """Store pairs of a first round and a value; each value lasts until the first round of the next pair."""
        self._starts = [start for start, _ in pieces]
        self._values = [value for _, value in pieces]

    def at(self, round: int) -> T | None:
        """Return the value for a message of `round`, or None if the usual value applies."""
        place = bisect_right(self._starts, round)
        return self._values[place - 1] if place else None
