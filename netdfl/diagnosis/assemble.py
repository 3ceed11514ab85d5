"""From the nodes' own accounts to one snapshot: what became of each message that somebody waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from netdfl.core.types import Edge, Kind, NodeId
from netdfl.diagnosis.account import Account, EdgeAccount, WaitAccount
from netdfl.diagnosis.outages import Outage
from netdfl.diagnosis.snapshot import (
    Awaited,
    EdgeNow,
    Fate,
    MessageNow,
    NodeNow,
    Snapshot,
    State,
    WaitNow,
    What,
)
from netdfl.node.ledger import Key, Settled

MOST_FLYING = 4
ARRIVED = ("delivered", "late", "duplicate")


class Schedule(Protocol):
    """What is known of the scripted faults."""

    def edge(self, edge: Edge, now_ns: int) -> Outage:
        """Whether `edge` is up, and when it is up again."""
        ...


@dataclass(frozen=True, slots=True)
class Down:
    """A node that gives no account: why, since when, and when the scenario lets it return."""

    state: State
    round: int
    since_ns: int
    back_ns: int | None = None


def assemble(
    at_ns: int,
    accounts: Mapping[NodeId, Account],
    down: Mapping[NodeId, Down],
    schedule: Schedule,
    *,
    detects_crashes: bool = False,
) -> Snapshot:
    """Make the snapshot at `at_ns`. A node in `down` may have given its last account before."""
    fleet = _Fleet(at_ns, accounts, down, schedule)
    nodes = {node: fleet.down_node(node) for node in down}
    nodes |= {node: fleet.node(account) for node, account in accounts.items() if node not in down}
    edges = {(node, dst): fleet.edge((node, dst)) for node, account in accounts.items() for dst in account.edges}
    for node, now in nodes.items():
        for source in now.wait.awaited if now.wait is not None else ():
            if (source, node) not in edges:
                up, heals_ns, _ = schedule.edge((source, node), at_ns)
                edges[source, node] = EdgeNow(up=up, heals_ns=heals_ns)
    return Snapshot(at_ns=at_ns, nodes=dict(sorted(nodes.items())), edges=edges, detects_crashes=detects_crashes)


@dataclass(frozen=True, slots=True)
class _Fleet:
    at_ns: int
    accounts: Mapping[NodeId, Account]
    down: Mapping[NodeId, Down]
    schedule: Schedule

    def down_node(self, node: NodeId) -> NodeNow:
        own, account = self.down[node], self.accounts.get(node)
        return NodeNow(
            node=node,
            state=own.state,
            round=own.round,
            finished=own.round - 1,
            since_ns=own.since_ns,
            back_ns=own.back_ns,
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
            wait=None if wait is None else self.wait(account.node, wait),
            stack=account.stack,
        )

    def wait(self, node: NodeId, wait: WaitAccount) -> WaitNow:
        """A wait whose sources are not known may be ended by any node."""
        anyone = sorted((set(self.accounts) | set(self.down)) - {node})
        sources = anyone if wait.sources is None else wait.sources
        return WaitNow(
            round=wait.round,
            step=wait.step,
            need=wait.need,
            awaited={source: self.awaited((source, node), wait) for source in sources if source not in wait.have},
            have=frozenset(wait.have),
            gone=frozenset() if wait.sources is None else frozenset(wait.left_out),
            since_ns=wait.since_ns,
            deadline_ns=wait.deadline_ns,
            what=wait.what,
        )

    def awaited(self, edge: Edge, wait: WaitAccount) -> Awaited:
        """What became of the message that `wait` awaits over `edge`."""
        giver = self.accounts.get(edge[0])
        if wait.what is What.ROOM or giver is None:
            return Awaited()
        count, slot = giver.edges.get(edge[1]), (wait.round, wait.step)
        if count is not None and any(_is(key, slot) for key, _ in count.flying):
            return Awaited(Fate.HELD if self.schedule.edge(edge, self.at_ns).holds else Fate.IN_FLIGHT)
        if count is not None and any(_is(key, slot) and fate in ARRIVED for key, _, _, fate in count.last):
            return Awaited(Fate.IN_FLIGHT)  # it arrived after the waiter gave its account
        past = _is_past(giver, slot) and edge[0] not in self.down
        lost = _lost(count, slot, giver.epoch, any_epoch=past)
        if lost is not None:
            return Awaited(Fate.LOST, lost[3].removeprefix("dropped:"), edge)
        if not past:
            return Awaited()
        return Awaited(Fate.LOST, "before a restart", edge) if giver.epoch else Awaited(Fate.NEVER)

    def edge(self, edge: Edge) -> EdgeNow:
        count = self.accounts[edge[0]].edges[edge[1]]
        up, heals_ns, holds = self.schedule.edge(edge, self.at_ns)
        receiver = self.accounts.get(edge[1])
        held = count.in_flight if holds or (receiver is not None and receiver.mailbox_full) else 0
        flying = [_message(edge, key, sent_ns, None, "in_flight") for key, sent_ns in count.flying[-MOST_FLYING:]]
        return EdgeNow(
            sent=count.sent,
            delivered=count.delivered,
            dropped=dict(count.dropped),
            in_flight=count.in_flight - held,
            held=held,
            up=up,
            heals_ns=heals_ns,
            last=(*(_message(edge, *settled) for settled in count.last), *flying),
        )


def _message(edge: Edge, key: Key, sent_ns: int, arrived_ns: int | None, fate: str) -> MessageNow:
    kind, _, round, step, attempt = key
    return MessageNow(*edge, str(kind), round, step, attempt, sent_ns, arrived_ns, fate)


def _is(key: Key, slot: tuple[int, int]) -> bool:
    return key[0] == Kind.DATA and key[2:4] == slot


def _lost(count: EdgeAccount | None, slot: tuple[int, int], epoch: int, *, any_epoch: bool) -> Settled | None:
    """The record of the loss; one of an earlier life counts only if this life will not send it again."""
    for settled in reversed(count.lost if count is not None else ()):
        if _is(settled[0], slot) and (any_epoch or settled[0][1] == epoch):
            return settled
    return None


def _is_past(giver: Account, slot: tuple[int, int]) -> bool:
    """Whether a node is in a later round than that of `slot`. In the same one it may send before or after it waits."""
    return giver.state is State.FINISHED or giver.round > slot[0]
