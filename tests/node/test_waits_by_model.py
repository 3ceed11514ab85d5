"""A wait ends when a plain one would that is written anew from its text, with the same word for it, whatever comes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hand import HandClock, settle

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.types import Kind, Message, NodeId, Payload
from netdfl.node.mailbox import Mailbox
from netdfl.node.waits import Waits
from netdfl.record.base import WaitEnd
from netdfl.transport.base import Fate, deliver_one

SLOT, NEXT, FAR = (3, 0), (3, 1), (4, 0)
LEAST_NS = 2 * 10**9
NOTHING = Payload()


@dataclass
class Plain:
    """What a wait for `sources` as `policy` says comes to, step by step."""

    sources: set[NodeId] | None
    policy: WaitPolicy
    have: set[NodeId] = field(default_factory=set)
    given_up: set[NodeId] = field(default_factory=set)
    skipped: set[NodeId] = field(default_factory=set)
    gone: set[NodeId] = field(default_factory=set)
    began: bool = False
    need: int | None = None

    def enough(self) -> bool:
        need = self.policy.count(10**9 if self.sources is None else len(self.sources))
        if len(self.have) >= (need if self.need is None else self.need):
            return True
        left_out = self.given_up | (set() if self.policy.essential else self.gone)
        return self.sources is not None and bool(self.gone | self.given_up) and self.sources <= self.have | left_out

    def how(self, timed_out: bool) -> WaitEnd:
        need = self.policy.count(10**9 if self.sources is None else len(self.sources))
        if timed_out:
            return WaitEnd.DEADLINE
        if self.sources is None:
            return WaitEnd.SKIPPED if self.skipped else WaitEnd.CAME
        if len(self.have) >= need:
            return WaitEnd.CAME
        missing = self.sources - self.have
        if missing <= self.gone:
            return WaitEnd.GONE
        return WaitEnd.SKIPPED if missing & self.skipped else WaitEnd.LOST


TELLS = {
    "auto": WaitPolicy(deadline_ns="auto"),
    "cumulative": WaitPolicy(deadline_ns=5, cumulative=True),
}
KEEPS = {
    "fixed": WaitPolicy(deadline_ns=5),
    "none": WaitPolicy(deadline_ns=None),
    "out of order": WaitPolicy(deadline_ns="auto", ordered=False),
    "sent again": WaitPolicy(deadline_ns="auto", resent=True),
    "essential": WaitPolicy(deadline_ns=None, essential=True),
}


def play(draw: Random, policy: WaitPolicy, tells: bool) -> tuple[list[object], list[object]]:
    """A wait of node 9 and what happens meanwhile: what it came to, and what it should have."""
    return asyncio.run(_play(draw, policy, tells))


async def _play(draw: Random, policy: WaitPolicy, tells: bool) -> tuple[list[object], list[object]]:
    clock = HandClock()
    clock.ns = 100
    mailbox = Mailbox(keep_late=draw.random() < 0.5)
    waits = Waits(9, mailbox, clock)
    waits.auto.came(1, 0)
    awaited = None if draw.random() < 0.2 else frozenset(draw.sample(range(5), draw.randint(1, 4)))
    limit = LEAST_NS if policy.deadline_ns == "auto" else policy.deadline_ns
    deadline = None if limit is None else 100 + limit
    plain = Plain(None if awaited is None else set(awaited), policy)
    said: list[object] = []
    expected: list[object] = []
    said_no: set[NodeId] = set()

    def happen() -> None:
        what, who = draw.choice(["data"] * 4 + ["next", "far", "notice", "gone", "returned", "skip"]), draw.randrange(5)
        ours = plain.sources is None or who in plain.sources
        slot = {"next": NEXT, "far": FAR}.get(what, SLOT)
        if what in ("data", "next", "far"):
            came = deliver_one(mailbox, Message(who, 9, Kind.DATA, 0, *slot, 0, NOTHING))
            if came is Fate.DELIVERED and ours and slot == SLOT:
                plain.have.add(who)
            elif ours and slot != SLOT and tells:
                plain.given_up.add(who)
        elif what == "notice":
            fate = deliver_one(mailbox, Message(who, 9, Kind.NOTICE, 0, *SLOT, 0, NOTHING))
            assert (fate is Fate.DUPLICATE) == (mailbox.has(who, SLOT) or who in said_no)
            if fate is Fate.DELIVERED:
                said_no.add(who)
                if plain.sources is not None and who in plain.sources:
                    plain.sources.discard(who)
        elif what == "gone":
            waits.set_gone(who)
            plain.gone.add(who)
        elif what == "returned":
            waits.set_returned(who)
            plain.gone.discard(who)
        elif plain.began:
            waits.skip(frozenset([who]))
            plain.given_up.add(who)
            plain.skipped.add(who)
            if plain.sources is None:
                plain.need = len(plain.have)

    for _ in range(draw.randrange(4)):
        happen()
    task = asyncio.create_task(waits.messages(*SLOT, awaited, policy))
    plain.began = True
    await settle()
    over = plain.enough()
    for _ in range(40):
        said.append(task.done())
        expected.append(over)
        if over:
            break
        happen()
        await settle()
        over = plain.enough()
        if not over and deadline is not None and draw.random() < 0.1:
            clock.move_to(deadline)
            await settle()
            over = True
    said.append(task.done())
    expected.append(over)
    if not over:
        task.cancel()
        return said, expected
    inbox, wait = await task
    timed_out = not plain.enough()
    said += [{m.src for m in inbox} >= plain.have, sorted(inbox.missing), wait.ended, wait.deadline_ns]
    missing = [] if plain.sources is None else sorted(plain.sources - plain.have)
    expected += [True, missing, plain.how(timed_out), deadline]
    return said, expected


@pytest.mark.parametrize("name", [*TELLS, *KEEPS])
@pytest.mark.parametrize("need", ["all", "any", 2])
def test_a_wait_does_as_a_plain_one(name: str, need: object) -> None:
    policy = (TELLS | KEEPS)[name]
    chosen = replace(policy, need=need)  # type: ignore[arg-type]
    draw = Random(f"{name} {need}")
    for _ in range(60):
        said, expected = play(draw, chosen, name in TELLS)
        assert said == expected
