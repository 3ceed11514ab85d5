"""Routes are the shortest by latency, with ties as the text of the module says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from netdfl.underlay.routes import Routes
from netdfl.underlay.sites import CoreFigures, CoreNetwork
from tests.underlay.sites import FIGURES, SITES, shortest

PAIRS = [(a, b) for a in "abcde" for b in "abcde" if a != b]
DELAYS = st.sampled_from([0, 1, 2, 3])
ONE_WAY = st.dictionaries(st.sampled_from([f"{a}->{b}" for a, b in PAIRS]), DELAYS, min_size=1)
BOTH_WAYS = st.dictionaries(st.sampled_from([f"{a}--{b}" for a, b in PAIRS if a < b]), DELAYS, min_size=1)


@settings(max_examples=60)
@given(ONE_WAY | BOTH_WAYS)
def test_the_way_is_the_best_of_all_possible_ways(delays: dict[str, int]) -> None:
    figures = {name: CoreFigures(delay) for name, delay in delays.items()}
    network = CoreNetwork(figures)
    routes = Routes(network)
    for src in network.sites:
        for dst in network.sites:
            found = routes.way(src, dst)
            assert (None if found is None else [link.name for link in found]) == shortest(figures, src, dst)


def test_the_way_back_is_the_way_there_where_both_directions_are_alike() -> None:
    square = {name: CoreFigures(1) for name in ("a--b", "a--c", "b--d", "c--d")}
    routes = Routes(CoreNetwork(square))
    assert [link.name for link in routes.way("a", "d") or ()] == ["a->b", "b->d"]
    assert [link.name for link in routes.way("d", "a") or ()] == ["d->b", "b->a"]


def test_links_that_are_down_carry_nothing() -> None:
    network = CoreNetwork(FIGURES)
    routes = Routes(network, network.named("zurich->milan"))
    assert [link.name for link in routes.way("paris", "milan") or ()] == ["paris->milan"]
    assert [link.name for link in routes.way("milan", "paris") or ()] == ["milan->zurich", "zurich->paris"]
    assert Routes(network, network.named("milan->vienna")).way("paris", "vienna") is None


def test_sites_stand_in_the_order_in_which_links_name_them() -> None:
    assert CoreNetwork(FIGURES).sites == SITES
