"""Rates from a trace: the moments at which a link can carry 1500 bytes (Mahimahi), or rates over time (Pensieve)."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import ClassVar

from netdfl.core.fates import QUEUE, RESET, FateReason
from netdfl.core.given_files import given_text
from netdfl.core.units import SizeBytes
from netdfl.links.rules.base import DROPPED, Drop, LinkEvent, Stage, StageOutcome, Transit, resets
from netdfl.links.rules.rate import MessageLimit, Rate, Shape, Sharing, is_full, serial, shared

OPPORTUNITY_BYTES = 1500
_BITS = 8 * OPPORTUNITY_BYTES
_NS_PER_MS = 10**6
_MOST = 10_000_000


@dataclass(frozen=True, slots=True)
class Opportunities:
    """The times in ns, ascending, at which 1500 bytes may leave a link; they repeat with a period.

    The period is at least the last of these times.
    """

    at_ns: tuple[int, ...]
    queue_bytes: int | None = None
    queue_messages: int | None = None
    period_ns: int = 0

    def __post_init__(self) -> None:
        if not self.at_ns or self.at_ns[-1] <= 0:
            raise ValueError("a Mahimahi trace is empty; expected at least one line with a time in ms above 0")
        if self.at_ns[0] < 0 or any(a > b for a, b in zip(self.at_ns, self.at_ns[1:], strict=False)):
            raise ValueError("a Mahimahi trace goes back in time; expected ascending times in ms, 0 or more")

        object.__setattr__(self, "period_ns", max(self.period_ns, self.at_ns[-1]))

    def at(self, index: int) -> int:
        """Return the `index`-th time in ns at which 1500 bytes may leave, counted from 0 through all repetitions."""
        cycle, place = divmod(index, len(self.at_ns))
        return cycle * self.period_ns + self.at_ns[place]

    def first(self, now_ns: int) -> int:
        """Return the index of the first time at or after `now_ns` at which 1500 bytes may leave."""
        cycle = max(0, -(-now_ns // self.period_ns) - 1)
        return cycle * len(self.at_ns) + bisect_left(self.at_ns, now_ns - cycle * self.period_ns)


def read_trace(file: str) -> tuple[tuple[int, ...], int]:
    """Read a trace file; return the times in ns at which 1500 bytes may leave, and the period in which they repeat.

    Lines with a time in ms are Mahimahi's format; lines with a time in s and a rate in Mbit/s are Pensieve's format for
    "cooked" traces. Raises ValueError.
    """
    lines = [line.split() for line in given_text(file).splitlines() if line.strip()]
    try:
        if len(lines) > 1 and all(len(line) == 2 for line in lines):
            return _cooked([(float(at_s), float(rate)) for at_s, rate in lines])
        times = tuple(int(word) * _NS_PER_MS for line in lines for word in line)
    except ValueError as exc:
        forms = "one whole number of ms on each line, or (Pensieve's) a time in s and a rate in Mbit/s"
        raise ValueError(f"Mahimahi trace {file}: {exc}; expected {forms}") from exc
    return times, times[-1] if times else 0


def _cooked(samples: Sequence[tuple[float, float]]) -> tuple[tuple[int, ...], int]:
    """Convert (time in s, rate in Mbit/s) pairs to the times in ns at which 1500 bytes may leave, and their period.

    A rate holds from the time of the line before to the time of its own line. Raises ValueError.
    """
    if any(b <= a for (a, _), (b, _) in pairwise(samples)):
        raise ValueError("times do not ascend")
    if any(not 0 <= rate < inf for _, rate in samples):
        raise ValueError("a rate is no number of 0 or more")
    if sum((b - a) * rate for (a, _), (b, rate) in pairwise(samples)) * 1e6 > _MOST * _BITS:
        raise ValueError(f"it carries more than {_MOST:,} packets of 1500 bytes, cut it or give a plain rate")
    times: list[int] = []
    start, left = samples[0][0], float(_BITS)
    for (begin, _), (end, rate) in pairwise(samples):
        at = begin
        while rate > 0 and at + left / (rate * 1e6) <= end:
            at += left / (rate * 1e6)
            left = _BITS
            times.append(round((at - start) * 1e9))
        left -= (end - at) * rate * 1e6
    return tuple(times), round((samples[-1][0] - start) * 1e9)


def mahimahi(*, file: str, queue: SizeBytes | MessageLimit | None = None) -> Opportunities:
    """Limit a link's rate by a repeated trace: 1500 bytes at each time in a Mahimahi file, or a Pensieve file's rates.

    `queue` has the meaning that it has for `serial`.
    """
    times, period_ns = read_trace(file)
    if isinstance(queue, MessageLimit):
        return Opportunities(times, queue_messages=queue.messages, period_ns=period_ns)
    return Opportunities(times, queue_bytes=queue, period_ns=period_ns)


def shared_mahimahi(
    *, file: str, queue: SizeBytes | MessageLimit | None = None, sharing: Sharing = "fifo"
) -> Opportunities:
    """Limit a node's uplink or downlink by a repeated trace, in the formats of `mahimahi`.

    All messages on it pass one after another, so `sharing` must be `fifo`.
    """
    if sharing == "fair":
        raise ValueError("sharing: fair needs a plain rate, and this one follows a trace; leave it out, or say fifo")
    return mahimahi(file=file, queue=queue)


class TraceRate(Stage):
    """A stage that sends messages or packets in order; each leaves at the trace's time that carries its last byte.

    Each time of the trace carries 1500 bytes. It is unused if nothing waits; bytes that one message leaves free go to
    the next in the queue. Events can't change the rate; a reset of the link drops the messages in the stage.
    """

    __slots__ = ("_index", "_left", "_queue", "_waiting", "opportunities")
    reason: ClassVar[FateReason] = QUEUE
    instant: ClassVar[bool] = False

    def __init__(self, opportunities: Opportunities) -> None:
        """Start before the first of the times in `opportunities`, at each of which 1500 bytes may leave."""
        self.opportunities = opportunities
        self._index = -1  # the opportunity in use
        self._left = 0  # bytes that it can still carry
        self._queue: deque[tuple[int, int, Transit]] = deque()  # (when its last byte has left, nbytes, unit)
        self._waiting = 0

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return the time at which the last byte of the message or packet `unit` leaves, or `DROPPED` (full queue)."""
        queue, bound = self._queue, self.opportunities
        while queue and queue[0][0] <= now_ns:
            self._waiting -= queue.popleft()[1]
        if is_full(queue, self._waiting, unit.nbytes, bound.queue_bytes, bound.queue_messages):
            return DROPPED
        first = self.opportunities.first(now_ns)
        if first > self._index:
            self._index, self._left = first - 1, 0
        more = max(0, -((self._left - unit.nbytes) // OPPORTUNITY_BYTES))
        self._index += more
        self._left += more * OPPORTUNITY_BYTES - unit.nbytes
        at_ns = max(now_ns, self.opportunities.at(self._index)) if self._index >= 0 else now_ns
        queue.append((at_ns, unit.nbytes, unit))
        self._waiting += unit.nbytes
        return at_ns

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Drop the messages or packets in the stage at a reset of the link. Raises ValueError for a new rate."""
        if not event.keys().isdisjoint(("rate", "rate_scale")):
            raise ValueError("a rate from a trace can't be changed by an event; give the link a plain rate instead")
        if not resets(event):
            return ()
        dropped = [Drop(unit, RESET) for at_ns, _, unit in self._queue if at_ns > now_ns]
        self._queue.clear()
        self._waiting = 0
        self._index = min(self._index, self.opportunities.first(now_ns) - 1)
        self._left = 0
        return dropped


def rate_stage(config: Shape | Opportunities) -> Rate | TraceRate:
    """Return the stage for a rate: a constant one, or one from a trace."""
    return Rate(config) if isinstance(config, Shape) else TraceRate(config)


RATES: Mapping[str, Callable[..., Shape] | Callable[..., Opportunities]] = {"serial": serial, "mahimahi": mahimahi}
SHARED_RATES: Mapping[str, Callable[..., Shape] | Callable[..., Opportunities]] = {
    "serial": shared,
    "mahimahi": shared_mahimahi,
}
