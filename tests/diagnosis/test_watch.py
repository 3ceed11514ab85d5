"""When to look, what is news, how accounts become a snapshot, and what ends a stall."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from wait_graphs import FLYING, fleet, is_, lost, waits

from netdfl.core.control import Again, Recover
from netdfl.core.fates import Fate
from netdfl.core.types import Kind, LogicalId, Message, MessageId, Multicast, Payload, StepId, messages_of, unicasts
from netdfl.diagnosis.account import Account, EdgeAccount, WaitAccount
from netdfl.diagnosis.assemble import DownNode, assemble
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.diagnose import diagnose
from netdfl.diagnosis.ending import is_over, unfinished
from netdfl.diagnosis.finding import Cause, by_verdict
from netdfl.diagnosis.outages import EdgeOutage, Outages
from netdfl.diagnosis.outgoing import OutgoingMessages
from netdfl.diagnosis.remedies import MOST_RESENDS, Recovery
from netdfl.diagnosis.slow import find_slow
from netdfl.diagnosis.snapshot import AwaitedFate, AwaitedMessage, NodeNow, State, WaitKind
from netdfl.diagnosis.watch import FIRST_NS, LEAST_NS, FindingHistory, Pace
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.selectors import Block
from netdfl.record.status import FleetStatus, NodeStatus, Phase
from tests.node.hand import HandClock

SECOND = 10**9


def wait(
    sources: Sequence[int] | None, *, round: int = 3, need: int = 1, what: WaitKind = WaitKind.MESSAGE
) -> WaitAccount:
    whom = None if sources is None else tuple(sources)
    return WaitAccount(
        what=what, round=round, step=0, sources=whom, need=need, have=(), left_out=(), since_ns=5, deadline_ns=None
    )


def account(node: int, state: State = State.RUNNING, *, round: int = 3, epoch: int = 0, **more: Any) -> Account:
    return Account(node=node, epoch=epoch, at_ns=SECOND, state=state, round=round, since_ns=0, **more)


def edge(
    *, flying: str | None = None, lost: int | None = None, came: bool = False, kind: Kind = Kind.DATA
) -> EdgeAccount:
    """One message of round 3: in flight, lost in the sender's epoch `lost`, or delivered."""
    key = MessageId(kind, lost or 0, StepId(3, 0), 0, 0)
    return EdgeAccount(
        sent=1,
        delivered=int(came),
        dropped={} if lost is None else {Fate.read("dropped:loss"): 1},
        in_flight=int(flying is not None),
        flying=((key, 7),) if flying is not None else (),
        last=((key, 7, 9, Fate.read("delivered")),) if came else (),
        lost=() if lost is None else ((key, 7, None, Fate.read("dropped:loss")),),
    )


def fate_of(giver: Account | None) -> AwaitedFate:
    accounts = {0: account(0, State.WAITING, wait=wait([1]))} | ({} if giver is None else {1: giver})
    gone = {1: DownNode(State.CRASHED, 3, 0)} if giver is None else {}
    now = assemble(SECOND, accounts, gone, Outages([])).nodes[0].wait
    assert now is not None
    return now.awaited[1].fate


@pytest.mark.parametrize(
    ("giver", "fate"),
    [
        (account(1), AwaitedFate.UNSENT),
        (account(1, round=4), AwaitedFate.NEVER),
        (account(1, State.FINISHED), AwaitedFate.NEVER),
        (account(1, edges={0: edge(flying="yes")}), AwaitedFate.IN_FLIGHT),
        (account(1, round=4, edges={0: edge(came=True)}), AwaitedFate.IN_FLIGHT),
        (account(1, edges={0: edge(lost=0)}), AwaitedFate.LOST),
        (account(1, epoch=1, edges={0: edge(lost=0)}), AwaitedFate.UNSENT),
        (account(1, epoch=1, round=4, edges={0: edge(lost=0)}), AwaitedFate.LOST),
        (account(1, epoch=1, round=4), AwaitedFate.MISSED),
        (None, AwaitedFate.UNSENT),
    ],
    ids=[
        "not yet",
        "past",
        "finished",
        "flying",
        "just came",
        "lost",
        "sends again after its restart",
        "lost before its restart",
        "not sent before its restart",
        "crashed",
    ],
)
def test_the_fate_of_an_awaited_message(giver: Account | None, fate: AwaitedFate) -> None:
    assert fate_of(giver) is fate


