"""Each reason has its sentence, for one node and for several, and a stall of several reasons a clause for each."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.diagnosis.sentences import say
from netdfl.diagnosis.why import Divide, Grounds, Need, Reason, ReasonKind
from netdfl.diagnosis.words import core_links

SECOND = 10**9
ONE, TWO, MANY = [(0, 1)], [(0, 1), (2, 1)], [(0, 1), (0, 2)]


def reason(why: ReasonKind, waiter: int = 0, source: int = 1, **more: Any) -> Reason:
    """Node `waiter` waits in round 4 for `source`, for which the message would come over the edge between them."""
    return Reason(waiter=waiter, source=source, why=why, **{"round": 4, "edge": (source, waiter)} | more)


def said(*reasons: Reason, permanent: bool = True, behind: tuple[int, ...] = (), **more: Any) -> str:
    roots = list(dict.fromkeys(each.waiter for each in reasons))
    return say(Grounds(at_ns=9 * SECOND, reasons=reasons, **more), roots, behind, permanent=permanent)


def of(why: ReasonKind, pairs: list[tuple[int, int]], *, permanent: bool = True, **more: Any) -> str:
    """What is said where each of `pairs` waits for one reason."""
    return said(*(reason(why, *pair, **more) for pair in pairs), permanent=permanent)


WAITS, WAIT, FOR_BOTH = (
    "node 0 waits in round 4 for node 1, ",
    "nodes 0 and 2 wait in round 4 for node 1, ",
    "node 0 waits in round 4 for nodes 1 and 2, ",
)


@pytest.mark.parametrize(
    ("why", "one", "both"),
    [
        (ReasonKind.CRASHED, "which crashed and does not return", "which crashed and do not return"),
        (ReasonKind.PAUSED, "which is paused and never resumed", "which are paused and never resumed"),
        (
            ReasonKind.STANDING,
            "which is standing still outside any wait and never resumed",
            "which are standing still outside any wait and never resumed",
        ),
        (ReasonKind.STOPPED, "which is stopped and never resumed", "which are stopped and never resumed"),
        (
            ReasonKind.RETURNED_PAST,
            "which crashed and, since its return, is past that round",
            "which crashed and, since their return, are past that round",
        ),
        (
            ReasonKind.SILENT,
            "whose event loop has not answered for 9 s",
            "whose event loops have not answered for 9 s",
        ),
        (
            ReasonKind.PAST,
            "which is past that round and did not send it",
            "which are past that round and did not send it",
        ),
        (
            ReasonKind.FINISHED,
            "which has finished and sends nothing any more",
            "which have finished and send nothing any more",
        ),
        (
            ReasonKind.TAKEN_FOR_GONE,
            "which took node 0 for gone and did not send it",
            "which took node 0 for gone and did not send it",
        ),
        (
            ReasonKind.UNKNOWN_SENDERS,
            "and does not know which of them will send",
            "and does not know which of them will send",
        ),
        (ReasonKind.LOST, "whose message was lost on 1->0", "whose messages were lost on 1->0 and 2->0"),
        (
            ReasonKind.LOST_OR_LATE,
            "which sent it: lost or late on 1->0",
            "which sent it: lost or late on 1->0 and 2->0",
        ),
        (
            ReasonKind.RECEIVER_DOWN,
            "whose message was lost on 1->0 (node 0 was down)",
            "whose messages were lost on 1->0 and 2->0 (node 0 was down)",
        ),
        (
            ReasonKind.RECEIVER_RESTARTED,
            "whose message was lost on 1->0 (node 0 took it before it crashed)",
            "whose messages were lost on 1->0 and 2->0 (node 0 took it before it crashed)",
        ),
        (
            ReasonKind.CUT,
            "from which it is cut off: 1->0 is down for good",
            "from which they are cut off: 1->0 and 2->0 are down for good",
        ),
    ],
)
def test_each_reason_has_its_sentence_for_one_and_for_several(why: ReasonKind, one: str, both: str) -> None:
    assert of(why, ONE) == WAITS + one
    assert of(why, MANY) == FOR_BOTH + both


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        (ReasonKind.AT_WORK, "node 1 has been at work in round 3 for 7 s; "),
        (ReasonKind.FETCHING, "node 1 has been asking for a model in place of the one that it lost for 7 s; "),
        (ReasonKind.SILENT, "the event loop of node 1 has not answered for 7 s; "),
    ],
)
def test_what_ends_by_itself_is_told_of_who_is_waited_for(why: ReasonKind, expected: str) -> None:
    more: dict[str, Any] = {"permanent": False, "source_round": 3, "since_ns": 2 * SECOND}
    assert of(why, ONE, **more) == expected + "node 0 waits in round 4 for it"
    assert of(why, TWO, **more) == expected + "nodes 0 and 2 wait in round 4 for it"


def test_what_is_on_its_way_and_room_end_by_themselves() -> None:
    on_its_way = ", which is still on its way over 1->0"
    assert (
        of(ReasonKind.ON_ITS_WAY, ONE, permanent=False)
        == f"node 0 waits in round 4 for the message of node 1{on_its_way}"
    )
    request = of(ReasonKind.ON_ITS_WAY, ONE, permanent=False, edge=(0, 1))
    assert request == f"{WAITS}to which its request is still on its way over 0->1"
    full = of(ReasonKind.FULL, MANY, permanent=False)
    assert full == "node 0 waits in round 4 for room in the mailbox of nodes 1 and 2, which is full"


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        ("loss", ""),
        ("scripted", ""),
        ("queue", " (a queue was full)"),
        ("corrupt", " (damaged)"),
        ("ttl", " (ttl)"),
        ("down", " (the link was down)"),
        ("reset", " (the link was reset)"),
    ],
)
def test_a_loss_says_what_lost_it(loss: str, why: str) -> None:
    lost = f"{WAITS}whose message was lost on 1->0"
    assert of(ReasonKind.LOST, ONE, loss=loss) == lost + why
    assert of(ReasonKind.LOST, ONE, loss=loss, resent=True) == f"{lost}{why}, and will be sent again"
    entry = f" (events[2]{why.replace(' (', ': ') if why else ')'}"
    assert of(ReasonKind.LOST, ONE, loss=loss, event=2) == lost + entry


def test_of_several_losses_each_kind_is_told_once() -> None:
    assert (
        of(ReasonKind.LOST, MANY, loss="down")
        == f"{FOR_BOTH}whose messages were lost on 1->0 and 2->0 (the links were down)"
    )
    both = said(reason(ReasonKind.LOST, loss="down", resent=True), reason(ReasonKind.LOST, source=2, loss="down"))
    assert both == (
        "node 0 waits in round 4: node 0 lacks node 1's message of round 4, lost on 1->0 (the link was down), and will "
        "be sent again; node 0 also lacks node 2's message of round 4, lost on 2->0 (the link was down)"
    )
    entries = said(
        reason(ReasonKind.LOST, loss="loss", event=1), reason(ReasonKind.LOST, source=2, loss="loss", event=2)
    )
    assert entries == f"{FOR_BOTH}whose messages were lost on 1->0 and 2->0"
    receivers = said(reason(ReasonKind.RECEIVER_DOWN), reason(ReasonKind.RECEIVER_DOWN, 2, 3))
    assert receivers == (
        "nodes 0 and 2 wait in round 4 for nodes 1 and 3, whose messages were lost on 1->0 and 3->2 "
        "(node 0 was down and node 2 was down)"
    )


def test_notices_and_requests_are_no_messages() -> None:
    assert of(ReasonKind.LOST, ONE, notice=True) == f"{WAITS}whose notice that nothing comes was lost on 1->0"
    assert (
        of(ReasonKind.LOST, MANY, notice=True) == f"{FOR_BOTH}whose notice that nothing comes was lost on 1->0 and 2->0"
    )
    assert of(ReasonKind.LOST, ONE, edge=(0, 1)) == f"{WAITS}which its request never reached: it was lost on 0->1"
    mixed = said(
        reason(ReasonKind.CRASHED, source=3),
        reason(ReasonKind.LOST, notice=True),
        reason(ReasonKind.LOST, source=2, edge=(0, 2)),
        reason(ReasonKind.LOST, 5, 6, loss="queue"),
        reason(ReasonKind.LOST, 5, 7, loss="queue"),
    )
    assert mixed == (
        "nodes 0 and 5 wait in round 4: node 3 crashed and does not return; "
        "node 0 also lacks node 1's notice of round 4, lost on 1->0; "
        "node 0 also lacks node 2's answer: its request was lost on 0->2; "
        "node 5 lacks node 6's and node 7's messages of round 4, lost on 6->5 and 7->5 (a queue was full)"
    )


@pytest.mark.parametrize(
    ("until", "hoped", "expected"),
    [
        (12 * SECOND, False, "which crashed and returns at 12 s"),
        (12 * SECOND, True, "which died and may return until 12 s"),
        (None, True, "which died and does not return"),
    ],
)
def test_a_crashed_node_returns_or_may_return(until: int | None, hoped: bool, expected: str) -> None:
    assert of(ReasonKind.CRASHED, ONE, until_ns=until, hoped=hoped) == WAITS + expected


def test_ends_that_are_known_are_told() -> None:
    assert of(ReasonKind.PAUSED, ONE, until_ns=12 * SECOND) == f"{WAITS}which is paused until 12 s"
    assert of(ReasonKind.CUT, ONE, until_ns=12 * SECOND, event=0) == (
        f"{WAITS}from which it is cut off: 1->0 is down until 12 s (events[0])"
    )


def test_outages_of_other_kinds_or_ends_are_clauses_of_their_own_in_one_order() -> None:
    outages = said(
        reason(ReasonKind.PAST, 0, 8),
        reason(ReasonKind.SILENT, 0, 7, since_ns=SECOND),
        reason(ReasonKind.LOST, 0, 6),
        reason(ReasonKind.RETURNED_PAST, 0, 5),
        reason(ReasonKind.CUT, 0, 4),
        reason(ReasonKind.CUT, 0, 3, until_ns=20 * SECOND),
        reason(ReasonKind.PAUSED, 0, 2),
        reason(ReasonKind.CRASHED, 0, 1, until_ns=12 * SECOND),
        reason(ReasonKind.CRASHED, 0, 10, until_ns=12 * SECOND),
    )
    assert outages == (
        "node 0 waits in round 4: nodes 1 and 10 crashed and return at 12 s; node 2 is paused and never resumed; "
        "3->0 is down until 20 s; 4->0 is down for good; node 5 crashed and, since its return, is past that round; "
        "node 0 also lacks node 6's message of round 4, lost on 6->0; "
        "the event loop of node 7 has not answered for 8 s; node 8 is past that round and did not send it"
    )


def test_many_links_are_told_by_what_they_divide() -> None:
    edges = ((2, 0), (3, 0), (3, 1))
    cut = [reason(ReasonKind.CUT, dst, src, event=1) for src, dst in edges]
    both_ways = Divide(edges, ((0, 1), (2, 3, 4)))
    assert said(*cut) == "nodes 0 and 1 wait in round 4: 2->0, 3->0 and 3->1 are down for good (events[1])"
    assert said(*cut, divides=(both_ways,)) == (
        "nodes 0 and 1 wait in round 4: nothing passes between nodes 0 and 1 and nodes 2 to 4 for good (events[1])"
    )
    lost = [reason(ReasonKind.LOST, dst, src, loss="down", event=1) for src, dst in edges]
    one_way = Divide(edges, ((2, 3), (0, 1)), one_way=True)
    assert said(*lost, divides=(one_way,)) == (
        "nodes 0 and 1 wait in round 4 for messages that were lost while nothing passed "
        "from nodes 2 and 3 to nodes 0 and 1 (events[1])"
    )
    assert said(*lost, divides=(Divide(edges[:2], ((0,), (2, 3))),)) == (
        "nodes 0 and 1 wait in round 4 for nodes 2 and 3, whose messages were lost on 2->0, 3->0 and 3->1 "
        "(events[1]: the links were down)"
    )


def test_a_full_mailbox_says_why_it_stays_full() -> None:
    full = "node 0 can't send in round 4: the mailbox of node 1 is full"
    assert said(reason(ReasonKind.FULL), room=True) == full
    assert said(reason(ReasonKind.CRASHED), room=True) == f"{full}, as node 1 crashed and does not return"


def test_a_knot_says_what_each_node_lacks() -> None:
    knot = (Need(0, 3, (1, 2), 1), Need(1, 4, (0,), 1, room=True), Need(2, 4), Need(5, 4, (0, 1, 2), 2))
    assert say(Grounds(knot=knot), [0, 1, 2, 5], [7], permanent=True) == (
        "nodes 0, 1, 2 and 5 wait for each other in rounds 3 to 4: 0 for 1 or 2, 1 for room at 0 and 5 for 2 of 0, 1 "
        "and 2; 7 waits behind them"
    )


def test_who_waits_behind_comes_last() -> None:
    assert (
        said(reason(ReasonKind.CRASHED), behind=(4, 5))
        == f"{WAITS}which crashed and does not return; 4 and 5 wait behind it"
    )


@pytest.mark.parametrize(("roots", "expected"), [([1], "node 1 stands"), ([1, 2], "nodes 1 and 2 stand")])
def test_nodes_for_whom_nobody_waits_are_told_alone(roots: list[int], expected: str) -> None:
    still = Grounds(at_ns=9 * SECOND, alone=ReasonKind.STANDING)
    assert say(still, roots, [], permanent=True) == f"{expected} still outside any wait"
    silent = Grounds(at_ns=9 * SECOND, alone=ReasonKind.SILENT, since_ns=SECOND)
    assert say(silent, [1], [], permanent=False) == "the event loop of node 1 has not answered for 8 s"


def test_messages_that_go_in_circles_are_counted() -> None:
    circles = Grounds(passed=100, window_ns=8 * SECOND, rounds=(2, 4, 3))
    assert say(circles, [0, 1], [], permanent=False) == (
        "100 messages passed in 8 s and no node finished a round: nodes 0 and 1 in rounds 2 to 4"
    )


def test_a_reason_is_plain_data_without_what_says_nothing() -> None:
    assert reason(ReasonKind.CUT).to_json() == {"waiter": 0, "source": 1, "why": "cut", "edge": [1, 0]}
    full = reason(ReasonKind.LOST, loss="down", event=0, notice=True, resent=True).to_json()
    assert full == {
        "waiter": 0,
        "source": 1,
        "why": "lost",
        "edge": [1, 0],
        "loss": "down",
        "event": 0,
        "notice": True,
        "resent": True,
    }


CORE = {"event": 0, "core": "a--b"}


@pytest.mark.parametrize(
    ("names", "present", "past"),
    [
        (["a--b"], "the core link a--b is", "the core link a--b was"),
        (["b->c", "a--b", "b->c"], "the core links a--b and b->c are", "the core links a--b and b->c were"),
        ([""], "", ""),
        (["a--b", ""], "", ""),
    ],
)
def test_core_links_are_named_where_all_reasons_have_one(names: list[str], present: str, past: str) -> None:
    assert (core_links(names), core_links(names, past=True)) == (present, past)


def test_a_core_link_that_is_down_is_named_with_what_it_cuts_off() -> None:
    cut = of(ReasonKind.CUT, ONE, **CORE)
    assert cut == f"{WAITS}from which it is cut off: 1->0 is down for good, as the core link a--b is (events[0])"
    pairs = [(0, 2), (1, 2), (0, 3)]
    reasons = [reason(ReasonKind.CUT, *pair, until_ns=20 * SECOND, **CORE) for pair in pairs]
    divide = Divide(tuple((source, waiter) for waiter, source in pairs), ((0, 1), (2, 3)))
    assert said(*reasons, divides=(divide,)) == (
        "nodes 0 and 1 wait in round 4: the core link a--b is down until 20 s (events[0]); "
        "nothing passes between nodes 0 and 1 and nodes 2 and 3"
    )


def test_what_was_lost_while_a_core_link_was_down_says_so() -> None:
    for loss in ("down", "reset"):
        lost = of(ReasonKind.LOST, ONE, loss=loss, **CORE)
        assert lost == f"{WAITS}whose message was lost on 1->0 (events[0]: the core link a--b was {loss})"
    assert "core" not in of(ReasonKind.LOST, ONE, loss="queue", **CORE)


def test_a_reason_keeps_the_name_of_its_core_link() -> None:
    assert reason(ReasonKind.CUT, **CORE).to_json()["core"] == "a--b"
    assert "core" not in reason(ReasonKind.CUT, event=0).to_json()


def test_who_joins_late_is_no_crash_before_it_comes_nor_after() -> None:
    absent = {"until_ns": 20 * SECOND}
    assert of(ReasonKind.ABSENT, ONE, **absent).startswith(WAITS + "which joins at 20 s")
    assert of(ReasonKind.ABSENT, TWO, **absent).startswith(WAIT + "which joins at 20 s")
    assert of(ReasonKind.ABSENT, MANY, joins_in=7).startswith(FOR_BOTH + "which join in round 7")
    past = ReasonKind.RETURNED_PAST
    assert of(past, ONE, joined=True).startswith(WAITS + "which joined late and is past that round")
    assert of(past, MANY, joined=True).startswith(FOR_BOTH + "which joined late and are past that round")
    mixed = said(reason(past, 0, 1, joined=True), reason(past, 0, 2))
    assert mixed.startswith(FOR_BOTH + "which crashed and, since their return, are past that round")
    fetches = of(ReasonKind.FETCHING, ONE, permanent=False, joined=True, since_ns=2 * SECOND)
    assert fetches.startswith("node 1 has been asking for a model to begin with for 7 s; ")
