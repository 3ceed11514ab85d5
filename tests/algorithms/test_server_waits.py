"""What the ends of a server's round wait for: as the scenario says, and a client for its server in any case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
from algorithm_fleets import N, network, quadratics

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.algorithms.families import DOWN, UP, first_state, server
from netdfl.core.types import Inbox, Kind, Message, NodeId, Outbox, View
from netdfl.training.toy import Quadratic

WAIT = WaitPolicy(need=2, deadline_ns=7, on_not_finite="count")
FEDAVG = ALGORITHMS["fedavg"].build(Exchange(wait=WAIT))
STAR = network("star")


class OneRound:
    """Plays one node's first round, hands it `inbox`, and keeps what the node waited for and sent."""

    def __init__(self, node: NodeId, inbox: Inbox) -> None:
        self.view, self.inbox, self.task = STAR.view(node, 0), inbox, quadratics(N + 1)[node]
        self.waited: list[tuple[int, WaitPolicy, tuple[NodeId, ...] | None]] = []
        self.sent: dict[int, Outbox] = {}
        asyncio.run(server(self, FEDAVG))  # type: ignore[arg-type]  # what a bilateral round asks for is missing

    def begin(self, alg: Algorithm) -> Any:
        return first_state(self.task.initial(), alg, self.view)

    async def rounds(self, first: int) -> AsyncIterator[View]:
        yield self.view

    async def gather(self, view: View, step: int, wait: WaitPolicy, sources: Any = None) -> Inbox:
        self.waited.append((step, wait, sources))
        return self.inbox

    async def send(self, view: View, step: int, outbox: Outbox) -> None:
        self.sent[step] = outbox

    async def train(self, state: Any, alg: Algorithm, view: View) -> Any:
        return state.train(alg, self.task.data(0), view)

    async def refine(self, state: Any, alg: Algorithm, view: View) -> Any:
        return state

    async def do(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def drawing(self, what: str, round: int, *key: int) -> AbstractContextManager[object]:
        return nullcontext()

    async def end_round(self, state: Any, view: View) -> None:
        self.last = state


def broadcast() -> Inbox:
    hub = OneRound(N, Inbox())
    return Inbox([Message(N, 0, Kind.DATA, 0, 0, DOWN, 0, hub.sent[DOWN][0])])


def test_a_server_waits_for_reports_as_the_scenario_says() -> None:
    assert OneRound(N, Inbox()).waited == [(UP, WAIT, None)]


def test_a_client_waits_for_its_server_gone_or_not_and_with_the_patience_that_a_wait_within_takes() -> None:
    ((step, wait, sources),) = OneRound(0, broadcast()).waited
    assert (step, sources) == (DOWN, (N,))
    assert wait.essential
    assert wait.patience >= 2 * WAIT.patience
    assert replace(wait, essential=False, patience=1) == WAIT


@pytest.mark.parametrize(("heard", "sent"), [(True, [UP]), (False, [])])
def test_without_the_model_a_client_has_no_round(heard: bool, sent: list[int]) -> None:
    client = OneRound(0, broadcast() if heard else Inbox())
    start: Quadratic = client.task
    assert list(client.sent) == sent
    assert bool((client.last.x == start.initial()).all()) is not heard
    assert client.last.round == 1
