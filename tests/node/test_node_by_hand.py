"""A node at work, one call at a time: what it sends, waits for, records and keeps, by a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hand import settle

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.errors import MalformedMessage, NotFiniteError, TrainingError
from netdfl.core.types import Inbox, Kind, Message, MessageId, Multicast, Payload, StepId, messages_of, unicasts
from netdfl.mixing.payloads import pack
from netdfl.node.delivery import ResendPolicy
from netdfl.node.shares import unacknowledged
from netdfl.record.base import WaitEnd, WaitRecord
from netdfl.training.drawing import seeded
from netdfl.transport.base import Fate, deliver_one
from tests.node.node_desk import ALL, ME, OTHER, SHARE, STREAMS, Desk, Mine, S, drawn

# sending


@pytest.mark.parametrize("payloads", [(SHARE, SHARE, SHARE), (SHARE, OTHER, SHARE)])
async def test_a_steps_payloads_leave_as_one_multicast_of_this_round_step_and_life(
    payloads: tuple[Payload, ...],
) -> None:
    desk = Desk()
    await desk.node.send(desk.view(), 2, dict(zip((0, 1, 3), payloads, strict=True)))
    (given,) = desk.post.given
    assert given == Multicast(ME, (0, 1, 3), MessageId(Kind.DATA, 3, StepId(4, 2), 0, 0), payloads)
    expected = [Message(ME, dst, Kind.DATA, 3, 4, 2, 0, each) for dst, each in zip((0, 1, 3), payloads, strict=True)]
    assert desk.post.sent == expected
    assert messages_of([given.after(1)]) == expected[1:]
    assert messages_of(unicasts(expected)) == expected
    assert desk.node.next_step == StepId(4, 3)


async def test_a_step_without_payloads_is_past_as_well() -> None:
    desk = Desk()
    await desk.node.send(desk.view(), 0, {})
    assert (desk.post.given, desk.node.next_step) == ([], StepId(4, 1))


UNKNOWN = {"in_neighbors": None, "may_send_to": (4, 3, 1, 0), "may_hear": (0, 3)}


@pytest.mark.parametrize(
    ("announces", "view", "told"),
    [(True, UNKNOWN, [1, 3]), (False, UNKNOWN, []), (True, UNKNOWN | {"in_neighbors": (0, 1)}, [])],
)
async def test_where_receivers_know_nothing_those_that_get_nothing_are_told(
    announces: bool, view: dict[str, Any], told: list[int]
) -> None:
    desk = Desk(wait=replace(ALL, announce=announces))
    desk.node.waits.gone.add(0)
    await desk.node.send(desk.view(**view), 1, {4: SHARE})
    notices = [(ME, dst, Kind.NOTICE, 3, 4, 1, 0) for dst in told]
    assert [m[:7] for m in desk.post.sent] == [(ME, 4, Kind.DATA, 3, 4, 1, 0), *notices]
    assert desk.node.ledger.left_out == ({0: ((4, 4),)} if told else {})


def test_what_is_unacknowledged_is_counted_with_its_weight() -> None:
    message = Message(ME, 0, Kind.DATA, 0, 0, 0, 0, SHARE)
    assert unacknowledged([]) == {"limbo": 0.0, "limbo_weight": 0.0}
    assert unacknowledged([message, message._replace(payload=OTHER)]) == {"limbo": 2.0, "limbo_weight": 0.75}


async def test_a_request_is_sent_and_its_reply_awaited_from_that_peer_alone() -> None:
    desk = Desk()
    asking = desk.node.ask(desk.view(), 1, SHARE, ALL)
    inbox = await desk.during(asking, lambda: desk.arrive(0, kind=Kind.DATA), lambda: desk.arrive(1, kind=Kind.REPLY))
    assert desk.post.sent == [Message(ME, 1, Kind.REQUEST, 3, 4, 0, 0, SHARE)]
    assert [m.kind for m in inbox if m.src == 1] == [Kind.REPLY]
    assert not desk.node.owed(1)


async def test_a_message_that_is_sent_again_is_owed_and_what_it_is_for_is_not_past() -> None:
    desk = Desk(resending=ResendPolicy(timeout_ns=S, attempts=0))
    await desk.node.transport.send(unicasts([Message(ME, 1, Kind.REQUEST, 3, 4, 0, 0, SHARE)]))
    await desk.node.send(desk.view(), 0, {0: SHARE})
    past = desk.node.waits.queries.is_step_done  # type: ignore[union-attr]
    assert (desk.node.owed(1), desk.node.owed(0), desk.node.owed(3)) == (True, False, False)
    assert [past(peer, StepId(4, 0)) for peer in (0, 1, 3)] == [False, False, True]
    assert [past(3, StepId(4, step)) for step in (0, 1)] == [True, False]
    desk.clock.move_to(S)
    assert past(0, StepId(4, 0))
    events = [(kind, details) for *_, kind, details in desk.notes.events]
    assert events == [
        ("given_up", {"dst": 1, "step": 0, "weight": 0.25}),
        ("given_up", {"dst": 0, "step": 0, "weight": 0.25}),
    ]
    assert not Desk().node.owed(1)


# rounds


async def through(desk: Desk, first: int) -> list[int]:
    return [view.round async for view in desk.node.rounds(first)]


@pytest.mark.parametrize(
    ("first", "catch_up", "rounds", "behind"),
    [
        (4, 0, [4, 5, 6], 0),
        (2, 2, [2, 3, 4, 5, 6], 0),
        (2, 3, [2, 3, 4, 5, 6], 0),
        (2, 4, [2, 4, 5, 6], 4),
        (2, 6, [2, 6], 6),
        (2, 7, [2], 7),
        (6, 7, [6], 7),
        (7, 7, [], 7),
    ],
)
async def test_a_node_makes_the_rounds_that_are_left_or_goes_on_where_others_are(
    first: int, catch_up: int, rounds: list[int], behind: int
) -> None:
    desk = Desk(catch_up=catch_up)
    assert await through(desk, first) == desk.kept.begun == rounds
    assert desk.node.catch_up == behind, "up to which it waits for nobody"


async def test_who_is_gone_is_left_out_from_the_first_to_the_last_of_its_rounds_in_each_row() -> None:
    desk = Desk()
    left: list[dict[int, tuple[tuple[int, int], ...]]] = []
    gone = {0: {1}, 1: {1, 3}, 2: set(), 3: {3}, 4: {1, 3}, 5: {1}, 6: set()}
    desk.node.waits.gone.update(gone[0])
    async for view in desk.node.rounds(0):
        left.append(dict(desk.node.ledger.left_out))
        desk.node.waits.gone.clear()
        desk.node.waits.gone.update(gone.get(view.round + 1, ()))
    of_one = [((0, 0),), *[((0, 1),)] * 3, ((0, 1), (4, 4)), *[((0, 1), (4, 5))] * 2]
    of_three = [None, *[((1, 1),)] * 2, ((1, 1), (3, 3)), *[((1, 1), (3, 4))] * 3]
    assert [(each.get(1), each.get(3)) for each in left] == list(zip(of_one, of_three, strict=True))
    assert desk.asked_views[:2] == [(0, frozenset({1})), (1, frozenset({1, 3}))]


def test_the_last_round_is_the_last_of_all() -> None:
    assert [Desk().node.is_last(Desk().view(round)) for round in (5, 6)] == [False, True]


async def test_a_node_that_has_ended_is_past_all_and_takes_no_more_mass() -> None:
    desk = Desk("sgp", push=True, num_rounds=1, resending=ResendPolicy())
    desk.clock.ns = 77
    await desk.during(desk.node.run(), lambda: desk.arrive(0, 1, 3, 4, round=0, w=0.2))
    assert (desk.node.born_ns, desk.node.next_step) == (77, StepId(1, 0))
    assert deliver_one(desk.node.mailbox, Message(0, ME, Kind.DATA, 0, 1, 0, 0, SHARE)) is Fate.REFUSED
    timed = Desk(num_rounds=1, wait=WaitPolicy())
    await timed.during(timed.node.run(), lambda: timed.arrive(0, 1, 3, 4, round=0))
    assert timed.clock.timers
    assert not any(timer.live for timer in timed.clock.timers)
    plain = Desk(num_rounds=1)
    await plain.during(plain.node.run(), lambda: plain.arrive(0, 1, 3, 4, round=0))
    assert deliver_one(plain.node.mailbox, Message(0, ME, Kind.DATA, 0, 1, 0, 0, SHARE)) is Fate.DELIVERED


def test_exchanges_are_remembered_for_the_round_in_which_they_were_asked_for() -> None:
    desk = Desk("dfedsam_mgs", parts={"gossip_steps": 3})
    assert (desk.node.num_steps, desk.asked_views) == (3, [(4, frozenset())])
    assert (desk.node.num_steps, len(desk.asked_views)) == (3, 1)
    desk.node.round = 5
    assert (desk.node.num_steps, len(desk.asked_views)) == (3, 2)
    desk.node.round = -1
    assert (desk.node.num_steps, desk.asked_views[2:]) == (3, [(0, frozenset())])
    for round, steps in ((6, 3), (7, 1)):
        desk.node.round = round
        assert desk.node.num_steps == steps
    pairs = Desk("ad_psgd")
    assert (pairs.node.num_steps, pairs.asked_views) == (1, [])


# waiting


async def test_a_wait_in_which_nobody_came_is_recorded() -> None:
    desk = Desk(wait=replace(ALL, deadline_ns=3 * S))
    waiting = desk.node.gather(desk.view(), 0, replace(ALL, deadline_ns=3 * S))
    await desk.during(waiting, lambda: desk.clock.move_to(3 * S))
    assert desk.notes.waits == [WaitRecord(ME, 4, 0, Kind.DATA, 0, 3 * S, 3 * S, WaitEnd.DEADLINE, None, (0, 1, 3, 4))]


async def test_a_wait_for_what_was_there_is_not_recorded_though_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, times = Desk(), count()
    monkeypatch.setattr(desk.clock, "now_ns", lambda: next(times))
    desk.arrive(0, 1, 3, 4)
    assert len(await desk.during(desk.node.gather(desk.view(), 0, ALL))) == 4
    assert desk.notes.waits == []


async def test_a_wait_for_what_was_there_or_that_took_no_time_is_not_recorded() -> None:
    desk = Desk()
    desk.arrive(0, 1, 3, 4)
    await desk.during(desk.node.gather(desk.view(), 0, ALL))
    await desk.during(desk.node.gather(desk.view(5), 0, ALL), lambda: desk.arrive(0, 1, 3, 4, round=5))
    assert (desk.notes.waits, desk.notes.events) == ([], [])
    late = lambda: setattr(desk.clock, "ns", S)  # noqa: E731
    await desk.during(desk.node.gather(desk.view(6), 0, ALL), late, lambda: desk.arrive(0, 1, 3, 4, round=6))
    assert desk.notes.waits == [WaitRecord(ME, 6, 0, Kind.DATA, 0, S, None, WaitEnd.CAME, 0, ())]


async def test_of_a_wait_whose_late_ones_are_asked_no_deadline_is_recorded() -> None:
    auto = WaitPolicy()
    desk = Desk(wait=auto, can_ask=lambda peers: True)
    late = lambda: setattr(desk.clock, "ns", S)  # noqa: E731
    await desk.during(desk.node.gather(desk.view(), 0, auto), late, lambda: desk.arrive(0, 1, 3, 4))
    alone = Desk(wait=auto)
    late = lambda: setattr(alone.clock, "ns", S)  # noqa: E731
    await alone.during(alone.node.gather(alone.view(), 0, auto), late, lambda: alone.arrive(0, 1, 3, 4))
    assert [wait.deadline_ns for wait in (*desk.notes.waits, *alone.notes.waits)] == [None, 4 * S]


async def test_a_node_that_goes_on_where_others_are_waits_for_nobody_before() -> None:
    desk = Desk(catch_up=6)
    inbox = await desk.during(desk.node.gather(desk.view(), 0, ALL))
    assert inbox.missing == (0, 1, 3, 4)
    desk.node.round = 6
    task = asyncio.create_task(desk.node.gather(desk.view(6), 0, ALL))
    await settle()
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("announces", "sources", "awaited"), [(True, None, {0, 3}), (False, None, None), (True, (1,), {1})]
)
async def test_where_nobody_knows_who_sends_those_that_may_are_awaited_if_all_are_told(
    announces: bool, sources: tuple[int, ...] | None, awaited: set[int] | None
) -> None:
    desk = Desk()
    waiting = desk.node.gather(desk.view(**UNKNOWN), 0, replace(ALL, announce=announces), sources)
    task = asyncio.create_task(waiting)
    await settle()
    assert desk.node.waits.current is not None
    assert desk.node.waits.current.sources == awaited
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(("lag", "taken"), [(None, [4, 5]), (0, [4]), (1, [3, 4]), (5, [3, 4])])
async def test_what_is_collected_is_what_came_up_to_this_round_or_in_the_end_all(
    lag: int | None, taken: list[int]
) -> None:
    desk = Desk()
    for round in (3, 4, 5):
        desk.arrive(0, 1, 3, 4, round=round)
    inbox = await desk.during(desk.node.collect(desk.view(), ALL, lag))
    assert sorted({m.round for m in inbox}) == taken
    assert len(inbox) == 4 * len(taken)
    assert desk.asked_views == ([(4 - lag, frozenset())] if lag in (0, 1) else [])
    assert inbox.missing == ()


async def test_what_was_said_of_its_own_messages_comes_with_the_inbox_where_delivery_is_acknowledged() -> None:
    desk = Desk(resending=ResendPolicy())
    await desk.node.send(desk.view(), 0, {0: SHARE})
    said = Payload(meta={"taken": False, "epoch": 3})
    assert desk.node.delivery is not None
    assert deliver_one(desk.node.delivery, Message(0, ME, Kind.ACK, 0, 4, 0, 0, said)) is Fate.DELIVERED
    desk.arrive(0, 1, 3, 4)
    inbox = await desk.during(desk.node.gather(desk.view(), 0, ALL))
    assert [(each.message.dst, each.taken) for each in inbox.acknowledgements] == [(0, False)]
    assert [m.src for m in inbox] == [0, 1, 3, 4]


# computing


async def test_maths_is_done_at_once_where_vectors_are_short_and_else_by_the_worker() -> None:
    for spares, done in ((True, []), (False, ["mix"])):
        desk = Desk(spares=spares)
        assert await desk.node.do(max, 3, 4) == 4
        assert desk.works.done == done


async def test_the_message_that_mixing_stumbles_over_is_refused_and_the_rest_is_mixed() -> None:
    desk = Desk()
    inbox = Inbox([Message(src, ME, Kind.DATA, 0, 4, 0, 0, Payload(meta={"w": float(src)})) for src in (0, 1, 3)])

    def senders(given: Inbox, more: str) -> tuple[list[int], tuple[int, ...], str]:
        for message in given:
            if message.src == 1:
                raise MalformedMessage("no vector", message)
        return [m.src for m in given], given.missing, more

    assert await desk.node.do(senders, inbox, "more") == ([0, 3], (1,), "more")
    assert desk.notes.events == [(0, ME, 4, "refused", {"reason": "malformed", "what": "no vector", "src": 1})]
    for other in (None, Message(4, ME, Kind.DATA, 0, 4, 0, 0, Payload())):

        def fails(given: Inbox, other: object = other) -> None:
            raise MalformedMessage("of another", other)

        with pytest.raises(MalformedMessage, match="of another"):
            await desk.node.do(fails, inbox)
    assert len(desk.notes.events) == 1


def mistake(*given: object) -> None:
    raise RuntimeError("mine")


@pytest.mark.parametrize(
    ("weight", "added"),
    [(1.0, ""), (0.0, ""), (0.1, ""), (0.05, ", at a push-sum weight of 0.05, by which steps are divided")],
)
async def test_a_loss_that_is_not_finite_is_told_with_its_step_and_the_weight_that_made_steps_long(
    weight: float, added: str
) -> None:
    desk = Desk("sgp", push=True)
    state = desk.node.begin(desk.algorithm)
    state = state._replace(mixing=state.mixing._replace(weight=weight))
    run = desk.works.run

    async def fails(what: str, function: Callable[..., Any], *args: Any) -> Any:
        await run(what, lambda: None)
        raise NotFiniteError("the loss is nan", 3)

    desk.works.run = fails  # type: ignore[method-assign]
    with pytest.raises(NotFiniteError, match="local step 3: the loss is nan") as caught:
        await desk.node.train(state, desk.algorithm, desk.view())
    assert caught.value.__notes__ == ["node 2, round 4"]
    assert caught.value.what == "the loss is nan" + added
    event = (S, ME, 4, "not_finite", {"step": 3, "reason": "the loss is nan" + added})
    assert desk.notes.events == [event]


@pytest.mark.parametrize(
    ("error", "own", "raised"),
    [
        (RuntimeError("mine"), True, RuntimeError),
        (RuntimeError("of torch"), False, TrainingError),
        (RuntimeError("CUDA out of memory"), True, TrainingError),
        (RuntimeError("CUDA out of memory"), False, TrainingError),
        (NotFiniteError("the loss is nan", 3), True, NotFiniteError),
        (NotFiniteError("the loss is nan", 3), False, NotFiniteError),
    ],
)
async def test_a_mistake_in_a_users_own_part_is_raised_as_it_is_and_all_else_with_its_place(
    error: Exception, own: bool, raised: type[Exception]
) -> None:
    desk = Desk()
    state = desk.node.begin(desk.algorithm)

    async def fails(*given: object) -> None:
        raise error

    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(error)
    desk.works.run = fails if own else lambda *given: failed  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(raised, match=str(error)) as caught:
        await desk.node.train(state, desk.algorithm, desk.view())
    assert type(caught.value) is raised
    assert getattr(caught.value, "__notes__", []) == ([] if raised is RuntimeError else ["node 2, round 4"])
    assert [kind for *_, kind, _ in desk.notes.events] == ["not_finite"] * isinstance(error, NotFiniteError)


async def test_a_server_refines_its_model_in_the_worker_or_leaves_it() -> None:
    desk = Desk()
    state = SimpleNamespace(refine=lambda *given: given)
    assert await desk.node.refine(state, desk.algorithm, desk.view()) is state
    refining = replace(desk.algorithm, refine=object())
    found = await desk.node.refine(state, refining, desk.view())
    assert found == (refining, desk.node.task.objective, desk.view())
    assert desk.works.done == ["refine"]


async def test_own_parts_draw_by_the_node_the_round_and_what_is_done() -> None:
    desk, found = Desk(streams=STREAMS, own=True), dict[tuple[Any, ...], Any]()
    with desk.node.drawing("begin", 0):
        found[0, "begin"] = drawn()
    with desk.node.drawing("else", 4, 7):
        found[4, "else", 7] = drawn()
    steps = SimpleNamespace(num_steps=lambda round, view: found.update({(4, "<lambda>", 4): drawn()}) or 2)
    desk.node.algorithm = replace(desk.algorithm, mixing=steps)  # type: ignore[arg-type]
    assert desk.node.exchanges(desk.view()) == 2
    found[4, "drawn"] = await desk.node.do(drawn)
    found[4, "drawn", 3, 5] = await desk.node.do(drawn, 3, 5)
    found[4, "refine"] = await desk.node.refine(Mine(), desk.node.algorithm, desk.view())  # type: ignore[arg-type]
    desk.node.task.initial = lambda: found.update({(0, "begin", "of all"): drawn()}) or torch.zeros(4)  # type: ignore[method-assign]
    desk.node.algorithm = desk.algorithm
    desk.node.begin(desk.algorithm)
    assert found.pop((0, "begin", "of all")) == found[0, "begin"]
    for (round, *what), numbers in found.items():
        with seeded(STREAMS.integer("own parts", ME, round, *what), torch.device("cpu")):
            assert numbers == drawn(), what


# the end of a round


@pytest.mark.parametrize(("method", "weight"), [("dfedavg", 1.0), ("fedavg", 1.0), ("sgp", 0.5)])
def test_a_state_has_the_weight_of_its_mixing_and_a_servers_has_one(method: str, weight: float) -> None:
    desk = Desk(method, push=method == "sgp")
    mixing = SimpleNamespace(weight=0.5) if method != "dfedavg" else None
    assert desk.node.weight_of(SimpleNamespace(mixing=mixing)) == weight


@pytest.mark.parametrize(
    ("how", "mixed", "told"), [("refuse", [0, 3, 4], "refused"), ("count", [0, 1, 3, 4], "mixed_not_finite")]
)
async def test_numbers_that_are_not_finite_are_refused_or_counted_as_the_scenario_says(
    how: Any, mixed: list[int], told: str
) -> None:
    wait = replace(ALL, on_not_finite=how)
    desk = Desk(wait=wait)
    desk.arrive(0, 3, 4)
    deliver_one(desk.node.mailbox, Message(1, ME, Kind.DATA, 0, 4, 0, 0, pack(torch.tensor([nan] * 4))))
    inbox = await desk.during(desk.node.gather(desk.view(), 0, wait))
    assert [m.src for m in inbox] == mixed
    assert [(kind, details["src"]) for *_, kind, details in desk.notes.events] == [(told, 1)]
    passing = replace(ALL, on_not_finite="pass")
    desk = Desk(wait=passing)
    desk.arrive(0, 1, 3, inf=inf)
    deliver_one(desk.node.mailbox, Message(4, ME, Kind.DATA, 0, 4, 0, 0, pack(torch.tensor([inf] * 4))))
    assert len(await desk.during(desk.node.gather(desk.view(), 0, passing))) == 4
    assert desk.notes.events == []
