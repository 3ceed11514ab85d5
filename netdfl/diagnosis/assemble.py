"""The assembly of a fleet's snapshot from its nodes' reports: for each wait, where each awaited message is or was lost.

A node knows its own wait, and the messages that it sent. It does not know what became of a message that it awaits.
Here the report (account) of the receiver, with its wait, is joined with the sender's, which knows what became of the
message, and with the schedule (outages of links), so that a diagnosis can say whether the message can still come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from netdfl.core.fates import DOWN, LOSS, NO_REASON, RESET, SCRIPTED, Fate, FateReason
from netdfl.core.types import Edge, Kind, LogicalId, MessageId, NodeId, StepId
from netdfl.diagnosis.account import Account, WaitAccount
from netdfl.diagnosis.outages import BY_LINKS, Outages
from netdfl.diagnosis.snapshot import (
    AWAY,
    LOST_BY_RESTART,
    MOST_RESENDS,
    TAKEN_FOR_GONE,
    AwaitedFate,
    AwaitedMessage,
    EdgeNow,
    MessageNow,
    NodeNow,
    Snapshot,
    State,
    WaitKind,
    WaitNow,
    reason_of_loss,
)
from netdfl.links.rules.base import ANY_NUMBER, Transit

MOST_FLYING = 4
GIVEN_UP = tuple(reason_of_loss(Fate.failed(FateReason(how))) for how in ("unavailable", "deadline"))
"""The reasons of loss by which a connection reports that it stopped trying to deliver a message.

