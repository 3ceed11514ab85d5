"""How a node learns whether what it waits for will still come: it asks the sender.

From outside a lost message looks like a slow sender, or like one that is itself held up. So a wait under an automatic
deadline is not cut at a length that somebody guessed: when it lasts, the node asks those whose messages are missing
(`query`), and their answer (`status`) says whether they are past that step. Who is past it has sent: on a link that
keeps order the message is lost, and the wait goes on without it at once. Who is not is waited for, and asked again.
Who does not answer, however often it is asked, is given up.

When to ask first is the retransmission timer of TCP (RFC 6298): the smoothed time that answers take, and four
times its deviation, at most `LATEST_NS`. An answer names the attempt that it answers, so a question that was repeated
is no riddle (Karn). A question that came too early costs a message, and lets the next come later.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import median

from netdfl.core.clock import NS_PER_S, Alarm, Clock
from netdfl.core.types import Kind, Message, NodeId, Payload, StepId
from netdfl.transport.base import Fate

FIRST_NS = NS_PER_S // 2
LEAST_NS = NS_PER_S // 20
LATEST_NS = 2 * NS_PER_S
"""No answer is overdue later than that: a busy start must not teach for good that answers take long."""
LONGEST_NS = 60 * NS_PER_S
LATEST_FIRST_NS = 4 * NS_PER_S
"""So long a wait lasts at most before anybody is asked, or twice as long as the last waits, by their median, lasted."""
LAST_WAITS = 9
SILENT_NS = 2 * NS_PER_S
SILENT_TIMES = 4
"""Nobody is silent who has said nothing for less than so many times what answers take, as far as that is known."""
TRIES = 6
BACKOFF = 1.5
MOST_OPEN = 256
PAST = "past"
_NOTHING = Payload()


class AnswerTime:
    """How long answers take: smoothed, with their mean deviation. RFC 6298."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: tuple[float, float] | None = None  # the mean and the deviation

    def took(self, ns: int) -> None:
        """An answer came `ns` after its question."""
        if self._known is None:
            self._known = ns, ns / 2
            return
        mean, deviation = self._known
        self._known = mean + (ns - mean) / 8, deviation + (abs(ns - mean) - deviation) / 4

    def timeout_ns(self) -> int:
        """When an answer is overdue; half a second while none has come."""
        return min(self.longest_ns(), LATEST_NS)

    def longest_ns(self) -> int:
        """What an answer may take, by those that came."""
        if self._known is None:
            return FIRST_NS
        mean, deviation = self._known
        return max(LEAST_NS, round(mean + max(mean / 5, 4 * deviation)))


@dataclass(slots=True)
class Asked:
    """One sender in one wait: `attempts` in all, `tries` since it was last `heard`, what it said, when to ask again."""

    heard_ns: int
    due_ns: int
    attempts: int = 0
    tries: int = 0
    said_past: int = 0


@dataclass(slots=True)
class Missing:
    """The wait about which to ask: `awaited` gives those that are missing now.

    `proofs` is how many times a sender must say that it is past, `silent_ns` how long one may say nothing.
    """

    slot: StepId
    since_ns: int
    proofs: int
    silent_ns: int
    awaited: Callable[[], Collection[NodeId]]
    asked: dict[NodeId, Asked]
    learned: bool = False

    def is_silent(self, asked: Asked | None, now: int, answer_ns: int) -> bool:
        """Whether one that was `asked` again and again has said nothing for too long; answers take `answer_ns`."""
        if asked is None or asked.tries < TRIES or asked.due_ns > now:
            return False
        return now - asked.heard_ns >= max(self.silent_ns, SILENT_TIMES * answer_ns)


