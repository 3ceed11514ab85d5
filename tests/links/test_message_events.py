"""`drop` and `delay`: what the schedule does to messages by name."""

from __future__ import annotations

from typing import Any

import pytest

import netdfl
from netdfl.core.errors import ScenarioError
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.rows import MessageRow

BASE: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "named",
    "nodes": 3,
    "rounds": 5,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 2},
    "algorithm": "dpsgd",
    "topology": "ring",
    "wait": {"deadline": "40ms"},
    "links": {"default": {"latency": "5ms"}},
}


def run(*events: dict[str, object], **changes: object) -> ExploredRun:
    return Executor().run(netdfl.load(BASE | {"events": list(events)} | changes))


def came(run: ExploredRun, src: int, dst: int, kind: str = "data") -> dict[int, MessageRow]:
    return {m.round: m for m in run.rows.messages if (m.src, m.dst, m.kind) == (src, dst, kind) and not m.attempt}


def test_a_message_is_lost_by_name() -> None:
    found = run({"at_round": 2, "drop": "0->1"})
    lost = [(m.src, m.dst, m.round, m.fate) for m in found.rows.messages if m.fate != "delivered"]
    assert lost == [(0, 1, 2, "dropped:scripted")]


def test_only_of_a_kind_and_not_when_sent_again() -> None:
    found = run({"at_round": 2, "drop": "0->1", "kind": "ack"}, delivery="acknowledged")
    assert came(found, 0, 1)[2].fate == "delivered"
    assert came(found, 0, 1, "ack")[2].fate == "dropped:scripted"
    again = run({"at_round": 2, "drop": "0->1", "attempt": 0, "kind": "data"}, delivery="acknowledged")
    assert [m.fate for m in again.rows.messages if (m.src, m.dst, m.round, m.kind) == (0, 1, 2, "data")] == [
        "dropped:scripted",
        "delivered",
    ]


BY_ROUND: list[dict[str, Any]] = [
    {"at_round": 2, "drop": "0->1"},
    {"at_round": 1, "for_rounds": 2, "link": "0->1", "state": "down_drop"},
    {"at_round": 1, "for_rounds": 2, "link": "0->1", "loss": 1},
]


@pytest.mark.parametrize("event", BY_ROUND, ids=str)
def test_a_heartbeat_is_of_no_round(event: dict[str, Any]) -> None:
    """Its number is none; by its kind it is meant all the same."""
    beats = {"kind": "heartbeat", "every": "15ms", "misses": 9}
    plain, ill = (came(run(*events, failure_detector=beats), 0, 1, "heartbeat") for events in ((), (event,)))
    shared = plain.keys() & ill.keys()
    assert shared >= {1, 2}
    assert {ill[number].fate for number in shared} == {"delivered"}


def test_a_heartbeat_is_lost_by_its_kind_and_number() -> None:
    beats = {"kind": "heartbeat", "every": "15ms", "misses": 9}
    found = run({"at_round": 2, "drop": "0->1", "kind": "heartbeat"}, failure_detector=beats)
    assert [number for number, m in came(found, 0, 1, "heartbeat").items() if m.fate != "delivered"] == [2]


def test_for_rounds_and_for_a_time() -> None:
    rounds = came(run({"at_round": 1, "for_rounds": 2, "drop": "0->1"}), 0, 1)
    assert [number for number, m in rounds.items() if m.fate != "delivered"] == [1, 2]
    times = came(run({"at": "10ms", "for": "1ms", "drop": "0->1"}), 0, 1)
    assert [number for number, m in times.items() if m.fate != "delivered"] == [0]


def test_a_message_comes_later_and_nothing_overtakes_it() -> None:
    found = came(run({"at_round": 1, "delay": "0->1", "by": "70ms"}), 0, 1)
    delays = {number: (m.arrived_ns or 0) - m.sent_ns for number, m in found.items()}
    assert delays[0] == 5_000_000
    assert delays[1] == 75_000_000
    assert found[2].arrived_ns == max(found[2].sent_ns + 5_000_000, found[1].arrived_ns or 0)


def test_delays_add_up() -> None:
    late = ({"at_round": 1, "delay": "0->1", "by": "1ms"}, {"at": "0s", "delay": "0->*", "by": "2ms"})
    found = came(run(*late), 0, 1)
    assert [(found[each].arrived_ns or 0) - found[each].sent_ns for each in (0, 1)] == [7_000_000, 8_000_000]


def test_a_reset_drops_what_is_kept_back() -> None:
    events = ({"at_round": 0, "delay": "0->1", "by": "30ms"}, {"at": "20ms", "link": "0->1", "state": "down_reset"})
    assert came(run(*events), 0, 1)[0].fate == "dropped:reset"


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"at_round": 9, "drop": "0->1"}, "after the end of the run"),
        ({"at_round": 1, "delay": "0->1", "by": "0s"}, "must be above 0"),
        ({"at_round": 1, "for": "3s", "drop": "0->1"}, "give for_rounds"),
        ({"at_round": 1, "drop": "0->7"}, "no node 7"),
    ],
)
def test_what_can_not_be_is_refused(event: dict[str, object], why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        netdfl.load(BASE | {"events": [event]})


def test_packets_have_no_names() -> None:
    world = {"kind": "simulated", "loss_layer": "packet"}
    with pytest.raises(ScenarioError, match="a packet has no name: drop is about messages"):
        netdfl.load(BASE | {"world": world, "events": [{"at_round": 1, "drop": "0->1"}]})


def test_shares_that_an_event_drops_are_sent_again() -> None:
    changes = {"algorithm": "sgp", "events": [{"at_round": 1, "drop": "0->1"}]}
    assert netdfl.load(BASE | changes).delivery.kind == "acknowledged"
