"""Shares of downlinks that are told: what nodes find by notices is max-min fair, and a full queue refuses."""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from typing import Any

from fluid import max_min
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.types import Kind
from netdfl.links.rules.base import Transit
from netdfl.links.rules.rate import Shape
from netdfl.links.sharing.capacity import PARTS, SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.past import Past
from netdfl.links.sharing.stage import FairStage
from netdfl.links.sharing.told import DownlinkShares, FlowNotice, ToldLink, advertised

MBIT = 10**6
RATES = st.integers(1, 9).map(lambda each: each * MBIT)
NODES = range(4)


def settled(
    up: dict[int, int], down: dict[int, int], edges: list[tuple[int, int]]
) -> tuple[dict[tuple[int, int], float], int]:
    """The rates of long messages on `edges` once all notices have come, and how many there were."""
    networks = {n: FairNetwork() for n in NODES}
    uplinks = {n: SharedLink((0, n), Shape(up[n])) for n in NODES}
    downlinks = {n: SharedLink((1, n), Shape(down[n])) for n in NODES}
    shares = {n: DownlinkShares(downlinks[n]) for n in NODES}
    told = {edge: ToldLink(edge, downlinks[edge[1]]) for edge in edges}
    stages = {edge: FairStage(networks[edge[0]], edge, [uplinks[edge[0]], told[edge]], judges=()) for edge in edges}
    for edge, stage in stages.items():
        stage.enter(Transit(*edge, Kind.DATA, 0, 0, 0, 10**9), 0)
    for network in networks.values():
        network.retimed(0)
    waiting = deque((edge, told[edge].news()) for edge in edges)
    count = 0
    while waiting:
        (src, dst), notice = waiting.popleft()
        if notice is None:
            continue
        count += 1
        shares[dst].take(src, notice)
        for other, rate, since_ns in list(shares[dst].news()):
            count += 1
            told[other, dst].take_share(rate, since_ns, networks[other])
            networks[other].retimed(0)
            waiting.extend((edge, told[edge].news()) for edge in edges if edge[0] == other)
    rates = {edge: next(iter(stage.flows.values())).rate for edge, stage in stages.items()}
    return {edge: (rate or 0) / PARTS for edge, rate in rates.items()}, count


EDGES = st.sets(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)).filter(lambda e: e[0] != e[1]), min_size=1)


@given(st.fixed_dictionaries({n: RATES for n in NODES}), st.fixed_dictionaries({n: RATES for n in NODES}), EDGES)
def test_what_nodes_find_by_notices_is_max_min_fair(
    up: dict[int, int], down: dict[int, int], edges: set[tuple[int, int]]
) -> None:
    ordered = sorted(edges)
    found, count = settled(up, down, ordered)
    crossing: dict[Any, Any] = {edge: [("up", edge[0]), ("down", edge[1])] for edge in ordered}
    rates: dict[Any, Fraction] = {("up", n): Fraction(up[n]) for n in NODES}
    rates |= {("down", n): Fraction(down[n]) for n in NODES}
    expected = max_min(crossing, rates)
    assert all(abs(found[edge] - expected[edge]) <= 0.01 * expected[edge] for edge in ordered), (found, expected)
    assert count <= 40 * len(ordered)


def test_what_some_cannot_use_goes_to_the_others() -> None:
    assert advertised(90, []) == 90
    assert advertised(90, [100, 100, 100]) == 30
    assert advertised(90, [10, 100, 100]) == 40
    assert advertised(90, [10, 20]) == 80, "up to which the larger may grow"


