"""A node's rounds: what each begins with, whom it awaits, and the figures and the mass that it ends with."""

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

THREE_S = replace(ALL, deadline_ns=3 * S)


async def ended(desk: Desk, **state: Any) -> dict[str, float]:
    """End the round that the node is in, and return its figures."""
    at_ns = desk.clock.ns
    await desk.node.end_round(desk.node.begin(desk.algorithm)._replace(**state), desk.view(desk.node.round))
    told_ns, node, round, found = desk.notes.figures.pop()
    assert (told_ns, node, round) == (at_ns, ME, desk.node.round)
    return dict(found)


async def trained(desk: Desk, times: int = 1) -> Any:
    update = None
    for _ in range(times):
        _, update = await desk.node.train(desk.node.begin(desk.algorithm), desk.algorithm, desk.view(desk.node.round))
    return update


async def test_mass_is_held_until_it_is_sent_and_with_what_came_and_was_not_read() -> None:
    desk = Desk("sgp", push=True)
    assert desk.node.held_weight == 0.0
    await ended(desk)
    assert desk.node.held_weight == 1.0
    await desk.node.send(desk.view(), 0, {0: SHARE, 1: OTHER, 3: Payload()})
    assert desk.node.held_weight == 0.25
    desk.arrive(0, w=0.5, round=5)
    desk.arrive(1, w=1, round=5)  # no share: weights are floats
    desk.arrive(3, round=5)
    assert desk.node.held_weight == 0.75
    await desk.node.send(desk.view(), 1, {0: OTHER})
    assert desk.node.held_weight == 0.5, "what is read meanwhile and sent is not owed"
    plain = Desk()
    await ended(plain)
    await plain.node.send(plain.view(), 0, {0: SHARE})
    assert plain.node.held_weight is None


async def test_a_reply_is_of_the_requests_round_step_and_attempt_and_is_remembered() -> None:
    desk = Desk()
    desk.node.reply(Message(1, ME, Kind.REQUEST, 0, 6, 1, 5, Payload()), SHARE)
    assert desk.node.requests.answered == {1: (6, 1)}
    assert desk.post.sent == []
    await settle()
    assert desk.post.sent == [Message(ME, 1, Kind.REPLY, 3, 6, 1, 5, SHARE)]


async def test_each_round_begins_at_its_first_step_and_counts_anew() -> None:
    desk = Desk()
    desk.clock.ns, desk.node.ledger.bytes_sent = 3 * S, 30
    async for view in desk.node.rounds(3):
        assert (desk.node.round, desk.node.waits.step, desk.node.next_step) == (view.round, 0, StepId(view.round, 0))
        await trained(desk, view.round % 2)
        desk.node.waits.step = 9
        desk.node.ledger.bytes_sent += view.round
        desk.clock.ns += S
        figures = await ended(desk)
        assert ("train_loss" in figures) is (view.round % 2 == 1), "a round without training has no loss"
        times = {"round_s": 1.0 + view.round % 2, "train_s": view.round % 2, "wait_s": 0.0, "bytes_sent": view.round}
        assert figures.items() >= times.items()
    asked = [asked for asked in desk.asked_views if asked[0] > 0]  # of round 0 asks who makes a state
    assert asked == [(round, frozenset()) for round in (3, 4, 5, 6)]
    assert desk.node.next_step == StepId(6, 0)


async def test_who_was_missing_is_recorded_with_the_wait_that_it_took() -> None:
    desk = Desk(wait=THREE_S)
    desk.clock.ns = S
    steps = (
        lambda: setattr(desk.clock, "ns", 2 * S),
        lambda: desk.arrive(0, 3, step=1),
        lambda: desk.clock.move_to(4 * S),
    )
    inbox = await desk.during(desk.node.gather(desk.view(), 1, THREE_S), *steps)
    assert ([m.src for m in inbox], inbox.missing) == ([0, 3], (1, 4))
    assert desk.notes.events == [(4 * S, ME, 4, "missing", {"step": 1, "awaited": [1, 4]})]
    assert desk.notes.waits == [WaitRecord(ME, 4, 1, Kind.DATA, S, 4 * S, 3 * S, WaitEnd.DEADLINE, 0, (1, 4))]
    assert (await ended(desk))["wait_s"] == 3.0


