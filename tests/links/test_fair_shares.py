"""Shared links against a solver written from the definition of max-min fairness: each arrival within 1 us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

import fluid
import pytest
from driving import LinkRun, drive
from hypothesis import given, settings
from hypothesis import strategies as st

from netdfl.core.rng import Streams
from netdfl.core.types import Edge, Kind
from netdfl.links.channel import Links
from netdfl.links.path import Path
from netdfl.links.rules.base import Transit
from netdfl.links.rules.latency import Latency, constant
from netdfl.links.rules.rate import Shape
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.stage import FairStage
from netdfl.links.spec import LinksSpec

S, US, MBIT, MB = 10**9, 1000, 10**6, 10**6
LATENCY = Fraction(3, 1000)


@dataclass
class Network:
    """A network and its traffic. Rates in bit/s, times in s; a message is (at, src, dst, bytes), named by its place.

    `changes` are (at, "up" or "down", node, rate); `holds` are (edge, from, to), `resets` are (edge, at). Of the
    messages, `lost` are the places of lost ones.
    """

    messages: Sequence[tuple[float, int, int, int]]
    up: Mapping[int, int] = field(default_factory=dict)
    down: Mapping[int, int] = field(default_factory=dict)
    own: Mapping[Edge, int] = field(default_factory=dict)
    changes: Sequence[tuple[float, str, int, int]] = ()
    holds: Sequence[tuple[Edge, float, float]] = ()
    resets: Sequence[tuple[Edge, float]] = ()
    lost: frozenset[int] = frozenset()

    def engine(self, order: Sequence[int] | None = None) -> dict[int, int | None]:
        """When each message arrives, by the link engine, in ns; None for one that does not."""
        rules: dict[str, dict[str, Any]] = {"default": {"latency": f"{float(LATENCY)}s"}}
        for key, rates in (("uplink", self.up), ("downlink", self.down)):
            for node, rate in rates.items():
                rules.setdefault(str(node), {})[key] = {"rate": f"{rate}bit", "sharing": "fair"}
        for src, dst in {(src, dst) for _, src, dst, _ in self.messages}:
            rule: dict[str, Any] = {"rate": f"{self.own[src, dst]}bit"} if (src, dst) in self.own else {}
            gone = [{"round": n} for n in sorted(self.lost) if self.messages[n][1:3] == (src, dst)]
            rules[f"{src}->{dst}"] = rule | ({"loss": {"model": "drop_list", "messages": gone}} if gone else {})
        events: list[dict[str, Any]] = [
            {"at": f"{at}s", "node": node, f"{key}link": f"{rate}bit"} for at, key, node, rate in self.changes
        ]
        for (src, dst), start, end in self.holds:
            events += [{"from": f"{start}s", "to": f"{end}s", "link": f"{src}->{dst}", "state": "down_hold"}]
        events += [{"at": f"{at}s", "link": f"{s}->{d}", "state": "down_reset"} for (s, d), at in self.resets]
        compiled = compile_events(events, Facts(16, Streams(0)))
        links = Links(LinksSpec(rules, {}, 16), Streams(0), compiled)
        places = range(len(self.messages)) if order is None else order
        sent = [
            (round(at * S), Transit(src, dst, Kind.DATA, n, 0, 0, nbytes))
            for n in places
            for at, src, dst, nbytes in [self.messages[n]]
        ]
        ends = drive(links, compiled, sent)
        assert len(ends) == len(self.messages)
        return {end.unit.round: None if end.reason else end.at_ns for end in ends}

    def solver(self) -> dict[int, int | None]:
        """The same by the solver."""
        rates: dict[Any, Fraction] = {("up", node): Fraction(rate) for node, rate in self.up.items()}
        rates |= {("down", node): Fraction(rate) for node, rate in self.down.items()}
        rates |= {edge: Fraction(rate) for edge, rate in self.own.items()}
        transfers = []
        for n, (at, src, dst, nbytes) in enumerate(self.messages):
            way = [("up", src)] if n in self.lost else [("up", src), (src, dst), ("down", dst)]
            over = tuple(link for link in way if link in rates)
            transfers.append(fluid.Transfer(n, (src, dst), Fraction(str(at)), nbytes, over))
        changes = [fluid.Change(Fraction(str(at)), (key, n), Fraction(rate)) for at, key, n, rate in self.changes]
        for edge, start, end in self.holds:
            changes += [fluid.Change(Fraction(str(start)), edge, "held"), fluid.Change(Fraction(str(end)), edge, "go")]
        changes += [fluid.Change(Fraction(str(at)), edge, "reset") for edge, at in self.resets]
        found = fluid.play(transfers, rates, changes)
        return {n: None if end is None or n in self.lost else round((end + LATENCY) * S) for n, end in found.items()}


def alike(found: Mapping[Any, int | None], expected: Mapping[Any, int | None]) -> bool:
    """Whether all arrive within a microsecond of what is expected, and the same ones do not."""
    pairs = [(found[n], expected[n]) for n in expected]
    return found.keys() == expected.keys() and all(
        abs(a - b) <= US if a is not None and b is not None else a is b for a, b in pairs
    )


SCENARIOS = {
    "four at once": Network([(0, 0, d, 2_500_000) for d in (1, 2, 3, 4)], up={0: 10 * MBIT}),
    "staggered starts": Network([(0.7 * d, 0, d, MB) for d in range(1, 6)], up={0: 8 * MBIT}),
    "unlike sizes, and messages behind one another": Network(
        [(0, 0, d, d * 300_000) for d in range(1, 6)] + [(0.1, 0, 2, MB), (0.2, 0, 1, 50_000)], up={0: 7 * MBIT}
    ),
    "up and down at once": Network(
        [(0, 0, 1, 2_500_000), (0.5, 2, 1, MB), (0.9, 0, 3, MB)], up={0: 10 * MBIT, 2: 9 * MBIT}, down={1: 10 * MBIT}
    ),
    "rates that change in the middle": Network(
        [(0, 0, d, MB) for d in (1, 2, 3)],
        up={0: 8 * MBIT},
        down={2: 3 * MBIT},
        changes=[(0.5, "up", 0, 2 * MBIT), (1.5, "up", 0, 30 * MBIT), (2.0, "down", 2, 1 * MBIT)],
    ),
    "links that hold": Network(
        [(0, 0, d, MB) for d in (1, 2, 3)] + [(1.2, 0, 1, 10_000)],
        up={0: 8 * MBIT},
        holds=[((0, 1), 0.5, 2.25), ((0, 2), 0.0, 0.3)],
    ),
    "a reset": Network(
        [(0, 0, d, MB) for d in (1, 2, 3)] + [(0.2, 0, 2, MB)], up={0: 8 * MBIT}, resets=[((0, 2), 0.6)]
    ),
    "losses": Network(
        [(0, 0, d, MB) for d in (1, 2, 3)] + [(0.1, 0, 2, MB), (0, 4, 3, MB)],
        up={0: 8 * MBIT, 4: 6 * MBIT},
        own={(0, 1): MBIT, (0, 2): MBIT},
        down={3: 5 * MBIT},
        lost=frozenset({0, 1}),
    ),
    "two bottlenecks in a row": Network(
        [(0, 0, 2, MB), (0, 0, 3, 2 * MB), (0, 1, 3, MB), (0.3, 1, 2, MB), (0.4, 4, 3, 3 * MB)],
        up={0: 5 * MBIT, 1: 3 * MBIT},
        down={2: 2 * MBIT, 3: 4 * MBIT},
        own={(4, 3): 1_500_000},
    ),
    "everybody to everybody": Network(
        [(0.01 * (s * d % 7), s, d, 100_000 * (1 + (s + d) % 4)) for s, d in product(range(8), range(8)) if s != d],
        up={n: (1 + n) * MBIT for n in range(8)},
        down={n: (9 - n) * MBIT for n in range(8)},
    ),
}


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
