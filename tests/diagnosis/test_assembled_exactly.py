"""What two or three accounts come to, all of it: nodes, waits, edges, and the fate of each awaited message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from netdfl.core.fates import Fate, FateKind, FateReason
from netdfl.core.types import Kind, LogicalId, MessageId, StepId
from netdfl.diagnosis.account import Account, EdgeAccount, WaitAccount, waits_in_vain
from netdfl.diagnosis.assemble import DownNode, assemble
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.reduce import Supply, supply
from netdfl.diagnosis.snapshot import (
    LOST_BY_RESTART,
    MOST_RESENDS,
    TAKEN_FOR_GONE,
    AwaitedFate,
    AwaitedMessage,
    EdgeNow,
    MessageNow,
    NodeNow,
    Snapshot,
    State,
    WaitKind,
    WaitNow,
)
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.selectors import Block
from netdfl.links.spec import LinkSpec

NOW, ROUND, STEP = 1000, 5, 2
SLOT = StepId(ROUND, STEP)
DATA = LogicalId(Kind.DATA, SLOT)
ALWAYS = Outages([])
LINK = (Block(frozenset([1]), frozenset([0])),)


def key(kind: Kind = Kind.DATA, *, epoch: int = 0, round: int = ROUND, step: int = STEP, attempt: int = 0) -> MessageId:
    return MessageId(kind, epoch, StepId(round, step), 0, attempt)


def edge(*settled: Any, **more: Any) -> EdgeAccount:
    lost = tuple(each for each in settled if each[3].kind is FateKind.DROPPED)
    counts: dict[str, Any] = {"sent": len(settled), "delivered": 0, "dropped": {}, "in_flight": 0}
    return EdgeAccount(**counts | {"last": settled, "lost": lost} | more)


def wait(*sources: int, what: WaitKind = WaitKind.MESSAGE, **more: Any) -> WaitAccount:
    return WaitAccount(
        **{"what": what, "round": ROUND, "step": STEP, "sources": sources, "need": 1, "since_ns": 120} | more
    )


def account(node: int, state: State = State.RUNNING, *, round: int = ROUND, **more: Any) -> Account:
    return Account(**{"node": node, "epoch": 0, "at_ns": NOW, "state": state, "round": round, "since_ns": 7} | more)


def waiter(what: WaitKind = WaitKind.MESSAGE, *, of: dict[str, Any] | None = None, **more: Any) -> Account:
    """Node 0, which waits for node 1."""
    return account(0, State.WAITING, wait=wait(1, what=what, **of or {}), **more)


def fleet(*accounts: Account, down: dict[int, DownNode] | None = None, schedule: Outages = ALWAYS) -> Snapshot:
    return assemble(NOW, {each.node: each for each in accounts}, down or {}, schedule, detector="oracle")


def fate(giver: Account | None, own: Account | None = None, **more: Any) -> AwaitedMessage:
    """What became of what node 0 awaits of node 1."""
    snapshot = fleet(own or waiter(), *([] if giver is None else [giver]), **more)
    now = snapshot.nodes[0].wait
    assert now is not None
    return now.awaited[1]


def lost(reason: str = "loss", sent_ns: int = 90, **more: Any) -> Any:
    return (key(**more), sent_ns, None, Fate.dropped(FateReason(reason)))


def arrived(how: str = "delivered", at_ns: int = 110, **more: Any) -> Any:
    return (key(**more), 100, at_ns, Fate.read(how))


LATER = ROUND + 1
DROPS, ONE_DROP = ({Fate.read("dropped:loss"): count} for count in (3, 1))
UNSENT, COMES = AwaitedMessage(), AwaitedMessage(AwaitedFate.IN_FLIGHT)
NEVER, MISSED = AwaitedMessage(AwaitedFate.NEVER), AwaitedMessage(AwaitedFate.MISSED)
LOST = AwaitedMessage(AwaitedFate.LOST, "loss", (1, 0))


@pytest.mark.parametrize(
    ("giver", "expected"),
    [
        # nothing is known of it: it is a matter of where its sender is
        (account(1), UNSENT),
        (account(1, round=ROUND - 1), UNSENT),
        (account(1, round=LATER), NEVER),
        (account(1, State.FINISHED), NEVER),
        (account(1, round=LATER, epoch=1), MISSED),
        *(
            (account(1, round=LATER, left_out={0: rounds}), replace(NEVER, reason=TAKEN_FOR_GONE))
            for rounds in (((ROUND, ROUND),), ((ROUND - 1, LATER),), ((0, ROUND), (LATER, LATER)))
        ),
        (account(1, round=LATER, left_out={0: ((0, ROUND - 1), (LATER, LATER))}), NEVER),
        (account(1, round=LATER, left_out={2: ((ROUND, ROUND),)}), NEVER),
        (account(1, round=LATER, edges={2: edge(lost())}), NEVER),
        # on its way
        (account(1, edges={0: edge(flying=((key(), 80),))}), replace(COMES, edge=(1, 0), since_ns=80)),
        (account(1, edges={0: edge(flying=((key(step=0), 80),))}), UNSENT),
        (account(1, edges={0: edge(flying=((key(round=ROUND - 1), 80),))}), UNSENT),
        (account(1, edges={0: edge(flying=((key(Kind.ACK), 80),))}), UNSENT),
        (account(1, edges={0: edge(flying=((key(Kind.NOTICE), 80),))}), replace(COMES, edge=(1, 0), since_ns=80)),
        # it came meanwhile
        *((account(1, edges={0: edge(arrived(how))}), COMES) for how in ("delivered", "late", "duplicate")),
        (account(1, edges={0: edge(arrived(step=0))}), UNSENT),
        # lost, unless a later attempt is not
        (account(1, edges={0: edge(lost())}), LOST),
        (account(1, edges={0: edge(lost("queue"))}), replace(LOST, reason="queue")),
        (account(1, edges={0: edge(lost(), arrived(attempt=1))}), COMES),
        (account(1, edges={0: edge(lost(), last=())}), LOST),
        (account(1, edges={0: edge(lost(kind=Kind.NOTICE))}), replace(LOST, notice=True)),
        (account(1, edges={0: edge(lost())}, again=((0, DATA),)), replace(LOST, resent=True)),
        (account(1, edges={0: edge(lost())}, again=((2, DATA), (0, LogicalId(Kind.DATA, StepId(ROUND, 0))))), LOST),
        (account(1, again=((0, DATA),)), replace(COMES, edge=(1, 0))),
        (account(1, again=((2, DATA),)), UNSENT),
        # in an earlier life: sent again in this one, unless it is past
        (account(1, epoch=1, edges={0: edge(lost())}), UNSENT),
        (account(1, epoch=1, edges={0: edge(lost(epoch=1))}), LOST),
        (account(1, epoch=1, round=LATER, edges={0: edge(lost())}), replace(LOST, kept=False)),
    ],
)
def test_the_fate_of_a_message_is_what_its_sender_knows(giver: Account, expected: AwaitedMessage) -> None:
    assert fate(giver) == expected


@pytest.mark.parametrize("state", [State.RUNNING, State.FINISHED])
def test_where_a_later_message_does_as_well_a_loss_is_made_good_while_its_sender_goes_on(state: State) -> None:
    own = waiter(of={"cumulative": True})
    assert fate(account(1, state, edges={0: edge(lost())}), own) == replace(LOST, replaced=state is State.RUNNING)
    assert fate(account(1, edges={0: edge(arrived())}), own) == COMES


@pytest.mark.parametrize(
    ("slots", "dropped", "epoch", "expected"),
    [
        ((("data", 0, ((SLOT, SLOT),)),), {}, 0, replace(LOST, reason="")),
        ((("data", 0, (((0, 0), (9, 0)),)),), DROPS, 0, LOST),
        ((("data", 0, (((0, 0), (9, 0)),)),), DROPS | {Fate.read("dropped:down"): 1}, 0, replace(LOST, reason="")),
        ((("notice", 0, (((0, 0), (9, 0)),)),), {}, 0, replace(LOST, reason="", notice=True)),
        ((("data", 0, (((0, 0), (ROUND, 1)), ((LATER, 0), (9, 0)))),), {}, 0, NEVER),
        ((("ack", 0, (((0, 0), (9, 0)),)),), {}, 0, NEVER),
        ((("data", 0, (((0, 0), (9, 0)),)),), {}, 1, replace(LOST, reason="", kept=False)),
        ((("data", 1, (((0, 0), (9, 0)),)),), {}, 1, replace(LOST, reason="")),
        ((("data", 2, (((0, 0), (9, 0)),)),), {}, 1, MISSED),
        (tuple(("data", life, (((0, 0), (9, 0)),)) for life in (0, 1)), {}, 1, replace(LOST, reason="")),
    ],
)
def test_what_its_sender_remembers_to_have_sent_alone_was_lost(
    slots: Any, dropped: dict[Fate, int], epoch: int, expected: AwaitedMessage
) -> None:
    giver = account(1, round=LATER, epoch=epoch, edges={0: edge(slots=slots, dropped=dropped)})
    assert fate(giver) == expected
    assert fate(replace(giver, round=ROUND)) == UNSENT


def test_what_a_restarted_receiver_does_not_have_was_taken_by_its_earlier_life() -> None:
    slots = (("data", 0, (((0, 0), (9, 0)),)),)
    giver, restarted = account(1, round=LATER, edges={0: edge(slots=slots)}), waiter(epoch=1)
    assert fate(giver, restarted) == replace(LOST, reason=LOST_BY_RESTART)
    dropped = DROPS
    assert fate(replace(giver, edges={0: edge(slots=slots, dropped=dropped)}), restarted) == LOST


@pytest.mark.parametrize(
    ("epoch", "born_ns", "taken"), [(0, 111, True), (1, 110, True), (1, 111, False), (2, 109, True)]
)
def test_what_came_before_its_receiver_was_born_is_lost(epoch: int, born_ns: int, taken: bool) -> None:
    own = waiter(epoch=epoch, born_ns=born_ns)
    forgotten = replace(LOST, reason=LOST_BY_RESTART, outage_ns=11)
    assert fate(account(1, edges={0: edge(arrived())}), own) == (COMES if taken else forgotten)


def cut(at_ns: int, state: str | None) -> CompiledEvent:
    changes = {} if state is None else {"state": state}
    return CompiledEvent("unset" if state is None else "set", 3, at_ns=at_ns, cause=3, blocks=LINK, parameters=changes)


def test_what_a_link_holds_comes_when_it_is_up() -> None:
    giver = account(1, edges={0: edge(flying=((key(), 80),))})
    hold = Outages([cut(50, "down_hold")])
    assert fate(giver, schedule=hold) == AwaitedMessage(AwaitedFate.HELD, edge=(1, 0))
    healed = Outages([cut(50, "down_hold"), cut(90, None)])
    assert fate(giver, schedule=healed) == replace(COMES, edge=(1, 0), since_ns=90)
    drops = Outages([cut(50, "down_drop")])
    assert fate(giver, schedule=drops) == replace(COMES, edge=(1, 0), since_ns=80)


@pytest.mark.parametrize(
    ("reason", "source", "event"),
    [
        ("down", 0, 0),
        ("down", 1, 1),
        ("down", 2, 2),
        ("loss", 1, 1),
        ("reset", 1, 1),
        ("queue", 1, None),
        ("scripted", 1, None),
    ],
)
def test_a_loss_is_its_entrys_where_that_was_sure_to_lose_it(reason: str, source: int, event: int | None) -> None:
    down = CompiledEvent("set", source, at_ns=50, cause=9, blocks=LINK, parameters={"state": "down_drop"})
    up = CompiledEvent("unset", source, at_ns=95, cause=9, blocks=LINK)
    giver = account(1, edges={0: edge(lost(reason))})
    assert fate(giver, schedule=Outages([down, up])) == replace(LOST, reason=reason, event=event, outage_ns=5)
    before = account(1, edges={0: edge(lost(reason, sent_ns=49))})
    assert fate(before, schedule=Outages([down, up])) == replace(LOST, reason=reason, outage_ns=46)


@pytest.mark.parametrize("reason", ["unavailable", "deadline"])
@pytest.mark.parametrize("links", [(1, 0), (0, 1)])
@pytest.mark.parametrize(
    ("down_ns", "up_ns", "by"),
    [(50, None, 3), (90, 95, 3), (90, 91, 3), (NOW, None, 3), (50, 91, 3), (50, 90, None), (NOW + 1, None, None)],
)
def test_what_a_connection_gave_up_while_its_link_was_down_is_lost_by_that_outage(
    reason: str, links: tuple[int, int], down_ns: int, up_ns: int | None, by: int | None
) -> None:
    blocks = (Block(frozenset(links[:1]), frozenset(links[1:])),)
    cut = [CompiledEvent("set", 3, at_ns=down_ns, cause=9, blocks=blocks, parameters={"state": "down_drop"})]
    cut += [] if up_ns is None else [CompiledEvent("unset", 3, at_ns=up_ns, cause=9, blocks=blocks)]
    sent = (key(), 90, None, Fate.failed(FateReason(reason)))
    found = fate(account(1, edges={0: edge(sent)}), schedule=Outages(cut))
    assert (found.reason, found.event) == (("down", by) if by is not None else (f"failed:{reason}", None))


def test_what_a_connection_gave_up_as_its_receiver_is_down_is_lost_by_no_outage() -> None:
    cut = CompiledEvent("set", 3, at_ns=50, cause=9, blocks=LINK, parameters={"state": "down_drop"})
    failed = (key(Kind.REQUEST), 90, None, Fate.failed(FateReason("unavailable")))
    asked = waiter(WaitKind.REPLY, edges={1: edge(failed)})
    schedule = Outages([cut])
    assert fate(account(1), asked, schedule=schedule).reason == "down"
    crashed = {1: DownNode(State.CRASHED, ROUND, 60)}
    assert fate(account(1), asked, schedule=schedule, down=crashed).reason == "failed:unavailable"
    unknown = (key(), 90, None, Fate.failed(FateReason("unknown")))
    assert fate(account(1, edges={0: edge(unknown)}), schedule=schedule).reason == "failed:unknown"


def test_a_message_that_is_dropped_by_name_is_lost_by_that_entry_and_in_vain_if_its_copies_are() -> None:
    def dropped(*attempts: int, first: int = 0) -> AwaitedMessage:
        named: list[dict[str, int]] = [{"attempt": each} for each in attempts] or [{}]
        drops = [CompiledEvent("drop", 4, at_round=ROUND, blocks=LINK, parameters=each) for each in named]
        return fate(account(1, edges={0: edge(lost("scripted", attempt=first))}), schedule=Outages(drops))

    expected = replace(LOST, reason="scripted", event=4)
    assert dropped() == replace(expected, in_vain=True)
    copies = range(1, MOST_RESENDS + 1)
    assert dropped(0) == dropped(0, *copies[:-1]) == expected
    assert dropped(0, *copies) == replace(expected, in_vain=True)
    assert dropped(*copies) == replace(expected, event=None, in_vain=True)
    assert dropped(3, *(3 + each for each in copies), first=3) == replace(expected, in_vain=True)


def test_links_that_lose_everything_are_no_entry() -> None:
    always = Outages([], lambda edge: LinkSpec(loss=1))
    assert fate(account(1, edges={0: edge(lost())}), schedule=always) == replace(LOST, in_vain=True)


@pytest.mark.parametrize(
    ("later", "good"),
    [
        ([], True),
        ([CompiledEvent("set", 4, at_ns=NOW + 9, blocks=LINK, parameters={"state": "down_drop"})], False),
        ([CompiledEvent("set", 4, at_ns=NOW + 9, blocks=LINK, parameters={"rate": 1.0})], True),
        ([CompiledEvent("set", 4, at_ns=NOW + n, blocks=LINK, parameters={"rate": 1.0}) for n in range(6, 15)], False),
        ([CompiledEvent("crash", 4, at_ns=NOW + 3, nodes=(1,))], False),
        ([CompiledEvent("crash", 4, at_ns=NOW - 3, nodes=(1,))], True),
    ],
    ids=("nothing", "another outage", "another rate", "too many to look at", "a crash to come", "one that is over"),
)
def test_copies_that_a_link_loses_for_now_pass_for_good_if_nothing_is_to_come(
    later: list[CompiledEvent], good: bool
) -> None:
    cut = CompiledEvent("set", 3, at_ns=50, cause=3, blocks=LINK, parameters={"state": "down_reset"})
    over = CompiledEvent("unset", 3, at_ns=NOW + 5, cause=3, blocks=LINK)
    found = fate(account(1, edges={0: edge(lost("down"))}), schedule=Outages([cut, over, *later]))
    assert (found.in_vain, found.passes_ns, found.passes_for_good) == (True, NOW + 5, good)


# answers


REQUEST = (0, 1)


@pytest.mark.parametrize(
    ("giver", "asked", "expected"),
    [
        (account(1, serves=True), {}, COMES),
        (account(1), {}, UNSENT),
        (account(1, edges={0: edge(lost(kind=Kind.REPLY))}), {}, LOST),
        (account(1, edges={0: edge(arrived(kind=Kind.REPLY))}), {}, COMES),
        (account(1), {1: edge(lost(kind=Kind.REQUEST))}, replace(LOST, edge=REQUEST)),
        (account(1), {1: edge(arrived(kind=Kind.REQUEST))}, UNSENT),
        (account(1, serves=True), {1: edge(arrived(kind=Kind.REQUEST))}, COMES),
        (
            account(1),
            {1: edge(flying=((key(Kind.REQUEST), 80),))},
            replace(COMES, edge=REQUEST, since_ns=80),
        ),
        (
            account(1, edges={0: edge(lost(kind=Kind.REPLY))}),
            {1: edge(arrived(kind=Kind.REQUEST))},
            LOST,
        ),
    ],
)
def test_the_fate_of_an_answer_is_its_own_or_that_of_its_request(
    giver: Account, asked: dict[int, EdgeAccount], expected: AwaitedMessage
) -> None:
    assert fate(giver, waiter(WaitKind.REPLY, edges=asked)) == expected


def test_an_answer_that_was_lost_is_asked_for_again_by_who_waits() -> None:
    giver = account(1, edges={0: edge(lost(kind=Kind.REPLY))})
    assert fate(giver, waiter(WaitKind.REPLY, again=((1, DATA._replace(kind=Kind.REQUEST)),))) == replace(
        LOST, resent=True
    )
    assert fate(replace(giver, again=((0, DATA),)), waiter(WaitKind.REPLY)) == LOST


def test_who_is_down_takes_no_request_and_serves_nobody() -> None:
    paused = {1: DownNode(State.PAUSED, ROUND, 40)}
    flying = waiter(WaitKind.REPLY, edges={1: edge(flying=((key(Kind.REQUEST), 80),))})
    assert fate(account(1, serves=True), flying, down=paused) == UNSENT
    assert fate(account(1, serves=True), waiter(WaitKind.REPLY), down=paused) == UNSENT
    asked = waiter(WaitKind.REPLY, edges={1: edge(lost(kind=Kind.REQUEST))})
    assert fate(account(1), asked, down=paused) == replace(LOST, edge=REQUEST)
    reply = account(1, edges={0: edge(flying=((key(Kind.REPLY), 80),))})
    assert fate(reply, waiter(WaitKind.REPLY), down=paused) == replace(COMES, edge=(1, 0), since_ns=80)


def test_a_request_that_its_link_holds_for_good_brings_no_answer() -> None:
    own = waiter(WaitKind.REPLY, edges={1: edge(flying=((key(Kind.REQUEST), 80),))})
    there = (Block(frozenset([0]), frozenset([1])),)
    hold = CompiledEvent("set", 3, at_ns=50, cause=3, blocks=there, parameters={"state": "down_hold"})
    for events, expected in (([], Supply.SURE), ([hold], Supply.NEVER)):
        snapshot = fleet(own, account(1), schedule=Outages(events))
        wait_ = snapshot.nodes[0].wait
        assert wait_ is not None
        assert supply(snapshot, 0, wait_, 1) is expected


# who is down


@pytest.mark.parametrize(
    ("down", "expected"),
    [
        (DownNode(State.CRASHED, ROUND, 40), replace(LOST, kept=False)),
        (DownNode(State.CRASHED, ROUND, 40, back_ns=2000), replace(LOST, kept=False, resent=True)),
        (DownNode(State.PAUSED, ROUND, 40), replace(LOST, kept=False, resent=True)),
        (DownNode(State.CRASHED, ROUND, 40, back_ns=2000, keeps=True), UNSENT),
        (DownNode(State.CRASHED, ROUND - 1, 40, back_ns=2000, keeps=True), UNSENT),
        (DownNode(State.CRASHED, LATER, 40, back_ns=2000, keeps=True), replace(LOST, kept=False, resent=True)),
        (DownNode(State.CRASHED, ROUND, 40, keeps=True), replace(LOST, kept=False)),
    ],
)
def test_who_is_down_sends_again_what_it_plays_again_or_what_is_owed_once_it_is_back(
    down: DownNode, expected: AwaitedMessage
) -> None:
    giver = account(1, edges={0: edge(lost())}, again=((0, DATA),))
    assert fate(giver, down={1: down}) == expected


def test_of_who_never_gave_an_account_nothing_is_known() -> None:
    assert fate(None, down={1: DownNode(State.CRASHED, ROUND, 40)}) == UNSENT
    assert fate(account(1, edges={0: edge(lost())}), waiter(WaitKind.ROOM)) == UNSENT


@pytest.mark.parametrize("state", [State.CRASHED, State.PAUSED])
def test_who_is_down_never_sent_what_it_was_past_unless_it_plays_that_round_again(state: State) -> None:
    assert fate(account(1, round=LATER), down={1: DownNode(state, LATER, 40)}) == NEVER
    assert fate(account(1, round=LATER), down={1: DownNode(state, ROUND, 40, back_ns=2000, keeps=True)}) == UNSENT


def test_a_node_that_is_down_is_told_with_the_stack_of_its_last_account() -> None:
    down = DownNode(State.CRASHED, 4, 40, back_ns=2000, hoped=True)
    snapshot = fleet(account(0), account(1, stack="here"), down={1: down, 2: DownNode(State.PAUSED, 3, 50)})
    assert snapshot.nodes[1] == NodeNow(
        node=1, state=State.CRASHED, round=4, finished=3, since_ns=40, back_ns=2000, hoped=True, stack="here"
    )
    assert snapshot.nodes[2] == NodeNow(node=2, state=State.PAUSED, round=3, finished=2, since_ns=50)
    assert list(snapshot.nodes) == [0, 1, 2]


# nodes, waits, edges


def test_a_node_is_told_as_its_account_says() -> None:
    crash = CompiledEvent("crash", 0, at_ns=1500, nodes=(1,))
    own = account(1, since_ns=30, step=2, steps=4, early=3, stack="here")
    snapshot = fleet(own, account(2, State.FINISHED, round=9), schedule=Outages([crash]))
    assert snapshot.nodes[1] == NodeNow(
        node=1, state=State.RUNNING, round=ROUND, finished=ROUND - 1, since_ns=30, ends_ns=1500, step=2, steps=4,
        early=3, stack="here",
    )  # fmt: skip
    assert snapshot.nodes[2] == NodeNow(node=2, state=State.FINISHED, round=9, finished=9, since_ns=7)
    assert (snapshot.at_ns, snapshot.detector) == (NOW, "oracle")


def test_a_wait_is_told_as_its_account_says() -> None:
    own = wait(1, 2, 3, need=3, have=(3,), left_out=(2,), deadline_ns=4000, undecided=(1,), essential=True)
    now = fleet(account(0, State.WAITING, wait=own), account(1), account(2), account(3)).nodes[0].wait
    assert now == WaitNow(
        round=ROUND, step=STEP, need=3, awaited={1: UNSENT, 2: UNSENT}, have=frozenset([3]), gone=frozenset([2]),
        undecided=frozenset([1]), essential=True, since_ns=120, deadline_ns=4000, what=WaitKind.MESSAGE,
    )  # fmt: skip


def test_a_wait_for_whoever_sends_is_for_all_others_and_leaves_nobody_out() -> None:
    own = wait(sources=None, have=(2,), left_out=(1,))
    now = fleet(account(0, State.WAITING, wait=own), account(2), down={1: DownNode(State.CRASHED, 4, 40)}).nodes[0].wait
    assert now is not None
    assert (list(now.awaited), now.have, now.gone, now.from_anybody) == ([1], frozenset([2]), frozenset(), True)


def test_an_edge_is_told_with_its_counts_and_its_latest_messages() -> None:
    flying = tuple((key(attempt=number), number) for number in range(6))
    count = edge(arrived(), sent=9, delivered=2, dropped=ONE_DROP, in_flight=6, flying=flying)
    snapshot = fleet(account(0, edges={1: count}), account(1))
    came = MessageNow(0, 1, "data", ROUND, STEP, 0, 100, 110, Fate.DELIVERED)
    under_way = tuple(MessageNow(0, 1, "data", ROUND, STEP, n, n, None, Fate.IN_FLIGHT) for n in range(2, 6))
    expected = EdgeNow(sent=9, delivered=2, dropped=ONE_DROP, in_flight=6, held=0, last=(came, *under_way))
    assert snapshot.edges == {(0, 1): expected}
    assert expected.counts == (9, 2, 1, 6)
    full = fleet(account(0, edges={1: count}), account(1, mailbox_full=True)).edges[0, 1]
    assert full == replace(expected, in_flight=0, held=6)
    assert full.counts == expected.counts


def test_an_edge_that_is_down_says_so_also_where_nothing_was_sent_on_it() -> None:
    schedule = Outages([cut(50, "down_hold"), cut(3000, None)])
    snapshot = fleet(waiter(), account(1, edges={0: edge(in_flight=4)}), schedule=schedule)
    assert snapshot.edges[1, 0] == EdgeNow(in_flight=0, held=4, up=False, heals_ns=3000, event=3)
    unused = fleet(waiter(), account(1), schedule=schedule)
    assert unused.edges == {(1, 0): EdgeNow(up=False, heals_ns=3000, event=3)}
    assert fleet(waiter(), account(1)).edges == {(1, 0): EdgeNow()}


@pytest.mark.parametrize(
    ("of", "early", "vain"),
    [
        ({"essential": True}, 0, True),
        ({}, 0, False),
        ({"essential": True, "sources": (1, 2)}, 0, False),
        ({"essential": True, "sources": (2,)}, 0, False),
        ({"essential": True, "have": (1,)}, 0, False),
        ({"essential": True}, 1, False),
    ],
)
def test_a_client_waits_in_vain_for_its_server_alone_with_nothing_unread(
    of: dict[str, Any], early: int, vain: bool
) -> None:
    assert waits_in_vain(waiter(of=of, early=early), 1) is vain
    assert not waits_in_vain(account(0), 1)
