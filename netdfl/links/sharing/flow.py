"""One flow: the messages of one connection, the transfer of the first of them, and its rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from netdfl.core.types import Edge
from netdfl.links.rules.base import StageOutcome, Transit
from netdfl.links.sharing.capacity import BYTE, SharedLink


class Turns(Protocol):
    """The stage of a flow, which decides what becomes of a message when its turn comes."""

    edge: Edge
    stopped: bool

    def begin(self, flow: Flow, now_ns: int) -> Iterator[StageOutcome]:
        """Let the next message of `flow` go."""
        ...

    def refuse(self, flow: Flow, now_ns: int) -> Iterator[StageOutcome]:
        """Let the message that goes be lost."""
        ...

    def end(self, flow: Flow) -> None:
        """Let the message that goes end."""
        ...


class Flow:
    """The messages of one connection. `unit` goes over `links` now, at `rate` parts a second; the others wait.

    Attributes:
        left: the volume that `unit` had left at `since_ns`.
        rate: None: unlimited.
        due_ns: the instant at which its last byte leaves at this rate; None: never.
        ended_ns: the instant of its end, once that can't change any more.
    """

    __slots__ = ("began_ns", "due_ns", "ended_ns", "left", "links", "rate", "since_ns", "stage", "unit", "waiting")

    def __init__(self, stage: Turns) -> None:
        """Begin without messages."""
        self.stage = stage
        self.waiting: deque[Transit] = deque()
        self.unit: Transit | None = None
        self.links: Sequence[SharedLink] = ()
        self.left = self.since_ns = self.began_ns = 0
        self.rate: int | None = 0
        self.due_ns: int | None = None
        self.ended_ns: int | None = None

    def turn(self) -> Transit:
        """Take the next waiting message as the one that goes, and return it."""
        self.unit = self.waiting.popleft()
        return self.unit

    def begin(self, links: Sequence[SharedLink], nbytes: int, now_ns: int) -> None:
        """Let `unit`, which takes `nbytes`, go over `links` from `now_ns` on."""
        self.links, self.left, self.since_ns, self.began_ns = links, nbytes * BYTE, now_ns, now_ns
        self.rate, self.due_ns = 0, None

    def draw(self, volume: int) -> None:
        """Let `volume` pass at once."""
        self.left -= volume

    def pass_until(self, now_ns: int) -> None:
        """Let the bytes pass that passed since the last change of the rate."""
        if self.rate is None:
            self.left = 0
        else:
            self.left -= self.rate * (now_ns - self.since_ns)
        self.since_ns = now_ns

    def stop(self, now_ns: int) -> None:
        """Carry nothing from now on."""
        self.pass_until(now_ns)
        self.rate, self.due_ns = 0, None

    def go_on(self, now_ns: int) -> None:
        """Carry on from `now_ns`, after a stop."""
        self.since_ns = now_ns

    def end_at(self, now_ns: int) -> None:
        """Let `unit` end at `now_ns`, which can't change any more."""
        self.ended_ns = now_ns

    def drop(self) -> None:
        """Let no message go."""
        self.unit = self.ended_ns = None

    def is_over(self, now_ns: int) -> bool:
        """Whether the last byte of `unit` has left."""
        return self.ended_ns is not None or (self.due_ns is not None and self.due_ns <= now_ns)

    def take_rate(self, rate: int | None, now_ns: int) -> bool:
        """Go on at `rate` from `now_ns` on, up to which all is accounted for; return whether the end moves.

        What is left of a thousandth of a nanosecond is the rounding of shares: it counts as nothing.
        """
        before, least = self.due_ns, max(rate or 0, self.rate or 0) >> 10
        if rate is None or self.left <= least:
            self.due_ns = now_ns
        else:
            self.due_ns = now_ns - (least - self.left) // rate if rate else None
        self.rate = rate
        return before != self.due_ns