def test_a_lost_message_that_its_sender_will_send_again_holds_nobody_for_good() -> None:
    giver = account(1, edges={0: edge(lost=0)})
    accounts = {0: account(0, State.WAITING, wait=wait([1]))}
    for again, stuck in ((None, [0]), ((0, 3), []), ((0, 4), [0]), ((2, 3), [0])):
        sent = () if again is None else ((again[0], LogicalId(Kind.DATA, StepId(again[1], 0))),)
        snapshot = assemble(SECOND, accounts | {1: replace(giver, again=sent)}, {}, Outages([]))
        assert [root for found in find_stuck(snapshot) for root in found.roots] == stuck


@pytest.mark.parametrize(
    ("giver", "asked", "fate"),
    [
        (account(1, serves=True), {}, AwaitedFate.IN_FLIGHT),
        (account(1, State.WAITING, wait=wait([0])), {}, AwaitedFate.UNSENT),
        (account(1, edges={0: edge(lost=0, kind=Kind.REPLY)}), {}, AwaitedFate.LOST),
        (account(1), {1: edge(lost=0, kind=Kind.REQUEST)}, AwaitedFate.LOST),
        (account(1), {1: edge(came=True, kind=Kind.REQUEST)}, AwaitedFate.UNSENT),
        (account(1), {1: edge(flying="yes", kind=Kind.REQUEST)}, AwaitedFate.IN_FLIGHT),
    ],
    ids=[
        "who serves answers",
        "who asks itself does not",
        "reply lost",
        "request lost",
        "request kept",
        "request flying",
    ],
)
def test_the_fate_of_a_reply(giver: Account, asked: dict[int, EdgeAccount], fate: AwaitedFate) -> None:
    asking = account(0, State.WAITING, wait=wait([1], what=WaitKind.REPLY), edges=asked)
    now = assemble(SECOND, {0: asking, 1: giver}, {}, Outages([])).nodes[0].wait
    assert now is not None
    assert now.awaited[1].fate is fate


def test_an_account_survives_json() -> None:
    own = account(1, State.WAITING, wait=wait([0, 2]), edges={0: edge(lost=0), 2: edge(flying="yes")}, stack="here")
    read = Account.from_json(json.loads(json.dumps(own.to_json())))
    accounts = {0: account(0, State.WAITING, wait=wait([1]))}
    snapshots = [assemble(SECOND, accounts | {1: each, 2: account(2)}, {}, Outages([])) for each in (own, read)]
    assert snapshots[0] == snapshots[1]
    assert json.dumps(read.to_json()) == json.dumps(own.to_json())


def test_where_nobody_knows_the_senders_any_node_may_end_the_wait() -> None:
    accounts = {0: account(0, State.WAITING, wait=wait(None)), 1: account(1), 2: account(2)}
    now = assemble(SECOND, accounts, {}, Outages([])).nodes[0].wait
    assert now is not None
    assert set(now.awaited) == {1, 2}


def cut(at_ns: int, state: str | None, cause: int = 0) -> CompiledEvent:
    blocks = (Block(frozenset([1]), frozenset([0])),)
    action, changes = ("unset", {}) if state is None else ("set", {"state": state})
    return CompiledEvent(action, 0, at_ns=at_ns, cause=cause, blocks=blocks, parameters=changes)


