"""A core network of four sites, with fleets on it, for the tests of the underlay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, permutations
from typing import Any

from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.channel import Links
from netdfl.links.rules.base import Transit
from netdfl.links.rules.tcp import default_table
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from netdfl.underlay.rerouting import rerouted
from netdfl.underlay.shared import SharedCore
from netdfl.underlay.sites import CoreFigures, CoreNetwork
from netdfl.underlay.underlay import Underlay
from tests.links.driving import drive

S, MS, MBIT, MB = 10**9, 10**6, 10**6, 10**6
SITES = ("paris", "zurich", "milan", "vienna")
FIGURES = {
    "paris--zurich": CoreFigures(3 * MS, 20 * MBIT),
    "zurich--milan": CoreFigures(2 * MS, 8 * MBIT),
    "paris--milan": CoreFigures(9 * MS, 10 * MBIT),
    "milan->vienna": CoreFigures(4 * MS, 6 * MBIT),
    "vienna->milan": CoreFigures(4 * MS, 5 * MBIT),
}
"""Paris reaches Milan over Zurich in 5 ms, and directly in 9; what goes to Vienna crosses milan->vienna."""


def shortest(figures: Mapping[str, CoreFigures], src: str, dst: str) -> list[str] | None:
    """The directions of core links on the way, found by trying every order of sites; None without a way."""
    delays: dict[tuple[str, str], int] = {}
    for name, each in figures.items():
        a, b = name.replace("->", "--").split("--")
        delays[a, b] = each.latency_ns
        if "--" in name:
            delays[b, a] = each.latency_ns
    if src == dst:
        return []
    if all(delays.get((b, a)) == delay for (a, b), delay in delays.items()) and dst < src:
        back = shortest(figures, dst, src)
        return None if back is None else ["->".join(reversed(name.split("->"))) for name in reversed(back)]
    between = {site for ends in delays for site in ends} - {src, dst}
    ways = [(src, *some, dst) for count in range(len(between) + 1) for some in permutations(between, count)]
    possible = [way for way in ways if all(pair in delays for pair in pairwise(way))]
    if not possible:
        return None
    best = min(possible, key=lambda way: (sum(delays[p] for p in pairwise(way)), len(way), way))
    return [f"{a}->{b}" for a, b in pairwise(best)]


def fleet(site_of: Mapping[int, str], reroute_ns: int | None = None) -> Underlay:
    """A fleet on the four sites."""
    return Underlay(CoreNetwork(FIGURES), site_of, reroute_ns)


def arrivals(
    underlay: Underlay,
    messages: Sequence[tuple[float, int, int, int]],
    rules: Mapping[str, Mapping[str, Any]] | None = None,
    events: Sequence[Mapping[str, object]] = (),
    seed: int = 0,
    *,
    over_tcp: bool = False,
) -> dict[int, int | str]:
    """When each message (at, src, dst, bytes) arrives, in ns, or why it is lost, by its place; none for one held.

    With `over_tcp`, by the model of TCP.
    """
    size = len(underlay.site_of)
    streams = Streams(seed)
    compiled = rerouted(compile_events(events, Facts(size, streams, core=underlay)), underlay)
    core, tcp = SharedCore(underlay, streams, over_tcp=over_tcp), default_table() if over_tcp else None
    links = Links(LinksSpec(rules or {}, {}, size), streams, compiled, tcp, core=core)
    sent = [
        (round(at * S), Transit(src, dst, Kind.DATA, n, 0, 0, nbytes))
        for n, (at, src, dst, nbytes) in enumerate(messages)
    ]
    return {end.unit.round: end.reason or end.at_ns for end in drive(links, compiled, sent)}
