"""The link engine: order within an instant, what is under way, ways computed in advance, and stages that are shared."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from driving import LinkRun
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.rng import Streams
from netdfl.core.types import Kind, MessageId, StepId
from netdfl.links.channel import Links
from netdfl.links.edge_state import UNKNOWN, EdgeState, PathPlan
from netdfl.links.engine import LinkEngine, Route, as_they_came
from netdfl.links.path import Path
from netdfl.links.rules.base import Departure, Drop, Hold, LinkEvent, StageOutcome, Transit
from netdfl.links.rules.latency import Latency, constant
from netdfl.links.rules.loss import Bernoulli, Loss
from netdfl.links.rules.state import LinkState
from netdfl.links.spec import LinksSpec

S = 10**9
FIRST = MessageId(Kind.DATA, 0, StepId(0, 0), 0, 0)


def unit(number: int = 0, src: int = 0, dst: int = 1, nbytes: int = 100) -> Transit:
    return Transit(src, dst, Kind.DATA, number, 0, 0, nbytes)


def late(delay_ns: int) -> Latency:
    return Latency(0, constant(delay=delay_ns))


def test_equal_instants_go_by_key_whoever_was_put_in_first() -> None:
    units = [unit(src=src, dst=9) for src in range(8)]
    found = []
    for sent in (units, units[::-1]):
        run = LinkRun(3)
        for each in sent:
            run.enter(Path((each.src, 9), [late(S)]), each, 0)
        found.append([end.unit.src for end in run.finish()])
    assert found[0] == found[1]
    assert found[0] != sorted(found[0])


def test_one_edge_keeps_the_order_in_which_it_was_given_units_of_one_instant() -> None:
    run, path = LinkRun(3), Path((0, 1), [late(S)])
    for number in range(9):
        run.enter(path, unit(number), 0)
    assert [end.unit.round for end in run.finish()] == list(range(9))


def test_a_wire_keeps_the_order_of_all_units_of_one_instant() -> None:
    run = LinkRun(3, order=as_they_came)
    for src in range(8):
        run.enter(Path((src, 9), [late(S)]), unit(src=src, dst=9), 0)
    assert [end.unit.src for end in run.finish()] == list(range(8))


def test_nothing_arrives_or_enters_a_shared_stage_before_its_instant_has_its_turn() -> None:
    entered: list[int] = []

    class Seen(LinkState):
        def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
            entered.append(unit.src)
            return super().enter(unit, now_ns)

    run, shared = LinkRun(3), Seen()
    for src in range(8):
        run.enter(Path((src, 9), [], downlink=shared), unit(src=src, dst=9), 5)
    assert (entered, run.ends, run.engine.next_ns()) == ([], [], 5)
    run.engine.run(5)
    assert entered == [end.unit.src for end in run.ends] != list(range(8))


def test_it_tells_what_is_under_way_and_when_the_next_is_due() -> None:
    run, path = LinkRun(), Path((0, 1), [state := LinkState("down_hold"), late(S)])
    run.enter(path, unit(1), 0)
    run.submit(path, unit(2), S // 2)
    assert run.engine.next_ns() == S // 2
    flights = {flight.content.round: flight for flight in run.engine.flights()}
    assert {number: (each.at_ns, len(each.stages)) for number, each in flights.items()} == {
        1: (None, 0),
        2: (S // 2, 2),
    }
    run.engine.run(S // 2)
    assert run.engine.next_ns() is None, "both are held"
    run.engine.change(state.changed({"state": "up"}, S), S)
    (first, second) = run.engine.flights()
    assert (first.at_ns, second.at_ns, first.stages) == (2 * S, 2 * S, ())
    run.engine.change([Departure(first.unit, 5 * S)], S)
    run.engine.change([Hold(second.unit)], S)
    assert [(flight.content.round, flight.at_ns) for flight in run.engine.flights()] == [(1, 5 * S), (2, None)]
    run.engine.change([Drop(second.unit, "reset")], 2 * S)
    assert [(end.at_ns, end.unit.round, end.reason) for end in run.finish()] == [(2 * S, 2, "reset"), (5 * S, 1, None)]


@pytest.mark.parametrize("computed", [False, True])
def test_what_is_withdrawn_never_comes_back(computed: bool) -> None:
    run = LinkRun(computed=computed)
    held, late_path = Path((0, 1), [state := LinkState("down_hold")]), Path((0, 2), [late(S)])
    run.enter(held, unit(1), 0)
    for number in (2, 3):
        run.enter(late_path, unit(number, dst=2), 0)
    gone = run.engine.withdraw(lambda flight: flight.edge.edge == (0, 1) or flight.content.round == 2, 0)
    assert [flight.content.round for flight in gone] == [2, 1]
    run.engine.change(state.changed({"state": "up"}, 1), 1)
    assert [end.unit.round for end in run.finish()] == [3]


VARYING: dict[str, Any] = {"dist": "uniform", "low": 0, "high": "9ms"}
RULES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "delay": {"latency": "3ms"},
    "loss": {"loss": 0.3},
    "rate": {"rate": "8Mbit"},
    "all": {"loss": 0.2, "rate": {"rate": "8Mbit", "queue": "3kB"}, "latency": VARYING},
    "free": {"latency": VARYING | {"order": "free"}, "reorder": 0.3},
    "down": {"state": "down_hold", "latency": "3ms"},
}


@given(st.sampled_from(sorted(RULES)), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), max_size=30))
def test_a_way_computed_in_advance_is_the_way_through_each_stage(rules: str, sent: list[tuple[int, int]]) -> None:
    units = sorted((at * 1_000_000, number, src) for number, (at, src) in enumerate(sent))
    found = []
    for computed in (False, True):
        links, run = Links(LinksSpec({"default": RULES[rules]}, {}, 4), Streams(7)), LinkRun(computed=computed)
        for at_ns, number, src in units:
            run.engine.run(at_ns - 1)
            run.enter(links.path(src, 3), unit(number, src, 3, 1000), at_ns)
        ends = [(at_ns, each.src, each.round, reason) for at_ns, each, reason in run.finish()]
        held = sorted(flight.content.round for flight in run.engine.flights())
        found.append((sorted(ends), [end[:3] for end in ends if end[3] is None], held))
    assert found[0] == found[1]


def test_a_route_of_equal_delays_arrives_as_one_batch() -> None:
    batches: list[list[str]] = []
    engine: LinkEngine[EdgeState, str] = LinkEngine(
        lambda arrivals, at_ns: batches.append([content for _, _, content, _ in arrivals]), lambda *_: None
    )
    path = Path((0, 1), [late(S)])
    edges = [EdgeState((0, dst), path, PathPlan.computed(path, changing=False)) for dst in (1, 2)]
    lossy = Path((0, 3), [Loss(Bernoulli(1, probability=0.0))])
    edges.append(EdgeState((0, 3), lossy, PathPlan.computed(lossy, changing=False)))
    assert [Route.over(some).delay_ns for some in (edges[:2], edges)] == [S, UNKNOWN]
    assert list(engine.submit(Route.over(edges[:2]), ["a", "b"], FIRST, [1, 1], 0, 0)) == []
    assert list(engine.submit(Route.over(edges), ["c", "d", "e"], FIRST, [1, 1, 1], 0, 0)) == edges[2:]
    engine.run(2 * S)
    assert batches == [["e"], ["a", "b", "c", "d"]]


class FairShare:
    """A stage of `rate` bytes a second, which its units share alike. It is one object at one place of several paths."""

    again_ns = None

    def __init__(self, rate: int) -> None:
        self.rate, self.since, self.asked = Fraction(rate), 0, 0
        self.left_bytes: dict[Transit, Fraction] = {}

    def _pass(self, now_ns: int) -> None:
        for unit in self.left_bytes:
            self.left_bytes[unit] -= self.rate * (now_ns - self.since) / S / len(self.left_bytes)
        self.since = now_ns

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        self._pass(now_ns)
        self.left_bytes[unit] = Fraction(unit.nbytes)
        return ()

    def left(self, unit: Transit, now_ns: int) -> None:
        self._pass(now_ns)
        assert self.left_bytes.pop(unit) <= 0

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        return ()

    def retimed(self, now_ns: int) -> Sequence[StageOutcome]:
        self.asked += 1
        self._pass(now_ns)
        share = self.rate / max(1, len(self.left_bytes))
        return [Departure(unit, now_ns + ceil(left * S / share)) for unit, left in self.left_bytes.items()]


def test_a_stage_may_retime_what_others_have_under_way() -> None:
    shared, run = FairShare(1000), LinkRun()
    paths = [Path((src, 9), [late(src * S)], uplink=shared) for src in range(4)]
    for src, nbytes in ((0, 1000), (1, 1000), (2, 3000)):
        run.enter(paths[src], unit(src=src, dst=9, nbytes=nbytes), 0)
    assert run.engine.next_ns() == 0, "shares are found once all that begins at this instant has begun"
    run.engine.run(S)
    run.enter(paths[3], unit(src=3, dst=9, nbytes=500), S)
    seconds = [(round(end.at_ns / S, 6), end.unit.src) for end in run.finish()]
    # Thirds until 1 s, quarters until 3 has its 500 bytes at 3 s, thirds until 0 and 1 have theirs at 3.5 s, then all.
    assert seconds == [(3.5, 0), (4.5, 1), (6.0, 3), (7.5, 2)]
    assert shared.asked == 5, "once for each instant at which something began or ended"