def test_outages_tell_when_a_link_heals() -> None:
    outages = Outages([cut(10, "down_drop"), cut(30, "down_hold", 1), cut(40, None), cut(50, None, 1)])
    states = [outages.edge((1, 0), at_ns) for at_ns in (5, 10, 35, 45, 50)]
    assert states == [EdgeOutage(), *(EdgeOutage(False, 50, hold, 0) for hold in (False, False, True)), EdgeOutage()]
    assert outages.edge((0, 1), 35) == EdgeOutage()
    assert Outages([cut(10, "down_hold")]).edge((1, 0), 20) == EdgeOutage(False, None, True, 0)


def test_pace_follows_the_median_node() -> None:
    pace = Pace(range(3))
    assert pace.patience_ns == FIRST_NS
    for round in range(1, 11):
        for node in (0, 1):
            pace.at(node, round, round * SECOND)
    assert (pace.round_ns, pace.patience_ns) == (SECOND, 10 * SECOND)
    assert not pace.quiet(9 * SECOND, [0, 1, 2])
    assert pace.quiet(10 * SECOND, [0, 1, 2])
    assert not pace.quiet(10 * SECOND, [0, 1])
    assert pace.quiet(11 * SECOND, [0], LEAST_NS)


def test_in_a_first_round_of_hours_looks_become_rare() -> None:
    pace, looks = Pace(range(2)), [pace_look := 0]
    while pace_look < 5 * 3600 * SECOND:
        pace_look = pace.next_look_ns(pace_look)
        looks.append(pace_look)
    assert looks[1:16] == [2 * SECOND * n for n in range(1, 16)]
    assert len(looks) < 40
    pace.at(0, 1, pace_look)
    assert pace.next_look_ns(pace_look) == pace_look + pace.look_ns


