"""How a node that lost its state asks for a model: whom, in which order, how long, and with what it begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hand import HandClock, settle

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, Message, Multicast, View, messages_of
from netdfl.mixing.payloads import pack
from netdfl.node.mailbox import Mailbox
from netdfl.node.state_transfer import ROUND, JoinPlan, StateTransfer
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.transport.base import Fate, deliver_one

S = 10**9
NETWORK = Network(TOPOLOGIES["full"](4, Streams(3)))
INITIAL, MODEL = torch.zeros(3), torch.arange(3.0)


class Member(SimpleNamespace):
    """Node 0 of four, as its state transfer sees it, with what it sent and recorded; `answers` may answer at once."""

    def __init__(self, method: str = "dfedavg", *, num_rounds: int = 9) -> None:
        self.clock, self.asked, self.events = HandClock(), list[Message](), list[Any]()
        self.views, self.since = list[tuple[int, frozenset[int]]](), list[int | None]()
        self.answers: Callable[[Message], None] = lambda request: None
        super().__init__(
            id=0, epoch=3, num_rounds=num_rounds, mailbox=Mailbox(keep_late=False), latest=None,
            algorithm=ALGORITHMS[method].build(Exchange()), task=SimpleNamespace(initial=lambda: INITIAL),
            recorder=SimpleNamespace(event=lambda *said, **details: self.events.append((*said, details))),
            waits=SimpleNamespace(gone=set[int]()), view_of=self._view, transport=self, ledger=None,
        )  # fmt: skip
        self.transfer = StateTransfer(self)

    def _view(self, round: int, gone: frozenset[int]) -> View:
        self.views.append((round, gone))
        return NETWORK.view(0, round)

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        self.asked += (messages := messages_of(multicasts))
        self.since.append(self.transfer.since_ns)
        for message in messages:
            self.answers(message)

    def give(self, src: int, round: int = 4) -> None:
        answer = Message(src, 0, Kind.MODEL, 5, 0, 0, 0, pack(MODEL, meta={ROUND: round}))
        assert deliver_one(self.mailbox, answer) is Fate.DELIVERED

    async def join(self, *peers: int, round: int = 2, weight: int | None = None) -> asyncio.Task[Any]:
        task = asyncio.create_task(self.transfer.join(JoinPlan(round=round, peers=peers, weight=weight)))
        await settle()
        return task

    def rejoined(self) -> dict[str, Any]:
        ((at_ns, node, round, kind, details),) = self.events
        assert (at_ns, node, kind) == (self.clock.ns, 0, "rejoin")
        return {"round": round, **details}


async def test_one_neighbor_after_the_other_is_asked_each_time_with_more_patience() -> None:
    member = Member()
    member.clock.ns = 7
    task = await member.join(3, 1)
    waits = [S // 2, S, 2 * S, 4 * S, 4 * S, 4 * S, 4 * S, 4 * S]
    for place, wait_ns in enumerate(waits):
        assert len(member.asked) == place + 1
        member.clock.move_to(member.clock.ns + wait_ns - 1)
        await settle()
        assert len(member.asked) == place + 1
        member.clock.move_to(member.clock.ns + 1)
        await settle()
    asked = [(0, (3, 1)[n % 2], Kind.FETCH, 3, 2, 0, n) for n in range(8)]
    assert [m[:7] for m in member.asked] == asked
    assert member.since == [7] * 8
    state = await task
    reason = "nobody answered 8 requests for a model within 23.5 s"
    assert member.rejoined() == {"round": 2, "source": None, "weight": None, "reason": reason}
    assert (state.round, state.x.tolist(), member.transfer.since_ns) == (2, INITIAL.tolist(), None)


async def test_who_is_gone_is_not_asked_and_where_nobody_is_there_it_begins_by_itself() -> None:
    member = Member()
    member.waits.gone.add(1)
    task = await member.join(1, 2, 3)
    member.clock.move_to(S)
    await settle()
    assert [m.dst for m in member.asked] == [2, 3]
    member.waits.gone.update({2, 3})
    member.clock.move_to(3 * S)
    await task
    assert member.rejoined()["reason"] == "no neighbor is there"


async def test_without_neighbors_to_ask_it_begins_at_once() -> None:
    member = Member()
    state = await (await member.join(round=5))
    assert member.rejoined() == {
        "round": 5, "source": None, "weight": None, "reason": "no neighbor has links both ways",
    }  # fmt: skip
    assert (member.asked, state.round, state.x.tolist()) == ([], 5, INITIAL.tolist())


@pytest.mark.parametrize(
    ("wanted", "theirs", "begins", "seen"), [(2, 4, 4, 4), (6, 4, 6, 6), (2, 9, 9, 8), (9, 0, 9, 8)]
)
async def test_it_begins_with_the_first_model_in_the_later_of_both_rounds(
    wanted: int, theirs: int, begins: int, seen: int
) -> None:
    member = Member()
    task = await member.join(1, 2, round=wanted)
    member.clock.move_to(S // 2)
    await settle()
    member.give(1, theirs)
    state = await task
    assert member.rejoined() == {"round": begins, "source": 1, "weight": None, "reason": ""}
    assert (state.round, state.x.tolist()) == (begins, MODEL.tolist())
    assert member.views == [(seen, frozenset())]
    assert [m.dst for m in member.asked] == [1, 2], "an answer counts whenever it comes"
    assert not any(timer.live for timer in member.clock.timers)
    late = Message(2, 0, Kind.MODEL, 5, 0, 0, 0, pack(MODEL, meta={ROUND: 1}))
    assert deliver_one(member.mailbox, late) is Fate.LATE


async def test_an_answer_that_comes_while_it_still_asks_is_not_waited_for() -> None:
    member = Member()
    member.answers = lambda request: member.give(request.dst)
    state = await (await member.join(1, 2))
    assert (len(member.asked), member.clock.timers, state.round) == (1, [], 4)


@pytest.mark.parametrize("weight", [0, 1])
async def test_its_push_sum_weight_is_what_the_scenario_says(weight: int) -> None:
    member = Member("sgp")
    state = await (await member.join(round=5, weight=weight))
    assert (member.rejoined()["weight"], state.mixing.weight) == (float(weight), float(weight))
    assert type(member.rejoined()["weight"]) is float
