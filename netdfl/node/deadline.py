"""The automatic deadline of waits whose senders can't be asked for their status, and senders no longer waited for.

Relies on: the length of each local round, which the node tells it, and a mailbox that counts what has come from each
sender.

Why: A deadline must not follow the length of earlier waits. The time-out of one node makes a long wait for its
neighbors, which makes a long wait for theirs, so such a deadline would grow without end. `AutoDeadline` relies on two
quantities that time-outs hardly lengthen: the duration of the node's own local rounds, and the lower quartile of the
lags of messages. `Suspects` keeps one dead node from costing its neighbors a time-out in every round.
"""

from __future__ import annotations

from collections import deque

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import NodeId
from netdfl.node.mailbox import Mailbox

LAST = 32
_NOBODY: frozenset[NodeId] = frozenset()


class AutoDeadline:
    """An automatic deadline: 12 local rounds of this node plus 4 message lags (30 s at most), and at least 2 s.

    A sender may take ten times as long to compute as this node. The lag of a message is the time from the beginning of
    the wait to its arrival, 0 if it had come before. The lower quartile of the last 32 lags counts. Late messages
    are among them, so that the deadline follows a network that becomes slower. Before the first lag is known, the
    deadline is 30 s; once half of the messages of the first wait have come, their lag counts.
    """

    FIRST_NS = 30 * NS_PER_S
    LEAST_NS = 2 * NS_PER_S
    LONGEST_NS = 600 * NS_PER_S
    ROUNDS = 12
    LAGS = 4

    def __init__(self) -> None:
        """Start without any measured local round or message lag."""
        self._trained: deque[int] = deque(maxlen=8)
        self._lags: deque[int] = deque(maxlen=LAST)
        self._began: deque[tuple[int, int, int]] = deque(maxlen=64)

    def trained(self, took_ns: int) -> None:
        """Add the measured duration of a local round of this node."""
        self._trained.append(took_ns)

    def began(self, round: int, step: int, at_ns: int) -> None:
        """Store when the wait for the messages of a `round` and `step` began, to measure the lag of late ones."""
        self._began.append((round, step, at_ns))

    def came(self, number: int, lag_ns: int) -> None:
        """Add the lag of `number` messages, which came `lag_ns` after the wait for them began (0: before it)."""
        self._lags.extend([lag_ns] * min(number, LAST))

    def late(self, round: int, step: int, now_ns: int) -> None:
        """Add the lag of a message that came after the wait for it had ended."""
        for r, s, began_ns in self._began:
            if (r, s) == (round, step):
                self.came(1, now_ns - began_ns)
                return

    @property
    def knows(self) -> bool:
        """Whether the lag of any message has been measured, so that the deadline rests on a measurement."""
        return bool(self._lags)

    def ns(self) -> int:
        """Return the length of the automatic deadline, in nanoseconds, by what has been measured so far."""
        if not self._lags:
            return max(self.FIRST_NS, self.after(0))
        return self.after(sorted(self._lags)[len(self._lags) // 4])

    def after(self, lag_ns: int) -> int:
        """Return the length of the deadline in nanoseconds, assuming that messages have the lag `lag_ns`."""
        own = max(self._trained, default=0)
        return max(self.LEAST_NS, self.ROUNDS * own + min(self.LAGS * lag_ns, self.FIRST_NS))

    def at_most_ns(self) -> int:
        """Return the longest wait, in nanoseconds, for senders that answer status queries by a promise to send."""
        return max(self.LONGEST_NS, 10 * self.ROUNDS * max(self._trained, default=0))


class Suspects:
    """The suspects: senders that a node does not wait for, as they missed two waits in a row or answered no query.

    Under an automatic deadline a node does not wait for a suspect until a message of it comes. Otherwise a dead node
    that no failure detector names would cost each of its neighbors a time-out in every round.
    """

    TIMES = 2

    def __init__(self, mailbox: Mailbox) -> None:
        """Start without suspects; the message counts of `mailbox` show when a suspect has sent a new message."""
        self._mailbox = mailbox
        self._missed: dict[NodeId, tuple[int, int]] = {}

    def missed(self, node: NodeId, times: int = 1) -> None:
        """Record that a wait ended without the message of `node`; it counts as `times` missed messages."""
        heard = self._mailbox.num_from(node)
        before, then = self._missed.get(node, (0, heard))
        self._missed[node] = (times + before if then == heard else times, heard)

    def nodes(self) -> frozenset[NodeId]:
        """Return the suspects: senders not waited for until a message of theirs comes."""
        if not self._missed:
            return _NOBODY
        return frozenset(
            node
            for node, (times, heard) in self._missed.items()
            if times >= self.TIMES and self._mailbox.num_from(node) == heard
        )
