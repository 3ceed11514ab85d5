"""What became of an awaited message, from the accounts of its sender and its receiver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from netdfl.core.fates import Fate
from netdfl.core.types import Kind, LogicalId, MessageId, PeerMessage, StepId
from netdfl.diagnosis.account import Account, EdgeAccount, WaitAccount
from netdfl.diagnosis.assemble import DownNode, assemble
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.ending import is_over
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.snapshot import AwaitedFate, State, WaitKind
from netdfl.diagnosis.why import ReasonKind
from netdfl.links.schedule.events import CompiledEvent

ROUND = 5
LOST = (MessageId(Kind.DATA, 0, StepId(ROUND, 0), 0, 0), 90, None, Fate.read("dropped:loss"))
AGAIN = (3, LogicalId(Kind.DATA, StepId(ROUND, 0)))
TAKEN = (MessageId(Kind.DATA, 0, StepId(ROUND, 0), 0, 1), 100, 110, Fate.read("delivered"))


def waits(node: int, source: int, round: int, **more: Any) -> Account:
    wait = WaitAccount(
        what=WaitKind.MESSAGE,
        round=round,
        step=0,
        sources=(source,),
        need=1,
        have=(),
        left_out=(),
        since_ns=120,
        deadline_ns=None,
    )
    own: dict[str, Any] = {"epoch": 0, "at_ns": 1000, "state": State.WAITING, "since_ns": 120} | more
    return Account(node=node, round=round, wait=wait, **own)


def edge(*settled: Any) -> EdgeAccount:
    lost = tuple(each for each in settled if each[3] == LOST[3])
    return EdgeAccount(sent=len(settled), delivered=0, dropped={}, in_flight=0, last=settled, lost=lost)


def fate(receiver: Account, sender: Account) -> tuple[AwaitedFate, bool, bool]:
    """The fate of what node 3 awaits of node 2, whether it comes again, and whether node 3 is stuck."""
    snapshot = assemble(1000, {2: sender, 3: receiver}, {}, Outages(()))
    wait = snapshot.nodes[3].wait
    assert wait is not None
    stuck = {node for finding in find_stuck(snapshot) for node in (*finding.roots, *finding.behind)}
    return wait.awaited[2].fate, wait.awaited[2].resent, 3 in stuck


@pytest.mark.parametrize(
    ("settled", "again", "expected"),
    [
        ((LOST,), (), (AwaitedFate.LOST, False, True)),
        ((LOST,), (AGAIN,), (AwaitedFate.LOST, True, False)),
        ((LOST,), ((3, LogicalId(Kind.DATA, StepId(ROUND - 1, 0))),), (AwaitedFate.LOST, False, True)),
        ((), (), (AwaitedFate.NEVER, False, True)),
        ((), (AGAIN,), (AwaitedFate.IN_FLIGHT, False, False)),
    ],
)
def test_what_its_sender_sends_again_is_under_way(
    settled: tuple[Any, ...], again: tuple[PeerMessage, ...], expected: tuple[AwaitedFate, bool, bool]
) -> None:
    """Even where the sender's short memory of what was lost does not hold it any more."""
    sender = waits(2, 3, ROUND + 1, edges={3: edge(*settled)} if settled else {}, again=again)
    assert fate(waits(3, 2, ROUND), sender) == expected


@pytest.mark.parametrize(
    ("epoch", "born_ns", "expected"),
    [
        (0, 0, (AwaitedFate.IN_FLIGHT, False, False)),
        (1, 105, (AwaitedFate.IN_FLIGHT, False, False)),
        (1, 115, (AwaitedFate.LOST, False, True)),
    ],
)
def test_what_an_earlier_life_took_with_it_is_lost(
    epoch: int, born_ns: int, expected: tuple[AwaitedFate, bool, bool]
) -> None:
    sender = waits(2, 3, ROUND + 1, edges={3: edge(TAKEN)})
    assert fate(waits(3, 2, ROUND, epoch=epoch, born_ns=born_ns), sender) == expected


@pytest.mark.parametrize(("node", "epoch", "joined"), [(2, 0, False), (2, 1, True), (2, 2, False), (3, 1, False)])
def test_the_first_life_of_a_node_that_joins_late_is_no_return(node: int, epoch: int, joined: bool) -> None:
    """Its lives are counted from 1, and later ones are returns; nor did who crashed join."""
    schedule = Outages(
        [CompiledEvent("join", 0, at_ns=50, nodes=(2,)), CompiledEvent("crash", 1, at_ns=60, nodes=(3,))]
    )
    account = waits(node, 4, ROUND, epoch=epoch)
    assert assemble(1000, {node: account}, {}, schedule).nodes[node].joined == joined


def test_a_node_that_has_yet_to_join_is_away_and_keeps_nothing() -> None:
    absent = DownNode(State.ABSENT, 0, 0, None, joins_in=7)
    snapshot = assemble(1000, {3: waits(3, 2, ROUND)}, {2: absent}, Outages(()))
    now = snapshot.nodes[2]
    assert (now.state, now.joins_in, now.keeps, now.is_down_for_good) == (State.ABSENT, 7, False, True)
    (finding,) = find_stuck(snapshot)
    (reason,) = finding.grounds.reasons
    assert (reason.why, reason.joins_in, reason.joined) == (ReasonKind.ABSENT, 7, False)
    due = assemble(1000, {3: waits(3, 2, ROUND)}, {2: replace(absent, back_ns=2000)}, Outages(()))
    assert not is_over((), due, [3])
    assert is_over([finding], snapshot, [3])
