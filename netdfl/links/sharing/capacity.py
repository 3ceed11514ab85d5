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
"""Parts of a bit per second; 720,720 is divisible by every number up to 16."""
BYTE = 8 * 10**9 * PARTS
"""The volume of a byte."""


class ShareTaker(Protocol):
    """Anything that takes a share of each of its links. Its `rate` is in parts; None: unlimited."""

    links: Sequence[SharedLink]
    rate: int | None


class SharedLink:
    """One link, and the flows that cross it now.

    Attributes:
        order: the place among links whose shares are equal, so that no rounding depends on who came first.
        flows: the flows that cross it now, in order of beginning.
        capacity: the rate in parts; None: unlimited.
    """

    __slots__ = (
        *("_debt", "_held", "_load", "_since_ns", "_waiting"),
        *("capacity", "flows", "order", "scale", "shape"),
    )

    def __init__(self, order: tuple[int, ...], shape: Shape, scale: float = 1.0) -> None:
        """Begin idle, with a full bucket."""
        self.order = order
        self.flows: dict[Any, None] = {}  # each one a `Flow`, of a module that knows this one
        self._held: dict[Transit, int] = {}
        self._waiting = self._debt = self._load = self._since_ns = 0
        self.set(shape, scale)

    def set(self, shape: Shape, scale: float) -> None:
        """Take another shape and a factor on its rate. What the bucket owes stays."""
        self.shape, self.scale = shape, scale
        rate = shape.rate_bps
        self.capacity = None if rate is None else int(Fraction(rate) * Fraction(scale) * PARTS)

    # the queue

    def is_full(self, nbytes: int) -> bool:
        """Whether a message does not fit behind those that are here; the oldest one is in service, not in the queue."""
        shape, held = self.shape, self._held
        if not held or (shape.queue_bytes is None and shape.queue_messages is None):
            return False
        if shape.queue_messages is not None:
            return len(held) > shape.queue_messages
        return self._waiting - next(iter(held.values())) + nbytes > (shape.queue_bytes or 0)

    def take(self, unit: Transit) -> None:
        """Count a message that waits here or goes over this link."""
        self._held[unit] = unit.nbytes
        self._waiting += unit.nbytes

    def release(self, unit: Transit) -> None:
        """Count a message no more."""
        self._waiting -= self._held.pop(unit, 0)

    # the bucket

    def pass_until(self, now_ns: int) -> None:
        """Let the bucket fill, or empty, at the rates since the last change of a share."""
        if self.shape.burst_bytes and self.capacity is not None:
            self._debt = max(0, self._debt + (self._load - self.capacity) * (now_ns - self._since_ns))
        self._since_ns = now_ns

    @property
    def bucket(self) -> int:
        """The volume that may pass at once; 0 without a bucket, where the rate is 0, and for a rounding's rest."""
        if not self.shape.burst_bytes or not self.capacity:
            return 0
        left = self.shape.burst_bytes * BYTE - self._debt
        return left if left > self.capacity >> 10 else 0

    def draw(self, volume: int) -> None:
        """Let `volume` of the bucket pass at once."""
        self._debt += volume

    def load(self) -> int | None:
        """Note the rates that begin now; return the time in which they empty the bucket, None if they don't."""
        if not self.shape.burst_bytes or not self.capacity:
            return None
        self._load = sum(flow.rate or 0 for flow in self.flows)
        over = self._load - self.capacity
        return -(-self.bucket // over) if over > 0 and self.bucket else None

    def rest(self) -> None:
        """Fill the bucket: the link was reset."""
        self._debt = 0
