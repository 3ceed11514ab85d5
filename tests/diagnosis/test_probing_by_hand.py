"""One node that asks its peers, with its messages written by hand: when it asks, what it answers, what it finds."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from netdfl.core.fates import Fate
from netdfl.core.types import Kind, LogicalId, Message, Payload, StepId
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.probing import BACKOFF, MOST_WAITS, DeadlockProber
from netdfl.diagnosis.why import Grounds, Need, Reason, ReasonKind
from netdfl.node.waits import OpenWait

AFTER_NS, ROUND, NODES = 100, 5, 10


class Enough(Exception):
    """It has slept so often."""


class Steps:
    """A clock on which sleeping takes no time, `most` times."""

    def __init__(self, most: int) -> None:
        self.ns, self.most = 0, most
        self.slept: list[int] = []

    def now_ns(self) -> int:
        return self.ns

    async def sleep_until(self, at_ns: int) -> None:
        if len(self.slept) == self.most:
            raise Enough
        self.slept.append(at_ns - self.ns)
        self.ns = at_ns
        await asyncio.sleep(0)


def wait(*sources: int, need: int | None = None, round: int = ROUND, step: int = 0, **more: Any) -> OpenWait:
    """A wait since 7 for all of `sources`, or for `need` of them."""
    kind = more.pop("kind", Kind.DATA)
    have = more.pop("have", set())
    whom = None if more.pop("unknown", False) else frozenset(sources)
    enough = len(sources) if need is None else need
    deadline_ns = more.pop("deadline_ns", None)
    return OpenWait(round, step, whom, enough, 7, deadline_ns, have, frozenset(), frozenset(), kind, **more)


class Desk:
    """Node 0 with its probing."""

    def __init__(self, current: OpenWait | None = None, *, looks: int = 0, still: bool = False) -> None:
        self.sent: list[Message] = []
        self.found: list[Finding] = []
        self.clock = Steps(looks)
        self.node: Any = SimpleNamespace(
            id=0,
            clock=self.clock,
            epoch=2,
            round=ROUND,
            mailbox=SimpleNamespace(on=lambda kind, handler: None),
            waits=SimpleNamespace(current=current, gone=frozenset()),
            requests=SimpleNamespace(serving=False, answered={}),
            delivery=None,
            post=self.sent.append,
        )
        self.probing = DeadlockProber(self.node, NODES, after_ns=AFTER_NS, found=self.found.append, still=lambda: still)

    async def look(self, num: int) -> None:
        """Go on until it has looked so often."""
        self.clock.most += num
        with suppress(Enough):
            await self.probing.run()
        await asyncio.sleep(0)

    async def take(self, kind: str, src: int = 1, *, initiator: int = 0, number: int = 1, **more: Any) -> Fate:
        slot = more.get("slot", ("data", ROUND, 0))
        meta = {
            "kind": kind,
            "initiator": initiator,
            "number": number,
            "slot": slot,
            "path": more.get("path", [[1, 4]]),
        }
        fate = self.probing.take(Message(src, 0, Kind.PROBE, 0, ROUND, 0, 0, Payload(meta=meta)))
        await asyncio.sleep(0)
        return fate

    @property
    def said(self) -> list[tuple[str, int, int, int]]:
        """What was sent: its kind, to whom, whose computation, and its number."""
        return [
            (m.payload.meta["kind"], m.dst, m.payload.meta["initiator"], m.payload.meta["number"]) for m in self.sent
        ]


@pytest.mark.parametrize(
    ("current", "asked"),
    [
        (wait(1, 2), [("probe", 1), ("probe", 2)]),
        (wait(1, 2, need=1), [("query", 1), ("query", 2)]),
        (wait(1), [("probe", 1), ("query", 1)]),
        (wait(1, 2, 3, need=2, have={3}), [("query", 1), ("query", 2)]),
        (wait(1, 2, 3, have={3}), [("probe", 1), ("probe", 2)]),
        (wait(1, 2, 3, need=2), []),
        (wait(1, deadline_ns=10**9), []),
        (wait(1, unknown=True), []),
        (None, []),
    ],
)
async def test_who_waits_for_all_chases_edges_and_who_waits_for_any_asks_around(
    current: OpenWait | None, asked: list[tuple[str, int]]
) -> None:
    desk = Desk(current)
    await desk.look(2)
    assert desk.said == [(*each, 0, 1) for each in asked]


async def test_a_probe_says_for_what_its_sender_waits_and_by_whom_it_has_come() -> None:
    desk = Desk(wait(1, round=ROUND, step=3))
    desk.node.round = 6
    await desk.take("probe", 4, initiator=4, path=[[4, 9]], slot=("data", 7, 0))
    (message,) = desk.sent
    meta = {"kind": "probe", "initiator": 4, "number": 1, "slot": ("data", ROUND, 3), "path": [[4, 9], [0, ROUND]]}
    assert message[:7] == (0, 1, Kind.PROBE, 2, 6, 0, 0)
    assert message.payload.meta == meta
    desk.node.round = -1
    await desk.take("probe", 4, initiator=4, number=2, path=[[4, 9]], slot=("data", 7, 0))
    assert (desk.sent[1].round, desk.sent[1].attempt) == (0, 1)


async def test_a_wait_is_asked_about_once_it_has_lasted_and_less_and_less_often() -> None:
    desk = Desk(wait(1, 2))
    await desk.look(8)
    assert desk.clock.slept == [AFTER_NS * n for n in (1, 1, 2, 4, 8, BACKOFF, BACKOFF, BACKOFF)]
    assert [number for _, _, _, number in desk.said[::2]] == [1, 2, 3, 4, 5, 6, 7]
    young = Desk(wait(1, 2))
    young.node.waits.current.since_ns = AFTER_NS
    await young.look(2)
    assert young.clock.slept == [AFTER_NS] * 2
    assert len(young.said) == 2


async def test_a_node_that_is_paused_asks_nothing() -> None:
    desk = Desk(wait(1, 2), still=True)
    await desk.look(3)
    assert (desk.said, desk.clock.slept) == ([], [AFTER_NS] * 3)


async def test_two_probes_in_a_row_that_come_back_prove_a_deadlock_which_is_told_once() -> None:
    desk = Desk(wait(1))
    await desk.look(2)
    await desk.take("probe", 1, number=1, path=[[0, ROUND], [1, 4]], slot=("data", ROUND + 1, 0))
    await desk.take("probe", 1, number=1, path=[[0, ROUND], [1, 4]], slot=("data", ROUND + 1, 0))
    assert desk.found == []
    await desk.look(1)
    await desk.take("probe", 1, number=2, path=[[0, ROUND], [1, 4]], slot=("data", ROUND + 1, 0))
    assert desk.found == [
        Finding(
            cause=Cause.DEADLOCK,
            roots=(0, 1),
            culprits=(0, 1),
            grounds=Grounds(at_ns=desk.clock.ns, knot=(Need(1, 4), Need(0, ROUND, (1,), 1))),
            round=ROUND,
            witness=((0, 1),),
            began_ns=7,
            found_ns=desk.clock.ns,
            permanent=True,
            remedies=("wait.deadline: auto",),
        )
    ]
    await desk.look(2)
    await desk.take("probe", 1, number=3, path=[[0, ROUND], [1, 4]], slot=("data", ROUND + 1, 0))
    assert len(desk.found) == 1


async def test_two_words_of_all_that_are_needed_make_a_loss_suspected_once() -> None:
    desk = Desk(wait(1, 2, 3, need=2))
    for src in (1, 2, 1):
        await desk.take("sent", src)
    assert desk.found == []
    await desk.take("sent", 2)
    reasons = tuple(Reason(waiter=0, source=n, round=ROUND, why=ReasonKind.LOST_OR_LATE, edge=(n, 0)) for n in (1, 2))
    assert desk.found == [
        Finding(
            cause=Cause.LOST_MESSAGE,
            roots=(0,),
            culprits=(1, 2),
            grounds=Grounds(at_ns=0, reasons=reasons),
            round=ROUND,
            witness=((0, 1), (0, 2), (0, 3)),
            began_ns=7,
            suspected=True,
            remedies=("wait.deadline: auto",),
        )
    ]
    await desk.take("sent", 2)
    assert len(desk.found) == 1


async def test_a_word_of_who_is_not_awaited_or_for_another_is_none() -> None:
    desk = Desk(wait(1))
    for src, initiator in ((2, 0), (1, 3)) * 3:
        await desk.take("sent", src, initiator=initiator)
    assert desk.found == []
    one = Desk(wait(1))
    await one.take("sent", 1)
    one.node.waits.current = wait(1, round=6)
    await one.take("sent", 1)
    assert one.found == []


@pytest.mark.parametrize(
    ("round", "current", "slot", "gave"),
    [
        (ROUND, wait(1), ("data", ROUND - 1, 0), True),
        (ROUND, wait(1), ("data", ROUND + 1, 0), False),
        (ROUND, wait(1, step=1), ("data", ROUND, 0), True),
        (ROUND, wait(1, step=1), ("data", ROUND, 1), True),
        (ROUND, wait(1, step=1), ("data", ROUND, 2), False),
        (ROUND, wait(1, round=ROUND - 1), ("data", ROUND, 2), True),
        (ROUND, None, ("data", ROUND - 1, 0), True),
        (ROUND, None, ("data", ROUND, 0), None),
        (ROUND, wait(1), ("reply", ROUND, 0), True),
        (ROUND, wait(1), ("reply", ROUND, 1), False),
    ],
)
async def test_who_has_sent_what_is_awaited_says_so_and_who_has_not_asks_on(
    round: int, current: OpenWait | None, slot: tuple[str, int, int], gave: bool | None
) -> None:
    desk = Desk(current)
    desk.node.round = round
    desk.node.requests.answered[4] = (ROUND, 0)
    await desk.take("probe", 4, initiator=3, number=8, slot=slot)
    assert desk.said == ([] if gave is None else [("sent", 4, 3, 8)] if gave else [("probe", 1, 3, 8)])


async def test_who_will_give_it_whatever_it_waits_for_says_nothing() -> None:
    desk = Desk(wait(1))
    desk.node.requests.serving = True
    desk.node.delivery = SimpleNamespace(
        due_again=[(4, LogicalId(Kind.DATA, StepId(round, 0))) for round in (ROUND, 9)]
    )
    for slot in (("reply", ROUND, 0), ("data", ROUND, 0), ("data", 9, 0)):
        await desk.take("probe", 4, initiator=3, slot=slot)
    assert desk.said == []
    await desk.take("probe", 4, initiator=3, slot=("data", 8, 0))
    assert desk.said == [("probe", 1, 3, 1)]


INFINITE = float("inf")


@pytest.mark.parametrize(
    "more",
    [
        {"slot": ("data", "x", 0)},
        {"slot": ("data", INFINITE, 0)},
        {"slot": ("data", ROUND, 0.5)},
        {"slot": ([1], ROUND, 0)},
        {"slot": 3},
        {"path": 3},
        {"path": [[1]]},
        {"path": [[INFINITE, 0]]},
        {"path": [[1, "0"]]},
        {"path": [[1, 0]] * (MOST_WAITS * NODES + 1)},
        {"path": [[NODES, 0]]},
        {"initiator": NODES},
        {"initiator": -1},
        {"initiator": None},
        {"initiator": True},
        {"number": INFINITE},
    ],
)
async def test_a_malformed_probe_is_refused(more: dict[str, Any]) -> None:
    desk = Desk(wait(1))
    assert await desk.take("probe", **more) is Fate.REFUSED
    assert await desk.take("else") is Fate.REFUSED
    assert await desk.take("probe") is Fate.DELIVERED
