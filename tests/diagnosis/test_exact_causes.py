"""Small fleets written by hand, and all that is told of each: why, who, since when, until when, what would help."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from stall_terms import ANSWERED, BEATS, DEADLINE, RESEND, SKIP
from wait_graphs import FLYING, fleet, is_, lost, waits

from netdfl.core.types import Edge
from netdfl.diagnosis.causes import find_stuck
from netdfl.diagnosis.diagnose import diagnose
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.remedies import ALL, ANY, HALVES
from netdfl.diagnosis.slow import find_slow
from netdfl.diagnosis.snapshot import (
    AwaitedFate,
    AwaitedMessage,
    EdgeNow,
    NodeNow,
    State,
    WaitKind,
)
from netdfl.diagnosis.why import Divide

SECOND = 10**9
DOWN, HEALS = EdgeNow(up=False), EdgeNow(up=False, heals_ns=20 * SECOND)
UP = EdgeNow()
NEVER, MISSED = AwaitedMessage(AwaitedFate.NEVER), AwaitedMessage(AwaitedFate.MISSED)
HELD = AwaitedMessage(AwaitedFate.HELD)
UNSENT = AwaitedMessage()


class Told(NamedTuple):
    """All of one finding but its sentence. `held`: the waits that prove it, as (who, for whom), from the first on."""

    cause: Cause
    held: tuple[Edge, ...]
    behind: tuple[int, ...] = ()
    remedies: tuple[str, ...] = ()
    round: int = 0
    began_s: float = 0
    until_s: float | None = None
    permanent: bool = True


def check(found: Finding, told: Told, at_ns: int) -> None:
    assert found == replace(
        found,
        cause=told.cause,
        roots=tuple(dict.fromkeys(waiter for waiter, _ in told.held)),
        culprits=tuple(sorted({source for _, source in told.held})),
        witness=told.held,
        behind=told.behind,
        remedies=told.remedies,
        round=told.round,
        began_ns=round(told.began_s * SECOND),
        found_ns=at_ns,
        until_ns=None if told.until_s is None else round(told.until_s * SECOND),
        permanent=told.permanent,
        suspected=False,
        over=False,
        ended_by="",
        told="",
    )
    assert found.grounds.at_ns == at_ns


def since(*nodes: tuple[int, Mapping[int, AwaitedMessage] | Collection[int]], **more: Any) -> list[NodeNow]:
    """Nodes that wait in round 5, each since its own number in seconds, plus one."""
    return [waits(node, on, round=5, since_ns=(1 + node) * SECOND, **more) for node, on in nodes]


FOR_GOOD, COPY = (DEADLINE, SKIP), (DEADLINE, RESEND, ANSWERED, SKIP)
DETECTED = (DEADLINE, BEATS, SKIP)
RUNS = is_(9, State.RUNNING)
FINDINGS: dict[str, tuple[list[NodeNow], Mapping[Edge, EdgeNow], list[Told]]] = {
    "a message that is lost": (
        [*since((0, {9: lost(9, 0)}), (1, [0]), (2, [1, 9])), RUNS],
        {},
        [Told(Cause.LOST_MESSAGE, ((0, 9),), (1, 2), COPY, 5, 1)],
    ),
    "a message whose copies are lost too": (
        [*since((0, {9: replace(lost(9, 0), in_vain=True)})), RUNS],
        {},
        [Told(Cause.LOST_MESSAGE, ((0, 9),), (), FOR_GOOD, 5, 1)],
    ),
    "a message that nobody keeps": (
        [*since((0, {9: replace(lost(9, 0), kept=False)})), RUNS],
        {},
        [Told(Cause.LOST_MESSAGE, ((0, 9),), (), FOR_GOOD, 5, 1)],
    ),
    "a notice that is lost": (
        [*since((0, {9: replace(lost(9, 0), notice=True)})), RUNS],
        {},
        [Told(Cause.LOST_MESSAGE, ((0, 9),), (), (DEADLINE, RESEND, SKIP), 5, 1)],
    ),
    "an answer that is lost": (
        [*since((0, {9: lost(9, 0)}), what=WaitKind.REPLY), RUNS],
        {},
        [Told(Cause.LOST_MESSAGE, ((0, 9),), (), (DEADLINE, RESEND, SKIP), 5, 1)],
    ),
    "two messages of one node, of which one can be sent again": (
        [*since((3, {8: replace(lost(8, 3), kept=False), 9: lost(9, 3)})), is_(8, State.RUNNING), RUNS],
        {},
        [Told(Cause.LOST_MESSAGE, ((3, 8), (3, 9)), (), FOR_GOOD, 5, 4)],
    ),
    "messages of two nodes that lost them alone": (
        [*since((2, {9: lost(9, 2)}), (4, {9: lost(9, 4)}), (6, [2, 4])), RUNS],
        {},
        [
            Told(Cause.LOST_MESSAGE, ((2, 9),), (6,), COPY, 5, 3),
            Told(Cause.LOST_MESSAGE, ((4, 9),), (6,), COPY, 5, 5),
        ],
    ),
    "messages of two nodes that one event lost": (
        [*since(*((node, {9: replace(lost(9, node), event=1)}) for node in (4, 2))), RUNS],
        {},
        [Told(Cause.LOST_MESSAGE, ((2, 9), (4, 9)), (), COPY, 5, 3)],
    ),
    "a crash, two who wait for it, and who waits for these": (
        [*since((3, [1]), (2, [1]), (5, [3])), is_(1, State.CRASHED)],
        {},
        [Told(Cause.UNREACHABLE, ((2, 1), (3, 1)), (5,), DETECTED, 5, 3)],
    ),
    "a crash and a loss": (
        [*since((3, {1: UNSENT, 9: lost(9, 3)})), is_(1, State.CRASHED), RUNS],
        {},
        [Told(Cause.UNREACHABLE, ((3, 1), (3, 9)), (), FOR_GOOD, 5, 4)],
    ),
    "a link that is down one way for good": (
        [*since((3, [9])), RUNS],
        {(9, 3): DOWN},
        [Told(Cause.UNREACHABLE, ((3, 9),), (), FOR_GOOD, 5, 4)],
    ),
    "a link that is down both ways for good": (
        [*since((3, [9])), RUNS],
        {(9, 3): DOWN, (3, 9): DOWN},
        [Told(Cause.UNREACHABLE, ((3, 9),), (), DETECTED, 5, 4)],
    ),
    "two links that one event took down for good": (
        [*since((3, [9]), (4, [8])), is_(8, State.RUNNING), RUNS],
        {edge: EdgeNow(up=False, event=0) for edge in ((9, 3), (8, 4))},
        [Told(Cause.UNREACHABLE, ((3, 9), (4, 8)), (), FOR_GOOD, 5, 4)],
    ),
    "two links that were always down": (
        [*since((3, [9]), (4, [8])), is_(8, State.RUNNING), RUNS],
        dict.fromkeys([(9, 3), (8, 4)], DOWN),
        [
            Told(Cause.UNREACHABLE, ((3, 9),), (), FOR_GOOD, 5, 4),
            Told(Cause.UNREACHABLE, ((4, 8),), (), FOR_GOOD, 5, 5),
        ],
    ),
    "a server that crashed": (
        [*since((0, [1]), (2, [1]), essential=True), is_(1, State.CRASHED)],
        {},
        [Told(Cause.UNREACHABLE, ((0, 1), (2, 1)), (), (), 5, 1)],
    ),
    "a server that is past": (
        [*since((0, {9: NEVER}), essential=True), RUNS],
        {},
        [Told(Cause.DEADLOCK, ((0, 9),), (), (SKIP,), 5, 1)],
    ),
    "a node that is past": (
        [*since((0, {9: NEVER})), RUNS],
        {},
        [Told(Cause.DEADLOCK, ((0, 9),), (), FOR_GOOD, 5, 1)],
    ),
    "a node that returned past": (
        [*since((0, {9: MISSED})), RUNS],
        {},
        [Told(Cause.UNREACHABLE, ((0, 9),), (), FOR_GOOD, 5, 1)],
    ),
    "an event loop that stopped": (
        [*since((0, [1]), (2, [1])), is_(1, State.STOPPED)],
        {},
        [Told(Cause.BLOCKED_LOOP, ((0, 1), (2, 1)), (), FOR_GOOD, 5, 1)],
    ),
    "a circle": (
        [*since((0, [1]), (1, [2]), (2, [0]), (3, [0]))],
        {},
        [Told(Cause.DEADLOCK, ((0, 1), (1, 2), (2, 0)), (3,), FOR_GOOD, 5, 3)],
    ),
    "a circle of answers": (
        [*since((0, [1]), (1, [0]), what=WaitKind.REPLY)],
        {},
        [Told(Cause.DEADLOCK, ((0, 1), (1, 0)), (), (HALVES, SKIP, DEADLINE), 5, 2)],
    ),
    "two circles, of which one waits for the other": (
        [*since((0, [1]), (1, [0]), (2, [3]), (3, [2, 0]))],
        {},
        [
            Told(Cause.DEADLOCK, ((0, 1), (1, 0)), (2, 3), FOR_GOOD, 5, 2),
            Told(Cause.DEADLOCK, ((2, 3), (3, 2)), (), FOR_GOOD, 5, 4),
        ],
    ),
    "a circle of full mailboxes": (
        [*since((0, [1]), (1, [0]), what=WaitKind.ROOM)],
        {},
        [Told(Cause.FLOW_CONTROL, ((0, 1), (1, 0)), (), (ALL,), 5, 2)],
    ),
    "a full mailbox of a node that crashed": (
        [*since((0, [1]), what=WaitKind.ROOM), is_(1, State.CRASHED)],
        {},
        [Told(Cause.UNREACHABLE, ((0, 1),), (), (), 5, 1)],
    ),
    "a full mailbox of a node that has finished": (
        [*since((0, [1]), what=WaitKind.ROOM), is_(1, State.FINISHED)],
        {},
        [Told(Cause.FLOW_CONTROL, ((0, 1),), (), (ALL,), 5, 1)],
    ),
    "a quorum of three": (
        [*since((0, [1, 2]), (1, [0, 2]), (2, [0, 1]), need=1)],
        {},
        [Told(Cause.DEADLOCK, ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)), (), FOR_GOOD, 5, 3)],
    ),
    "a loss that the next message would make good, and no message without it": (
        [*since(*((node, {1 - node: replace(lost(1 - node, node), replaced=True)}) for node in (0, 1)))],
        {},
        [Told(Cause.LOST_MESSAGE, ((0, 1), (1, 0)), (), COPY, 5, 2)],
    ),
}


@pytest.mark.parametrize("case", FINDINGS.values(), ids=FINDINGS)
def test_what_nothing_ends_is_told_in_full(
    case: tuple[list[NodeNow], Mapping[Edge, EdgeNow], list[Told]],
) -> None:
    nodes, edges, told = case
    found = diagnose(fleet(*nodes, edges=edges, at_ns=7 * SECOND), patience_ns=100 * SECOND)
    assert len(found) == len(told), [each.text for each in found]
    for each, expected in zip(found, told, strict=True):
        check(each, expected, 7 * SECOND)


def now(cause: Cause, *held: Edge, **more: Any) -> Told:
    return Told(cause, held, round=5, permanent=False, **more)


BACK = {"back_ns": 30 * SECOND}
RESENT = replace(lost(9, 0), resent=True)
SLOW: dict[str, tuple[list[NodeNow], Mapping[Edge, EdgeNow], list[Told]]] = {
    "a straggler, and who waits for who waits for it": (
        [*since((0, [9]), (1, [0]), (2, [9]), (3, [1])), RUNS],
        {},
        [now(Cause.STRAGGLER, (0, 9), (2, 9), behind=(1, 3), began_s=1)],
    ),
    "a straggler beside one who came": (
        [*since((0, [9]), have=[7]), RUNS],
        {},
        [now(Cause.STRAGGLER, (0, 9), remedies=(ANY,), began_s=1)],
    ),
    "two stragglers for one node": (
        [*since((0, [8, 9])), is_(8, State.RUNNING), RUNS],
        {},
        [now(Cause.STRAGGLER, (0, each), remedies=(ANY,), began_s=1) for each in (8, 9)],
    ),
    "who fetches a model": (
        [*since((0, [9])), is_(9, State.FETCHING)],
        {},
        [now(Cause.STRAGGLER, (0, 9), began_s=1)],
    ),
    "two messages on their way from one node": (
        [*since((0, {9: FLYING}), (2, {9: FLYING})), RUNS],
        {},
        [now(Cause.STRAGGLER, (0, 9), began_s=1), now(Cause.STRAGGLER, (2, 9), began_s=3)],
    ),
    "a message that will be sent again": (
        [*since((0, {9: RESENT}), (2, {9: replace(RESENT, edge=(9, 2))})), RUNS],
        {},
        [
            now(Cause.LOST_MESSAGE, (0, 9), began_s=1),
            now(Cause.LOST_MESSAGE, (2, 9), began_s=3),
        ],
    ),
    "a crash with a return": (
        [*since((0, [1]), (2, [1]), (3, [2])), is_(1, State.CRASHED, **BACK)],
        {},
        [now(Cause.UNREACHABLE, (0, 1), (2, 1), behind=(3,), remedies=(DEADLINE, BEATS), began_s=1, until_s=30)],
    ),
    "a crash with a return, and a deadline before it": (
        [*since((0, [1]), deadline_ns=25 * SECOND), *since((2, [1])), is_(1, State.CRASHED, **BACK)],
        {},
        [now(Cause.UNREACHABLE, (0, 1), (2, 1), began_s=1, until_s=30)],
    ),
    "a crash for good, and a deadline": (
        [*since((0, [1]), deadline_ns=25 * SECOND), is_(1, State.CRASHED)],
        {},
        [now(Cause.UNREACHABLE, (0, 1), began_s=1, until_s=25)],
    ),
    "links that heal at one time, and one that heals later": (
        [*since((0, [9]), (1, [8]), (2, [9])), is_(8, State.RUNNING), RUNS],
        {(9, 0): HEALS, (8, 1): HEALS, (9, 2): EdgeNow(up=False, heals_ns=40 * SECOND)},
        [
            now(Cause.UNREACHABLE, (0, 9), (1, 8), remedies=(DEADLINE,), began_s=1, until_s=20),
            now(Cause.UNREACHABLE, (2, 9), remedies=(DEADLINE,), began_s=3, until_s=40),
        ],
    ),
    "an event loop that does not answer": (
        [*since((0, [7])), is_(7, State.BLOCKED)],
        {},
        [
            now(Cause.BLOCKED_LOOP, (0, 7), remedies=(DEADLINE, BEATS), began_s=1),
        ],
    ),
    "room at a node that is at work": (
        [*since((0, [9]), what=WaitKind.ROOM), RUNS],
        {},
        [now(Cause.FLOW_CONTROL, (0, 9), remedies=(ALL,), began_s=1)],
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_ends_by_itself_is_told_in_full_once_it_has_lasted(name: str) -> None:
    nodes, edges, told = SLOW[name]
    snapshot = fleet(*nodes, edges=edges, at_ns=7 * SECOND)
    found = diagnose(snapshot, patience_ns=3 * SECOND)
    assert len(found) == len(told), [each.text for each in found]
    for each, expected in zip(found, told, strict=True):
        check(each, expected, 7 * SECOND)
    assert diagnose(snapshot, patience_ns=8 * SECOND) == []


@pytest.mark.parametrize(("state", "named"), [(State.BLOCKED, True), (State.STOPPED, True), (State.RUNNING, False)])
def test_a_silent_event_loop_is_told_alone_from_patience_on(state: State, named: bool) -> None:
    snapshot = fleet(is_(1, state, since_ns=2 * SECOND, round=3), is_(2, State.RUNNING), at_ns=7 * SECOND)
    assert diagnose(snapshot, patience_ns=5 * SECOND + 1) == []
    found = diagnose(snapshot, patience_ns=5 * SECOND)
    assert len(found) == named
    for each in found:
        assert (each.cause, each.roots, each.culprits, each.round) == (Cause.BLOCKED_LOOP, (1,), (1,), 3)
        assert (each.began_ns, each.found_ns, each.permanent) == (2 * SECOND, 7 * SECOND, False)
        assert (
            each.text
            == "the event loop of node 1 has not answered for 5 s. Since 2 s. It ends once node 1 answers again."
        )


def test_a_silent_event_loop_is_told_once() -> None:
    """Not alone where somebody waits for it by now, nor where it holds somebody for good; others are."""
    silent = [is_(node, State.STOPPED) for node in (7, 8)]
    stuck = diagnose(fleet(*since((0, [7])), *silent, at_ns=7 * SECOND), patience_ns=SECOND)
    assert [(each.roots, each.culprits) for each in stuck] == [((0,), (7,)), ((8,), (8,))]
    blocked = [is_(node, State.BLOCKED) for node in (7, 8)]
    slow = find_slow(fleet(*since((0, [7])), *blocked, at_ns=7 * SECOND), (), SECOND)
    assert [(each.roots, each.culprits) for each in slow] == [((0,), (7,)), ((8,), (8,))]


def test_a_wait_is_slow_from_patience_on() -> None:
    snapshot = fleet(*since((0, [9]), (1, [9])), RUNS, at_ns=7 * SECOND)
    for patience_ns, roots in ((5 * SECOND, [(0, 1)]), (5 * SECOND + 1, [(0,)]), (6 * SECOND + 1, [])):
        assert [each.roots for each in find_slow(snapshot, (), patience_ns)] == roots


def test_what_its_link_held_is_on_its_way_for_as_long_as_that_is_up() -> None:
    flying = replace(FLYING, since_ns=4 * SECOND)
    snapshot = fleet(*since((0, {9: flying})), RUNS, at_ns=7 * SECOND)
    assert len(find_slow(snapshot, (), 3 * SECOND)) == 1
    assert find_slow(snapshot, (), 3 * SECOND + 1) == []


def test_a_slow_wait_for_who_is_stuck_is_no_second_stall() -> None:
    nodes = [
        *since(
            (0, {9: lost(9, 0)}),
            (1, [0]),
            (
                2,
                [0, 8],
            ),
            need=1,
        ),
        is_(8, State.RUNNING),
        RUNS,
    ]
    found = diagnose(fleet(*nodes, at_ns=7 * SECOND), patience_ns=0)
    assert [(each.cause, each.roots, each.culprits, each.behind) for each in found] == [
        (Cause.LOST_MESSAGE, (0,), (9,), (1,)),
        (Cause.STRAGGLER, (2,), (8,), ()),
    ]


def test_the_grounds_of_a_stall_hold_the_sides_of_many_links_that_are_down() -> None:
    edges = {edge: EdgeNow(up=False, event=2) for edge in ((2, 0), (3, 0), (2, 1), (0, 2), (0, 3), (1, 2))}
    nodes = [*since((0, [2, 3]), (1, [2])), is_(2, State.RUNNING), is_(3, State.RUNNING)]
    (found,) = find_stuck(fleet(*nodes, edges=edges, at_ns=7 * SECOND))
    assert found.grounds.divides == (Divide(((2, 0), (3, 0), (2, 1)), ((2, 3), (0, 1)), one_way=True),)
    assert found.what == (
        "nodes 0 and 1 wait in round 5: nothing passes from nodes 2 and 3 to nodes 0 and 1 for good (events[2])"
    )