class Asking:
    """One node's questions about one wait at a time, and its answers to those of others."""

    def __init__(
        self,
        node: NodeId,
        clock: Clock,
        send: Callable[[Message], None],
        head: Callable[[], int],
        *,
        is_past: Callable[[NodeId, StepId], bool] = lambda peer, slot: False,
        still: Callable[[], bool] = lambda: False,
        lost: Callable[[NodeId], None] = lambda peer: None,
        silent: Callable[[Collection[NodeId]], None] = lambda peers: None,
    ) -> None:
        """Ask for `node` by `send`, which returns at once; `head` gives the node's epoch.

        Args:
            node: who asks.
            clock: the fleet's time.
            send: sends a query or an answer, and returns at once.
            head: gives the node's epoch.
            is_past: says whether this node will send a peer nothing (more) for a slot.
            still: while it holds (a paused node, which hears no answer), nobody is asked, and nobody is silent.
            lost: called with a sender whose message will not come.
            silent: called with senders that do not answer.
        """
        self.node, self._clock, self._send, self._epoch = node, clock, send, head
        self.is_past, self.still, self.lost, self.silent = is_past, still, lost, silent
        self.answers = AnswerTime()
        self._first_ns = FIRST_NS
        self._lasted: deque[int] = deque(maxlen=LAST_WAITS)
        self._missing: Missing | None = None
        self._alarm = Alarm(clock, self._look)
        self._open: OrderedDict[tuple[NodeId, int, int, int], int] = OrderedDict()
        self._looks = 0

    # asking

    def begin(
        self, slot: StepId, awaited: Callable[[], Collection[NodeId]], *, proofs: int = 1, patience: int = 1
    ) -> None:
        """A wait for the messages of `slot` began; `patience` multiplies how long a sender may say nothing."""
        now = self._clock.now_ns()
        self._missing = Missing(slot, now, proofs, patience * SILENT_NS, awaited, {})
        if self._first_ns > LATEST_FIRST_NS:  # else it is early enough, whatever the last waits were
            self._first_ns = min(self._first_ns, self._latest_first_ns())
        self._arm(now + self._first_ns)

    def end(self) -> None:
        """The wait is over. Ask earlier next time where a message was lost, later where all that was asked came."""
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
        """When to ask at the latest: where waits last long by themselves, as rounds may, only a longer one is odd."""
        return max(LATEST_FIRST_NS, 2 * int(median(self._lasted))) if self._lasted else LATEST_FIRST_NS

    def close(self) -> None:
        """No wait follows."""
        self._alarm.clear()

    def _arm(self, at_ns: int) -> None:
        self._looks += 1
        self._alarm.set(at_ns, ("ask", self.node, self._looks))

    def _look(self) -> None:
        """Ask whom it is time to ask, give up who is silent."""
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
            asked = missing.asked.setdefault(peer, Asked(now, now))
            if asked.due_ns <= now:
                self._ask(missing, peer, asked, now)
        if left and self._missing is missing:
            self._arm(min(missing.asked[peer].due_ns for peer in left))

    def _ask(self, missing: Missing, peer: NodeId, asked: Asked, now: int) -> None:
        self._open[(peer, *missing.slot, asked.attempts)] = now
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        query = Message(self.node, peer, Kind.QUERY, self._epoch(), *missing.slot, asked.attempts, _NOTHING)
        asked.due_ns = now + min(round(self.answers.timeout_ns() * BACKOFF**asked.tries), LONGEST_NS)
        asked.attempts, asked.tries = min(asked.attempts + 1, 0xFFFF), asked.tries + 1
        self._send(query)

    def hear(self, status: Message) -> Fate:
        """Take an answer; one that was not asked for, or is malformed, changes nothing."""
        past, slot = status.payload.meta.get(PAST), status.at
        sent_ns = self._open.pop((status.src, *slot, status.attempt), None)
        if type(past) is not bool or sent_ns is None:
            return Fate.REFUSED if type(past) is not bool else Fate.DUPLICATE
        missing, now = self._missing, self._clock.now_ns()
        self.answers.took(now - sent_ns)
        asked = None if missing is None or missing.slot != slot else missing.asked.get(status.src)
        if missing is None or asked is None:
            return Fate.DELIVERED
        asked.heard_ns, asked.tries = now, 0
        asked.said_past += past
        if asked.said_past >= missing.proofs:
            missing.learned = True
            self.lost(status.src)
            return Fate.DELIVERED
        patience_ns = self.answers.timeout_ns() if past else (now - missing.since_ns) // 2
        asked.due_ns = now + min(max(patience_ns, self.answers.timeout_ns()), LONGEST_NS)
        return Fate.DELIVERED

    # answering

    def answer(self, query: Message) -> Fate:
        """Say whether this node is past what a peer awaits of it."""
        past = self.is_past(query.src, query.at)
        head = (self.node, query.src, Kind.STATUS, self._epoch(), query.round, query.step, query.attempt)
        self._send(Message(*head, Payload(meta={PAST: past})))
        return Fate.DELIVERED
