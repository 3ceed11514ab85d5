"""The supervisor's part in core links: reports within a pause are answered together, others' words are refused."""

from __future__ import annotations

from typing import Any

from netdfl.core.control import CoreFlows, CoreRate, CoreRates
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.load import loads
from netdfl.supervisor.core_links import PAUSE_NS, CoreLinkRates
from tests.transport.virtual_nodes import VirtualTime

SCENARIO = """
schema: netdfl/1
name: core
nodes: 4
rounds: 2
task: {kind: consensus, dim: 4}
algorithm: dpsgd
topology: full
world: processes
"""
CORE = "underlay: {links: {a--b: {rate: 8Mbit}}, place: {0..1: a, 2..3: b}}\n"
EVENTS = "events: [{at: 5s, for: 1s, core: a->b, rate: 2Mbit}]\n"


class Fleet:
    """What the supervisor knows of a fleet, with a clock that is stepped, and the orders that it gives."""

    def __init__(self, text: str = SCENARIO + CORE + EVENTS) -> None:
        self.scenario = loads(text)
        self.schedule = compile_schedule(self.scenario)
        self.world, self.clock = self, VirtualTime()
        self.told: list[tuple[int, int, CoreRates]] = []
        self.refusals: list[tuple[str, str, int | None]] = []
        self.now_ns = self.clock.now_ns
        self.core = CoreLinkRates(self, lambda *why: self.refusals.append(why))  # type: ignore[arg-type]

    def order(self, node: int, order: Any) -> None:
        self.told.append((self.clock.now_ns(), node, order))


def test_reports_within_a_pause_are_answered_together() -> None:
    fleet = Fleet(SCENARIO + CORE)
    fleet.clock.call_at(9, (), lambda: fleet.core.take(0, CoreFlows((CoreRate(2, 10**8, 7),))))
    fleet.clock.call_at(9, (), lambda: fleet.core.take(1, CoreFlows((CoreRate(2, 10**8, 6),))))
    assert fleet.told == []
    fleet.clock.run()
    half = 4_000_000
    assert fleet.told == [
        (PAUSE_NS + 9, 0, CoreRates((CoreRate(2, half, 7),), True)),
        (PAUSE_NS + 9, 1, CoreRates((CoreRate(2, 2 * half, 6), CoreRate(2, half, 7)), True)),
    ]


def test_only_who_reported_is_answered_and_who_ended_gives_its_share_back() -> None:
    fleet = Fleet(SCENARIO + CORE)
    fleet.core.take(0, CoreFlows((CoreRate(2, 10**8),)))
    fleet.core.take(1, CoreFlows((CoreRate(2, 10**8),)))
    fleet.clock.run()
    fleet.told.clear()
    fleet.core.take(1, CoreFlows((CoreRate(2, -1),)))
    fleet.clock.run()
    assert [told[1:] for told in fleet.told] == [
        (0, CoreRates((CoreRate(2, 8_000_000),))),
        (1, CoreRates(answers=True)),
    ]
    fleet.core.take(1, CoreFlows((CoreRate(3, 10**8),)))
    fleet.clock.run()
    fleet.told.clear()
    fleet.core.forget(0)
    at_ns = fleet.now_ns()
    fleet.clock.run()
    assert [told[1:] for told in fleet.told] == [(1, CoreRates((CoreRate(3, 8_000_000, at_ns),)))], "since its end"


def test_what_a_crashed_node_had_sent_keeps_its_share_until_it_has_passed() -> None:
    fleet = Fleet(SCENARIO + CORE)
    for node in (0, 1):
        fleet.core.take(node, CoreFlows((CoreRate(2, 10**8),)))
    fleet.clock.run()
    fleet.told.clear()
    fleet.core.take(0, CoreFlows((CoreRate(2, -1, 3 * 10**9),)))
    fleet.core.forget(0)
    fleet.clock.run()
    assert fleet.told == [(3 * 10**9, 1, CoreRates((CoreRate(2, 8_000_000, 3 * 10**9),)))]


def test_no_rate_holds_since_a_time_to_come() -> None:
    fleet = Fleet(SCENARIO + CORE)
    fleet.clock.call_at(5, (), lambda: fleet.core.take(0, CoreFlows((CoreRate(2, 10**8, 10**18),))))
    fleet.clock.run()
    assert [each.since_ns for *_, told in fleet.told for each in told.rates] == [5]


def test_changes_by_the_schedule_are_told_when_they_come() -> None:
    fleet = Fleet()
    fleet.core.begin()
    fleet.core.take(0, CoreFlows((CoreRate(2, 10**8),)))
    fleet.clock.run()
    assert [(at, *told.rates) for at, _, told in fleet.told] == [
        (PAUSE_NS, CoreRate(2, 8_000_000)),
        (5 * 10**9, CoreRate(2, 2_000_000, 5 * 10**9)),
        (6 * 10**9, CoreRate(2, 8_000_000, 6 * 10**9)),
    ]


def test_what_no_node_reports_is_refused_in_its_senders_name_and_not_answered() -> None:
    fleet = Fleet()
    fleet.core.take(0, CoreFlows((CoreRate(9, 1),)))
    fleet.core.take(0, CoreFlows((CoreRate(1, 1),)))
    alone = Fleet(SCENARIO)
    alone.core.begin()
    alone.core.take(3, CoreFlows((CoreRate(0, 1),)))
    alone.core.forget(3)
    for each in (fleet, alone):
        each.clock.run()
        assert each.told == []
    assert [(reason, src) for _, reason, src in fleet.refusals] == [("malformed", 0)] * 2
    assert alone.refusals == [("node 3 offers rates over core links, and the fleet has none", "malformed", 3)]


def test_once_closed_it_tells_nothing() -> None:
    fleet = Fleet()
    fleet.core.take(0, CoreFlows((CoreRate(2, 10**8),)))
    fleet.core.close()
    fleet.core.take(1, CoreFlows((CoreRate(2, 10**8),)))
    fleet.clock.run()
    assert fleet.told == []
