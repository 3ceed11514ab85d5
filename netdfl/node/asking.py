"""Status queries: a waiting node asks the senders of missing messages whether the messages will still come.

A waiting node can't tell a lost message from a slow sender, nor from a sender that itself waits. So a wait under an
automatic deadline has no guessed length. When the wait lasts, the node sends a `query` to each sender whose message is
missing. The sender answers with a `status`, which says whether it is done with that step:

- done: the sender has sent its message. On a link that keeps order the message is lost then, and the wait ends
  without it. On other links the sender must say so twice.
- not done: the node keeps waiting, and asks again later.
- no answer to repeated queries: the node gives the sender up for this wait.

    missing ──query──▶ asked ──"not done"──▶ missing, and asked again later
                        ├──"done", twice where links keep no order──▶ lost: the wait ends without the sender
                        └──no answer to repeated queries──▶ silent: given up for this wait

The time before the first query is the retransmission timer of TCP (RFC 6298): the smoothed time that answers take plus
four times its deviation, at most `LATEST_NS`. A status names the attempt of its query, so a repeated query gives no
ambiguous measurement (Karn's problem). A query that was too early costs one message, and later waits ask later.

Relies on: `is_step_done`, by which a node reports truthfully that it will send nothing more for a step, and links that
keep order or are known not to.

Why: A guessed time-out is too short for a slow sender or too long for a lost message, and both change what is learned.
A question costs one small message over the same links, and is sent only when a wait is longer than answers take.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import median

from netdfl.core.clock import NS_PER_S, Alarm, Clock
from netdfl.core.types import Kind, Message, NodeId, Payload, StepId, answer_to
from netdfl.transport.base import Fate

FIRST_NS = NS_PER_S // 2
LEAST_NS = NS_PER_S // 20
LATEST_NS = 2 * NS_PER_S
"""Upper bound in ns of the time after which an answer is overdue: one busy start must not make it long for good."""
LONGEST_NS = 60 * NS_PER_S
LATEST_FIRST_NS = 4 * NS_PER_S
"""Longest time before the first query of a wait, unless twice the median of the last waits is longer."""
LAST_WAITS = 9
SILENT_NS = 2 * NS_PER_S
SILENT_TIMES = 4
"""A sender counts as silent at the earliest after this many times the longest time that an answer may take."""
TRIES = 6
"""Queries without an answer after which a sender may count as silent."""
BACKOFF = 1.5
MOST_OPEN = 256
STEP_DONE = "past"
"""The metadata key by which a status says whether its sender is done with the step."""
_NOTHING = Payload()


class AnswerTime:
    """An estimate of the time until a query is answered: smoothed mean and mean deviation, as in RFC 6298."""

    def __init__(self) -> None:
        """Start without any measured time of an answer."""
        self._known: tuple[float, float] | None = None  # the mean and the deviation

    def took(self, ns: int) -> None:
        """Add a measurement: an answer came `ns` nanoseconds after its query was sent."""
        if self._known is None:
            self._known = ns, ns / 2
            return
        mean, deviation = self._known
        self._known = mean + (ns - mean) / 8, deviation + (abs(ns - mean) - deviation) / 4

    def timeout_ns(self) -> int:
        """Return the nanoseconds after which an answer to a query is overdue; half a second before any measurement."""
        return min(self.longest_ns(), LATEST_NS)

    def longest_ns(self) -> int:
        """Return the longest time that an answer may take, in nanoseconds, without the upper bound of `timeout_ns`."""
        if self._known is None:
            return FIRST_NS
        mean, deviation = self._known
        return max(LEAST_NS, round(mean + max(mean / 5, 4 * deviation)))


@dataclass(slots=True)
class PeerQuery:
    """The status queries to one sender, whose message is missing, during one wait.

    Attributes:
        heard_ns: when the sender last answered.
        due_ns: when the next query is due.
        attempts: number of queries so far.
        tries: number of queries since the last answer.
        said_done: number of answers that said that the sender is done with the step.
    """

    heard_ns: int
    due_ns: int
    attempts: int = 0
    tries: int = 0
    said_done: int = 0


@dataclass(slots=True)
class QueriedWait:
    """The current wait of a node for messages, and its status queries to senders whose messages are missing.

    Attributes:
        step_id: the round, and the exchange in it, of the awaited messages.
        since_ns: when the wait began.
        proofs: how many times a sender must say that it is done before its message counts as lost.
        silent_ns: how long a sender may leave queries unanswered, at least.
        awaited: returns the senders whose messages are missing now.
        asked: the queries so far, by sender.
        learned: whether an answer has shown that a message is lost.
    """

    step_id: StepId
    since_ns: int
    proofs: int
    silent_ns: int
    awaited: Callable[[], Collection[NodeId]]
    asked: dict[NodeId, PeerQuery]
    learned: bool = False

    def is_silent(self, asked: PeerQuery | None, now: int, answer_ns: int) -> bool:
        """Return whether a sender has left the queries to it, `asked`, unanswered for too long.

        `now` is the present time; `answer_ns` is how long an answer may take.
        """
        if asked is None or asked.tries < TRIES or asked.due_ns > now:
            return False
        return now - asked.heard_ns >= max(self.silent_ns, SILENT_TIMES * answer_ns)


class StatusQueries:
    """The status queries of one node about the messages that it waits for, and its answers to other nodes' queries."""

    def __init__(
        self,
        node: NodeId,
        clock: Clock,
        send: Callable[[Message], None],
        epoch: int,
        *,
        is_step_done: Callable[[NodeId, StepId], bool] = lambda peer, step_id: False,
        still: Callable[[], bool] = lambda: False,
        lost: Callable[[NodeId], None] = lambda peer: None,
        silent: Callable[[Collection[NodeId]], None] = lambda peers: None,
    ) -> None:
        """Prepare to ask and to answer; `begin` and `end` are called for each wait of the node.

        Args:
            node: the node that asks and answers.
            clock: the fleet's time.
            send: sends a query or an answer, and returns at once.
            epoch: how often the node has restarted, which its messages carry.
            is_step_done: returns whether this node will send a peer nothing more for a step.
            still: returns whether the node is paused. A paused node hears no answer, so it asks nobody meanwhile and
                calls nobody silent.
            lost: called with a sender whose message will not come.
            silent: called with senders that do not answer.
        """
        self.node, self._clock, self._send, self._epoch = node, clock, send, epoch
        self.is_step_done, self.still, self.lost, self.silent = is_step_done, still, lost, silent
        self.answers = AnswerTime()
        self._first_ns = FIRST_NS
        self._lasted: deque[int] = deque(maxlen=LAST_WAITS)
        self._missing: QueriedWait | None = None
        self._alarm = Alarm(clock, self._look)
        self._open: OrderedDict[tuple[NodeId, int, int, int], int] = OrderedDict()
        self._looks = 0

    # asking

    def begin(
        self, step_id: StepId, awaited: Callable[[], Collection[NodeId]], *, proofs: int = 1, patience: int = 1
    ) -> None:
        """Start to ask missing senders, as a wait for the messages of `step_id` (round and exchange) begins now.

        `awaited` returns the senders that are missing. A sender must say `proofs` times that it is done with the step.
        `patience` multiplies how long a sender may leave queries unanswered.
        """
        now = self._clock.now_ns()
        self._missing = QueriedWait(step_id, now, proofs, patience * SILENT_NS, awaited, {})
        if self._first_ns > LATEST_FIRST_NS:  # else it is early enough, whatever the last waits were
            self._first_ns = min(self._first_ns, self._latest_first_ns())
        self._arm(now + self._first_ns)

    def end(self) -> None:
        """Stop asking senders: the wait for their messages is over.

        The first query of the next wait comes earlier if this wait showed a loss, and later if its queries were
        needless.
        """
        missing, self._missing = self._missing, None
        self._alarm.stop()
        if missing is None:
            return
        if missing.learned:
            self._first_ns = min(self.answers.timeout_ns(), self._latest_first_ns())
            return
        self._lasted.append(self._clock.now_ns() - missing.since_ns)
        if missing.asked:
            self._first_ns = min(max(self._first_ns * 3 // 2, self.answers.timeout_ns()), self._latest_first_ns())

    def _latest_first_ns(self) -> int:
        """Return the longest time, in nanoseconds, from the beginning of a wait to its first status query.

        Where waits are always long, only a wait that is longer than usual is suspicious.
        """
        return max(LATEST_FIRST_NS, 2 * int(median(self._lasted))) if self._lasted else LATEST_FIRST_NS

    def close(self) -> None:
        """Cancel the timer of the next query, because the node will not wait for messages again."""
        self._alarm.clear()

    def _arm(self, at_ns: int) -> None:
        self._looks += 1
        self._alarm.set(at_ns, ("ask", self.node, self._looks))

    def _look(self) -> None:
        """Give up the senders that do not answer this node's queries, and send the queries that are due."""
        missing, now = self._missing, self._clock.now_ns()
        if missing is None:
            return
        if self.still():
            self._arm(now + self.answers.timeout_ns())
            return
        awaited, answer_ns = sorted(missing.awaited()), self.answers.longest_ns()
        silent = [peer for peer in awaited if missing.is_silent(missing.asked.get(peer), now, answer_ns)]
        if silent:
            self.silent(silent)
        left = [peer for peer in awaited if peer not in silent]
        for peer in left:
            asked = missing.asked.setdefault(peer, PeerQuery(now, now))
            if asked.due_ns <= now:
                self._ask(missing, peer, asked, now)
        if left and self._missing is missing:
            self._arm(min(missing.asked[peer].due_ns for peer in left))

    def _ask(self, missing: QueriedWait, peer: NodeId, asked: PeerQuery, now: int) -> None:
        self._open[(peer, *missing.step_id, asked.attempts)] = now
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        query = Message(self.node, peer, Kind.QUERY, self._epoch, *missing.step_id, asked.attempts, _NOTHING)
        asked.due_ns = now + min(round(self.answers.timeout_ns() * BACKOFF**asked.tries), LONGEST_NS)
        asked.attempts, asked.tries = min(asked.attempts + 1, 0xFFFF), asked.tries + 1
        self._send(query)

    def hear(self, status: Message) -> Fate:
        """Handle a status: a sender's answer whether it will still send the message that this node awaits.

        An answer to no query of this node, or a malformed one, is ignored.
        """
        past, step_id = status.payload.meta.get(STEP_DONE), status.at
        sent_ns = self._open.pop((status.src, *step_id, status.attempt), None)
        if type(past) is not bool or sent_ns is None:
            return Fate.REFUSED if type(past) is not bool else Fate.DUPLICATE
        missing, now = self._missing, self._clock.now_ns()
        self.answers.took(now - sent_ns)
        asked = None if missing is None or missing.step_id != step_id else missing.asked.get(status.src)
        if missing is None or asked is None:
            return Fate.DELIVERED
        asked.heard_ns, asked.tries = now, 0
        asked.said_done += past
        if asked.said_done >= missing.proofs:
            missing.learned = True
            self.lost(status.src)
            return Fate.DELIVERED
        patience_ns = self.answers.timeout_ns() if past else (now - missing.since_ns) // 2
        asked.due_ns = now + min(max(patience_ns, self.answers.timeout_ns()), LONGEST_NS)
        return Fate.DELIVERED

    # answering

    def answer(self, query: Message) -> Fate:
        """Answer a peer's status query: whether this node will send the peer nothing more for the step in the query."""
        past = self.is_step_done(query.src, query.at)
        self._send(answer_to(query, Kind.STATUS, self._epoch, Payload(meta={STEP_DONE: past})))
        return Fate.DELIVERED
