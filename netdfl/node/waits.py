"""The one wait primitive: it names the nodes, the round, how many suffice, and the deadline.

Every wait of every algorithm goes through `Waits.messages`. The `OpenWait` it sets is the node's edge
of the wait-for graph, with its type: all, any, or k of n.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.clock import Alarm, Clock
from netdfl.core.types import Inbox, Kind, Message, NodeId, StepId, as_step
from netdfl.node.asking import Asking
from netdfl.node.deadline import AutoDeadline, Silence
from netdfl.node.mailbox import Mailbox
from netdfl.node.own_draws import OwnDraws
from netdfl.node.worker import settle
from netdfl.record.base import WaitEnd
from netdfl.transport.base import Fate

_ALL = 2**31
"""How many send where nobody knows who will."""


@dataclass(slots=True)
class OpenWait:
    """What a node waits for now: messages of `kind`.

    `have` has come, the last of it at `last_ns` from `last_src`; `silent` is not waited for, though it may still come,
    and of that `given_up` was not from the beginning: it had said nothing for too long.
    `asks`: those that are missing are asked; `unanswered`: one of them says nothing. `ended` says how it ended.
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


class Waits:
    """Waits of one node, one at a time."""

    def __init__(
        self,
        node: NodeId,
        mailbox: Mailbox,
        clock: Clock,
        asking: Callable[..., Asking] | None = None,
        can_ask: Callable[[Collection[NodeId]], bool] = lambda peers: False,
        draws: OwnDraws | None = None,
    ) -> None:
        """Wait for what the `mailbox` of `node` gets, by `clock`.

        Under an automatic deadline it asks, by the `Asking` that `asking` makes with callbacks for `lost` and `silent`
        senders, where `can_ask` says that all of some peers can be asked. `draws` draws a policy's count.
        """
        self.node, self.mailbox, self.clock = node, mailbox, clock
        self.can_ask, self.draws = can_ask, draws
        self.asking = None if asking is None else asking(lost=self._will_not_come, silent=self._do_not_answer)
        self.current: OpenWait | None = None
        self.went_on_ns = 0
        self.step = 0
        self.auto = AutoDeadline()
        self.gone: set[NodeId] = set()
        self.silence = Silence(mailbox)
        self._done: asyncio.Future[None] | None = None
        self._deadline = Alarm(clock, self._overdue)
        self.policy = WaitPolicy()
        self._is_first = False
        self._declined: dict[StepId, set[NodeId]] = {}
        mailbox.on(Kind.NOTICE, self._noticed)
        mailbox.on_late(lambda m: self.auto.late(m.round, m.step, clock.now_ns()))
        if self.asking is not None:
            mailbox.on(Kind.QUERY, self.asking.answer)
            mailbox.on(Kind.STATUS, self.asking.hear)

    async def messages(
        self,
        round: int,
        step: int,
        sources: frozenset[NodeId] | None,
        policy: WaitPolicy,
        kind: Kind = Kind.DATA,
    ) -> tuple[Inbox, OpenWait]:
        """Wait for the step's messages from `sources` (None: from whoever sends) as `policy` says.

        A node that the failure detector calls gone is not waited for, nor is one whose notice says that
        it sends nothing. Where links keep order, under an automatic deadline neither is one that has already
        sent for a later step: what it sent for this one is lost, unless it is sent again. There those whose
        messages are missing are asked, too, where that is possible. Returns what came, with the awaited nodes
        that are missing.
        """
        slot = as_step((round, step))
        if sources is not None and slot in self._declined:
            sources -= self._declined[slot]
        wait = self._begin(round, step, sources, policy, kind)
        early, taken = self.mailbox.open(slot, self._arrived), self.mailbox.taken(slot)
        if early or taken:
            wait.have.update(each for each in taken.union(early) if sources is None or each in sources)
        if wait.have:
            wait.last_ns = wait.since_ns
            if self.policy.deadline_ns == "auto":
                self._learn(wait, len(wait.have), 0)
        if self.mailbox.num_kept and self._tells_loss and (ahead := self.mailbox.ahead(slot)):
            wait.silent |= ahead
        timed_out = False
        if not self._satisfied(wait):
            timed_out = await self._until(wait)
        return self._end(wait, timed_out)

    def _begin(
        self, round: int, step: int, sources: frozenset[NodeId] | None, policy: WaitPolicy, kind: Kind
    ) -> OpenWait:
        now = self.clock.now_ns()
        asks = self._asks(sources, policy, kind)
        limit = self._limit_ns(policy, asks=asks)
        count = policy.count if self.draws is None else self.draws.drawing(policy.count, round, "wait", round, step)
        need = count(_ALL if sources is None else len(sources))
        self._is_first = policy.deadline_ns == "auto" and not self.auto.knows
        self.auto.began(round, step, now)
        quick = policy.deadline_ns == "auto" and not policy.essential
        silent = self.silence.nodes() if quick else frozenset()
        deadline_ns = None if limit is None else now + limit
        self.policy, self.step = policy, step
        self.current = OpenWait(round, step, sources, need, now, deadline_ns, set(), silent, silent, kind, asks=asks)
        return self.current

    def _limit_ns(self, policy: WaitPolicy, *, asks: bool) -> int | None:
        if policy.deadline_ns != "auto":
            return policy.deadline_ns
        return policy.patience * (self.auto.at_most_ns() if asks else self.auto.ns())

    def _asks(self, sources: frozenset[NodeId] | None, policy: WaitPolicy, kind: Kind) -> bool:
        """Whether all that are awaited can be asked. A reply is owed to a request, and no matter of rounds."""
        if self.asking is None or policy.deadline_ns != "auto" or kind is not Kind.DATA:
            return False
        return sources is not None and self.can_ask(sources)

    def _learn(self, wait: OpenWait, number: int, lag_ns: int) -> None:
        """What a deadline that can't ask goes by."""
        if not wait.asks:
            self.auto.came(number, lag_ns)

    def _satisfied(self, wait: OpenWait) -> bool:
        if len(wait.have) >= wait.need:
            return True
        if wait.sources is None or not (self.gone or wait.silent):
            return False
        gone = frozenset() if self.policy.essential else self.gone
        return wait.sources <= wait.have | gone | wait.silent

    @property
    def _tells_loss(self) -> bool:
        """Whether a message for a later step tells that the one for this step is lost, or holds what was in it."""
        policy = self.policy
        return policy.cumulative or (policy.deadline_ns == "auto" and policy.ordered and not policy.resent)

    async def _until(self, wait: OpenWait) -> bool:
        self._done = done = asyncio.get_running_loop().create_future()
        if self._is_first:
            self._hurry(wait)
        self._set_deadline(wait)
        if self.asking is not None and wait.asks:
            proofs = 1 if self.policy.ordered else 2
            slot, patience = as_step((wait.round, wait.step)), self.policy.patience
            self.asking.begin(slot, partial(self._missing, wait), proofs=proofs, patience=patience)
        try:
            await done
        except BaseException:
            self.close()
            raise
        finally:
            self._done = None
            self._deadline.stop()
            if self.asking is not None and wait.asks:
                self.asking.end()
        return wait.unanswered or not self._satisfied(wait)

    def _missing(self, wait: OpenWait) -> frozenset[NodeId]:
        gone = frozenset() if self.policy.essential else self.gone
        return (wait.sources or frozenset()) - wait.have - gone - wait.silent

    def _will_not_come(self, peer: NodeId) -> None:
        """`peer` is past what is awaited of it: its message is lost."""
        if self.current is not None:
            self.current.silent |= {peer}
            self._check()

    def _do_not_answer(self, peers: Collection[NodeId]) -> None:
        """`peers` have been asked again and again, and say nothing."""
        wait = self.current
        if wait is not None:
            for peer in peers:
                self.silence.missed(peer, Silence.TIMES)
            wait.silent |= frozenset(peers)
            wait.unanswered = True
            self._check()

    def close(self) -> None:
        """No wait follows."""
        self._deadline.clear()
        if self.asking is not None:
            self.asking.close()

    def _set_deadline(self, wait: OpenWait) -> None:
        if wait.deadline_ns is None:
            self._deadline.clear()
        else:
            self._deadline.set(wait.deadline_ns, ("wait", self.node, wait.round, wait.step))

    def _overdue(self) -> None:
        if self._done is not None:
            settle(self._done)

    def _hurry(self, wait: OpenWait) -> bool:
        """Bring the deadline of a first wait forward, once half has come; say whether it moved."""
        if wait.asks or wait.last_ns is None or wait.deadline_ns is None:
            return False
        known = wait.since_ns + self.policy.patience * self.auto.after(wait.last_ns - wait.since_ns)
        if 2 * len(wait.have) < wait.need or known >= wait.deadline_ns:
            return False
        wait.deadline_ns = max(known, self.clock.now_ns())
        return True

    def _arrived(self, slot: StepId, senders: Collection[NodeId]) -> None:
        """Messages of one step have come: of the awaited one, or of a later one."""
        wait = self.current
        if wait is None:
            return
        sources, ours = wait.sources, senders
        if sources is not None and not sources.issuperset(senders):
            ours = [src for src in senders if src in sources]
            if not ours:
                return
        have = wait.have
        if slot == (wait.round, wait.step):
            have.update(ours)
            wait.last_ns, wait.last_src = self.clock.now_ns(), min(ours)
            if self.policy.deadline_ns == "auto":
                self._learn(wait, len(ours), wait.last_ns - wait.since_ns)
                if self._is_first and self._done is not None and self._hurry(wait):
                    self._set_deadline(wait)
        elif self._tells_loss:
            wait.silent |= frozenset(ours)
        if len(have) >= wait.need or self.gone or wait.silent:
            self._check()

    def _noticed(self, message: Message) -> Fate:
        """A node says that it sends nothing in a step; after its message, which an earlier life sent, it did."""
        slot, wait = message.at, self.current
        if self.mailbox.is_over(slot):
            return Fate.LATE
        if self.mailbox.has(message.src, slot):
            return Fate.DUPLICATE
        declined = self._declined.setdefault(slot, set())
        if message.src in declined:
            return Fate.DUPLICATE
        declined.add(message.src)
        if wait is not None and wait.sources is not None and slot == (wait.round, wait.step):
            wait.sources -= {message.src}
            count = self.policy.count
            if self.draws is not None:
                count = self.draws.drawing(count, slot.round, "wait", *slot)
            wait.need, wait.last_src = count(len(wait.sources)), message.src
            if self._is_first and self._done is not None and self._hurry(wait):  # what came may now be half
                self._set_deadline(wait)
            self._check()
        return Fate.DELIVERED

    def _check(self) -> None:
        if self._done is not None and not self._done.done() and self.current and self._satisfied(self.current):
            self._done.set_result(None)

    def _end(self, wait: OpenWait, timed_out: bool) -> tuple[Inbox, OpenWait]:
        self.current, self.went_on_ns = None, self.clock.now_ns()
        wait.ended = self._how(wait, timed_out)
        messages = self.mailbox.take_late() + self.mailbox.close(as_step((wait.round, wait.step)))
        missing = [] if wait.sources is None else sorted(wait.sources - wait.have)
        if self._declined:
            self._declined = {slot: nodes for slot, nodes in self._declined.items() if not self.mailbox.is_over(slot)}
        if timed_out:
            for node in missing:
                self.silence.missed(node)
        return Inbox(messages, missing), wait

    def _how(self, wait: OpenWait, timed_out: bool) -> WaitEnd:
        if timed_out:
            return WaitEnd.DEADLINE
        if len(wait.have) >= wait.need or wait.sources is None:
            return WaitEnd.CAME
        missing = wait.sources - wait.have
        if missing <= self.gone:
            return WaitEnd.GONE
        if missing <= self.gone | wait.given_up:  # of whom nothing was lost: the wait was for the others
            return WaitEnd.GONE if wait.last_src is None else WaitEnd.CAME
        return WaitEnd.LOST

    def skip(self, nodes: frozenset[NodeId]) -> None:
        """Do not wait for `nodes` any more this time; they are missing where they do not come before the end."""
        if self.current is not None:
            self.current.silent |= nodes
            if self.current.sources is None:
                self.current.need = len(self.current.have)
            self._check()

    def set_gone(self, node: NodeId) -> None:
        """The failure detector calls `node` gone: it is not waited for until it returns."""
        self.gone.add(node)
        self._check()

    def set_returned(self, node: NodeId) -> None:
        """`node` is back."""
        self.gone.discard(node)
