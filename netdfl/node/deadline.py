"""How long to wait where nobody can be asked, and whom not to wait for again.

What a wait took is a poor guide to how long the next may take: one node's time-out is its neighbors' long wait, theirs
is their neighbors', and a deadline that follows it grows for ever. So only what time-outs hardly lengthen is taken: the
node's own local rounds, and what most messages are behind by when they come, of which a quarter may be early.
"""

from __future__ import annotations

from collections import deque

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import NodeId
from netdfl.node.mailbox import Mailbox

LAST = 32
_NOBODY: frozenset[NodeId] = frozenset()


class AutoDeadline:
    """Twelve times this node's local round and four times the lag of messages (30 s at most), at least 2 s.

    So a sender may take ten times as long to compute. A message's lag is how long after the beginning of the wait for
    it it came, 0 where it was there; the lower quartile of the last 32 counts, those that came late included, so that a
    network that became slower is followed. Before anything is known: 30 s, or, once half of the awaited messages of
    the first wait have come, what their lag gives.
    """

    FIRST_NS = 30 * NS_PER_S
    LEAST_NS = 2 * NS_PER_S
    LONGEST_NS = 600 * NS_PER_S
    ROUNDS = 12
    LAGS = 4

    def __init__(self) -> None:
        """Start with nothing known."""
        self._trained: deque[int] = deque(maxlen=8)
        self._lags: deque[int] = deque(maxlen=LAST)
        self._began: deque[tuple[int, int, int]] = deque(maxlen=64)

    def trained(self, took_ns: int) -> None:
        """A local round of this node took so long."""
        self._trained.append(took_ns)

    def began(self, round: int, step: int, at_ns: int) -> None:
        """A wait began."""
        self._began.append((round, step, at_ns))

    def came(self, number: int, lag_ns: int) -> None:
        """So many messages came `lag_ns` after the wait for them began; 0: they were there."""
        self._lags.extend([lag_ns] * min(number, LAST))

    def late(self, round: int, step: int, now_ns: int) -> None:
        """A message came for a wait that is over."""
        for r, s, began_ns in self._began:
            if (r, s) == (round, step):
                self.came(1, now_ns - began_ns)
                return

    @property
    def knows(self) -> bool:
        """Whether any wait has taught it something."""
        return bool(self._lags)

    def ns(self) -> int:
        """How long to wait now."""
        if not self._lags:
            return max(self.FIRST_NS, self.after(0))
        return self.after(sorted(self._lags)[len(self._lags) // 4])

    def after(self, lag_ns: int) -> int:
        """How long to wait where messages come after `lag_ns`."""
        own = max(self._trained, default=0)
        return max(self.LEAST_NS, self.ROUNDS * own + min(self.LAGS * lag_ns, self.FIRST_NS))

    def at_most_ns(self) -> int:
        """How long to wait at most for those that say, when asked, that they will still send."""
        return max(self.LONGEST_NS, 10 * self.ROUNDS * max(self._trained, default=0))


class Silence:
    """Who has been missed twice in a row, or does not answer, with nothing heard from it since.

    An automatic deadline does not wait for such a neighbor again until something comes from it: else
    one dead node, where no failure detector names it, would cost its neighbors a time-out every round.
    """

    TIMES = 2

    def __init__(self, mailbox: Mailbox) -> None:
        """Judge by what `mailbox` has got."""
        self._mailbox = mailbox
        self._missed: dict[NodeId, tuple[int, int]] = {}

    def missed(self, node: NodeId, times: int = 1) -> None:
        """A wait for `node` ended without it; `times` is what that counts for."""
        heard = self._mailbox.num_from(node)
        before, then = self._missed.get(node, (0, heard))
        self._missed[node] = (times + before if then == heard else times, heard)

    def nodes(self) -> frozenset[NodeId]:
        """Who is silent now."""
        if not self._missed:
            return _NOBODY
        return frozenset(
            node
            for node, (times, heard) in self._missed.items()
            if times >= self.TIMES and self._mailbox.num_from(node) == heard
        )