def test_a_message_that_finds_the_queue_full_is_refused_once() -> None:
    shares = DownlinkShares(SharedLink((1, 9), Shape(MBIT, queue_bytes=1500)))
    assert [shares.take(src, FlowNotice(1, 1000, MBIT)) for src in (0, 1, 2)] == [True, True, False]
    assert rates(shares) == {0: MBIT // 2, 1: MBIT // 2}
    assert not list(shares.news())
    assert shares.take(0, FlowNotice(0))
    assert rates(shares) == {1: MBIT}
    assert shares.take(2, FlowNotice(2, 1000, MBIT // 10))
    assert rates(shares) == {1: MBIT * 9 // 10, 2: MBIT * 9 // 10}, "a first share is told whatever the offer"


def rates(shares: DownlinkShares) -> dict[int, int]:
    return {src: rate for src, rate, _ in shares.news()}


def test_a_first_or_lower_share_holds_since_the_first_change_and_a_higher_one_since_the_last() -> None:
    shares = DownlinkShares(SharedLink((1, 9), Shape(12 * MBIT)))
    for src, at_ns in ((0, 100), (1, 300), (2, 200)):
        shares.take(src, FlowNotice(1, 1000, 20 * MBIT, at_ns))
    assert list(shares.news([0])) == [(1, 4 * MBIT, 200), (2, 4 * MBIT, 200)]
    assert list(shares.news()) == [(0, 4 * MBIT, 100)]
    shares.take(3, FlowNotice(1, 1000, 20 * MBIT, 500))
    shares.take(4, FlowNotice(1, 1000, 20 * MBIT, 150))
    assert {src: since_ns for src, _, since_ns in shares.news()} == {0: 150, 1: 200, 2: 200, 3: 150, 4: 150}
    for src, at_ns in ((0, 700), (1, 600)):
        shares.take(src, FlowNotice(0, since_ns=at_ns))
    assert {since_ns for *_, since_ns in shares.news()} == {700}
    shares.take(2, FlowNotice(0, since_ns=650))
    assert {since_ns for *_, since_ns in shares.news()} == {700}, "not before what was told"


def test_a_sender_is_told_another_share_only_where_the_old_or_the_new_one_limits_it() -> None:
    shares = DownlinkShares(SharedLink((1, 9), Shape(12 * MBIT)))
    for src, offer, at_ns in ((0, 2, 100), (1, 20, 100)):
        shares.take(src, FlowNotice(1, 1000, offer * MBIT, at_ns))
    assert list(shares.news()) == [(0, 10 * MBIT, 100), (1, 10 * MBIT, 100)]
    shares.take(2, FlowNotice(1, 1000, 3 * MBIT, 200))
    assert list(shares.news()) == [(1, 7 * MBIT, 200), (2, 7 * MBIT, 200)], "node 0 can't use 7 Mbit/s"
    shares.take(0, FlowNotice(1, 1000, 8 * MBIT, 300))
    assert list(shares.news()) == [(0, 4_500_000, 300), (1, 4_500_000, 300)], "since its offer rose, not since 200"
    shares.take(1, FlowNotice(0, since_ns=400))
    assert list(shares.news()) == [(0, 9 * MBIT, 400)], "the old share limited it"


def test_a_crashed_sender_keeps_its_share_until_its_message_has_come() -> None:
    shares = DownlinkShares(SharedLink((1, 9), Shape(12 * MBIT)))
    for src in (0, 1, 2):
        shares.take(src, FlowNotice(1, 1000, 20 * MBIT))
    shares.keep(0, 700)
    shares.keep(2, 900)
    shares.keep(3, 500)
    shares.forget(0)
    shares.forget(2)
    assert shares.next_ns == 700, "node 3 had sent nothing"
    assert list(shares.news()) == [(1, 4 * MBIT, 0)], "who crashed is told nothing"
    shares.go_on(699)
    assert not list(shares.news())
    shares.go_on(800)
    assert list(shares.news()) == [(1, 6 * MBIT, 700)]
    assert shares.next_ns == 900
    shares.go_on(900)
    assert list(shares.news()) == [(1, 12 * MBIT, 900)]
    assert shares.next_ns is None


def test_what_a_restarted_sender_sends_takes_the_place_of_what_it_had_sent_before() -> None:
    shares = DownlinkShares(SharedLink((1, 9), Shape(12 * MBIT, queue_bytes=1000)))
    shares.take(0, FlowNotice(1, 1000, 20 * MBIT))
    assert rates(shares) == {0: 12 * MBIT}
    shares.keep(0, 10**9)
    assert shares.take(0, FlowNotice(1, 1000, 20 * MBIT, 5))
    assert list(shares.news()) == [(0, 12 * MBIT, 5)], "it is another flow, that knows no rate"
    assert shares.next_ns is None
    assert shares.take(1, FlowNotice(1, 1000, 20 * MBIT)), "one message waits, not two"


def under_way() -> tuple[FairNetwork, FairStage, ToldLink]:
    """A message of 1 MB since 0 s over an uplink of 8 Mbit/s and a downlink of 8 Mbit/s, whose share is told."""
    network, told = FairNetwork(Past()), ToldLink((0, 1), SharedLink((1, 1), Shape(8 * MBIT)))
    stage = FairStage(network, (0, 1), [SharedLink((0, 0), Shape(8 * MBIT)), told], judges=())
    stage.enter(Transit(0, 1, Kind.DATA, 0, 0, 0, MBIT), 0)
    assert [each.at_ns for each in network.retimed(0)] == [10**9]
    return network, stage, told


def test_a_message_that_is_told_of_late_goes_since_its_beginning_and_what_changes_since_the_change() -> None:
    network, stage, told = under_way()
    assert told.news(7) == FlowNotice(1, MBIT, 8 * MBIT, 0)
    network.change(stage.links[0], {"rate": Shape(4 * MBIT)})
    network.retimed(9)
    assert told.news(9) == FlowNotice(1, MBIT, 4 * MBIT, 9)


def told_at(at_s: float, since_s: float, rate_bps: int) -> float:
    network, _, told = under_way()
    told.take_share(rate_bps, round(since_s * 10**9), network)
    (moved,) = network.retimed(round(at_s * 10**9))
    assert network.since_ns == round(max(0, min(at_s, since_s)) * 10**9)
    return moved.at_ns / 10**9


def test_a_share_that_comes_late_holds_since_it_changed() -> None:
    assert told_at(0.3, 0.1, 4 * MBIT) == 1.9, "0.8 Mbit until 0.1 s, the others at 4 Mbit/s"
    assert told_at(0.3, 0.3, 4 * MBIT) == 1.7
    assert told_at(0.3, -1, 4 * MBIT) == 2, "not before the message began"


def test_a_second_share_replaces_the_first_one_since_an_earlier_time_too() -> None:
    network, _, told = under_way()
    told.take_share(4 * MBIT, 10**8, network)
    assert network.retimed(3 * 10**8)
    told.take_share(2 * MBIT, 5 * 10**7, network)
    (moved,) = network.retimed(5 * 10**8)
    assert moved.at_ns == 5 * 10**7 + 38 * 10**8, "0.4 Mbit until 50 ms, 7.6 at 2 Mbit/s"


def test_a_message_that_ended_by_a_share_that_comes_late_leaves_at_its_end() -> None:
    network, _, told = under_way()
    told.take_share(2 * MBIT, 0, network)
    assert network.retimed(0)
    told.take_share(8 * MBIT, 4 * 10**8, network)
    (moved,) = network.retimed(2 * 10**9)
    assert moved.at_ns == 4 * 10**8 + 9 * 10**8
