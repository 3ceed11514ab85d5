"""Rate: the time that bytes take, the queue before the serializer, and the effect of a change on both."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import ClassVar, Literal, TypeAlias

from netdfl.core.fates import QUEUE, RESET, FateReason
from netdfl.core.units import PositiveInt, RateBps, SizeBytes
from netdfl.links.rules.base import (
    DROPPED,
    HELD,
    LONG_AGO,
    Departure,
    Drop,
    Hold,
    LinkEvent,
    RoundValues,
    Stage,
    StageOutcome,
    Transit,
    resets,
)

_NS_BITS = 8 * 10**9
_FINE = 2**32  # after a change of the rate, the backlog is kept in parts of a ns this fine: roundings do not add up


@dataclass(frozen=True, slots=True)
class MessageLimit:
    """A limit on a queue, as a number of messages."""

    messages: PositiveInt


Sharing: TypeAlias = Literal["fair", "fifo"]
"""How flows share a node's link: at once with max-min fair rates, or message after message."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of a serializer: its rate (None: unlimited), its token bucket, and the limit of its queue.

    `sharing` (flows at once, or messages one by one) matters for links that several edges share.
    """

    rate_bps: float | None
    burst_bytes: int = 0
    queue_bytes: int | None = None
    queue_messages: int | None = None
    sharing: Sharing = "fair"


def serial(*, rate: RateBps, burst: SizeBytes = 0, queue: SizeBytes | MessageLimit | None = None) -> Shape:
    """Serialize units one after another at `rate` bits per second; 0 holds them.

    A unit is a message, or a packet where links act on packets. `burst` is a token bucket: that many bytes pass at once
    after a pause. `queue` bounds the waiting units (not the one in service, so an idle link takes a unit of any size);
    a unit that does not fit is dropped at the tail (`queue`).
    """
    if isinstance(queue, MessageLimit):
        return Shape(rate, burst, queue_messages=queue.messages)
    return Shape(rate, burst, queue_bytes=queue)


def shared(
    *, rate: RateBps, burst: SizeBytes = 0, queue: SizeBytes | MessageLimit | None = None, sharing: Sharing = "fair"
) -> Shape:
    """Carry `rate` bits per second of all that crosses a node's link; 0 holds it.

    With `sharing: fair`, the flows under way share it max-min fairly, as TCP connections do; with `fifo`, messages go
    one after another. `burst` is a token bucket for the sum. `queue` bounds the bytes or messages that wait at the link
    or cross it, without the oldest message.
    """
    return replace(serial(rate=rate, burst=burst, queue=queue), sharing=sharing)


def is_full(
    queue: Sequence[tuple[object, int, Transit]],
    waiting: int,
    nbytes: int,
    most_bytes: int | None,
    most_messages: int | None,
) -> bool:
    """Return whether `queue` has no room for a message or packet of `nbytes`; the one in service takes no room.

    Args:
        queue: the messages or packets that wait or are in service, each with its size in bytes as second item.
        waiting: the sum of their sizes in bytes.
        nbytes: the size of the new one.
        most_bytes: the limit in bytes; None: there is none.
        most_messages: the limit in messages or packets; None: there is none.
    """
    if not queue:
        return False
    if most_messages is not None:
        return len(queue) > most_messages
    return most_bytes is not None and waiting - queue[0][1] + nbytes > most_bytes


@lru_cache
def _cost(rate_bps: float | None, scale: float) -> tuple[int, int]:
    """Return the nanoseconds for one byte at `rate_bps` times `scale` as a fraction; numerator -1 for a rate of 0."""
    if rate_bps is None:
        return 0, 1
    if rate_bps * scale == 0:
        return -1, 1
    cost = _NS_BITS / (Fraction(rate_bps) * Fraction(scale))
    return cost.numerator, cost.denominator


class Rate(Stage):
    """A serializer with a queue, exact in integer nanoseconds.

    The end of the backlog is kept as an exact rational (an integer count of 1/den ns, where one byte costs num/den ns),
    so rounding errors never add up: over any window, at most the rate times the window plus `burst` leaves (up to the
    one nanosecond by which a departure is rounded).

    A new rate re-times the messages or packets that wait and the one in service: the bytes still to be sent continue at
    the new rate. A rate of 0 holds them; queue bounds act on ones that enter later. A reset drops them and leaves the
    serializer idle. Several links may share one instance, as a node's uplink or downlink.
    """

    __slots__ = ("_backlog", "_den", "_end", "_num", "_queue", "_slack", "_waiting", "rounds", "scale", "shape")
    reason: ClassVar[FateReason] = QUEUE
    instant: ClassVar[bool] = False

    def __init__(self, shape: Shape, rounds: RoundValues[tuple[float | None, float]] | None = None) -> None:
        """Start idle, with the rate, token bucket and queue limit in `shape`.

        For the messages of some rounds, `rounds` gives another rate (None: the usual one) and a factor on it, both
        above 0.
        """
        self.rounds = rounds
        self._queue: deque[tuple[int, int, Transit]] = deque()  # (end of its bytes, nbytes, unit)
        self._waiting = 0  # bytes of the queue, the one in service included
        self._end = LONG_AGO
        self._backlog: list[tuple[Fraction, int, Transit]] = []  # at rate 0: (bytes still to be sent, nbytes, unit)
        self._set(shape, 1.0)

    def _set(self, shape: Shape, scale: float, parts: int = 1) -> None:
        self.shape = shape
        self.scale = scale
        num, den = _cost(shape.rate_bps, scale)
        self._num, self._den = num * parts, den * parts
        self._slack = shape.burst_bytes * self._num

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return the time at which the last byte of the message or packet `unit` leaves, `DROPPED` or `HELD`.

        A full queue drops it; a rate of 0 holds it.
        """
        num, den, queue = self._num, self._den, self._queue
        while queue and queue[0][0] - self._slack <= now_ns * den:
            self._waiting -= queue.popleft()[1]
        nbytes, bound = unit.nbytes, self.shape
        if is_full(queue or self._backlog, self._waiting, nbytes, bound.queue_bytes, bound.queue_messages):
            return DROPPED
        if num < 0:
            self._hold(unit)
            return HELD
        work = num * nbytes
        piece = None if self.rounds is None else self.rounds.at(unit.of_round)
        if piece is not None:
            rate_bps, scale = piece
            exact = Fraction(work) if rate_bps is None else nbytes * den * _NS_BITS / Fraction(rate_bps)
            work = ceil(exact / Fraction(scale))
        start = now_ns * den
        if self._end > start:
            start = self._end
        self._end = end = start + work
        queue.append((end, nbytes, unit))
        self._waiting += nbytes
        at_ns = -((self._slack - end) // den)
        return at_ns if at_ns > now_ns else now_ns

    def _hold(self, unit: Transit) -> None:
        ahead = self._backlog[-1][0] if self._backlog else Fraction(0)
        self._backlog.append((ahead + unit.nbytes, unit.nbytes, unit))
        self._waiting += unit.nbytes

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a new `rate` (a `Shape`) or `rate_scale` and recompute departures; at a reset, drop all that waits."""
        shape, scale = event.get("rate", self.shape), event.get("rate_scale", self.scale)
        if resets(event):
            dropped = self._pending(now_ns)
            self._clear()
            self._set(shape, scale)
            return [Drop(unit, RESET) for unit in dropped]
        if (shape, scale) == (self.shape, self.scale):
            return ()
        return self._retime(shape, scale, now_ns)

    def rests(self, now_ns: int) -> bool:
        """Return whether all bytes have passed and the token bucket is full again."""
        return self._num >= 0 and not self._backlog and self._end <= now_ns * self._den

    def _pending(self, now_ns: int) -> list[Transit]:
        queued = [unit for end, _, unit in self._queue if end - self._slack > now_ns * self._den]
        return queued + [unit for _, _, unit in self._backlog]

    def _clear(self) -> None:
        self._queue.clear()
        self._backlog.clear()
        self._waiting = 0
        self._end = LONG_AGO

    def _retime(self, shape: Shape, scale: float, now_ns: int) -> Sequence[StageOutcome]:
        now = now_ns * self._den
        left = list(self._backlog)
        debt = Fraction(0)  # bytes by which the token bucket is short of full, including the bytes of the queue
        if self._num > 0:
            left = [(Fraction(end - now, self._num), n, u) for end, n, u in self._queue if end - self._slack > now]
            debt = max(Fraction(0), Fraction(self._end - now, self._num))
        elif left:
            debt = left[-1][0]
        self._clear()
        self._set(shape, scale, _FINE if debt else 1)
        self._waiting = sum(nbytes for _, nbytes, _ in left)
        if self._num < 0:
            self._backlog = left
            return [Hold(unit) for _, _, unit in left]
        start = now_ns * self._den
        self._end = start + ceil(debt * self._num)
        outcomes: list[StageOutcome] = []
        for work, nbytes, unit in left:
            end = start + ceil(work * self._num)
            self._queue.append((end, nbytes, unit))
            outcomes.append(Departure(unit, max(now_ns, -((self._slack - end) // self._den))))
        return outcomes