@pytest.mark.parametrize(
    ("without", "round", "awaited"),
    [
        ({0: 3, 1: 4, 3: 5}, 4, {0, 4}),
        ({0: 0, 1: 1}, 0, {3, 4}),
        ({0: 0, 1: 1}, 1, {0, 3, 4}),
        ({}, 4, {0, 1, 3, 4}),
    ],
)
async def test_those_that_send_nothing_up_to_a_round_are_not_awaited_there(
    without: dict[int, int], round: int, awaited: set[int]
) -> None:
    desk = Desk(without=without)
    task = asyncio.create_task(desk.node.gather(desk.view(round), 0, ALL))
    await settle()
    current = desk.node.waits.current
    assert current is not None
    assert (current.sources, current.need, current.kind) == (awaited, len(awaited), Kind.DATA)
    task.cancel()
    await asyncio.wait([task])


async def test_a_reply_is_awaited_also_of_one_that_sends_nothing_else() -> None:
    desk = Desk(without={1: 4})
    task = asyncio.create_task(desk.node.ask(desk.view(), 1, SHARE, ALL))
    await settle()
    current = desk.node.waits.current
    assert current is not None
    assert (current.sources, current.need, current.kind) == ({1}, 1, Kind.REPLY)
    task.cancel()
    await asyncio.wait([task])


async def test_a_local_round_takes_its_time_and_is_the_deadlines_measure() -> None:
    desk = Desk()
    update = await trained(desk, 2)
    assert desk.works.done == ["train", "train"]
    assert desk.node.waits.auto.after(0) == desk.node.waits.auto.ROUNDS * S
    assert update.loss == desk.node.task.last_loss
    assert (await ended(desk)).items() >= {"train_s": 2.0, "train_loss": update.loss}.items()


@pytest.mark.parametrize(
    ("trains", "loss", "told"),
    [(0, 0.5, {}), (2, 0.5, {"train_loss": 0.5}), (2, nan, {}), (2, inf, {"train_loss": inf})],
)
async def test_a_rounds_figures_are_its_times_and_bytes_and_a_loss_where_it_trained(
    trains: int, loss: float, told: dict[str, float]
) -> None:
    desk = Desk()
    desk.clock.ns, desk.node.ledger.bytes_sent = S, 20
    await anext(desk.node.rounds(4))
    await trained(desk, trains)
    desk.node.task.last_loss = loss  # type: ignore[misc]
    until_ns = desk.clock.ns + 3 * S
    await desk.during(desk.node.gather(desk.view(), 0, THREE_S), lambda: desk.clock.move_to(until_ns))
    desk.clock.ns, desk.node.ledger.bytes_sent = 9 * S, 50
    times = {"round_s": 8.0, "train_s": float(trains), "wait_s": 3.0, "bytes_sent": 30.0}
    assert await ended(desk) == times | told
    assert desk.kept.states == [desk.node.latest]


NOTHING = {"round_s": 0.0, "train_s": 0.0, "wait_s": 0.0, "bytes_sent": 0.0}


async def test_a_rounds_figures_of_mass_are_its_weight_and_what_is_unacknowledged() -> None:
    desk = Desk("sgp", push=True, resending=ResendPolicy())
    await desk.node.send(desk.view(), 0, {0: SHARE})
    assert await ended(desk) == NOTHING | {"weight": 1.0, "limbo": 1.0, "limbo_weight": 0.25}
    assert (desk.kept.weights, desk.node.held_weight) == ([1.0], 1.0)
    assert await ended(Desk(resending=ResendPolicy())) == NOTHING | {"limbo": 0.0, "limbo_weight": 0.0}


@pytest.mark.parametrize(("catch_up", "missed", "round"), [(7, 2, 7), (6, 1, 6), (5, 0, 5), (4, None, 4), (0, None, 4)])
async def test_who_goes_on_where_others_are_keeps_that_round_and_tells_how_many_it_missed(
    catch_up: int, missed: int | None, round: int
) -> None:
    desk = Desk(catch_up=catch_up)
    desk.clock.ns = 9 * S
    await ended(desk, round=4)
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
    assert Desk(resending=ResendPolicy()).node.transport is not desk.post
