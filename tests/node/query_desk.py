"""Status queries of one node on a clock that is set by hand."""

from __future__ import annotations

from netdfl.core.types import Kind, Message, Payload, StepId
from netdfl.node.asking import STEP_DONE, StatusQueries
from netdfl.transport.base import Fate
from tests.node.hand import HandClock

S = 10**9
SLOT = StepId(3, 0)


class Desk:
    """Node 9, which asks node 1, with a hand on its clock."""

    def __init__(self) -> None:
        self.clock, self.sent = HandClock(), list[Message]()
        self.queries = StatusQueries(9, self.clock, self.sent.append, 5)

    def first_ns(self) -> int:
        """How long a wait that begins now lasts before anybody is asked; it is ended at once then."""
        began, before = self.clock.ns, len(self.sent)
        self.queries.begin(SLOT, lambda: (1,))
        while len(self.sent) == before:
            self.clock.move_to(min(timer.at_ns for timer in self.clock.timers if timer.live))
        return self.clock.ns - began

    def answer(self, *, past: bool) -> Fate:
        asked = self.sent[-1]
        said = Payload(meta={STEP_DONE: past})
        return self.queries.hear(Message(1, 9, Kind.STATUS, 0, asked.round, asked.step, asked.attempt, said))
