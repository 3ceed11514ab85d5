"""Messages by name: which an entry means, what is lost and what comes later, and one that is damaged in one bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Array, Kind, Message, Payload
from netdfl.explore.execute import Executor
from netdfl.links.building import around, named_by
from netdfl.links.rules.base import DROPPED, Departure, Drop, Stage, Transit
from netdfl.links.rules.disorder import with_bit_flipped
from netdfl.links.rules.named import MessageNumbers, NamedDelay, NamedLoss, NamedMessages
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts
from netdfl.links.selectors import Block
from netdfl.scenario.load import load

S = 10**9
UNIT = Transit(0, 1, Kind.DATA, 5, 2, 1, 100, incarnation=3, number=4)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ({}, True),
        *(({"at_round": round}, round <= 5) for round in (4, 5, 6)),
        *(({"until_round": round}, round > 5) for round in (4, 5, 6)),
        *(({"at_ns": at_ns}, at_ns <= 70) for at_ns in (69, 70, 71)),
        *(({"until_ns": at_ns}, at_ns > 70) for at_ns in (69, 70, 71)),
        *(({"kind": kind}, kind is Kind.DATA) for kind in (Kind.DATA, Kind.ACK)),
        *(({"step": step}, step == 2) for step in (0, 2)),
        *(({"attempt": attempt}, attempt == 1) for attempt in (0, 1)),
        *(({"incarnation": life}, life == 3) for life in (0, 3)),
        *(({"number": number}, number == 4) for number in (0, 4)),
        ({"at_round": 5, "until_round": 6, "kind": Kind.DATA, "step": 2, "attempt": 1, "incarnation": 3}, True),
    ],
)
def test_a_message_is_meant_where_all_that_is_said_of_it_is_so(name: dict[str, Any], meant: bool) -> None:
    assert NamedMessages(**name).matches(UNIT, 70) is meant
    assert (NamedLoss([NamedMessages(step=9), NamedMessages(**name)]).advance(UNIT, 70) == DROPPED) is meant
    assert NamedDelay([NamedMessages(step=9, by_ns=1), NamedMessages(**name, by_ns=30)]).advance(UNIT, 70) == (
        100 if meant else 70
    )


def test_delays_add_up_and_nothing_overtakes_what_is_kept_back() -> None:
    stage = NamedDelay([NamedMessages(step=2, by_ns=30), NamedMessages(attempt=1, by_ns=5), NamedMessages(step=3)])
    other = replace(UNIT, step=0, attempt=0)
    assert stage.advance(other, 5) == 5
    assert stage.advance(UNIT, 10) == 45
    assert [stage.advance(replace(UNIT, step=3, attempt=0), 20), stage.advance(other, 44)] == [45, 45]
    assert stage.advance(other, 46) == 46
    assert stage.advance(replace(UNIT, step=0), 41) == 46, "later than what was kept back, by its own delay"
    assert stage.advance(other, 42) == 46


def test_a_reset_drops_what_is_kept_back_and_lets_what_comes_after_pass() -> None:
    stage = NamedDelay([NamedMessages(step=2, by_ns=30)])
    assert [type(each) for each in stage.enter(UNIT, 10)] == [Departure]
    assert list(stage.changed({"state": "down_drop"}, 20)) == []
    assert [(each.unit, each.reason) for each in stage.changed({"state": "down_reset"}, 20)] == [(UNIT, "reset")]
    assert all(isinstance(each, Drop) for each in stage.changed({"state": "down_reset"}, 20))
    assert stage.advance(replace(UNIT, step=0), 21) == 21


LINK = (Block(frozenset([0]), frozenset([1])),)


def event(action: str, **more: Any) -> CompiledEvent:
    return CompiledEvent(**{"action": action, "source": 3, "cause": 3, "entry": action, "blocks": LINK, **more})


ENTRIES: dict[str, tuple[dict[str, object], list[CompiledEvent]]] = {
    "one round": ({"at_round": 4, "drop": "0->1"}, [event("drop", at_round=4, until_round=5)]),
    "rounds": ({"at_round": 4, "for_rounds": 3, "drop": "0->1"}, [event("drop", at_round=4, until_round=7)]),
    "from a time on": ({"at": "2s", "drop": "0->1"}, [event("drop", at_ns=2 * S)]),
    "a time": (
        {"at": "2s", "for": "1s", "drop": "0->1", "kind": "ack", "step": 0},
        [event("drop", at_ns=2 * S, parameters={"kind": "ack", "step": 0, "until_ns": 3 * S})],
    ),
    "a delay": (
        {"at_round": 0, "delay": "0->1", "by": "3s", "attempt": 0},
        [event("delay", at_round=0, until_round=1, parameters={"by": 3 * S, "attempt": 0})],
    ),
    "again and again": (
        {"every": "2s", "count": 2, "for": "1s", "delay": "0->1", "by": "1s"},
        [
            event("delay", at_ns=2 * S, parameters={"by": S, "until_ns": 3 * S}),
            event("delay", at_ns=4 * S, parameters={"by": S, "until_ns": 5 * S}),
        ],
    ),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_an_entry_is_compiled_to_what_it_says(case: str) -> None:
    entry, expected = ENTRIES[case]
    others = [{"at": "1s", "link": "2->3", "loss": 0.5}] * 3
    facts = Facts(4, Streams(7), {}, 100 * S, 50)
    assert [each for each in compile_events([*others, entry], facts) if each.source == 3] == expected


def test_what_an_event_names_is_read_from_it_whole() -> None:
    assert named_by(event("drop", at_ns=7)) == NamedMessages(at_ns=7)
    assert named_by(event("drop", at_round=2, until_round=3)) == NamedMessages(at_round=2, until_round=3)
    said = {"until_ns": 9, "kind": "ack", "step": 0, "attempt": 2, "by": 5, "incarnation": 1, "number": 3}
    expected = NamedMessages(None, 9, None, None, Kind.ACK, 0, 2, 5, 1, 3)
    expected = replace(expected, at_ns=7)
    assert named_by(event("delay", at_ns=7, parameters=said)) == expected


def test_what_is_lost_by_name_is_lost_before_the_links_own_rules_and_what_is_late_waits_behind_them() -> None:
    own = NamedLoss([])
    late, lost = event("delay", at_ns=7, parameters={"by": 5}), [event("drop", at_ns=at_ns) for at_ns in (9, 3)]
    assert list(around([own], [])) == [own]
    first, middle, last = around([own], [late, *lost])
    assert middle is own
    assert isinstance(first, NamedLoss)
    assert first.named == (NamedMessages(at_ns=3), NamedMessages(at_ns=9)), "in the order in which they come"
    assert isinstance(last, NamedDelay)
    assert last.named == (NamedMessages(at_ns=7, by_ns=5),)
    assert [type(each) for each in around([], [late])] == [NamedDelay]
    assert [type(each) for each in around([], lost)] == [NamedLoss]


def test_a_number_counts_what_agrees_in_all_else_on_its_link_whether_it_is_lost_or_late() -> None:
    """Each kind, life, round, step and attempt by itself; of what no event asks for, nothing is counted."""
    lost = event("drop", at_round=5, until_round=6, parameters={"kind": "ack", "number": 1})
    late = event("delay", at_round=5, until_round=6, parameters={"kind": "ack", "number": 2, "by": 30})
    stages = [stage for stage in around([], [lost, late]) if isinstance(stage, Stage)]
    ack = replace(UNIT, kind=Kind.ACK, number=7)

    def passes(unit: Transit) -> int:
        at_ns = 10
        for stage in stages:
            at_ns = stage.advance(unit, at_ns)
            if at_ns == DROPPED:
                break
        return at_ns

    assert [passes(ack) for _ in range(4)] == [10, DROPPED, 40, 40], "nothing overtakes what is late"
    others = [{"incarnation": 4}, {"round": 6}, {"step": 0}, {"attempt": 0}, {"kind": Kind.DATA}]
    assert all(passes(replace(ack, **other)) != DROPPED for other in others)
    assert passes(replace(ack, attempt=0)) == DROPPED, "the second of its own"
    assert [type(stage) for stage in stages] == [MessageNumbers, NamedLoss, NamedDelay]
    assert len(stages[0].counts) == 4


@pytest.mark.parametrize(("life", "lost"), [(None, 2), (0, 1), (1, 1), (2, 0)])
def test_an_event_tells_the_lives_of_a_sender_apart(life: int | None, lost: int) -> None:
    """A node that returns with its state sends the round in which it crashed again, under the same names."""
    named = {"at_round": 1, "drop": "0->1"} | ({} if life is None else {"incarnation": life})
    crash = {"at": "27ms", "crash": 0, "restart_after": "1ms"}
    fleet = {"schema": "netdfl/1", "name": "lives", "nodes": 2, "rounds": 3, "algorithm": "dpsgd", "topology": "full"}
    more = {"world": {"kind": "simulated", "compute": "10ms"}, "task": {"kind": "consensus", "dim": 1}}
    wait = {"wait": {"deadline": "20ms"}, "links": {"default": {"latency": "5ms"}}, "events": [crash, named]}
    messages = Executor().run(load({**fleet, **more, **wait})).rows.messages
    of_round = [m for m in messages if (m.src, m.dst, m.round) == (0, 1, 1)]
    assert [m.epoch for m in sorted(of_round, key=lambda m: m.epoch)] == [0, 1]
    assert sum(m.fate == "dropped:scripted" for m in of_round) == lost


# one bit


ARRAYS = {
    "a": Array("uint8", (1,), memoryview(bytes([7]))),
    "none": Array("uint8", (0,), memoryview(b"")),
    "b": Array("uint8", (2,), memoryview(bytes([0, 255]))),
}
MESSAGE = Message(0, 1, Kind.DATA, 0, 5, 2, 1, Payload(ARRAYS, {"w": 0.5}))


def flipped(message: Message, seed: int) -> list[tuple[str, int, int]]:
    """Which bits differ: the array, the byte, and the bit."""
    after = with_bit_flipped(message, seed)
    assert after[:7] == message[:7]
    assert after.payload.meta == message.payload.meta
    assert list(after.payload.arrays) == list(message.payload.arrays)
    bits = []
    for name, array in after.payload.arrays.items():
        before = message.payload.arrays[name]
        assert (array.dtype, array.shape, array.nbytes) == (before.dtype, before.shape, before.nbytes)
        for place, (one, two) in enumerate(zip(bytes(before.data), bytes(array.data), strict=True)):
            bits += [(name, place, bit) for bit in range(8) if (one ^ two) >> bit & 1]
    return bits


def test_damage_is_one_bit_of_any_of_the_arrays() -> None:
    found = [flipped(MESSAGE, seed) for seed in range(300)]
    assert {len(bits) for bits in found} == {1}
    places = [("a", 0), ("b", 0), ("b", 1)]
    assert {bits[0] for bits in found} == {(*place, bit) for place in places for bit in range(8)}
    assert bytes(ARRAYS["a"].data) == bytes([7]), "what was sent is as it was"


@pytest.mark.parametrize(
    "other", [{"src": 2}, {"dst": 2}, {"kind": Kind.ACK}, {"round": 6}, {"step": 3}, {"attempt": 0}]
)
def test_which_bit_it_is_depends_on_the_seed_and_the_message_alone(other: dict[str, Any]) -> None:
    def of(message: Message) -> list[Any]:
        return [flipped(message, seed) for seed in range(20)]

    assert of(MESSAGE) == of(MESSAGE._replace(epoch=4))
    assert of(MESSAGE) != of(MESSAGE._replace(**other))


def test_a_message_without_numbers_can_not_be_damaged() -> None:
    bare = MESSAGE._replace(payload=Payload({"none": ARRAYS["none"]}, {"w": 0.5}))
    assert with_bit_flipped(bare, 1) is bare
