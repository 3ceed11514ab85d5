"""What a ledger keeps of very much: refusals of strangers, what was settled last, and the slots that were sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from netdfl.core.fates import LOSS, Fate, MessageCounts
from netdfl.core.outcome import outcome_of
from netdfl.core.types import Kind, Message, Multicast, Payload, StepId
from netdfl.node.ledger import LAST, LAST_LOST, MOST_SAID, EdgeCount, NodeLedger
from netdfl.testing.loopback import SilentRecorder

LOST = Fate.dropped(LOSS)


class Notes(SilentRecorder):
    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def event(self, *said: object, **details: object) -> None:
        self.events.append((*said, details))


def ledger() -> tuple[NodeLedger, list[tuple[Any, ...]]]:
    notes, clock = Notes(), SimpleNamespace(now_ns=lambda: 70)
    return NodeLedger(4, clock, notes), notes.events  # type: ignore[arg-type]


def message(number: int = 0, kind: Kind = Kind.DATA, *, dst: int = 1, epoch: int = 0, step: int = 0) -> Message:
    return Message(4, dst, kind, epoch, number, step, 0, Payload())


def test_a_refusal_is_told_with_its_sender_and_round_and_no_more_than_so_much_of_what_was_said() -> None:
    its, events = ledger()
    its.refused((7, 4), LOSS, "x" * (MOST_SAID + 1), 3)
    its.refused((7, 4), LOSS, "short")
    assert events == [
        (70, 4, 3, "refused", {"reason": "loss", "what": "x" * MOST_SAID, "src": 7}),
        (70, 4, -1, "refused", {"reason": "loss", "what": "short", "src": 7}),
    ]
    assert its.refused_count == {LOSS: 2}


@pytest.mark.parametrize("edge", [None, (5, 4)])
def test_of_a_caller_one_row_comes_to_stand_for_a_hundred_and_of_no_other(edge: Any) -> None:
    its, events = ledger()
    for _ in range(7050):
        its.refused(edge, LOSS, "no name")
    its.refused((7, 4), LOSS, "a peer")
    told = [details for *_, details in events]
    plain = {"reason": "loss", "what": "no name", "src": None if edge is None else 5}
    assert told == [*[plain] * 100, *[plain | {"messages": 100}] * 69, {"reason": "loss", "what": "a peer", "src": 7}]
    assert its.refused_count == {LOSS: 7051}


def test_what_is_mixed_though_it_is_not_finite_is_recorded() -> None:
    its, events = ledger()
    its.mixed_not_finite(message(5)._replace(src=9))
    assert events == [(70, 4, 5, "mixed_not_finite", {"src": 9})]


def test_the_latest_that_were_settled_and_lost_are_kept() -> None:
    its, _ = ledger()
    for number in range(2 * LAST_LOST):
        its.sent(Multicast.of(message(number)), 10, number)
        its.settled(outcome_of(message(number), 10, number, None, LOST), (message(number).payload,))
    its.settled(outcome_of(message(999), 10, 0, 5, Fate.DELIVERED), (message(999).payload,))
    edge = its.edges[1]
    assert [each[0].at.round for each in edge.last_lost] == list(range(LAST_LOST, 2 * LAST_LOST))
    assert [each[0].at.round for each in edge.last] == [*range(2 * LAST_LOST - LAST + 1, 2 * LAST_LOST), 999]
    assert edge.last[-1][1:] == (0, 5, Fate.DELIVERED)
    assert (edge.flying, edge.dropped) == ({}, {LOST: 2 * LAST_LOST})


def test_what_is_still_on_its_way_when_it_is_recorded_is_neither_come_nor_lost() -> None:
    its, _ = ledger()
    assert its.counts == MessageCounts(0)
    its.sent(Multicast.of(message()), 10, 3)
    assert its.counts == MessageCounts(1, unfinished=1)
    its.settled(outcome_of(message(), 10, 3, None, Fate.IN_FLIGHT), (message().payload,))
    edge = its.edges[1]
    assert (edge.sent, edge.delivered, edge.lost, edge.in_flight, edge.flying) == (1, 0, 0, 1, {})
    assert (its.counts, its.classes) == (MessageCounts(1, unfinished=1), {})
    its.sent(Multicast.of(message(1)), 10, 3)
    its.settled(outcome_of(message(1), 10, 3, 4, Fate.LATE), (message(1).payload,))
    assert its.counts == MessageCounts(2, late=1, unfinished=1)


@pytest.mark.parametrize("kind", Kind)
def test_questions_and_beats_are_counted_aside_and_slots_are_of_what_rounds_are_made_of(kind: Kind) -> None:
    its, _ = ledger()
    its.sent(Multicast.of(message(3, kind)), 10, 5)
    aside = kind in (Kind.HEARTBEAT, Kind.PROBE, Kind.QUERY, Kind.STATUS)
    assert (list(its.edges), list(its.aside)) == (([], [1]) if aside else ([1], []))
    edge = (its.aside if aside else its.edges)[1]
    slots = [(each.life, each.runs) for each in edge.sent_steps]
    of_rounds = kind in (Kind.DATA, Kind.NOTICE, Kind.REQUEST)
    assert slots == ([((kind, 0), (((3, 0), (3, 0)),))] if of_rounds else [])
    assert (edge.sent, list(edge.flying.values()), its.bytes_sent, its.sent_count) == (1, [5], 10, 1)


def test_runs_of_slots_are_of_a_kind_and_a_life_the_latest_first() -> None:
    edge = EdgeCount()
    edge.remember_run(("data", 0), StepId(1, 0), StepId(4, 1), 7)
    edge.remember_run(("data", 1), StepId(4, 0), StepId(4, 0), 1)
    edge.remember_run(("data", 0), StepId(5, 0), StepId(5, 0), 1)
    edge.remember_run(("data", 0), StepId(7, 0), StepId(8, 0), 2)
    assert [(each.life, each.runs) for each in edge.sent_steps] == [
        (("data", 1), (((4, 0), (4, 0)),)),
        (("data", 0), (((1, 0), (5, 0)), ((7, 0), (8, 0)))),
    ]
    assert (edge.sent, edge.in_flight) == (11, 11)


def test_what_most_edges_do_not_have_is_theirs_alone_once_there_is_something_in_it() -> None:
    its, _ = ledger()
    its.sent(Multicast.of(message()), 10, 3)
    its.settled(outcome_of(message(), 10, 3, None, LOST), (message().payload,))
    fresh = EdgeCount()
    assert (fresh.flying, dict(fresh.dropped), list(fresh.last), list(fresh.last_lost)) == ({}, {}, [], [])
    assert (fresh.sent, fresh.delivered, fresh.lost, fresh.sent_steps) == (0, 0, 0, ())
