"""What a schedule does to one node, by the clock and by its rounds; returns; slow workers; closed doors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.fates import Fate
from netdfl.core.rng import Streams
from netdfl.host.injection import FaultInjection, by_node
from netdfl.host.network import PausableSink
from netdfl.host.workers import SlowWorker
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import find_return, fresh_round, keeps_state
from netdfl.links.schedule.when import Facts
from netdfl.testing.loopback import InlineWorker
from netdfl.testing.transports import KeptSink, data_message, vector_payload
from netdfl.transport.base import deliver_one

MS = 1_000_000


class HandTimer:
    """What a `HandClock` has due."""

    def __init__(self, clock: HandClock, due: tuple[int, Callable[[], None]]) -> None:
        self.clock, self.due = clock, due

    def cancel(self) -> None:
        self.clock.timers = [timer for timer in self.clock.timers if timer is not self.due]


class HandClock:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []

    def now_ns(self) -> int:
        return self.now

    def call_at(self, at_ns: int, name: object, callback: Callable[[], None]) -> HandTimer:
        self.timers.append((at_ns, callback))
        return HandTimer(self, self.timers[-1])

    def move(self, to_ns: int) -> None:
        self.now = to_ns
        due, self.timers = [t for t in self.timers if t[0] <= to_ns], [t for t in self.timers if t[0] > to_ns]
        for _, callback in sorted(due, key=lambda timer: timer[0]):
            callback()


class Kept:
    """Keeps what happens to it."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.seen: list[tuple[int, str]] = []

    def happen(self, event: CompiledEvent) -> None:
        self.seen.append((self.clock.now, event.action))


def schedule(*entries: Mapping[str, Any]) -> Sequence[CompiledEvent]:
    return compile_events(entries, Facts(6, Streams(1), rounds=50))


def script(events: Sequence[CompiledEvent], node: int) -> tuple[FaultInjection, Kept, HandClock]:
    clock = HandClock()
    kept = Kept(clock)
    return FaultInjection(by_node(events).get(node, []), clock, kept.happen), kept, clock


def test_what_goes_by_the_clock_happens_to_the_nodes_it_names_and_to_no_other():
    events = schedule(
        {"at": "10ms", "for": "20ms", "pause": [1, 2]},
        {"at": "5ms", "slow_down": 1, "factor": 3.0},
        {"at": "40ms", "crash": 2, "restart_after": "5ms"},
    )
    for node, expected in ((0, []), (1, [(5, "slow_down"), (10, "pause"), (30, "resume")])):
        its, kept, clock = script(events, node)
        its.begin()
        for now in range(60):
            clock.move(now * MS)
        assert kept.seen == [(at * MS, action) for at, action in expected]


async def test_when_something_happens_next_is_known_as_far_as_the_rounds_have_come():
    events = schedule({"at": "10ms", "for": "90ms", "pause": 1}, {"at_round": 3, "for": "20ms", "pause": 1})
    its, _, clock = script(events, 1)
    its.begin()
    assert (its.due_ns("pause"), its.due_ns("resume"), its.due_ns("crash")) == (10 * MS, 100 * MS, None)
    clock.move(50 * MS)
    await its.begin_round(3)
    assert (its.due_ns("pause"), its.due_ns("resume")) == (None, 70 * MS)
    clock.move(70 * MS)
    assert its.due_ns("resume") == 100 * MS
    clock.move(100 * MS)
    assert its.due_ns("resume") is None


def test_a_life_that_is_over_has_no_events_any_more():
    its, kept, clock = script(schedule({"at": "10ms", "for": "20ms", "pause": 1}), 1)
    its.begin()
    clock.move(15 * MS)
    its.end()
    clock.move(60 * MS)
    assert kept.seen == [(15 * MS, "pause")]


async def test_what_goes_by_rounds_happens_once_when_the_node_begins_the_round():
    its, kept, clock = script(schedule({"at_round": 3, "for": "20ms", "pause": 1}), 1)
    its.begin()
    for round in (2, 3, 3, 4):
        await its.begin_round(round)
    assert kept.seen == [(0, "pause")]
    clock.move(20 * MS)
    assert kept.seen == [(0, "pause"), (20 * MS, "resume")]


