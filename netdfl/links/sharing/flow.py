"""One flow: the messages of one connection, of which the first is transferred now, and its rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from netdfl.core.types import Edge
from netdfl.links.rules.base import StageOutcome, Transit
from netdfl.links.sharing.capacity import BYTE, SharedLink


class Turns(Protocol):
    """The interface of the stage that a flow belongs to, which starts and ends the transfer of each of its messages."""

    edge: Edge
    stopped: bool

    def begin(self, flow: Flow, now_ns: int) -> Iterator[StageOutcome]:
        """Start the transfer of the next message of `flow`."""
        ...

    def refuse(self, flow: Flow, now_ns: int) -> Iterator[StageOutcome]:
        """Drop the message of `flow` that is being transferred, because a queue is full."""
        ...

    def end(self, flow: Flow) -> None:
        """End the transfer of the current message of `flow`."""
        ...


class Flow:
    """The messages of one connection: the message `unit` crosses `links` now, and the messages in `waiting` follow.

    Attributes:
        left: the volume of `unit` that had not passed at `since_ns`.
        rate: its rate in parts of a bit per second; None: unlimited.
        due_ns: the instant at which its last byte leaves at this rate; None: never.
        ended_ns: the instant of its end, once that can no longer change.
        going_ns: the instant since which the message has been transferred without a stop.
        turns: the number of messages whose transfer has begun so far.
    """

    __slots__ = (
        *("began_ns", "due_ns", "ended_ns", "going_ns", "left"),
        *("links", "rate", "since_ns", "stage", "turns", "unit", "waiting"),
    )

    def __init__(self, stage: Turns) -> None:
        """Start without messages."""
        self.stage = stage
        self.waiting: deque[Transit] = deque()
        self.unit: Transit | None = None
        self.links: Sequence[SharedLink] = ()
        self.left = self.since_ns = self.began_ns = self.going_ns = self.turns = 0
        self.rate: int | None = 0
        self.due_ns: int | None = None
        self.ended_ns: int | None = None

    def turn(self) -> Transit:
        """Take the next waiting message as the one to transfer, and return it."""
        self.unit = self.waiting.popleft()
        self.turns += 1
        return self.unit

    def begin(self, links: Sequence[SharedLink], nbytes: int, now_ns: int) -> None:
        """Start the transfer of `unit`, of `nbytes` bytes, over `links` at `now_ns`."""
        self.links, self.left = links, nbytes * BYTE
        self.since_ns = self.began_ns = self.going_ns = now_ns
        self.rate, self.due_ns = 0, None

    def draw(self, volume: int) -> None:
        """Count `volume` of the current message as transferred; a negative one takes back what was counted too much."""
        self.left -= volume

    def pass_until(self, now_ns: int) -> None:
        """Count the bytes of the current message that have passed from the last change of the rate to `now_ns`.

        Do nothing if that change was later than `now_ns`.
        """
        if now_ns < self.since_ns:
            return
        if self.rate is None:
            self.left = 0
        else:
            self.left -= self.rate * (now_ns - self.since_ns)
        self.since_ns = now_ns

    def ran_out(self, rate: int) -> None:
        """If more bytes are counted than the message has, set `since_ns` back to when the last byte left.

        `rate` is the rate until now, in parts of a bit/s.
        """
        if self.left < 0:
            self.since_ns -= -self.left // rate
            self.left = 0

    def stop(self, now_ns: int) -> None:
        """Stop the transfer at `now_ns`, because the link holds its messages."""
        self.pass_until(now_ns)
        self.rate, self.due_ns = 0, None

    def go_on(self, now_ns: int) -> None:
        """Continue the transfer at `now_ns` after a stop."""
        self.since_ns = self.going_ns = now_ns

    def end_at(self, now_ns: int) -> None:
        """Fix the end of the current transfer at `now_ns`."""
        self.ended_ns = now_ns

    def drop(self) -> None:
        """Discard the current message."""
        self.unit = self.ended_ns = None

    def is_over(self, now_ns: int) -> bool:
        """Return whether the last byte of the current message has left."""
        return self.ended_ns is not None or (self.due_ns is not None and self.due_ns <= now_ns)

    def take_rate(self, rate: int | None, *, stays: bool) -> bool:
        """Set the rate from `since_ns` on, up to which bytes are counted; return whether the end of the transfer moves.

        With `stays` the rate is only a guess, so no end is set. A remainder that takes less than a thousandth of a
        nanosecond is a rounding error, and counts as nothing.
        """
        before, least = self.due_ns, max(rate or 0, self.rate or 0) >> 10
        if stays:
            self.due_ns = None
        elif rate is None or self.left <= least:
            self.due_ns = self.since_ns
        else:
            self.due_ns = self.since_ns - (least - self.left) // rate if rate else None
        self.rate = rate
        return before != self.due_ns
