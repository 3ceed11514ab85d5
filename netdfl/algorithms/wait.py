"""What a node waits for: whom, how many of them, until when. Where deadlocks come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

AUTO: Literal["auto"] = "auto"
OnNotFinite: TypeAlias = Literal["refuse", "count", "pass"]
"""What becomes of a message with NaN or infinity in it: treated as missing, mixed and counted, or mixed unseen."""


@dataclass(frozen=True, kw_only=True)
class WaitPolicy:
    """Wait for `need` of the awaited nodes, at most until the deadline.

    `need` is `all`, `any`, a number (a quorum), or `none` (take what is there and go on). The
    deadline is in nanoseconds from the start of the wait; `auto` asks those that are late whether they will
    still send, and waits for no other; None never ends the wait. `stale` is how many rounds old a neighbor's
    vector may be and still be mixed by plain gossip, where it is the newest that is known; 0: this round's alone.
    A push-sum share is mass, and mixed at any age. `announce` says that, where receivers can't know who will
    send, a node tells those that it sends nothing to, so that `all` means something. `patience` multiplies the
    automatic deadline, and how long one that is asked may say nothing, for a wait that contains those of others.
    `resent` says that what is lost is sent again, so that it is worth waiting for. `ordered` says that links
    keep order, so that a message for a later step tells that the awaited one is lost. `on_not_finite` says
    what becomes of messages that came with NaN or infinity in them. `essential` says that without these nodes there
    is no round: they are waited for even where the failure detector calls them gone. `cumulative` says that a message
    holds all that its sender sent before, so that a later one ends the wait for one that was lost.
    """

    need: Literal["all", "any", "none"] | int = "all"
    deadline_ns: int | Literal["auto"] | None = AUTO
    stale: int = 0
    announce: bool = False
    patience: int = 1
    resent: bool = False
    ordered: bool = True
    on_not_finite: OnNotFinite = "refuse"
    essential: bool = False
    cumulative: bool = False

    def count(self, num_sources: int) -> int:
        """How many of `num_sources` nodes suffice."""
        if self.need == "all":
            return num_sources
        if self.need == "any":
            return min(1, num_sources)
        return 0 if self.need == "none" else min(self.need, num_sources)