async def test_a_later_life_has_the_events_of_its_own_rounds_and_the_pace_of_now():
    events = schedule(
        {"at": "10ms", "slow_down": 1, "factor": 3.0},
        {"at": "11ms", "for": "1ms", "pause": 1},
        {"at_round": 5, "crash": 1, "restart_after": "20ms"},
        {"at_round": 6, "for": "1ms", "pause": 1},
    )
    its, kept, clock = script(events, 1)
    clock.now = 50 * MS
    its.begin(after_round=5)
    for round in (5, 6):
        await its.begin_round(round)
    assert [action for _, action in kept.seen] == ["slow_down", "pause"]


async def test_a_later_life_keeps_the_pace_that_a_past_round_set_for_good():
    events = schedule(
        {"at_round": 2, "slow_down": 1, "factor": 4.0},
        {"at_round": 4, "slow_down": 1, "factor": 2.0},
        {"at_round": 7, "slow_down": 1, "factor": 8.0},
    )
    paces: list[float] = []
    clock = HandClock()
    its = FaultInjection(by_node(events)[1], clock, lambda event: paces.append(event.parameters["factor"]))
    its.begin(after_round=6)
    assert paces == [4.0, 2.0]
    for round in (6, 7):
        await its.begin_round(round)
    assert paces == [4.0, 2.0, 8.0]


def test_a_pace_that_a_past_round_set_for_a_time_is_over_in_a_later_life():
    paces: list[float] = []
    entry = {"at_round": 2, "for": "1s", "slow_down": 1, "factor": 4.0}
    its = FaultInjection(by_node(schedule(entry))[1], HandClock(), lambda e: paces.append(e.parameters["factor"]))
    its.begin(after_round=6)
    assert paces[-1] == 1.0


def test_a_crash_ends_with_the_next_restart_by_the_clock_or_with_that_of_its_own_entry():
    events = schedule(
        {"at": "10ms", "crash": 1, "restart_after": "10ms", "state": "lost"},
        {"at_round": 7, "crash": [1, 2], "restart_after": "30ms"},
        {"at": "50ms", "restart": 1},
        {"at_round": 9, "crash": 3},
    )
    clocked = find_return(events, 1, 10 * MS, source=0, at_round=None)
    assert clocked is not None
    assert (clocked.at_ns, clocked.keep_state) == (20 * MS, False)
    by_round = find_return(events, 2, 100 * MS, source=1, at_round=7)
    assert by_round is not None
    assert (by_round.at_ns, by_round.keep_state) == (130 * MS, True)
    assert find_return(events, 3, 5 * MS, source=3, at_round=9) is None
    assert find_return(events, 1, 50 * MS, source=4, at_round=None) is None  # that restart came before the crash
    assert [keeps_state(events, node) for node in range(4)] == [False, True, True, False]


@given(st.integers(0, 50), st.lists(st.integers(0, 50)))
def test_a_node_without_its_state_begins_where_no_other_has_been(crashed_in: int, others: list[int]):
    begins = fresh_round(crashed_in, others)
    assert begins >= crashed_in
    assert all(begins > round for round in others)
    assert begins == crashed_in or begins - 1 in others


async def test_a_slowed_worker_sleeps_after_training_alone(monkeypatch: pytest.MonkeyPatch):
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    worker = SlowWorker(InlineWorker())
    assert await worker.run("train", max, 1, 2) == 2
    assert slept == []
    worker.factor = 3.0
    assert [await worker.run(what, max, 1, 2) for what in ("mix", "train")] == [2, 2]
    assert len(slept) == 1
    assert slept[0] > 0


def test_a_closed_door_refuses_and_calls_back_when_it_opens():
    sink, called = KeptSink(), []
    door = PausableSink(sink)
    message = data_message((0, 1), 0, vector_payload(np.zeros(1)))
    door.close()
    assert deliver_one(door, message) is None
    door.when_room(lambda: called.append(True))
    assert called == []
    door.open()
    assert called == [True]
    assert deliver_one(door, message) == Fate.DELIVERED
    assert sink.messages == [message]
