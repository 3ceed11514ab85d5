"""Core links of real worlds: what the supervisor makes of reported flows, and what nodes report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.control import CoreRate
from netdfl.core.rng import Streams
from netdfl.core.types import Edge, Kind
from netdfl.links.rules.base import Transit
from netdfl.links.rules.rate import Shape
from netdfl.links.sharing.capacity import PARTS, SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.stage import FairStage
from netdfl.links.sharing.ways import ToldWays
from netdfl.underlay.shared import SharedCore
from netdfl.underlay.sites import CoreFigures, CoreNetwork
from netdfl.underlay.told import MOST_BPS, CoreDivision
from netdfl.underlay.underlay import Underlay
from tests.links.fluid import max_min
from tests.underlay.core_traffic import EIGHT, CoreTraffic
from tests.underlay.sites import FIGURES, MBIT, S, shortest


def division(*entries: Mapping[str, Any], reroute_s: float | None = None) -> CoreDivision:
    return CoreTraffic(EIGHT, [], entries=entries, reroute_s=reroute_s).division()


def take(core: CoreDivision, src: int, offers_bps: Mapping[int, int], since_ns: int = 0) -> None:
    core.take(src, [CoreRate(dst, offer, since_ns) for dst, offer in offers_bps.items()], 10 * S)


def flat(told: Mapping[int, Sequence[CoreRate]]) -> dict[Edge, int]:
    """The rate of each flow now."""
    return {(src, each.dst): each.rate_bps for src, rates in told.items() for each in rates}


FAR = st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda edge: EIGHT[edge[0]] != EIGHT[edge[1]])


@given(st.dictionaries(FAR, st.integers(0, 12).map(lambda each: each * MBIT), min_size=1, max_size=12))
def test_rates_are_max_min_fair_over_all_core_links_and_offers(offers: dict[Edge, int]) -> None:
    core = division()
    for (src, dst), offer in offers.items():
        take(core, src, {dst: offer})
    found = flat(core.news())
    rates: dict[Any, Fraction] = {("offer", edge): Fraction(offer) for edge, offer in offers.items()}
    for name, each in FIGURES.items():
        a, b = name.replace("->", "--").split("--")
        ways = [f"{a}->{b}"] if "->" in name else [f"{a}->{b}", f"{b}->{a}"]
        rates |= {way: Fraction(int(each.rate_bps or 0)) for way in ways}
    crossing: dict[Any, Any] = {}
    for src, dst in offers:
        core_links = shortest(FIGURES, EIGHT[src], EIGHT[dst]) or []
        crossing[src, dst] = [("offer", (src, dst)), *core_links]
    expected = max_min(crossing, rates)
    assert found.keys() == offers.keys()
    for edge, rate in expected.items():
        if rate < offers[edge]:
            assert abs(found[edge] - rate) <= 1
        else:
            assert found[edge] >= rate - 1, "it may grow"


def test_a_flow_may_grow_to_the_largest_rate_on_its_links() -> None:
    core = division()
    take(core, 0, {4: 1 * MBIT})
    assert flat(core.news()) == {(0, 4): 8 * MBIT}
    take(core, 1, {4: 20 * MBIT})
    assert flat(core.news()) == {(0, 4): 7 * MBIT, (1, 4): 7 * MBIT}
    assert not core.news()
    take(core, 0, {4: -1})
    assert flat(core.news()) == {(1, 4): 8 * MBIT}
    core.forget(1, 5)
    assert not core.news()
    take(core, 1, {4: 20 * MBIT})
    assert flat(core.news()) == {(1, 4): 8 * MBIT}, "told anew, as its last rate is another flow's"


def test_a_crashed_node_keeps_its_share_until_what_it_had_sent_has_passed() -> None:
    core = division()
    for src in (0, 1):
        take(core, src, {4: 20 * MBIT})
    assert flat(core.news()) == {(0, 4): 4 * MBIT, (1, 4): 4 * MBIT}
    take(core, 0, {4: -1, 5: -1}, since_ns=20 * S)
    core.forget(0, 10 * S)
    assert core.next_ns == 20 * S, "to node 5 it had sent nothing"
    core.go_on(20 * S - 1)
    assert not core.news()
    core.go_on(20 * S)
    assert core.news() == {1: [CoreRate(4, 8 * MBIT, 20 * S)]}
    assert core.next_ns is None


def test_what_a_restarted_node_sends_takes_the_place_of_what_it_had_sent_before() -> None:
    core = division()
    for src in (0, 1):
        take(core, src, {4: 20 * MBIT})
    core.news()
    take(core, 0, {4: -1}, since_ns=20 * S)
    take(core, 1, {4: 3 * MBIT})
    assert flat(core.news()) == {(1, 4): 5 * MBIT}, "who crashed is told nothing"
    take(core, 0, {4: 20 * MBIT}, since_ns=9 * S)
    assert flat(core.news()) == {(0, 4): 5 * MBIT}, "it knows no rate yet"
    assert core.next_ns is None
    core.forget(0, 10 * S)
    assert flat(core.news()) == {(1, 4): 8 * MBIT}


def test_a_rate_that_moves_by_less_than_a_thousandth_is_not_told_anew() -> None:
    core = division()
    take(core, 0, {4: 20 * MBIT})
    take(core, 1, {4: 1 * MBIT})
    assert flat(core.news()) == {(0, 4): 7 * MBIT, (1, 4): 7 * MBIT}
    take(core, 1, {4: 1 * MBIT + 7000})
    assert not core.news()
    take(core, 1, {4: 1 * MBIT + 7001})
    assert flat(core.news()) == {(0, 4): 7 * MBIT - 7001, (1, 4): 7 * MBIT - 7001}


def test_changes_of_core_links_and_routes_act_at_their_times() -> None:
    core = division(
        {"at": "1s", "for": "1s", "core": "zurich->milan", "rate": "2Mbit"},
        {"at": "3s", "for": "1s", "cut": "zurich->milan", "mode": "down_hold"},
        {"at": "9s", "link": "0->4", "rate": "1Mbit"},
        reroute_s=0.5,
    )
    take(core, 0, {4: 20 * MBIT})
    found = {}
    while (at_ns := core.next_ns) is not None:
        core.go_on(at_ns - 1)
        assert flat(core.news()) in ({}, {(0, 4): 8 * MBIT})
        core.go_on(at_ns)
        found[at_ns / S] = flat(core.news()).get((0, 4))
    assert found == {1: 2 * MBIT, 2: 8 * MBIT, 3.5: 10 * MBIT, 4.5: 8 * MBIT}


@pytest.mark.parametrize("offers", [{8: 1}, {-1: 1}, {0: 1}, {4: -2}, {4: MOST_BPS + 1}, {1: 1}, {4: 5, 8: 1}])
def test_offers_that_no_node_makes_are_refused_and_change_nothing(offers: dict[int, int]) -> None:
    core = division()
    with pytest.raises(ValueError, match="node 0 offers"):
        take(core, 0, offers)
    assert not core.news()


@pytest.mark.parametrize("offer", [0, MOST_BPS])
def test_offers_at_their_bounds_are_taken(offer: int) -> None:
    core = division()
    take(core, 0, {4: offer})
    assert flat(core.news()) == {(0, 4): 8 * MBIT}


def test_where_core_links_have_no_rate_there_is_nothing_to_tell() -> None:
    free = Underlay(CoreNetwork({"a--b": CoreFigures(5)}), {0: "a", 1: "b"})
    core = CoreDivision(SharedCore(free, Streams(0)), (), 2)
    take(core, 0, {1: MBIT})
    assert core.next_ns is None
    assert not core.news()


# a node's ways


def ways(capacity: int | None) -> tuple[ToldWays, FairNetwork, FairStage]:
    told, network, whole = ToldWays(), FairNetwork(), SharedLink((9,), Shape(None))
    whole.limit(None if capacity is None else capacity * PARTS)
    uplink = SharedLink((0, 0), Shape(20 * MBIT))
    return told, network, FairStage(network, (0, 4), [uplink, told.add((0, 4), whole)], judges=())


def begin(network: FairNetwork, stage: FairStage, number: int = 0) -> None:
    stage.enter(Transit(0, 4, Kind.DATA, number, 0, 0, 10**6), 0)
    network.retimed(0)


def test_a_node_reports_a_flow_and_its_end_once_each_and_waits_for_the_answer() -> None:
    told, network, stage = ways(8 * MBIT)
    assert told.news(0) == []
    begin(network, stage)
    assert told.news(4) == [], "another node's"
    assert told.news(0) == [CoreRate(4, 20 * MBIT)]
    told.take(0, [CoreRate(4, 2 * MBIT)], network, 0, answers=False)
    network.retimed(0)
    assert next(iter(stage.flows.values())).rate == 2 * MBIT * PARTS
    stage.end(next(iter(stage.flows.values())))
    assert told.news(0) == [], "the report is not answered"
    told.take(0, [CoreRate(5, 7), CoreRate(4, MBIT)], network, 0, answers=True)
    assert told.news(0) == [CoreRate(4, -1)]
    told.take(0, [], network, 0, answers=True)
    assert told.news(0) == []
    begin(network, stage, 1)
    assert next(iter(stage.flows.values())).rate == 8 * MBIT * PARTS, "the whole rate until another is told"


def test_a_last_report_has_the_ends_of_what_was_handed_over_and_of_nothing_else() -> None:
    told, network, stage = ways(8 * MBIT)
    assert told.ends(0) == []
    begin(network, stage)
    told.news(0)
    assert told.ends(0) == [], "it still crosses"
    flow = next(iter(stage.flows.values()))
    assert flow.unit is not None
    stage.left(flow.unit, 7)
    network.retimed(7)
    assert told.ends(0) == [CoreRate(4, -1, 7)]
    assert told.ends(0) == []


def test_an_offer_that_moves_by_a_thousandth_is_not_reported_and_by_more_is() -> None:
    told, network, stage = ways(8 * MBIT)
    begin(network, stage)
    assert told.news(0, 7) == [CoreRate(4, 20 * MBIT, 0)], "since the message began"
    told.take(0, [], network, 0, answers=True)
    for rate, reported in ((20_020_000, False), (20_020_001, True), (0, True), (1, True)):
        network.change(stage.links[0], {"rate": Shape(rate)})
        network.retimed(9)
        assert told.news(0, 9) == ([CoreRate(4, rate, 9)] if reported else [])
        told.take(0, [], network, 0, answers=True)


def test_of_a_way_whose_rate_is_taken_away_the_end_is_reported() -> None:
    told, network, stage = ways(8 * MBIT)
    begin(network, stage)
    assert told.news(0) == [CoreRate(4, 20 * MBIT)]
    told.take(0, [CoreRate(4, MBIT)], network, 0, answers=True)
    told.links[0, 4].be_whole(None)
    network.touch(told.links[0, 4])
    network.retimed(0)
    assert next(iter(stage.flows.values())).rate == 20 * MBIT * PARTS
    assert told.news(0) == [CoreRate(4, -1)]


def test_a_way_that_gets_another_rate_keeps_what_it_was_told_while_a_message_goes() -> None:
    told, network, stage = ways(8 * MBIT)
    told.links[0, 4].be_whole(6 * MBIT * PARTS)
    assert told.links[0, 4].capacity == 6 * MBIT * PARTS
    begin(network, stage)
    told.take(0, [CoreRate(4, MBIT)], network, 0, answers=False)
    told.links[0, 4].be_whole(3 * MBIT * PARTS)
    assert told.links[0, 4].capacity == MBIT * PARTS


def test_ways_without_a_rate_are_not_reported() -> None:
    told, network, stage = ways(None)
    begin(network, stage)
    assert told.news(0) == []
