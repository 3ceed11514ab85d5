"""Networks with shared links and their traffic, for the solver, the link engine and real nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

from netdfl.core.rng import Streams
from netdfl.core.types import Edge, Kind
from netdfl.links.channel import Links
from netdfl.links.rules.base import Transit
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from tests.links import fluid
from tests.links.driving import drive

S, MBIT, MB = 10**9, 10**6, 10**6
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

    def written(self) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
        """The network as a scenario's `links` and `events`."""
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
        return rules, events

    def engine(self, order: Sequence[int] | None = None) -> dict[int, int | None]:
        """When each message arrives, by the link engine, in ns; None for one that does not."""
        rules, events = self.written()
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
