"""The one way in which a node waits for messages: for which nodes, in which step, how many suffice, until when.

Each wait of each algorithm goes through `Waits.messages`, so that a diagnosis sees all of them. While a node waits, its
`OpenWait` gives the node's edges of the wait-for graph: all of the awaited nodes, any of them, or k of n.

    begin ──> open ──enough messages──────────────────────────────────────> came
               ├──all missing senders are called gone─────────────────────> gone
               ├──messages of missing senders are known to be lost────────> lost
               ├──an order to skip missing senders, which ends a stall────> skipped
               └──the deadline, or senders that answer no status query────> deadline

A deadline may be fixed, absent, or automatic. Under an automatic one the node asks missing senders by `StatusQueries`
where it can, and otherwise goes by an `AutoDeadline`. A timer, a message, a notice, the failure detector and a status
may each end a wait; all of them change the `OpenWait` and then call `_check`, the one place where the end is decided.

Relies on: a mailbox that reports each arrival at once, and a clock whose timers fire on the loop: nothing here polls or
locks.

Why: A second way to wait would be a blind spot of the diagnosis. The end is decided in one place, because five causes
may end a wait at one instant, and which of them the record names must not depend on their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.clock import Alarm, Clock
from netdfl.core.types import Inbox, Kind, Message, NodeId, StepId, as_step
from netdfl.node.asking import StatusQueries
from netdfl.node.deadline import AutoDeadline, Suspects
from netdfl.node.mailbox import Mailbox
from netdfl.node.own_draws import OwnDraws
from netdfl.record.base import WaitEnd
from netdfl.transport.base import Fate

_ALL = 2**31
"""The number of awaited senders where the senders are unknown: larger than any real number."""


@dataclass(slots=True)
class OpenWait:
    """A node's current wait: for which messages, since when, and which of them have come so far.

    Attributes:
        round: the round of the awaited messages.
        step: the step of that round.
        sources: the awaited senders; None if the senders are unknown.
        need: the number of messages that suffices.
        since_ns: when the wait began.
        deadline_ns: when the wait ends at the latest; None if it has no deadline.
        have: the senders whose messages have come so far.
        silent: the senders that are no longer waited for, though their messages may still come.
        given_up: the nodes of `silent` that were already not waited for when the wait began.
        kind: the kind of the awaited messages.
        last_ns: when the last message came.
        asks: whether missing senders are sent status queries.
        unanswered: whether a sender left its queries unanswered.
        last_src: the sender of the last message or notice; of several at one instant, the one with the smallest number.
        ended: how the wait ended; None while it lasts.
        skipped: the nodes of `silent` that an order to end a stall told this node to skip.
    """

    round: int
    step: int
    sources: frozenset[NodeId] | None
    need: int
    since_ns: int
    deadline_ns: int | None
    have: set[NodeId]
    silent: frozenset[NodeId] = frozenset()
    given_up: frozenset[NodeId] = frozenset()
    kind: Kind = Kind.DATA
    last_ns: int | None = None
    asks: bool = False
    unanswered: bool = False
    last_src: NodeId | None = None
    ended: WaitEnd | None = None
    skipped: frozenset[NodeId] = frozenset()


class Waits:
    """The waits of one node for messages of its peers, one at a time, each ended by enough messages or a deadline."""

    def __init__(
        self,
        node: NodeId,
        mailbox: Mailbox,
        clock: Clock,
        queries: Callable[..., StatusQueries] | None = None,
        can_ask: Callable[[Collection[NodeId]], bool] = lambda peers: False,
        draws: OwnDraws | None = None,
    ) -> None:
        """Start while the node waits for no messages.

        Args:
            node: the node that waits.
            mailbox: gets the node's messages.
            clock: the time of deadlines.
            queries: makes the node's `StatusQueries`, given callbacks for `lost` and `silent` senders. None: the node
                asks nobody.
            can_ask: returns whether all of some peers can be asked.
            draws: the seeds of random draws in a user's own wait policy.
        """
        self.node, self.mailbox, self.clock = node, mailbox, clock
        self.can_ask, self.draws = can_ask, draws
        self.queries = None if queries is None else queries(lost=self._will_not_come, silent=self._do_not_answer)
        self.current: OpenWait | None = None
        self.went_on_ns = 0
        self.step = 0
        self.auto = AutoDeadline()
        self.gone: set[NodeId] = set()
        self.suspects = Suspects(mailbox)
        self._done: asyncio.Future[None] | None = None
        self._deadline = Alarm(clock, self._overdue)
        self.policy = WaitPolicy()
        self._is_first = False
        self._declined: dict[StepId, set[NodeId]] = {}
        mailbox.on(Kind.NOTICE, self._noticed)
        mailbox.on_late(lambda m: self.auto.late(m.round, m.step, clock.now_ns()))
        if self.queries is not None:
            mailbox.on(Kind.QUERY, self.queries.answer)
            mailbox.on(Kind.STATUS, self.queries.hear)

    async def messages(
        self,
        round: int,
        step: int,
        sources: frozenset[NodeId] | None,
        policy: WaitPolicy,
        kind: Kind = Kind.DATA,
    ) -> tuple[Inbox, OpenWait]:
        """Wait for the messages of a step from `sources` (None: any senders), as `policy` says.

        The node does not wait for a sender that the failure detector calls gone, nor for one whose notice says that it
        sends nothing. Under an automatic deadline it also does not wait for a sender that has sent a message of a later
        step over a link that keeps order: the message of this step is lost, unless it is sent again. Missing senders
        are asked where possible.

        Returns:
            The inbox, with the messages and the missing senders, and the wait as it ended.
        """
        step_id = as_step((round, step))
        if sources is not None and step_id in self._declined:
            sources -= self._declined[step_id]
        wait = self._begin(round, step, sources, policy, kind)
        early, taken = self.mailbox.open(step_id, self._arrived), self.mailbox.taken(step_id)
        if early or taken:
            wait.have.update(each for each in taken.union(early) if sources is None or each in sources)
        if wait.have:
            wait.last_ns = wait.since_ns
            if self.policy.deadline_ns == "auto" and not wait.asks:  # else no deadline depends on how late they come
                self.auto.came(len(wait.have), 0)
        if self.mailbox.num_kept and self._tells_loss and (ahead := self.mailbox.ahead(step_id)):
            wait.silent |= ahead
        return self._end(wait, timed_out=not self._satisfied(wait) and await self._until(wait))

    def _begin(
        self, round: int, step: int, sources: frozenset[NodeId] | None, policy: WaitPolicy, kind: Kind
    ) -> OpenWait:
        now = self.clock.now_ns()
        asks = self._asks(sources, policy, kind)
        limit = self._limit_ns(policy, asks=asks)
        count = policy.count if self.draws is None else self.draws.drawing(policy.count, round, "wait", round, step)
        need = count(_ALL if sources is None else len(sources))
        auto = policy.deadline_ns == "auto"
        self._is_first = auto and not self.auto.knows
        if auto:
            self.auto.began(round, step, now)
        silent = self.suspects.nodes() if auto and not policy.essential else frozenset()
        deadline_ns = None if limit is None else now + limit
        self.policy, self.step = policy, step
        self.current = OpenWait(round, step, sources, need, now, deadline_ns, set(), silent, silent, kind, asks=asks)
        return self.current

    def _limit_ns(self, policy: WaitPolicy, *, asks: bool) -> int | None:
        if policy.deadline_ns != "auto":
            return policy.deadline_ns
        return policy.patience * (self.auto.at_most_ns() if asks else self.auto.ns())

    def _asks(self, sources: frozenset[NodeId] | None, policy: WaitPolicy, kind: Kind) -> bool:
        """Return whether all awaited senders are to be sent status queries when their messages are missing.

        Queries are about rounds, so waits for replies send none.
        """
        if self.queries is None or policy.deadline_ns != "auto" or kind is not Kind.DATA:
            return False
        return sources is not None and self.can_ask(sources)

    def _satisfied(self, wait: OpenWait) -> bool:
        if len(wait.have) >= wait.need:
            return True
        if wait.sources is None or not (self.gone or wait.silent):
            return False
        gone = frozenset() if self.policy.essential else self.gone
        return wait.sources <= wait.have | gone | wait.silent

    @property
    def _tells_loss(self) -> bool:
        """Whether a sender's message for a later step proves its message for this step lost, or replaces it."""
        policy = self.policy
        return policy.cumulative or (policy.deadline_ns == "auto" and policy.ordered and not policy.resent)

    async def _until(self, wait: OpenWait) -> bool:
        self._done = done = asyncio.get_running_loop().create_future()
        if self._is_first:
            self._hurry(wait)
        self._set_deadline(wait)
        if self.queries is not None and wait.asks:
            proofs = 1 if self.policy.ordered else 2
            step_id, patience = as_step((wait.round, wait.step)), self.policy.patience
            self.queries.begin(step_id, partial(self._missing, wait), proofs=proofs, patience=patience)
        try:
            await done
        except BaseException:
            self.close()
            raise
        finally:
            self._done = None
            self._deadline.stop()
            if self.queries is not None and wait.asks:
                self.queries.end()
        return wait.unanswered or not self._satisfied(wait)

    def _missing(self, wait: OpenWait) -> frozenset[NodeId]:
        gone = frozenset() if self.policy.essential else self.gone
        return (wait.sources or frozenset()) - wait.have - gone - wait.silent

    def _will_not_come(self, peer: NodeId) -> None:
        """Stop waiting for `peer`, which has answered that it is done with the step: its message is lost."""
        if self.current is not None:
            self.current.silent |= {peer}
            self._check()

    def _do_not_answer(self, peers: Collection[NodeId]) -> None:
        """Stop waiting for `peers`, which left their status queries unanswered."""
        wait = self.current
        if wait is not None:
            for peer in peers:
                self.suspects.missed(peer, Suspects.TIMES)
            wait.silent |= frozenset(peers)
            wait.unanswered = True
            self._check()

    def close(self) -> None:
        """Cancel the timers of deadlines and queries, because the node will wait for no more messages."""
        self._deadline.clear()
        if self.queries is not None:
            self.queries.close()

    def _set_deadline(self, wait: OpenWait) -> None:
        if wait.deadline_ns is None:
            self._deadline.clear()
        else:
            self._deadline.set(wait.deadline_ns, ("wait", self.node, wait.round, wait.step))

    def _overdue(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _hurry(self, wait: OpenWait) -> bool:
        """Shorten the deadline of a wait once half of its messages have come; return whether the deadline changed.

        A deadline stays as it is if missing senders are sent status queries.
        """
        if wait.asks or wait.last_ns is None or wait.deadline_ns is None:
            return False
        known = wait.since_ns + self.policy.patience * self.auto.after(wait.last_ns - wait.since_ns)
        if 2 * len(wait.have) < wait.need or known >= wait.deadline_ns:
            return False
        wait.deadline_ns = max(known, self.clock.now_ns())
        return True

    def _arrived(self, step_id: StepId, senders: Collection[NodeId]) -> None:
        """Update the current wait by messages of `senders` that came for `step_id`, its step or a later one."""
        wait = self.current
        if wait is None:
            return
        sources, ours = wait.sources, senders
        if sources is not None and not sources.issuperset(senders):
            ours = [src for src in senders if src in sources]
            if not ours:
                return
        have = wait.have
        if step_id == (wait.round, wait.step):
            have.update(ours)
            now, last = self.clock.now_ns(), min(ours)
            if now == wait.last_ns and wait.last_src is not None:  # they may have come together, or one by one
                last = min(last, wait.last_src)
            wait.last_ns, wait.last_src = now, last
            if self.policy.deadline_ns == "auto" and not wait.asks:
                self.auto.came(len(ours), now - wait.since_ns)
                if self._is_first and self._done is not None and self._hurry(wait):
                    self._set_deadline(wait)
        elif self._tells_loss:
            wait.silent |= frozenset(ours)
        if len(have) >= wait.need or self.gone or wait.silent:
            self._check()

    def _noticed(self, message: Message) -> Fate:
        """Handle a notice by which a peer says that it sends this node nothing in a step: do not wait for it.

        A message that the peer sent for this step before it restarted still counts.
        """
        step_id, wait = message.at, self.current
        if self.mailbox.is_over(step_id):
            return Fate.LATE
        if self.mailbox.has(message.src, step_id):
            return Fate.DUPLICATE
        declined = self._declined.setdefault(step_id, set())
        if message.src in declined:
            return Fate.DUPLICATE
        declined.add(message.src)
        if wait is not None and wait.sources is not None and step_id == (wait.round, wait.step):
            wait.sources -= {message.src}
            count = self.policy.count
            if self.draws is not None:
                count = self.draws.drawing(count, step_id.round, "wait", *step_id)
            wait.need, wait.last_src = count(len(wait.sources)), message.src
            if self._is_first and self._done is not None and self._hurry(wait):  # what came may now be half
                self._set_deadline(wait)
            self._check()
        return Fate.DELIVERED

    def _check(self) -> None:
        if self._done is not None and not self._done.done() and self.current and self._satisfied(self.current):
            self._done.set_result(None)

    def _end(self, wait: OpenWait, *, timed_out: bool) -> tuple[Inbox, OpenWait]:
        self.current, self.went_on_ns = None, self.clock.now_ns()
        wait.ended = self._how(wait, timed_out)
        messages = self.mailbox.take_late() + self.mailbox.close(as_step((wait.round, wait.step)))
        missing = [] if wait.sources is None else sorted(wait.sources - wait.have)
        if self._declined:
            self._declined = {
                step_id: nodes for step_id, nodes in self._declined.items() if not self.mailbox.is_over(step_id)
            }
        if timed_out and self.policy.deadline_ns == "auto":
            for node in missing:
                self.suspects.missed(node)
        return Inbox(messages, missing), wait

    def _how(self, wait: OpenWait, timed_out: bool) -> WaitEnd:
        if timed_out:
            return WaitEnd.DEADLINE
        if wait.sources is None:
            return WaitEnd.SKIPPED if wait.skipped else WaitEnd.CAME
        if len(wait.have) >= wait.need:
            return WaitEnd.CAME
        missing = wait.sources - wait.have
        if missing <= self.gone:
            return WaitEnd.GONE
        if missing & wait.skipped:
            return WaitEnd.SKIPPED
        if missing <= self.gone | wait.given_up:  # of whom nothing was lost: the wait was for the others
            return WaitEnd.GONE if wait.last_src is None else WaitEnd.CAME
        return WaitEnd.LOST

    def skip(self, nodes: frozenset[NodeId], *, lost: bool = False) -> None:
        """Wait no longer for `nodes` in the current wait; they count as missing unless their messages come in time.

        The wait then counts as ended by losses if their messages are known to be `lost`, else as skipped.
        """
        if self.current is not None:
            self.current.silent |= nodes
            self.current.skipped |= frozenset() if lost else nodes
            if self.current.sources is None:
                self.current.need = len(self.current.have)
            self._check()

    def set_gone(self, node: NodeId) -> None:
        """Stop waiting for `node`, which the failure detector considers gone, until it returns."""
        self.gone.add(node)
        self._check()

    def set_returned(self, node: NodeId) -> None:
        """Wait for messages of `node` again, because the failure detector considers it back."""
        self.gone.discard(node)
