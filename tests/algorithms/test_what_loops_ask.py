"""What each family's loop asks of its node, call by call: what is sent and awaited, in which step, how patiently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE, SMALL

from netdfl.algorithms.base import Algorithm, NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import WaitPolicy
from netdfl.algorithms.families import FAMILIES, first_state
from netdfl.core.types import Inbox, Kind, Message, Payload, Role, View
from netdfl.mixing.payloads import pack
from netdfl.training.base import Update

X = torch.linspace(1.0, 2.0, DIM, dtype=torch.float64)
WAIT = WaitPolicy(need="any", stale=3)
ROUNDS = 3


class Node:
    """A node of three that writes down what is asked of it, and hears what `hears` says."""

    def __init__(self, alg: Algorithm, view: View, hears: Callable[[int], list[Message]] = lambda step: []) -> None:
        self.alg, self.at, self.hears, self.asked = alg, view, hears, list[Any]()
        self.first: NodeState = first_state(X, alg, view)
        self.lost = False

    def begin(self, alg: Algorithm) -> NodeState:
        return self.first

    async def rounds(self, first: int) -> AsyncIterator[View]:
        for round in range(first, ROUNDS):
            self.asked.append(round)
            yield self.at._replace(round=round)

    async def train(self, state: NodeState, alg: Algorithm, view: View) -> tuple[NodeState, Update]:
        self.asked.append("train")
        return state, Update(state.x, state.x + 1)

    async def refine(self, state: NodeState, alg: Algorithm, view: View) -> NodeState:
        return state

    def exchanges(self, view: View) -> int:
        return int(self.alg.mixing.num_steps(view.round, view))

    def drawing(self, what: str, round: int, *key: int) -> AbstractContextManager[object]:
        return nullcontext()

    async def do(self, function: Callable[..., Any], *args: object) -> Any:
        return function(*args)

    async def send(self, view: View, step: int, outbox: dict[int, Payload]) -> None:
        self.asked.append(("send", step, sorted(outbox)))

    async def gather(self, view: View, step: int, wait: WaitPolicy, sources: tuple[int, ...] | None = None) -> Inbox:
        told = (wait.need, wait.patience, wait.essential, wait.cumulative, wait.stale)
        self.asked.append(("gather", step, told, sources))
        return Inbox(self.hears(step))

    async def collect(self, view: View, wait: WaitPolicy, lag: int | None) -> Inbox:
        self.asked.append(("collect", lag))
        return Inbox()

    def serve(self, answer: Any) -> None:
        self.asked.append("serve" if answer else "keep")

    def owed(self, peer: int) -> bool:
        return self.lost

    def is_last(self, view: View) -> bool:
        return view.round == ROUNDS - 1

    async def ask(self, view: View, peer: int, payload: Payload, wait: WaitPolicy) -> Inbox:
        self.asked.append(("ask", peer))
        return Inbox()

    async def end_round(self, state: NodeState, view: View) -> None:
        self.asked.append(("end", state.round, round(float(state.x[0]), 6)))


def asked(name: str, at: View, hears: Callable[[int], list[Message]] = lambda step: [], **params: Any) -> list[Any]:
    alg = ALGORITHMS[name].build(EXCHANGE.__class__(wait=WAIT), **SMALL.get(name, {}) | {"lr": 0.1} | params)
    node = Node(alg, at, hears)
    asyncio.run(FAMILIES[alg.family](node, alg))  # type: ignore[arg-type]
    return node.asked


def of(found: list[Any], *kinds: str) -> list[Any]:
    """The calls of these kinds."""
    return [call for call in found if isinstance(call, tuple) and call[0] in kinds]


PEERS = View(1, 0, 3, (0, 2), (0, 2), 0.5, {0: 0.25, 2: 0.25}, {0: 0.25, 2: 0.25})
PLAIN = ("any", 1, False, False, 3)


@pytest.mark.parametrize(("name", "steps"), [("dpsgd", 1), ("dfedsam_mgs", 4)])
def test_gossip_trains_once_and_then_exchanges_as_often_as_its_mixing_says(name: str, steps: int) -> None:
    exchanges = [call for step in range(steps) for call in (("send", step, [0, 2]), ("gather", step, PLAIN, None))]
    found = asked(name, PEERS)
    for round in range(ROUNDS):
        size = 3 + 2 * steps
        assert found[round * size : (round + 1) * size] == [round, "train", *exchanges, ("end", round + 1, 2.0 + round)]


def test_a_server_sends_in_step_0_and_gathers_in_step_1_as_the_wait_says() -> None:
    at = View(2, 0, 2, (0, 1), (0, 1), 1.0, {}, {}, role=Role.SERVER, server=2)
    assert asked("fedavg", at)[:4] == [0, ("send", 0, [0, 1]), ("gather", 1, PLAIN, None), ("end", 1, 1.0)]


def test_a_client_waits_longer_for_the_server_without_which_there_is_no_round() -> None:
    at = View(0, 0, 2, (2,), (2,), 1.0, {}, {}, role=Role.CLIENT, server=2)
    down = ("gather", 0, ("any", 4, True, False, 3), (2,))
    model = [Message(2, 0, Kind.DATA, 0, 0, 0, 0, pack(5 * X))]
    assert asked("fedavg", at, lambda step: model)[:5] == [0, down, "train", ("send", 1, [2]), ("end", 1, 6.0)]
    assert asked("fedavg", at)[:3] == [0, down, ("end", 1, 1.0)], "nothing came"
    idle = at._replace(active=False)
    assert asked("fedavg", idle) == [0, ("end", 1, 1.0), 1, ("end", 2, 1.0), 2, ("end", 3, 1.0)]


def test_of_overlapping_methods_one_gives_before_it_trains_and_one_after() -> None:
    for name, order, lag in (
        ("overlap_sgp", [("send", 0, [0, 2]), "train"], 0),
        ("asyng", ["train", ("send", 0, [0, 2])], 1),
    ):
        assert asked(name, PEERS)[:4] == [0, *order, ("collect", lag)]


def test_of_pairs_one_half_asks_and_says_when_it_is_through_and_the_other_waits_for_that() -> None:
    asker = PEERS._replace(in_neighbors=())
    through = ("send", 1, [0, 2])
    found = asked("ad_psgd", asker)
    assert found[:3] == ["serve", 0, "train"]
    assert found[3] == "keep"
    assert found[4][0] == "ask"
    assert found[4][1] in (0, 2)
    assert found[5:8] == ["serve", through, ("end", 1, 2.0)]
    assert found[-1] == "serve"
    waits = [("gather", 1, (need, 2, False, True, 3), None) for need in ("any", "any", "all")]
    answerer = asked("ad_psgd", PEERS._replace(out_neighbors=()))
    assert of(answerer, "gather") == waits
    assert not of(answerer, "ask", "send")
    assert answerer[1:6] == [0, "train", "serve", waits[0], ("end", 1, 2.0)]
    free = asked("ad_psgd", PEERS, bipartite=False, order="successor")
    assert free[0] == "keep", "who asks a successor first answers nobody before"
    assert not of(free, "send", "gather")
    assert of(free, "ask") == [("ask", 2), ("ask", 0), ("ask", 2)]


@pytest.mark.parametrize("step", ["before", "after"])
def test_who_is_owed_a_reply_asks_nobody_and_steps_all_the_same(step: str) -> None:
    alg = ALGORITHMS["ad_psgd"].build(EXCHANGE, lr=0.1, step=step)
    node = Node(alg, PEERS._replace(in_neighbors=()))
    node.lost = True
    asyncio.run(FAMILIES["bilateral"](node, alg))  # type: ignore[arg-type]
    assert not of(node.asked, "ask")
    assert of(node.asked, "end") == [("end", k, 1.0 + k) for k in (1, 2, 3)]