def test_one_long_stall_makes_nobody_patient() -> None:
    pace = Pace(range(2))
    for round in range(1, 6):
        for node in (0, 1):
            pace.at(node, round, round * SECOND // 10 + (10 * SECOND if round > 2 else 0))
    assert (pace.round_ns, pace.patience_ns) == (SECOND // 10, LEAST_NS)


def test_rounds_that_something_held_up_are_no_pace() -> None:
    pace = Pace(range(2))
    for round in range(1, 30):
        pace.at(0, round, round * SECOND // 10)
        pace.stalled([1])
        pace.at(1, round, round * 100 * SECOND)
    assert (pace.round_ns, pace.patience_ns) == (SECOND // 10, LEAST_NS)
    pace.at(1, 30, 2902 * SECOND)  # the round after the last of them was held up by nothing
    assert pace.round_ns == 2 * SECOND


def test_rounds_that_a_node_skips_when_it_returns_are_no_pace() -> None:
    pace = Pace([0])
    for round, at_ns in ((1, 1), (2, 2), (9, 3), (4, 4), (5, 5)):
        pace.at(0, round, at_ns * SECOND)
    assert pace.round_ns == SECOND


def test_two_stalls_of_one_look_with_the_same_cause_and_culprit_are_two() -> None:
    """Node 1's messages to 0 and to 2 are both on their way, and stay so while the one to 3 comes to be missed."""
    flying = fleet(waits(0, {1: FLYING}), waits(2, {1: FLYING}), is_(1, State.RUNNING), is_(3, State.RUNNING))
    more = fleet(*(waits(i, {1: FLYING}) for i in (0, 2, 3)), is_(1, State.RUNNING))
    watch = FindingHistory()
    assert [f.roots for f in watch.take(find_slow(flying, (), 0))] == [(0,), (2,)]
    assert [f.roots for f in watch.findings] == [(0,), (2,)]
    assert [f.roots for f in watch.take(reversed(find_slow(more, (), 0)))] == [(3,)]
    assert sorted(f.roots for f in watch.open) == [(0,), (2,), (3,)]
    assert watch.closed == []


def test_a_stall_that_grows_or_passes_to_other_waiters_stays_one() -> None:
    watch = FindingHistory()
    for waiters in ((0,), (0, 2), (2,), (3,)):
        nodes = [waits(node, [1]) for node in waiters]
        watch.take(find_slow(fleet(*nodes, is_(1, State.RUNNING), at_ns=4 * SECOND), (), SECOND))
    assert [(f.roots, f.over) for f in watch.findings] == [((3,), False)]


def test_a_finding_is_news_once_and_over_when_it_is_gone() -> None:
    stuck = fleet(waits(0, {1: lost(1, 0)}), is_(1, State.RUNNING))
    (found,) = find_stuck(stuck)
    watch = FindingHistory()
    assert watch.take([replace(found, suspected=True)]) == [replace(found, suspected=True)]
    assert watch.take([found]) == [found]
    assert watch.take([replace(found, behind=(4,), found_ns=9)]) == []
    (kept,) = watch.findings
    assert (kept.behind, kept.found_ns, kept.over) == ((4,), found.found_ns, False)
    assert watch.take([]) == []
    assert [each.over for each in watch.findings] == [True]
    assert [len(by_verdict(watch.findings)[name]) for name in ("deadlocks", "stalls")] == [0, 1]


def test_a_stall_whose_culprit_is_back_and_held_up_itself_is_over() -> None:
    """Node 2 was down; since its return it lacks what was sent to it meanwhile."""
    waiter, down = waits(0, [2]), is_(2, State.CRASHED, back_ns=60 * SECOND)
    watch = FindingHistory()
    watch.take(find_slow(fleet(waiter, down, at_ns=40 * SECOND), (), SECOND))
    watch.take(find_stuck(fleet(waiter, waits(2, {1: lost(1, 2)}), is_(1, State.RUNNING))), lambda finding: True)
    assert sorted((each.roots, each.permanent, each.over) for each in watch.findings) == [
        ((0,), False, True),
        ((2,), True, False),
    ]


def test_what_was_only_suspected_leaves_nothing_behind() -> None:
    (found,) = find_stuck(fleet(waits(0, [1]), waits(1, [0])))
    watch = FindingHistory()
    watch.take([replace(found, suspected=True)])
    watch.take([])
    assert watch.findings == []


def test_a_run_is_over_when_every_running_node_is_held_for_good() -> None:
    snapshot = fleet(waits(0, [1]), waits(1, [0]), waits(2, [1]), is_(3, State.RUNNING))
    (found,) = find_stuck(snapshot)
    assert is_over([found], snapshot, [0, 1, 2])
    assert not is_over([found], snapshot, [0, 1, 2, 3])
    assert not is_over([replace(found, suspected=True)], snapshot, [0, 1, 2])
    due, gone = (is_(4, State.CRASHED, back_ns=back_ns) for back_ns in (SECOND, None))
    for other, over in ((due, False), (gone, True)):
        assert is_over([found], replace(snapshot, nodes={**snapshot.nodes, 4: other}), [0, 1, 2]) is over


def test_a_run_in_which_no_node_runs_is_not_over_by_that_as_one_may_return() -> None:
    snapshot = fleet(waits(0, [1]), waits(1, [0]))
    assert not is_over([], snapshot, [])
    assert not is_over(find_stuck(snapshot), snapshot, [])


def test_a_run_is_over_when_clients_wait_in_vain_for_a_server_that_has_finished() -> None:
    def client(fate: AwaitedFate = AwaitedFate.LOST, deadline_ns: int | None = None, **more: Any) -> NodeNow:
        return replace(waits(0, {1: AwaitedMessage(fate)}, essential=True, deadline_ns=deadline_ns), **more)

    done, paused = is_(1, State.FINISHED), is_(2, State.PAUSED)
    assert is_over([], fleet(client(), done), [0])
    assert is_over([], fleet(client(), done, paused), [0, 2])
    for more in (client(early=1), client(deadline_ns=9 * SECOND), client(AwaitedFate.IN_FLIGHT), is_(0, State.RUNNING)):
        assert not is_over([], fleet(more, done), [0])
    assert not is_over([], fleet(client(), is_(1, State.RUNNING)), [0])
    assert not is_over([], fleet(client(), done, is_(2, State.PAUSED, back_ns=SECOND)), [0, 2])
    assert not is_over([], fleet(client(), done, is_(2, State.CRASHED, back_ns=SECOND)), [0])


def test_a_process_that_counts_as_stopped_holds_its_waiters_for_good() -> None:
    stopped = is_(2, State.STOPPED, since_ns=0)
    (found,) = diagnose(fleet(waits(1, [2]), waits(3, [2]), stopped, at_ns=61 * SECOND), patience_ns=SECOND)
    assert (found.cause, found.roots, found.culprits, found.permanent) == (Cause.BLOCKED_LOOP, (1, 3), (2,), True)
    assert "whose event loop has not answered for 61 s" in found.text
    blocked = is_(2, State.BLOCKED, since_ns=0)
    (found,) = diagnose(fleet(waits(1, [2]), blocked, at_ns=2 * SECOND), patience_ns=SECOND)
    assert not found.permanent


def test_who_should_have_finished_is_named_once() -> None:
    status = FleetStatus("s", "simulated", "fedavg", 10)
    phases = (Phase.RUNNING, Phase.RUNNING, Phase.FINISHED, Phase.CRASHED, Phase.CRASHED)
    status.nodes = {node: NodeStatus(node, phase=phase, round=3) for node, phase in enumerate(phases)}
    nodes = (is_(0, State.RUNNING, round=3), is_(1, State.PAUSED, round=2), *(is_(n, State.CRASHED) for n in (3, 4)))
    assert unfinished(status, 4, (), fleet(*nodes, is_(2, State.FINISHED))) == [
        "node 1 is paused and never resumed, in round 2 of 10",
        "node 0 had not finished when the run ended: round 3 of 10",
        "node 4, the server, crashed in round 3 of 10 and did not return: clients had no rounds after that",
    ]
    (found,) = find_stuck(fleet(waits(0, [4]), waits(1, [4]), is_(4, State.CRASHED)))
    assert unfinished(status, 4, [found], fleet(*nodes)) == []
    assert unfinished(status, None) == []


def test_skip_leaves_the_culprits_out_and_stop_does_nothing() -> None:
    snapshot = fleet(waits(0, {1: lost(1, 0)}, round=7), is_(1, State.RUNNING))
    (found,) = find_stuck(snapshot)
    assert Recovery("skip", lambda *sent: True).orders(found, snapshot) == [(0, Recover(skip=(1,)))]
    assert Recovery("stop", lambda *sent: True).orders(found, snapshot) == []
    assert Recovery("skip", lambda *sent: True).orders(replace(found, suspected=True), snapshot) == []


def test_resend_is_bounded_and_needs_a_message_that_is_still_kept() -> None:
    snapshot = fleet(waits(0, {1: lost(1, 0)}, round=7), is_(1, State.RUNNING))
    (found,) = find_stuck(snapshot)
    again = Recovery("resend", lambda *sent: True)
    steps = [again.orders(found, snapshot) for _ in range(MOST_RESENDS + 1)]
    assert steps == [[(1, Recover(again=(Again(0, 7, 0, Kind.DATA),)))]] * MOST_RESENDS + [[]]
    assert Recovery("resend", lambda *sent: False).orders(found, snapshot) == []
    knot = fleet(waits(0, [1]), waits(1, [0]))
    assert find_stuck(knot)[0].cause is Cause.DEADLOCK
    assert again.orders(find_stuck(knot)[0], knot) == []


@pytest.mark.parametrize(("edge", "kind"), [((1, 0), Kind.REPLY), ((0, 1), Kind.REQUEST)])
def test_of_an_exchange_what_was_lost_is_sent_again_by_who_sent_it(edge: tuple[int, int], kind: Kind) -> None:
    snapshot = fleet(waits(0, {1: lost(*edge)}, round=7, what=WaitKind.REPLY), is_(1, State.RUNNING))
    (found,) = find_stuck(snapshot)
    expected = [(edge[0], Recover(again=(Again(edge[1], 7, 0, kind),)))]
    assert Recovery("resend", lambda *sent: True).orders(found, snapshot) == expected


class Post:
    """A transport that notes what it is given."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.while_sending: list[int] = []
        self.outgoing: OutgoingMessages | None = None

    def attach(self, sink: Any) -> None:
        raise NotImplementedError

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        self.sent += messages_of(multicasts)
        assert self.outgoing is not None
        self.while_sending.append(len(self.outgoing.held_up[0]))

    async def aclose(self) -> None:
        raise NotImplementedError


class Noon:
    """A clock that stands still."""

    def now_ns(self) -> int:
        return 12


async def test_outgoing_shows_what_it_is_held_up_with_and_sends_again_under_the_next_attempt() -> None:
    post = Post()
    outgoing = post.outgoing = OutgoingMessages(post, Noon(), keep=3)  # type: ignore[arg-type]
    messages = [Message(0, dst, Kind.DATA, 0, 4, 0, 0, Payload()) for dst in range(1, 5)]
    await outgoing.send(unicasts(messages))
    assert post.while_sending == [4]
    assert outgoing.held_up == ((), 0)
    assert [outgoing.can_send_again((dst, LogicalId(Kind.DATA, StepId(4, 0)))) for dst in range(1, 5)] == [
        False,
        True,
        True,
        True,
    ]
    for _ in range(2):
        await outgoing.send_again((3, LogicalId(Kind.DATA, StepId(4, 0))))
    assert [(m.dst, m.attempt) for m in post.sent[4:]] == [(3, 1), (3, 2)]
    assert post.sent[4].payload is messages[2].payload
    assert Counter(m.kind for m in post.sent) == {Kind.DATA: 6}


class Narrow(Post):
    """A transport that lets a question through and holds all else up."""

    def __init__(self) -> None:
        super().__init__()
        self.room = asyncio.Event()

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        if multicasts[0].id.kind is not Kind.QUERY:
            await self.room.wait()


async def test_who_is_held_up_is_so_still_when_a_question_has_left_meanwhile() -> None:
    """A question to somebody else leaves at once: a node that could not send would be taken for one at work."""
    clock, post = HandClock(), Narrow()
    outgoing = OutgoingMessages(post, clock)  # type: ignore[arg-type]
    first, later, question = (
        unicasts([Message(0, 1, kind, 0, round, 0, 0, Payload())])
        for kind, round in ((Kind.DATA, 4), (Kind.NOTICE, 5), (Kind.QUERY, 5))
    )
    held = []
    for clock.ns, multicasts in ((10, first), (20, later), (30, question)):
        held.append(asyncio.create_task(outgoing.send(multicasts)))
        await asyncio.sleep(0)
    assert held[2].done()
    assert outgoing.held_up == (first, 10)
    held[0].cancel()
    await asyncio.sleep(0)
    assert outgoing.held_up == (later, 20)
    post.room.set()
    await held[1]
    assert outgoing.held_up == ((), 0)


async def test_a_request_and_a_reply_of_one_round_to_one_node_are_kept_apart_and_heartbeats_not_at_all() -> None:
    post = Post()
    outgoing = post.outgoing = OutgoingMessages(post, Noon(), keep=3)  # type: ignore[arg-type]
    messages = [Message(0, 1, kind, 0, 4, 0, 0, Payload()) for kind in (Kind.REQUEST, Kind.REPLY, Kind.HEARTBEAT)]
    await outgoing.send(unicasts(messages))
    assert [outgoing.can_send_again((1, m.logical)) for m in messages] == [True, True, False]
    await outgoing.send_again((1, LogicalId(Kind.REPLY, StepId(4, 0))))
    assert (post.sent[-1].kind, post.sent[-1].attempt) == (Kind.REPLY, 1)