If link rules act on packets, a link that is down causes such losses.
"""
BY_EVENTS, BY_RESET, BY_NAME = (LOSS, DOWN), RESET, SCRIPTED


@dataclass(frozen=True, slots=True)
class DownNode:
    """A node that can't report its waits, because it is down.

    Attributes:
        state: the node's state, which says why it is down.
        round: the node's round when it went down.
        since_ns: since when it is down.
        back_ns: when the scenario lets it return; None: never.
        keeps: whether it returns with the state that it had at the end of its last round, and repeats `round`.
        hoped: whether its return at `back_ns` is uncertain.
        joins_in: the round in which it first joins; None: it joins by time, or has joined.
    """

    state: State
    round: int
    since_ns: int
    back_ns: int | None = None
    keeps: bool = False
    hoped: bool = False
    joins_in: int | None = None


def assemble(
    at_ns: int,
    accounts: Mapping[NodeId, Account],
    down: Mapping[NodeId, DownNode],
    schedule: Outages,
    *,
    detector: str = "none",
) -> Snapshot:
    """Return the snapshot of the fleet at `at_ns`: the state of each node, and of each message that a node awaits.

    Args:
        at_ns: the time of the snapshot.
        accounts: the last report of each node, if it gave one.
        down: the nodes that are down.
        schedule: the outages of links by the schedule.
        detector: the kind of the failure detector.
    """
    fleet = _Fleet(at_ns, accounts, down, schedule)
    nodes = {node: fleet.down_node(node) for node in down}
    nodes |= {node: fleet.node(account) for node, account in accounts.items() if node not in down}
    edges = {(node, dst): fleet.edge((node, dst)) for node, account in accounts.items() for dst in account.edges}
    for node, now in nodes.items():
        for source in now.wait.awaited if now.wait is not None else ():
            if (source, node) not in edges:
                up, heals_ns, _, event = schedule.edge((source, node), at_ns)
                edges[source, node] = EdgeNow(up=up, heals_ns=heals_ns, event=event)
    ordered = dict(sorted(nodes.items()))
    return Snapshot(
        at_ns=at_ns,
        nodes=ordered,
        edges=edges,
        detector=detector,
        scripted=schedule.scripted,
        core_links=schedule.core_links,
    )


@dataclass(frozen=True, slots=True)
class _Fleet:
    at_ns: int
    accounts: Mapping[NodeId, Account]
    down: Mapping[NodeId, DownNode]
    schedule: Outages

    def down_node(self, node: NodeId) -> NodeNow:
        own, account = self.down[node], self.accounts.get(node)
        return NodeNow(
            node=node,
            state=own.state,
            round=own.round,
            finished=own.round - 1,
            since_ns=own.since_ns,
            back_ns=own.back_ns,
            hoped=own.hoped,
            keeps=own.keeps or own.hoped or own.state not in AWAY,
            joins_in=own.joins_in,
            stack=account.stack if account is not None else "",
        )

    def node(self, account: Account) -> NodeNow:
        wait = account.wait
        return NodeNow(
            node=account.node,
            state=account.state,
            round=account.round,
            finished=account.round if account.state is State.FINISHED else account.round - 1,
            since_ns=account.since_ns,
            returned=account.epoch > 0,
            joined=account.epoch == 1 and account.node in self.schedule.joins,
            ends_ns=self.schedule.ends_ns(account.node, self.at_ns),
            step=account.step,
            steps=account.steps,
            early=account.early,
            wait=None if wait is None else self.wait(account.node, wait),
            stack=account.stack,
        )

    def wait(self, node: NodeId, wait: WaitAccount) -> WaitNow:
        """Return a node's wait in the form that the snapshot has.

        If the node can't know its senders, a message of any node may end the wait.
        """
        anyone = sorted((set(self.accounts) | set(self.down)) - {node})
        sources = anyone if wait.sources is None else wait.sources
        return WaitNow(
            round=wait.round,
            step=wait.step,
            need=wait.need,
            awaited={source: self.awaited((source, node), wait) for source in sources if source not in wait.have},
            have=frozenset(wait.have),
            gone=frozenset() if wait.sources is None else frozenset(wait.left_out),
            undecided=frozenset(wait.undecided),
            essential=wait.essential,
            from_anybody=wait.sources is None,
            cumulative=wait.cumulative,
            since_ns=wait.since_ns,
            deadline_ns=wait.deadline_ns,
            what=wait.what,
        )

    def awaited(self, edge: Edge, wait: WaitAccount) -> AwaitedMessage:
        """Return what became of the message that `wait` awaits over `edge`: not sent, under way, lost, ..."""
        giver = self.accounts.get(edge[0])
        if wait.what is WaitKind.ROOM or giver is None:
            return AwaitedMessage()
        slot = StepId(wait.round, wait.step)
        down = self.down.get(edge[0])
        if down is not None and down.keeps and down.back_ns is not None and slot[0] >= down.round:
            return self.unsent(edge, slot, wait)
        if wait.what is WaitKind.REPLY:
            return self.reply(edge, giver, slot)
        past = giver.is_past(slot)  # also if the sender is down
        known = None
        ids = LogicalId(Kind.DATA, slot), LogicalId(Kind.NOTICE, slot)
        for id in ids:
            known = known or self.sent(edge, id, any_epoch=past)
            if known is None and self.again(edge, id):
                never = self.is_down_for_good(edge[0])
                return AwaitedMessage() if never else AwaitedMessage(AwaitedFate.IN_FLIGHT, edge=edge)
        if known is None and past:
            known = self.forgotten(edge, ids[0]) or self.forgotten(edge, ids[1])
        if known is not None:
            follows = wait.cumulative and known.fate is AwaitedFate.LOST and giver.state is not State.FINISHED
            return replace(known, replaced=True) if follows else known
        if not past:
            return self.unsent(edge, slot, wait)
        if giver.took_for_gone(edge[1], slot[0]):
            return AwaitedMessage(AwaitedFate.NEVER, TAKEN_FOR_GONE)
        return AwaitedMessage(AwaitedFate.MISSED if giver.epoch else AwaitedFate.NEVER)

    def unsent(self, edge: Edge, slot: StepId, wait: WaitAccount) -> AwaitedMessage:
        """Return the state of a message of the step `slot` that `wait` lacks and that its sender has not sent yet.

        Sending it over `edge` is in vain if events of the scenario will lose its first attempt and every repetition.
        """
        if wait.what is not WaitKind.MESSAGE or wait.cumulative:
            return AwaitedMessage()
        down, life = self.down.get(edge[0]), self.accounts[edge[0]].epoch
        life += down is not None and down.state in AWAY
        attempts = range(MOST_RESENDS + 1)
        copies = (Transit(*edge, Kind.DATA, *slot, attempt, 0, incarnation=life) for attempt in attempts)
        return AwaitedMessage(in_vain=all(map(self.schedule.will_lose, copies)))

    def reply(self, edge: Edge, giver: Account, slot: StepId) -> AwaitedMessage:
        """Return what became of a reply over `edge`, or of the request for it if there is no reply.

        `giver` is the report of the node that should reply; `slot` is the request's round and step.
        """
        reply, request = LogicalId(Kind.REPLY, slot), LogicalId(Kind.REQUEST, slot)
        known = self.sent(edge, reply) or self.sent(edge[::-1], request, arrived=False)
        lost = known is not None and known.fate is AwaitedFate.LOST
        if lost and edge[0] not in self.down and (edge[1], *slot) in giver.asked:
            known = None  # another copy of the request came
        asking = known is not None and known.fate is AwaitedFate.IN_FLIGHT and known.edge == (edge[1], edge[0])
        if asking and edge[0] in self.down:
            return AwaitedMessage()  # whether the request is taken depends on the asked node
        if known is None and self.is_lost_request(edge, giver, slot):
            asker = self.accounts[edge[1]]
            id = MessageId(Kind.REQUEST, asker.epoch, slot, 0, 0)
            return self.lost(edge[::-1], id, asker.since_ns, LOST_BY_RESTART)
        if known is not None:
            return known
        serves = giver.serves and edge[0] not in self.down
        return AwaitedMessage(AwaitedFate.IN_FLIGHT if serves else AwaitedFate.UNSENT)

    def is_lost_request(self, edge: Edge, giver: Account, slot: StepId) -> bool:
        """Return whether a request was lost because the asked node restarted after it had received the request.

        The caller has checked that the request is not under way and has no reply. It was lost if the asking node sent
        it, and the asked node has restarted, is up, and does not list it among its unanswered requests.

        Args:
            edge: the edge of the reply, from the asked node to the asking one.
            giver: the report of the asked node.
            slot: the round and step of the request.
        """
        asker = self.accounts.get(edge[1])
        count = None if asker is None else asker.edges.get(edge[0])
        if asker is None or count is None or not giver.epoch or edge[0] in self.down:
            return False
        sent = count.was_sent(LogicalId(Kind.REQUEST, slot), asker.epoch)
        return sent and (edge[1], *slot) not in giver.asked

    def sent(
        self, edge: Edge, id: LogicalId, *, any_epoch: bool = False, arrived: bool = True
    ) -> AwaitedMessage | None:
        """Return what became of the message `id` sent over `edge`; None if it was not sent, or if that is unknown.

        `arrived`: a message that arrived counts as in flight, since it came after its receiver gave its report; without
        `arrived`, None is returned. `any_epoch`: a loss before the sender's last restart counts, too; else the
        restarted sender is expected to send the message anew.
        """
        account = self.accounts[edge[0]]
        count = account.edges.get(edge[1])
        if count is None:
            return None
        for sent_ns in (sent_ns for each, sent_ns in count.flying if each.logical == id):
            if self.schedule.edge(edge, self.at_ns).holds:
                return AwaitedMessage(AwaitedFate.HELD, edge=edge)
            since_ns = self.schedule.healed_ns(edge, sent_ns, self.at_ns)
            return AwaitedMessage(AwaitedFate.IN_FLIGHT, edge=edge, since_ns=since_ns)
        again = self.lives(edge[0]) and self.again(edge, id)
        for each, sent_ns, arrived_ns, fate in reversed((*count.lost, *count.last)):
            if each.logical != id:
                continue
            if fate in Fate.ARRIVED and self.forgot(edge[1], arrived_ns):
                return self.lost(edge, each, sent_ns, LOST_BY_RESTART, again)
            if fate in Fate.ARRIVED:
                return AwaitedMessage(AwaitedFate.IN_FLIGHT) if arrived else None
            if any_epoch or each.incarnation == account.epoch:
                return self.lost(edge, each, sent_ns, reason_of_loss(fate), again)
        return None

    def lost(self, edge: Edge, id: MessageId, sent_ns: int, reason: FateReason, again: bool = False) -> AwaitedMessage:
        """Return an awaited message as lost, with the event that lost it, and whether copies of it would be lost, too.

        `reason` is why the message was lost; `again`: its sender will send it again by itself.
        """
        given_up = reason in GIVEN_UP and edge[1] not in self.down
        outage = self.schedule.down_meanwhile(edge, sent_ns, self.at_ns) if given_up else None
        reason = reason if outage is None else DOWN
        life, attempts = id.incarnation, range(id.attempt, id.attempt + MOST_RESENDS + 1)
        copies = [Transit(*edge, id.kind, *id.at, attempt, 0, incarnation=life) for attempt in attempts]
        copies[0].number = ANY_NUMBER
        found = dict.fromkeys(BY_EVENTS, self.schedule.loser)
        by = (found | {BY_RESET: self.schedule.resetter, BY_NAME: self.schedule.dropper}).get(reason)
        event = None if by is None else by(copies[0], sent_ns)
        event = event if outage is None else outage.event
        passes_ns = None if self.is_shut(edge) else self.schedule.passes_ns(copies[1:], self.at_ns)
        in_vain = passes_ns != self.at_ns
        later_ns = passes_ns if in_vain else None
        stay = all(self.schedule.ends_ns(node, self.at_ns) is None for node in edge)
        return AwaitedMessage(
            AwaitedFate.LOST,
            reason,
            edge,
            again,
            notice=id.kind is Kind.NOTICE,
            kept=id.incarnation == self.accounts[edge[0]].epoch and edge[0] not in self.down,
            in_vain=in_vain,
            passes_ns=later_ns,
            passes_for_good=later_ns is not None and stay and self.schedule.passes_for_good(copies[-1], later_ns),
            outage_ns=(self.came_back_ns(edge, sent_ns) if later_ns is None else later_ns) - sent_ns,
            event=None if event == BY_LINKS else event,
        )

    def came_back_ns(self, edge: Edge, sent_ns: int) -> int:
        """Return when a message sent at `sent_ns` could first have arrived, with its link up and its receiver back."""
        account = self.accounts.get(edge[1])
        back_ns = account.born_ns if account is not None and account.epoch else sent_ns
        return max(self.schedule.healed_ns(edge, sent_ns, self.at_ns), back_ns, sent_ns)

    def is_shut(self, edge: Edge) -> bool:
        """Return whether messages sent now over `edge` can't arrive: receiver crashed, or the link is down for good."""
        outage, down = self.schedule.edge(edge, self.at_ns), self.down.get(edge[1])
        is_crashed = down is not None and down.state in AWAY
        return is_crashed or (not outage.up and outage.heals_ns is None)

    def forgotten(self, edge: Edge, id: LogicalId) -> AwaitedMessage | None:
        """Return the message `id` over `edge` as lost, if it was sent and nothing more is known of it.

        None if the message was not sent.
        """
        account, receiver = self.accounts[edge[0]], self.accounts.get(edge[1])
        count = account.edges.get(edge[1])
        lives = [] if count is None else [e for e in range(account.epoch + 1) if count.was_sent(id, e)]
        if count is None or not lives:
            return None
        known = sum(count.dropped.values()) <= len(
            count.lost
        )  # all losses are known and this is none of them, so it came
        returned = receiver is not None and receiver.epoch > 0 and known
        reason = LOST_BY_RESTART if returned else NO_REASON
        if not returned and len(count.dropped) == 1:
            reason = reason_of_loss(*count.dropped)
        found = self.lost(edge, MessageId(id.kind, lives[-1], id.at, id.part, 0), self.at_ns, reason)
        return replace(found, passes_for_good=False)  # it is not known since when it is lost

    def lives(self, node: NodeId) -> bool:
        """Return whether `node` is up, or will return."""
        down = self.down.get(node)
        return down is None or down.state not in AWAY or down.back_ns is not None

    def is_down_for_good(self, node: NodeId) -> bool:
        """Return whether `node` is down and never returns, so that it sends nothing more."""
        return node in self.down and self.down_node(node).is_down_for_good

    def again(self, edge: Edge, id: LogicalId) -> bool:
        """Return whether the sender will repeat the message `id` by itself.

        A reply counts as repeated if the request for it is repeated.
        """
        if id.kind is Kind.REPLY:
            edge, id = edge[::-1], id._replace(kind=Kind.REQUEST)
        return self.lives(edge[0]) and (edge[1], id) in self.accounts[edge[0]].again

    def forgot(self, node: NodeId, arrived_ns: int | None) -> bool:
        """Return whether `node` has lost a message that arrived at `arrived_ns`, as it crashed and restarted since."""
        account = self.accounts[node]
        return account.epoch > 0 and arrived_ns is not None and arrived_ns < account.born_ns

    def edge(self, edge: Edge) -> EdgeNow:
        count = self.accounts[edge[0]].edges[edge[1]]
        up, heals_ns, holds, event = self.schedule.edge(edge, self.at_ns)
        receiver = self.accounts.get(edge[1])
        held = count.in_flight if holds or (receiver is not None and receiver.mailbox_full) else 0
        flying = [_message(edge, id, sent_ns, None, Fate.IN_FLIGHT) for id, sent_ns in count.flying[-MOST_FLYING:]]
        return EdgeNow(
            sent=count.sent,
            delivered=count.delivered,
            dropped=dict(count.dropped),
            in_flight=count.in_flight - held,
            held=held,
            up=up,
            heals_ns=heals_ns,
            event=event,
            last=(*(_message(edge, *settled) for settled in count.last), *flying),
        )


def _message(edge: Edge, id: MessageId, sent_ns: int, arrived_ns: int | None, fate: Fate) -> MessageNow:
    return MessageNow(*edge, str(id.kind), *id.at, id.attempt, sent_ns, arrived_ns, fate)
