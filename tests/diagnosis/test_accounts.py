"""What a node says of itself when it is probed, all of it: its state, its wait, what it keeps, its edges, its stack."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.core.fates import Fate
from netdfl.core.outcome import outcome_of
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, LogicalId, Message, MessageId, Multicast, Payload, StepId, unicasts
from netdfl.diagnosis.account import (
    Account,
    EdgeAccount,
    WaitAccount,
    WaitInBrief,
    give_account,
    stack_of,
    wait_in_brief,
)
from netdfl.diagnosis.outgoing import OutgoingMessages
from netdfl.diagnosis.snapshot import State, WaitKind
from netdfl.node.delivery import ResendPolicy
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.runtime import Node
from netdfl.node.waits import OpenWait
from netdfl.testing.loopback import InlineWorker, LastState, SilentRecorder
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.catalog import quadratic
from netdfl.transport.base import deliver_one
from tests.node.hand import HandClock

ME, NOW, STREAMS = 2, 900, Streams(3)
NETWORK = Network(TOPOLOGIES["full"](6, STREAMS))
RUNNING = Account(
    node=ME,
    epoch=3,
    born_ns=40,
    at_ns=NOW,
    state=State.RUNNING,
    round=4,
    since_ns=700,
    next=StepId(4, 2),
    step=1,
    steps=3,
)


class Nowhere:
    """A transport that delivers nothing."""

    def attach(self, sink: object) -> None: ...

    async def send(self, multicasts: Sequence[Multicast]) -> None: ...

    async def aclose(self) -> None: ...


def node(*, resending: ResendPolicy | None = None) -> Node:
    """Node 2 of six in the second of three steps of round 4, in its fourth life; it went on at 700."""
    clock, silent = HandClock(), SilentRecorder()
    clock.ns = NOW
    made = Node(
        id=ME,
        algorithm=ALGORITHMS["dfedsam_mgs"].build(Exchange(), gossip_steps=3),
        task=quadratic(ME, STREAMS, dim=4),
        view_of=lambda round, gone: NETWORK.view(ME, round),
        num_rounds=7,
        transport=Nowhere(),
        clock=clock,
        worker=InlineWorker(),
        recorder=silent,
        ledger=NodeLedger(ME, clock, silent),
        mailbox=Mailbox(keep_late=False, bound=3),
        hooks=LastState(),
        epoch=3,
        resending=resending,
    )
    made.round, made.born_ns, made.next_step, made.waits.step = 4, 40, StepId(4, 2), 1
    made.waits.went_on_ns = 700
    return made


def message(dst: int, kind: Kind = Kind.DATA, *, src: int = ME, round: int = 4, step: int = 1) -> Message:
    return Message(src, dst, kind, 3, round, step, 0, Payload())


def account(its: Node, sending: Sequence[Message] = (), **more: Any) -> Account:
    return give_account(its, HeldUp(its, sending), **more)


class HeldUp(OutgoingMessages):
    """One whose sends have waited since 650."""

    def __init__(self, its: Node, sending: Sequence[Message]) -> None:
        super().__init__(its.transport, its.clock)
        self.messages = sending

    @property
    def held_up(self) -> tuple[Sequence[Multicast], int]:
        return unicasts(self.messages), 650


def awaits(its: Node, **more: Any) -> None:
    """Three of four nodes are awaited, of which one has come and one is gone."""
    open_ = {"round": 4, "step": 1, "sources": frozenset({0, 1, 3, 5}), "need": 3, "since_ns": 500, "have": {3}}
    its.waits.gone = {5}
    its.waits.current = OpenWait(**{"deadline_ns": 9_000, **open_, **more})


WAIT = WaitAccount(
    what=WaitKind.MESSAGE,
    round=4,
    step=1,
    sources=(0, 1, 3, 5),
    need=3,
    have=(3,),
    left_out=(5,),
    since_ns=500,
    deadline_ns=9_000,
)


def test_a_node_at_work_says_where_it_is_and_since_when() -> None:
    assert account(node()) == RUNNING


def test_a_node_that_has_not_begun_is_in_round_0() -> None:
    its = node()
    its.round = -1
    assert account(its).round == 0


@pytest.mark.parametrize(
    ("flags", "state"),
    [
        ({"finished": True}, State.FINISHED),
        ({"paused": True}, State.PAUSED),
        ({"finished": True, "paused": True}, State.FINISHED),
    ],
)
def test_who_has_finished_or_is_paused_waits_for_nothing(flags: dict[str, bool], state: State) -> None:
    its = node()
    awaits(its)
    its.models.since_ns = 300
    found = account(its, [message(1)], **flags)
    assert (found.state, found.wait, found.since_ns) == (state, None, 300)


def test_who_fetches_a_model_does_so_since_it_asked() -> None:
    its = node()
    its.models.since_ns = 300
    assert account(its) == replace(RUNNING, state=State.FETCHING, since_ns=300)


def test_a_wait_is_told_with_all_that_it_goes_by() -> None:
    its = node()
    awaits(its)
    expected = replace(RUNNING, state=State.WAITING, since_ns=500, wait=WAIT, gone=(5,), early=-1)
    assert account(its) == expected
    its.models.since_ns = 300
    assert account(its) == expected, "a wait is told before a model that is asked for"


@pytest.mark.parametrize(
    ("more", "changes"),
    [
        ({"silent": frozenset({0})}, {"left_out": (0, 5)}),
        ({"sources": None}, {"sources": None}),
        ({"sources": frozenset()}, {"sources": ()}),
        ({"deadline_ns": None}, {"deadline_ns": None}),
        ({"kind": Kind.REPLY}, {"what": WaitKind.REPLY}),
        ({"have": {3, 1}}, {"have": (1, 3)}),
        ({"need": 2, "round": 3, "step": 0}, {"need": 2, "round": 3, "step": 0}),
    ],
)
def test_each_part_of_a_wait_is_the_nodes_own(more: dict[str, Any], changes: dict[str, Any]) -> None:
    its = node()
    awaits(its, **more)
    assert account(its).wait == replace(WAIT, **changes)


def test_who_cannot_do_without_those_it_awaits_leaves_out_only_the_silent() -> None:
    its = node()
    its.waits.policy = WaitPolicy(essential=True)
    awaits(its, silent=frozenset({1}))
    assert account(its).wait == replace(WAIT, left_out=(1,), essential=True)
    its.waits.policy = WaitPolicy(cumulative=True)
    assert account(its).wait == replace(WAIT, left_out=(1, 5), cumulative=True)


class Doubts:
    """A failure detector that may call some gone, for waits since a time of theirs."""

    def __init__(self, **of: int) -> None:
        self.of = {int(name[1:]): since_ns for name, since_ns in of.items()}

    def may_call_gone(self, peer: int, since_ns: int) -> bool:
        return self.of.get(peer) == since_ns


def test_undecided_are_those_that_are_missing_and_may_yet_be_called_gone() -> None:
    its: Any = node()
    its.heartbeats = Doubts(n1=500, n0=400, n3=500, n4=500)
    awaits(its)
    assert account(its).wait == replace(WAIT, undecided=(1,))
    its.waits.policy = WaitPolicy(essential=True)
    assert account(its).wait == replace(WAIT, left_out=(), essential=True)


def test_early_is_what_the_mailbox_keeps_beside_what_has_come() -> None:
    its = node()
    for src in (0, 3):
        deliver_one(its.mailbox, message(ME, src=src))
    assert (account(its).early, account(its).mailbox_full) == (2, False)
    awaits(its)
    assert account(its).early == 1
    deliver_one(its.mailbox, message(ME, src=4))
    assert (account(its).early, account(its).mailbox_full) == (2, True)


# sends that last


def sent(its: Node, dst: int, times: int) -> None:
    for step in range(times):
        its.ledger.sent(Multicast.of(message(dst, step=step)), 10, 100 + step)


def room(at: int) -> WaitAccount:
    return WaitAccount(what=WaitKind.ROOM, round=4, step=1, sources=(at,), need=1, since_ns=650)


@pytest.mark.parametrize(
    ("under_way", "fullest"), [({1: 1, 4: 3, 5: 2}, 4), ({4: 2, 1: 2, 5: 1}, 1), ({0: 9, 4: 1, 5: 1}, 4)]
)
def test_a_send_that_lasts_waits_for_room_where_most_is_under_way(under_way: dict[int, int], fullest: int) -> None:
    its = node()
    for dst, times in under_way.items():
        sent(its, dst, times)
    found = account(its, [message(1), message(5, round=5), message(4)])
    assert (found.state, found.since_ns, found.wait) == (State.SENDING, 650, room(fullest))


def test_a_send_that_nothing_is_known_of_is_no_wait_and_a_wait_for_messages_comes_first() -> None:
    its = node()
    assert account(its, [message(1)]) == RUNNING
    sent(its, 1, 1)
    awaits(its)
    assert account(its, [message(1)]).wait == WAIT


# beside its wait


async def test_what_is_sent_again_is_of_this_life_or_where_it_is_over_of_the_next() -> None:
    its = node(resending=ResendPolicy(timeout_ns=100, attempts=0))
    given_up, due = (5, LogicalId(Kind.DATA, StepId(4, 0))), (1, LogicalId(Kind.DATA, StepId(4, 1)))
    await its.transport.send(unicasts([message(5, step=0)]))
    assert account(its).again == (given_up,)
    cast("HandClock", its.clock).move_to(NOW + 100)
    await its.transport.send(unicasts([message(1)]))
    assert account(its).again == (due,)
    assert account(its, ended=True).again == (given_up, due)


def test_whom_it_serves_and_left_out_and_calls_gone_is_told() -> None:
    its = node()
    its.requests.deliver(message(ME, Kind.REQUEST, src=1, step=0))
    its.waits.gone, its.ledger.left_out = {5, 1}, {5: ((2, 4),)}
    expected = replace(RUNNING, asked=((1, 4, 0),), gone=(1, 5), left_out={5: ((2, 4),)})
    assert account(its, stack="here") == replace(expected, stack="here")
    its.requests.serve(lambda request: None)
    assert account(its) == replace(expected, serves=True, asked=())


def test_an_edge_is_told_with_what_is_in_flight_lost_and_was_ever_sent_the_earliest_life_first() -> None:
    its = node()
    loss = Fate.read("dropped:loss")
    data, later = message(1), message(1, round=5, step=0)
    for each, at_ns in ((data, 100), (later, 200), (later._replace(epoch=4), 300), (later._replace(step=1), 400)):
        its.ledger.sent(Multicast.of(each), 10, at_ns)
    its.ledger.settled(outcome_of(data, 10, 100, None, loss), (data.payload,))
    its.ledger.settled(outcome_of(later, 10, 200, 250, Fate.DELIVERED), (later.payload,))
    gone = (data.id, 100, None, loss)
    came = (later.id, 200, 250, Fate.DELIVERED)
    flying = ((later._replace(epoch=4).id, 300), (later._replace(step=1).id, 400))
    slots = (("data", 3, (((4, 1), (5, 1)),)), ("data", 4, (((5, 0), (5, 0)),)))
    expected = EdgeAccount(
        sent=4,
        delivered=1,
        dropped={loss: 1},
        in_flight=2,
        flying=flying,
        last=(gone, came),
        lost=(gone,),
        slots=slots,
    )
    assert account(its).edges == {1: expected}
    better = ((message(1, round=9).id, 1),)
    assert account(its, flying={1: better, 4: flying}).edges == {1: replace(expected, flying=better)}
    assert account(its, flying={}).edges == {1: replace(expected, flying=())}


@pytest.mark.parametrize(
    ("kind", "epoch", "slot", "was"),
    [
        *((Kind.DATA, 3, slot, True) for slot in ((4, 1), (5, 0), (5, 1))),
        *((Kind.DATA, 3, slot, False) for slot in ((4, 0), (5, 2))),
        (Kind.DATA, 3, (8, 0), True),
        (Kind.DATA, 3, (7, 0), False),
        (Kind.DATA, 2, (4, 1), False),
        (Kind.NOTICE, 3, (4, 1), False),
        (Kind.NOTICE, 2, (6, 0), True),
    ],
)
def test_a_slot_was_sent_where_a_run_of_its_kind_and_life_holds_it(
    kind: Kind, epoch: int, slot: tuple[int, int], was: bool
) -> None:
    runs = ((StepId(4, 1), StepId(5, 1)), (StepId(8, 0), StepId(8, 0)))
    slots = (("data", 3, runs), ("notice", 2, ((StepId(6, 0), StepId(6, 0)),)))
    edge = EdgeAccount(sent=0, delivered=0, dropped={}, in_flight=0, slots=slots)
    assert edge.was_sent(LogicalId(kind, StepId(*slot)), epoch) is was


def test_who_sends_nothing_more_for_a_slot_is_past_it() -> None:
    slots = [StepId(3, 2), StepId(4, 1), StepId(4, 2), StepId(5, 0)]
    assert [RUNNING.is_past(slot) for slot in slots] == [True, True, False, False]
    assert [replace(RUNNING, next=None).is_past(slot) for slot in slots] == [True, False, False, False]
    assert all(replace(RUNNING, state=State.FINISHED).is_past(slot) for slot in slots)


def test_taken_for_gone_is_who_was_left_out_in_that_round() -> None:
    left = replace(RUNNING, left_out={5: ((2, 4), (6, 6))})
    assert [left.took_for_gone(5, round) for round in (1, 2, 4, 5, 6, 7)] == [False, True, True, False, True, False]
    assert [left.took_for_gone(1, round) for round in (-1, 0)] == [False, False]


def test_an_account_comes_back_from_json_as_it_was() -> None:
    its = node()
    awaits(its)
    sent(its, 1, 2)
    whole = account(its, stack="here")
    assert Account.from_json(whole.to_json()) == whole
    with pytest.raises(ValueError, match="state"):
        Account.from_json(whole.to_json() | {"state": "asleep"})


def test_an_account_is_read_as_netdfl_0_2_0_kept_it() -> None:
    """Ids were (kind, life, round, step, attempt), and what is sent again (destination, round, step)."""
    flying = MessageId(Kind.NOTICE, 3, StepId(4, 1), 0, 2)
    edge = EdgeAccount(sent=1, delivered=0, dropped={}, in_flight=1, flying=((flying, 70),))
    whole = replace(RUNNING, edges={1: edge}, again=((5, LogicalId(Kind.DATA, StepId(4, 1))),))
    plain = json.loads(json.dumps(whole.to_json()))
    assert Account.from_json(plain) == whole
    assert plain["again"] == [[5, ["data", [4, 1], 0]]]
    earlier = plain | {"again": [[5, 4, 1]]}
    earlier["edges"]["1"]["flying"] = [[["notice", 3, 4, 1, 2], 70]]
    assert Account.from_json(earlier) == whole


NO_IDS = [[], ["data"], ["data", 0, 4, 1], ["data", 0, 4, 1, 0, 0], ["data", 0, [4, 1], 0], None, 7, [5, None, 1]]


@pytest.mark.parametrize("id", NO_IDS)
def test_what_is_no_id_is_refused_with_its_place(id: object) -> None:
    plain = replace(RUNNING, edges={1: EdgeAccount(sent=1, delivered=0, dropped={}, in_flight=1)}).to_json()
    with pytest.raises(ValueError, match="again"):
        Account.from_json(plain | {"again": [id]})
    plain["edges"][1]["flying"] = [[id, 70]]
    with pytest.raises(ValueError, match="flying"):
        Account.from_json(plain)


def test_a_wait_in_brief_names_those_that_are_missing_and_not_gone() -> None:
    its = node()
    assert wait_in_brief(its) is None
    awaits(its)
    assert wait_in_brief(its) == WaitInBrief(4, (0, 1), 500)
    awaits(its, sources=None)
    assert wait_in_brief(its) == WaitInBrief(4, (), 500)


# where it stands


def step() -> Generator[None, None, None]:
    yield


class Suspends:
    """AwaitedMessage, it hands `None` to the loop once, from a generator in a generator."""

    def __await__(self) -> Generator[None, None, None]:
        yield from step()


async def innermost() -> None:
    await Suspends()


async def outermost() -> None:
    await innermost()


def frames(stack: str) -> list[str]:
    return [line.rpartition(" in ")[2] for line in stack.splitlines() if line.startswith("  File ")]


def test_a_stack_goes_from_the_outermost_await_to_the_innermost_each_once() -> None:
    coroutine = outermost()
    coroutine.send(None)
    said = stack_of(coroutine)
    assert frames(said) == ["outermost", "innermost", "__await__", "step"]
    assert "await innermost()" in said
    coroutine.close()
    assert stack_of(coroutine) == stack_of(None) == ""


def test_the_stack_of_a_coroutine_that_runs_is_its_own_and_not_that_of_who_runs_it() -> None:
    said: list[str] = []

    async def looks() -> None:
        said.append(stack_of(coroutine))

    coroutine = looks()
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert frames(said[0]) == ["looks"]
