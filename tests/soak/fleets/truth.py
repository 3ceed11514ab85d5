"""What is true of a fleet that was played on: whether it gets to its end, and else where that begins.

Decided from where nodes stand and from the record alone: who waits for whom, which messages were sent, lost, held, and
by which entry of the scenario. A node is a root where it would stand still even if all others went on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from netdfl.core.types import Edge, Kind, NodeId
from netdfl.explore.rows import MessageRow
from netdfl.scenario.model.schema import Scenario
from tests.soak.fleets.playing import Played, Stand, Wait
from tests.soak.fleets.rules import Rules

ARRIVED = ("delivered", "late", "duplicate")


class Fact(NamedTuple):
    """Why `source` gives `waiter` nothing: `what`, on which edge, by which entries of `events` (any of them).

    `what` is one of: `down` (crashed or paused for good), `cut` (its link is down for good, and nothing was lost on
    it), `held`, `lost`, `receiver down`, `receiver restarted`, `never sent`, `full`, `waits`.
    `loss` is the record's word for a loss. `state` is how the source stands. Until `sure_ns` it was sent again.
    """

    waiter: NodeId
    source: NodeId
    what: str
    edge: Edge
    events: frozenset[int | None] = frozenset()
    loss: str = ""
    notice: bool = False
    gone: bool = False
    returned: bool = False
    by_chance: bool = False
    sure_ns: int = 0
    state: str = ""

    def __str__(self) -> str:
        """In a few words."""
        by = f" by events {sorted(self.events, key=str)}" if self.events else ""
        return f"{self.waiter} for {self.source}: {self.what}{f' ({self.loss})' if self.loss else ''}{by}"


Pair: TypeAlias = tuple[NodeId, NodeId]


@dataclass(frozen=True)
class Truth:
    """Whether every node that the scenario lets live gets to its end, and what it comes from where not.

    `roots`: of each node with which it begins, its facts. `knot`: nodes that wait for each other, and for nobody else;
    `waits` are all pairs of these, of which `lost` are those for a message that was lost where the next one, which does
    not come either, would do as well. `standing` are nodes that are paused for good, and clients without their server.
    """

    ends: bool
    roots: Mapping[NodeId, tuple[Fact, ...]] = field(default_factory=dict)
    knot: frozenset[Pair] = frozenset()
    lost: Mapping[Pair, Fact] = field(default_factory=dict)
    standing: frozenset[NodeId] = frozenset()
    idle: frozenset[NodeId] = frozenset()
    odd: tuple[str, ...] = ()

    def __str__(self) -> str:
        """In a few words."""
        if self.ends:
            return "ends"
        facts = [str(fact) for facts in self.roots.values() for fact in facts]
        said = [*facts, *([f"knot {sorted(self.knot)}"] if self.knot else [])]
        said += [f"paused {sorted(self.standing)}"] * bool(self.standing) + [f"idle {sorted(self.idle)}"] * bool(
            self.idle
        )
        return "; ".join([*said, *self.odd]) or "does not end"


def decide(scenario: Scenario, played: Played) -> Truth:
    """The truth about a fleet that was played on."""
    return _Decision(scenario, played).truth()


class _Decision:
    def __init__(self, scenario: Scenario, played: Played) -> None:
        self.scenario, self.played, self.stands = scenario, played, played.stands
        self.rules = Rules(scenario, played.ended_ns)
        self.server = scenario.nodes if scenario.has_server else None
        self.odd: list[str] = []
        self.lost_in_knots: dict[Pair, Fact] = {}
        given_up = (event for event in played.rows.events if event.kind == "given_up")
        self.given_up_ns = {(e.node, e.details["dst"], e.round, e.details["step"]): e.at_ns for e in given_up}
        self.sent: dict[tuple[NodeId, NodeId, Kind, int, int], list[MessageRow]] = {}
        for message in played.rows.messages:
            key = message.src, message.dst, message.kind, message.round, message.step
            self.sent.setdefault(key, []).append(message)

    def truth(self) -> Truth:
        left = [node for node, stand in self.stands.items() if stand.state not in ("finished", "crashed")]
        served = self.server is None or self.stands[self.server].state == "finished"
        if not left and served:
            return Truth(True)
        paused = frozenset(node for node in left if self.stands[node].state == "paused")
        waiting = {node: self.needs(self.stands[node]) for node in left if node not in paused}
        idle = frozenset(node for node in waiting if self.is_idle(node))
        facts = {node: self.facts(node, needs) for node, needs in waiting.items()}
        roots = {node: self.never(each) for node, each in facts.items() if self.is_hopeless(node, each)}
        freed = self.released(facts, roots)
        knot = frozenset((w, f.source) for w in facts if w not in freed for f in facts[w] if f.source not in freed)
        lost = {pair: self.lost_in_knots[pair] for pair in knot & self.lost_in_knots.keys()}
        return Truth(False, roots, knot, lost, paused, idle, tuple(self.odd))

    # who waits for whom

    def needs(self, stand: Stand) -> tuple[frozenset[NodeId], int]:
        """From whom something is missing, and how many of them would do."""
        if stand.sending and stand.wait is None:
            return stand.sending, len(stand.sending)
        wait = stand.wait
        if wait is None:
            self.odd.append(f"node {stand.node} {stand.state} in round {stand.round} and waits for nothing")
            return frozenset(), 0
        everybody = frozenset(self.stands) - {stand.node}
        sources = everybody if wait.sources is None else wait.sources
        return sources - wait.have, wait.need - len(wait.have)

    def facts(self, node: NodeId, needs: tuple[frozenset[NodeId], int]) -> tuple[Fact, ...]:
        stand = self.stands[node]
        by_name = stand.wait is not None and stand.wait.sources is not None  # who waits for anybody leaves nobody out
        out = stand.wait.out if stand.wait is not None and by_name else frozenset()
        return tuple(self.fact(stand, source) for source in sorted(needs[0] - out))

    def is_hopeless(self, node: NodeId, facts: Collection[Fact]) -> bool:
        """Whether it would stand still even if all others went on."""
        may_come = sum(fact.what == "waits" for fact in facts)
        return self.short(node) > may_come and may_come < len(facts)

    def short(self, node: NodeId) -> int:
        return self.needs(self.stands[node])[1]

    @staticmethod
    def never(facts: Collection[Fact]) -> tuple[Fact, ...]:
        return tuple(fact for fact in facts if fact.what != "waits")

    def released(self, facts: Mapping[NodeId, tuple[Fact, ...]], roots: Collection[NodeId]) -> set[NodeId]:
        """Who would go on if the roots did."""
        freed, before = set(roots), -1
        while before != len(freed):
            before = len(freed)
            for node, each in facts.items():
                came = sum(fact.what == "waits" and fact.source in freed for fact in each)
                if node not in freed and (came >= self.short(node) or came == len(each)):
                    freed.add(node)
        return freed

    def is_idle(self, node: NodeId) -> bool:
        """Whether a client waits for a server that has finished."""
        wait = self.stands[node].wait
        served = self.server is not None and self.stands[self.server].state == "finished"
        return served and wait is not None and wait.sources == frozenset({self.server})

    # why an awaited node gives nothing

    def fact(self, stand: Stand, source: NodeId) -> Fact:
        giver, pair = self.stands[source], (stand.node, source)
        if stand.wait is None:
            down = giver.state in ("crashed", "paused")
            return Fact(*pair, "down" if down else "full", (source, stand.node), state=giver.state)
        if stand.wait.kind is Kind.REPLY:
            return self.reply(stand, giver, stand.wait)
        found = self.by_message(stand, source, stand.wait, Kind.DATA)
        if found is None and not self.may_still_send(giver, stand.wait):
            found = self.by_message(stand, source, stand.wait, Kind.NOTICE)
        if found is not None:
            lost = found.what in ("lost", "receiver down", "receiver restarted")
            follows = stand.wait.cumulative and lost and giver.state == "runs"
            if not follows or self.rules.blocks((source, stand.node)):
                return found
            self.lost_in_knots[stand.node, source] = found
            return found._replace(what="waits")
        return self.not_sent(stand, giver, stand.wait)

    def by_message(self, stand: Stand, source: NodeId, wait: Wait, kind: Kind) -> Fact | None:
        """By what became of the message; None where none was sent."""
        return self.on_edge(stand, source, (source, stand.node), kind, wait.round, wait.step, stand.born_ns)

    def on_edge(
        self, stand: Stand, source: NodeId, edge: Edge, kind: Kind, round: int, step: int, born_ns: int
    ) -> Fact | None:
        found = self.sent.get((*edge, kind, round, step), [])
        if kind is Kind.REPLY:  # one to an earlier life answers nothing that this one asks
            found = [message for message in found if message.sent_ns >= stand.born_ns]
        if not found:
            return None
        fact = Fact(stand.node, source, "", edge, notice=kind is Kind.NOTICE, state=self.stands[source].state)
        fact = fact._replace(sure_ns=self.given_up_ns.get((*edge, round, step), 0))
        last = max(found, key=lambda m: (m.epoch, m.attempt, m.sent_ns))
        fates = {m.fate for m in found}
        if "in_flight" in fates:
            held = self.rules.blocks(edge)
            return fact._replace(what="held" if held else "full", events=held)
        if any(m.arrived_ns is not None and m.fate in ARRIVED and m.arrived_ns >= born_ns for m in found):
            self.odd.append(f"node {stand.node} waits for what came of node {source}")
        if edge[0] == source and self.sends_again(last):
            return fact._replace(what="down")
        if last.fate in ARRIVED:
            return fact._replace(what="receiver restarted")
        if last.fate == "failed:gone":
            return fact._replace(what="receiver down", loss=last.fate)
        loss, events = last.fate.removeprefix("dropped:"), self.rules.losers(last)
        return fact._replace(what="lost", events=events, loss=loss, by_chance=self.rules.are_by_chance(last))

    def sends_again(self, message: MessageRow) -> bool:
        """Whether a node that is paused for good would send it again if it went on."""
        delivery: Any = self.scenario.delivery
        again = delivery.kind == "acknowledged" and message.kind in (Kind.DATA, Kind.REQUEST)
        given_up = (message.src, message.dst, message.round, message.step) in self.given_up_ns
        acks = self.sent.get((message.dst, message.src, Kind.ACK, message.round, message.step), ())
        settled = given_up or any(ack.fate in ARRIVED for ack in acks)
        return again and self.stands[message.src].state == "paused" and not settled

    def not_sent(self, stand: Stand, giver: Stand, wait: Wait) -> Fact:
        pair, edge = (stand.node, giver.node), (giver.node, stand.node)
        if not self.may_still_send(giver, wait):
            gone, returned = self.took_for_gone(giver, stand.node, wait), self.has_returned(giver)
            return Fact(*pair, "never sent", edge, gone=gone, returned=returned, state=giver.state)
        if giver.state in ("crashed", "paused"):
            return Fact(*pair, "down", edge, state=giver.state)
        if blocked := self.rules.blocks(edge):
            return Fact(*pair, "cut", edge, blocked, state=giver.state)
        return Fact(*pair, "waits", edge, state=giver.state)

    @staticmethod
    def may_still_send(giver: Stand, wait: Wait) -> bool:
        """Whether a node is not yet past that, or was not when it crashed."""
        return giver.state != "finished" and giver.next <= (wait.round, wait.step)

    def has_returned(self, giver: Stand) -> bool:
        return any(each.kind == "restart" and each.node == giver.node for each in self.played.rows.events)

    def took_for_gone(self, giver: Stand, node: NodeId, wait: Wait) -> bool:
        """Whether `giver` held `node` for gone when it began that round, in any life, or told others of it."""
        began_ns, at = self.played.rounds[giver.node].get(wait.round), (giver.node, wait.round, wait.step)
        rows, announces = self.played.rows, self.scenario.wait.announce is not False
        anew_ns = [each.at_ns for each in rows.events if (each.kind, each.node, each.round) == ("restart", *at[:2])]
        told = (m for m in rows.messages if m.kind in (Kind.DATA, Kind.NOTICE) and announces)
        told_ns = [m.sent_ns for m in told if (m.src, m.round, m.step) == at]
        times = (ns for ns in (began_ns, *anew_ns, *told_ns) if ns is not None)
        return any(self.held_for_gone(giver, node, wait, ns) for ns in times)

    def held_for_gone(self, giver: Stand, node: NodeId, wait: Wait, at_ns: int) -> bool:
        """Whether `giver` held `node` for gone at that time, in a round that it came to the end of."""
        gone, is_down, oracle = False, False, self.scenario.failure_detector.kind == "oracle"
        crashes = [e for e in self.played.rows.events if (e.kind, e.node, e.round) == ("crash", giver.node, wait.round)]
        if any(each.details["state"] == "lost" for each in crashes):  # it left the round so
            return False
        for event in self.played.rows.events:
            if event.at_ns > at_ns:
                continue
            if event.node == node and event.kind in ("crash", "restart"):
                is_down = event.kind == "crash"
            if event.node == giver.node and event.kind == "restart":  # it is told who is down before it begins
                gone = oracle and is_down
            if event.node == giver.node and event.details.get("peer") == node:
                gone = event.kind == "gone" or (gone and event.kind != "returned")
        return gone

    # meetings of two

    def reply(self, stand: Stand, giver: Stand, wait: Wait) -> Fact:
        me, peer = stand.node, giver.node
        answered = self.on_edge(stand, peer, (peer, me), Kind.REPLY, wait.round, wait.step, stand.born_ns)
        if answered is not None:
            return answered
        asked = self.asked(stand, giver, wait)
        if asked is not None and asked.what in ("lost", "receiver down", "held"):
            return asked
        if giver.state in ("crashed", "paused"):
            return Fact(me, peer, "down", (peer, me), state=giver.state)
        if asked is not None and asked.what == "receiver restarted":
            return asked
        if giver.state == "finished":
            return Fact(me, peer, "never sent", (peer, me), state=giver.state)
        if blocked := self.rules.blocks((peer, me)):
            return Fact(me, peer, "cut", (peer, me), blocked, state=giver.state)
        return Fact(me, peer, "waits", (peer, me), state=giver.state)

    def asked(self, stand: Stand, giver: Stand, wait: Wait) -> Fact | None:
        """What became of the request; None where it came to who is asked as it lives now, which has not answered."""
        edge, request = (stand.node, giver.node), (Kind.REQUEST, wait.round, wait.step)
        of_now = (m for m in self.sent.get((*edge, *request), []) if m.sent_ns >= stand.born_ns)
        if any(m.fate in ARRIVED and (m.arrived_ns or 0) >= giver.born_ns for m in of_now):
            return None
        return self.on_edge(stand, giver.node, edge, *request, giver.born_ns)
