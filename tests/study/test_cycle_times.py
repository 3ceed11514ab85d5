"""Cycle times of overlays: the max-plus formula against all cycles, and against simulated fleets to the nanosecond."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise, permutations
from pathlib import Path

import networkx as nx
import pytest

from netdfl.core.errors import InputError
from netdfl.study.cycle_times.fleets import (
    Overlay,
    by_formula,
    over_shared_lines,
    time_of_a_round,
    time_to_target,
    trained_over_shared_lines,
)
from netdfl.study.cycle_times.max_plus import cycle_time
from netdfl.study.cycle_times.overlays import (
    Assumptions,
    Ways,
    both_ways,
    delta_mbst,
    drawn_rounds,
    matchings,
    mean_of_longest,
    ring,
    star,
    star_time,
)
from netdfl.study.cycle_times.silos import AWS_NORTH_AMERICA, GAIA, Silos, between_all, read_silos

GIVEN = Assumptions(model_bits=8_000_000, step_ns=10_000_000)
"""A megabyte: 8 ms on a line, 0.8 ms on an access link."""
LINE = Silos(4, {(0, 1): 1000.0, (1, 2): 200.0, (2, 3): 500.0})
FIVE = Silos(5, {(0, 1): 900.0, (1, 2): 200.0, (2, 3): 700.0, (3, 4): 100.0, (0, 4): 1500.0, (1, 3): 650.0})
MS = 10**6
GML = """graph [
  node [ id 5 label "Bern" ]
  node [ id 6 label "Oslo" ]
  node [ id 9 label "Rome" ]
  edge [ source 6 target 5 distance 1500.5 capacity 1000000000.0 ]
  edge [ source 5 target 9 distance 690 ]
]"""


@pytest.mark.parametrize("seed", range(12))
def test_the_cycle_time_is_the_largest_mean_of_all_cycles(seed: int) -> None:
    rng, size = random.Random(seed), 3 + seed % 4
    way = list(range(size))
    edges = {*pairwise([*way, 0]), *((rng.randrange(size), rng.randrange(size)) for _ in range(2 * size))}
    delays = {edge: rng.randrange(1, 50) for edge in edges}
    cycles = nx.simple_cycles(nx.DiGraph(list(delays)))
    means = [Fraction(sum(delays[e] for e in pairwise([*each, each[0]])), len(each)) for each in cycles]
    assert cycle_time(delays) == max(means)


def test_an_overlay_without_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="no cycle"):
        cycle_time({(0, 1): 5})


def test_a_delay_is_a_step_a_latency_and_the_longest_of_three_transfers() -> None:
    ways = Ways(LINE, GIVEN)
    latency = 4 * MS + 8500 * 1700
    assert ways.between[0, 3] == (latency, 3)
    assert ways.delay((0, 3)) == 10 * MS + latency + 3 * 8 * MS, "the way of three lines"
    assert ways.delay((0, 3), sent=40) == 10 * MS + latency + 32 * MS, "the sender's access link"
    assert ways.delay((0, 3), heard=50) == 10 * MS + latency + 40 * MS, "the receiver's"
    found = ways.delays([(0, 1), (0, 2), (3, 2)])
    assert found == {
        (0, 1): ways.delay((0, 1), 2, 1),
        (0, 2): ways.delay((0, 2), 2, 2),
        (3, 2): ways.delay((3, 2), 1, 2),
    }


def test_a_star_is_about_the_first_silo_and_a_round_goes_there_and_back() -> None:
    ways = Ways(LINE, GIVEN)
    assert sorted(star(ways)) == sorted(both_ways((0, node) for node in (1, 2, 3)))
    assert star_time(ways) == 2 * (max(ways.delays(star(ways)).values()) - 10 * MS) + 10 * MS


def test_a_ring_visits_every_silo_once_and_a_tree_is_no_worse_than_the_shortest_one() -> None:
    ways = Ways(FIVE, GIVEN)
    found = ring(ways)
    assert sorted(src for src, _ in found) == sorted(dst for _, dst in found) == list(range(5))
    best = min(cycle_time(ways.delays(list(pairwise([0, *rest, 0])))) for rest in permutations(range(1, 5)))
    assert best <= cycle_time(ways.delays(found)) <= 1.5 * best
    shortest = nx.minimum_spanning_tree(ways.complete(), weight="delay")
    tree = delta_mbst(ways)
    assert nx.is_tree(nx.Graph(tree))
    assert cycle_time(ways.delays(tree)) <= cycle_time(ways.delays(both_ways(shortest.edges)))


def test_matchings_hold_every_edge_once_and_share_no_silo() -> None:
    found = matchings(FIVE.km)
    assert sorted(edge for each in found for edge in each) == sorted(FIVE.km)
    assert all(len({end for edge in each for end in edge}) == 2 * len(each) for each in found)
    rounds = drawn_rounds(found, 400)
    assert all(rounds), "never without an edge"
    shares = [sum(set(each) <= set(edges) for edges in rounds) / 400 for each in found]
    whole = 1 - 0.5 ** len(found)
    assert all(abs(share - 0.5 / whole) < 0.1 for share in shares)


def test_a_round_of_matchings_takes_its_longest_delay() -> None:
    ways = Ways(LINE, GIVEN)
    longest = [ways.delay((0, 1)), ways.delay((0, 1))]
    assert mean_of_longest(ways, [[(0, 1)], [(0, 1), (2, 3)]]) == Fraction(sum(longest), 2)


def overlay_of(name: str, ways: Ways) -> tuple[Overlay, Fraction]:
    if name == "star":
        return Overlay(server=True), star_time(ways)
    edges = ring(ways) if name == "ring" else delta_mbst(ways)
    return Overlay([edges]), cycle_time(ways.delays(edges))


@pytest.mark.parametrize("name", ["star", "ring", "tree"])
def test_a_simulated_fleet_takes_what_the_formula_says_to_the_nanosecond(name: str) -> None:
    ways = Ways(FIVE, GIVEN)
    overlay, formula = overlay_of(name, ways)
    found, narrow = time_of_a_round(by_formula(overlay, ways, 22), 10)
    assert found == formula
    assert narrow == "", "no underlay, no bottleneck"


def test_messages_that_meet_on_a_line_take_longer_than_the_formula_says() -> None:
    """Silos 0 and 1 send to 3 over one line: a transfer of 16 ms, where the formula has a way of two lines, or one."""
    hub = Silos(4, {(0, 2): 0.0, (1, 2): 0.0, (2, 3): 0.0})
    given = Assumptions(model_bits=8_000_000, step_ns=10_000_000, access_bps=10**12)
    ways = Ways(hub, given)
    edges = both_ways([(0, 3), (1, 3)])
    formula = cycle_time(ways.delays([*edges, *both_ways([(2, 3)])]))
    assert formula == 10 * MS + 4 * MS + 16 * MS
    overlay = Overlay([[*edges, *both_ways([(2, 3)])]])
    found, narrow = time_of_a_round(over_shared_lines(overlay, hub, 12, given), 6)
    assert found / MS == pytest.approx(10 + 4 + 24, rel=1e-3), "three messages over the line between 2 and 3"
    assert narrow in ("s2->s3", "s3->s2")


def test_the_center_has_the_server_and_small_models_take_as_long_on_slower_lines() -> None:
    star_fleet = over_shared_lines(Overlay(server=True), LINE, 3, GIVEN)
    assert star_fleet["underlay"]["place"]["4"] == "s0"
    edges = both_ways(pairwise(range(4)))
    fleet = trained_over_shared_lines(Overlay([edges]), LINE, 3, GIVEN)
    rate = int(fleet["underlay"]["links"]["s0--s1"]["rate"].removesuffix("bit"))
    assert 1e-3 < rate / 10**9 < 0.1
    reached = time_to_target(fleet, 0.2)
    assert reached is not None
    large, _ = time_of_a_round(over_shared_lines(Overlay([edges]), LINE, 3, GIVEN), 2)
    assert reached[1] == pytest.approx(reached[0] * float(large) / 1e9, rel=0.01)
    assert time_to_target(fleet, 1.1) is None


def test_a_network_is_read_from_a_file_with_distances(tmp_path: Path) -> None:
    file = tmp_path / "three.gml"
    file.write_text(GML)
    assert read_silos(file) == Silos(3, {(0, 1): 1500.5, (0, 2): 690.0})
    file.write_text(GML.replace("distance 690", "weight 3"))
    with pytest.raises(InputError, match=r"the edge .* has no distance; each edge needs one, in km"):
        read_silos(file)


def test_the_networks_of_places_have_a_line_between_every_two() -> None:
    assert (len(GAIA), len(AWS_NORTH_AMERICA)) == (11, 22)
    assert len(between_all(GAIA).km) == 55
    assert between_all({"a": (0.0, 0.0), "b": (0.0, 90.0)}).km == {(0, 1): pytest.approx(10007.5, abs=1)}
    # the published times for iNaturalist, from the authors' own distances: 118.1 ms and 390.9 ms
    ways = Ways(between_all(GAIA), Assumptions())
    assert float(cycle_time(ways.delays(ring(ways)))) / MS == pytest.approx(118.1, rel=0.01)
    assert float(star_time(ways)) / MS == pytest.approx(390.9, rel=0.01)
