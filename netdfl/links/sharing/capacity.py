"""The capacity of one shared link: its rate, the bucket that lets bytes pass at once, and the bound of its queue.

All quantities are integers, so that every machine finds the same nanoseconds: a rate is in parts of a bit per second, a
volume in the parts that such a rate carries in a nanosecond. A part is so small that thirds, fifths and sixteenths of a
rate are whole numbers, and that no rounding of a share ever moves an arrival by a nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

from netdfl.links.rules.base import Transit
from netdfl.links.rules.rate import Shape

PARTS = 720_720 << 20
"""How many parts make one bit per second; a part is the unit of rates, and every number up to 16 divides 720,720."""
BYTE = 8 * 10**9 * PARTS
"""The volume of one byte, in parts of a bit per second times nanoseconds."""


class ShareTaker(Protocol):
    """A flow, or something that acts as one, which takes a share of the rate of each of its `links`.

    Its `rate` is in parts of a bit per second; None: unlimited.
    """

    links: Sequence[SharedLink]
    rate: int | None


class SharedLink:
    """One link whose rate several flows share (an uplink, downlink or core link), and the flows that cross it now.

    Attributes:
        order: the sort key among links whose shares are equal, so that no rounding depends on which flow came first.
        flows: the flows that cross it now, in the order in which they began.
        capacity: the rate in parts of a bit per second; None: unlimited.
        freed_ns: the instant at which a flow last stopped crossing it.
    """

    __slots__ = (
        *("_debt", "_held", "_load", "_since_ns", "_waiting"),
        *("capacity", "flows", "freed_ns", "order", "scale", "shape"),
    )

    def __init__(self, order: tuple[int, ...], shape: Shape, scale: float = 1.0) -> None:
        """Start without flows and with a full token bucket."""
        self.order = order
        self.flows: dict[Any, None] = {}  # each one a `Flow`, of a module that knows this one
        self._held: dict[Transit, int] = {}
        self._waiting = self._debt = self._load = self._since_ns = self.freed_ns = 0
        self.set(shape, scale)

    def set(self, shape: Shape, scale: float) -> None:
        """Replace the parameters of the link and the factor on its rate; keep the fill of its token bucket."""
        self.shape, self.scale = shape, scale
        rate = shape.rate_bps
        self.capacity = None if rate is None else int(Fraction(rate) * Fraction(scale) * PARTS)

    def limit(self, capacity: int | None) -> None:
        """Set the capacity, in parts of a bit/s (None: unlimited), in place of the rate in the link's parameters."""
        self.capacity = capacity

    def free(self, at_ns: int) -> None:
        """Note that a flow stopped crossing the link at `at_ns`."""
        self.freed_ns = at_ns

    @property
    def is_known(self) -> bool:
        """Whether the present capacity is certain, not a guess, so that messages may leave at the rates it allows."""
        return True

    # the queue

    def is_full(self, nbytes: int) -> bool:
        """Return whether the queue can't take a message of `nbytes` bytes; the oldest message is not in the queue."""
        shape, held = self.shape, self._held
        if not held or (shape.queue_bytes is None and shape.queue_messages is None):
            return False
        if shape.queue_messages is not None:
            return len(held) > shape.queue_messages
        return self._waiting - next(iter(held.values())) + nbytes > (shape.queue_bytes or 0)

    def take(self, unit: Transit) -> None:
        """Count the message `unit` in the link's queue, where it stays while it waits at this link or crosses it."""
        self._held[unit] = unit.nbytes
        self._waiting += unit.nbytes

    def release(self, unit: Transit) -> None:
        """Remove the message `unit` from the link's queue."""
        self._waiting -= self._held.pop(unit, 0)

    # the bucket

    def pass_until(self, now_ns: int) -> None:
        """Update the fill of the token bucket to `now_ns`, at the rates since the last update."""
        if self.shape.burst_bytes and self.capacity is not None:
            self._debt = max(0, self._debt + (self._load - self.capacity) * (now_ns - self._since_ns))
        self._since_ns = now_ns

    @property
    def bucket(self) -> int:
        """The volume of bytes in the token bucket, which may pass at once.

        It is 0 without a bucket, at rate 0, or if only a rounding error is left.
        """
        if not self.shape.burst_bytes or not self.capacity:
            return 0
        left = self.shape.burst_bytes * BYTE - self._debt
        return left if left > self.capacity >> 10 else 0

    def draw(self, volume: int) -> None:
        """Take `volume`, an amount of bytes in units of 1 / `BYTE` of a byte, out of the token bucket."""
        self._debt += volume

    def load(self) -> int | None:
        """Sum up the new rates of the flows; return the ns until they empty the token bucket, None if they never do."""
        if not self.shape.burst_bytes or not self.capacity:
            return None
        self._load = sum(flow.rate or 0 for flow in self.flows)
        over = self._load - self.capacity
        return -(-self.bucket // over) if over > 0 and self.bucket else None

    def rest(self) -> None:
        """Fill the token bucket, because the link was reset."""
        self._debt = 0
