"""Shared links against a solver written from the definition of max-min fairness: each arrival within 1 us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdfl.core.types import Kind
from netdfl.links.path import Path
from netdfl.links.rules.base import Transit
from netdfl.links.rules.latency import Latency, constant
from netdfl.links.rules.rate import Shape
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.stage import FairStage
from tests.links import fluid
from tests.links.driving import LinkRun
from tests.links.shared_traffic import LATENCY, MB, MBIT, SCENARIOS, Network, S

US = 1000


def alike(found: Mapping[Any, int | None], expected: Mapping[Any, int | None]) -> bool:
    """Whether all arrive within a microsecond of what is expected, and the same ones do not."""
    pairs = [(found[n], expected[n]) for n in expected]
    return found.keys() == expected.keys() and all(
        abs(a - b) <= US if a is not None and b is not None else a is b for a, b in pairs
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_message_arrives_when_the_solver_says(name: str) -> None:
    network = SCENARIOS[name]
    expected = network.solver()
    assert any(at is not None for at in expected.values())
    assert alike(network.engine(), expected)


RATES = st.sampled_from([1, 2, 3, 5, 7, 10]).map(lambda each: each * MBIT)
NODES = st.integers(0, 3)
TRAFFIC = st.lists(
    st.tuples(st.integers(0, 20).map(lambda at: at / 10), NODES, NODES, st.integers(0, MB)).filter(
        lambda message: message[1] != message[2]
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60)
@given(TRAFFIC, st.fixed_dictionaries({n: RATES for n in range(4)}), st.dictionaries(NODES, RATES), st.randoms())
def test_any_traffic_is_shared_as_the_solver_says_whoever_is_put_in_first(
    traffic: list[tuple[float, int, int, int]], up: dict[int, int], down: dict[int, int], random: Any
) -> None:
    network = Network(traffic, up, down, own={(0, 1): 2 * MBIT})
    found = network.engine()
    assert alike(found, network.solver())
    order = sorted(range(len(traffic)), key=lambda n: (traffic[n][1:3], n))
    edges = sorted({traffic[n][1:3] for n in order}, key=lambda edge: random.random())
    assert network.engine([n for edge in edges for n in order if traffic[n][1:3] == edge]) == found


def over_sites(
    messages: Sequence[tuple[float, int, int, int]], site_of: Mapping[int, int], core: int
) -> tuple[Any, Any]:
    """Arrivals of traffic between nodes on sites that one core link a pair of sites joins, and the solver's."""
    network, run = FairNetwork(), LinkRun()
    up = {n: SharedLink((0, n), Shape(10 * MBIT)) for n in site_of}
    down = {n: SharedLink((1, n), Shape(10 * MBIT)) for n in site_of}
    pairs = {(site_of[s], site_of[d]) for _, s, d, _ in messages if site_of[s] != site_of[d]}
    cores = {pair: SharedLink((3, *pair), Shape(core)) for pair in pairs}
    rates: dict[Any, Fraction] = {(key, n): Fraction(10 * MBIT) for key in ("up", "down") for n in site_of}
    rates |= {("core", *pair): Fraction(core) for pair in pairs}
    paths, transfers = {}, []
    for n, (at, src, dst, nbytes) in enumerate(messages):
        between = (site_of[src], site_of[dst])
        crossed = [cores[between]] if between in cores else []
        names = [("core", *between)] if between in cores else []
        if (src, dst) not in paths:
            stage = FairStage(network, (src, dst), [up[src], *crossed, down[dst]])
            paths[src, dst] = Path((src, dst), [stage, Latency(0, constant(delay=int(LATENCY * S)))])
        run.submit(paths[src, dst], Transit(src, dst, Kind.DATA, n, 0, 0, nbytes), round(at * S))
        way = (("up", src), *names, ("down", dst))
        transfers.append(fluid.Transfer(n, (src, dst), Fraction(str(at)), nbytes, way))
    expected = {n: round((end + LATENCY) * S) for n, end in fluid.play(transfers, rates).items() if end is not None}
    return {end.unit.round: end.at_ns for end in run.finish()}, expected


def test_a_core_link_is_shared_with_what_crosses_it_beside() -> None:
    messages = [(0, 0, 2, MB), (0, 1, 3, MB), (0.25, 0, 3, MB), (0.1, 2, 0, MB), (0, 4, 3, 500_000), (0.5, 0, 1, MB)]
    found, expected = over_sites(messages, {0: 0, 1: 0, 2: 1, 3: 1, 4: 2}, 6 * MBIT)
    assert alike(found, expected)


def test_sixteen_nodes_on_four_sites_share_the_core() -> None:
    messages = [(0, n, (n + step) % 16, 400_000 + 50_000 * (n % 3)) for n in range(16) for step in (1, 4, 7)]
    found, expected = over_sites(messages, {n: n // 4 for n in range(16)}, 20 * MBIT)
    assert alike(found, expected)
