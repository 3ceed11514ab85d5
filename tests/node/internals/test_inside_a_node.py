"""What a node keeps of a round: its times, the weight that it holds, the requests that it owes a reply."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from netdfl.core.types import Kind, Message, Payload, StepId
from netdfl.node.delivery import ResendPolicy
from netdfl.record.base import WaitEnd, WaitRecord
from tests.node.hand import settle
from tests.node.node_desk import ALL, ME, OTHER, SHARE, Desk, S


async def test_mass_is_held_until_it_is_sent_and_with_what_came_and_was_not_read() -> None:
    desk = Desk("sgp", push=True)
    assert desk.node.held_weight == 0.0
    desk.node._held = 1.0
    await desk.node.send(desk.view(), 0, {0: SHARE, 1: OTHER, 3: Payload()})
    assert desk.node.held_weight == 0.25
    desk.arrive(0, w=0.5, round=5)
    desk.arrive(1, w=1, round=5)  # no share: weights are floats
    desk.arrive(3, round=5)
    assert desk.node.held_weight == 0.75
    desk.node._held = -0.5
    assert desk.node.held_weight == 0.5
    plain = Desk()
    plain.node._held = 1.0
    await plain.node.send(plain.view(), 0, {0: SHARE})
    assert (plain.node.held_weight, plain.node._held) == (None, 1.0)


async def test_a_reply_is_of_the_requests_round_step_and_attempt_and_is_remembered() -> None:
    desk = Desk()
    desk.node.reply(Message(1, ME, Kind.REQUEST, 0, 6, 1, 5, Payload()), SHARE)
    assert desk.node.requests.answered == {1: (6, 1)}
    assert len(desk.node._replies) == 1, "what sends beside is held until it has sent"
    await settle()
    assert desk.post.sent == [Message(ME, 1, Kind.REPLY, 3, 6, 1, 5, SHARE)]
    assert desk.node._replies == set()


async def test_each_round_begins_at_its_first_step() -> None:
    desk = Desk()
    desk.clock.ns, desk.node.ledger.bytes_sent = 3, 30
    async for view in desk.node.rounds(3):
        assert (desk.node.round, desk.node.waits.step, desk.node.next_step) == (view.round, 0, StepId(view.round, 0))
        assert (desk.node._trained_ns, desk.node._waited_ns, desk.node._trained) == (0, 0, False)
        assert (desk.node._began_ns, desk.node._bytes_before) == (view.round, 10 * view.round)
        desk.node.waits.step = desk.node._trained_ns = desk.node._waited_ns = desk.node._trained = 9
        desk.clock.ns, desk.node.ledger.bytes_sent = view.round + 1, 10 * view.round + 10
    assert desk.asked_views == [(round, frozenset()) for round in (3, 4, 5, 6)]


async def test_who_was_missing_is_recorded_with_the_wait_that_it_took() -> None:
    desk = Desk(wait=replace(ALL, deadline_ns=3 * S))
    desk.clock.ns = S
    steps = (
        lambda: setattr(desk.clock, "ns", 2 * S),
        lambda: desk.arrive(0, 3, step=1),
        lambda: desk.clock.move_to(4 * S),
    )
    inbox = await desk.during(desk.node.gather(desk.view(), 1, replace(ALL, deadline_ns=3 * S)), *steps)
    assert ([m.src for m in inbox], inbox.missing) == ([0, 3], (1, 4))
    assert desk.notes.events == [(4 * S, ME, 4, "missing", {"step": 1, "awaited": [1, 4]})]
    assert desk.notes.waits == [WaitRecord(ME, 4, 1, Kind.DATA, S, 4 * S, 3 * S, WaitEnd.DEADLINE, 3, (1, 4))]
    assert desk.node._waited_ns == 3 * S


@pytest.mark.parametrize(
    ("without", "kind", "round", "awaited"),
    [
        ({0: 3, 1: 4, 3: 5}, Kind.DATA, 4, {0, 4}),
        ({0: 3, 1: 4, 3: 5}, Kind.REPLY, 4, {0, 1, 3, 4}),
        ({0: 0, 1: 1}, Kind.DATA, 0, {3, 4}),
        ({0: 0, 1: 1}, Kind.DATA, 1, {0, 3, 4}),
        ({}, Kind.DATA, 4, {0, 1, 3, 4}),
    ],
)
async def test_those_that_send_nothing_up_to_a_round_are_not_awaited_there(
    without: dict[int, int], kind: Kind, round: int, awaited: set[int]
) -> None:
    desk = Desk(without=without)
    task = asyncio.create_task(desk.node._gather(desk.view(round), 0, ALL, None, kind))
    await settle()
    current = desk.node.waits.current
    assert current is not None
    assert (current.sources, current.need, current.kind) == (awaited, len(awaited), kind)
    task.cancel()
    await asyncio.wait([task])


async def test_a_local_round_takes_its_time_and_is_the_deadlines_measure() -> None:
    desk = Desk()
    state = desk.node.begin(desk.algorithm)
    assert not desk.node._trained
    _, update = await desk.node.train(state, desk.algorithm, desk.view())
    await desk.node.train(state, desk.algorithm, desk.view())
    assert (desk.node._trained_ns, desk.node._trained, desk.works.done) == (2 * S, True, ["train", "train"])
    assert desk.node.waits.auto.after(0) == desk.node.waits.auto.ROUNDS * S
    assert update.loss == desk.node.task.last_loss


async def figures(desk: Desk, **state: Any) -> dict[str, float]:
    desk.node._began_ns, desk.node._trained_ns, desk.node._waited_ns = S, 2 * S, 3 * S
    desk.node.ledger.bytes_sent, desk.node._bytes_before = 50, 20
    desk.clock.ns = 9 * S
    await desk.node.end_round(desk.node.begin(desk.algorithm)._replace(**state), desk.view())
    ((at_ns, node, round, found),) = desk.notes.figures
    assert (at_ns, node, round) == (9 * S, ME, 4)
    return dict(found)


TIMES = {"round_s": 8.0, "train_s": 2.0, "wait_s": 3.0, "bytes_sent": 30.0}


async def test_a_rounds_figures_are_its_times_and_bytes_and_a_loss_where_it_trained() -> None:
    assert await figures(Desk()) == TIMES
    for loss, told in ((0.5, {"train_loss": 0.5}), (nan, {}), (inf, {"train_loss": inf})):
        desk = Desk()
        desk.node._trained, desk.node.task.last_loss = True, loss  # type: ignore[misc]
        assert await figures(desk) == TIMES | told
        assert desk.kept.states == [desk.node.latest]


async def test_a_rounds_figures_of_mass_are_its_weight_and_what_is_unacknowledged() -> None:
    desk = Desk("sgp", push=True, resending=ResendPolicy())
    await desk.node.send(desk.view(), 0, {0: SHARE})
    assert await figures(desk) == TIMES | {"weight": 1.0, "limbo": 1.0, "limbo_weight": 0.25}
    assert (desk.kept.weights, desk.node.held_weight) == ([1.0], 1.0)
    assert await figures(Desk(resending=ResendPolicy())) == TIMES | {"limbo": 0.0, "limbo_weight": 0.0}


@pytest.mark.parametrize(("catch_up", "missed", "round"), [(7, 2, 7), (6, 1, 6), (5, 0, 5), (4, None, 4), (0, None, 4)])
async def test_who_goes_on_where_others_are_keeps_that_round_and_tells_how_many_it_missed(
    catch_up: int, missed: int | None, round: int
) -> None:
    desk = Desk(catch_up=catch_up)
    await figures(desk, round=4)
    assert desk.kept.states[0].round == round
    told = [(9 * S, ME, 4, "catch_up", {"missed": missed})] if missed else []
    assert desk.notes.events == told
    assert desk.node.latest is desk.kept.states[0]


def test_a_node_that_is_made_has_nothing_behind_it() -> None:
    desk = Desk()
    node = desk.node
    assert (node.next_step, node.ledger.left_out, desk.made_in, node.born_ns) == ((0, 0), {}, -1, 0)
    assert node.latest is node.delivery is node.heartbeats is None
    assert [node.waits.can_ask(peers) for peers in ((), (1,))] == [False, False]
    assert node._is_step_done(1, StepId(0, 0)) is False
    assert Desk(resending=ResendPolicy()).node.transport is not desk.post
