"""`underlay.json` of a run directory: the core network of a run, for programs that read the run later.

The record has the sender and the receiver of each message; the routes here say which core links it crossed.
"""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.links.schedule.events import CompiledEvent
from netdfl.record.forms import CoreLinkForm, RoutesForm, UnderlayForm
from netdfl.scenario.build import build_underlay, compile_as_written, compile_schedule
from netdfl.scenario.model.schema import Scenario
from netdfl.underlay.rerouting import REROUTE, cut_times
from netdfl.underlay.routes import Routes
from netdfl.underlay.sites import CoreLink
from netdfl.underlay.underlay import Underlay

SECOND = 10**9


def underlay_form(scenario: Scenario) -> UnderlayForm | None:
    """Return the contents of `underlay.json`; None for a scenario without an underlay.

    Raises ScheduleError where an event can't be interpreted.
    """
    underlay = build_underlay(scenario)
    if underlay is None:
        return None
    numbers = {site: number for number, site in enumerate(underlay.network.sites)}
    down: dict[CoreLink, list[list[float | None]]] = {}
    for name, begin, end in cut_times(compile_as_written(scenario, underlay)):
        for link in underlay.network.named(name):
            down.setdefault(link, []).append([begin / SECOND, None if end is None else end / SECOND])
    return {
        "sites": list(numbers),
        "site_of": [numbers[underlay.site_of[node]] for node in range(scenario.num_nodes)],
        "links": [_link(link, numbers, down.get(link, [])) for link in underlay.network.links.values()],
        "routes": list(_routes(underlay, compile_schedule(scenario), numbers)),
    }


def _link(link: CoreLink, numbers: dict[str, int], down: list[list[float | None]]) -> CoreLinkForm:
    figures = link.figures
    made: CoreLinkForm = {
        "src": numbers[link.src],
        "dst": numbers[link.dst],
        "rate_bps": figures.rate_bps,
        "latency_s": figures.latency_ns / SECOND,
        "loss": figures.loss,
    }
    return {**made, "down_s": down} if down else made


def _routes(underlay: Underlay, events: list[CompiledEvent], numbers: dict[str, int]) -> Iterator[RoutesForm]:
    places = {link: place for place, link in enumerate(underlay.network.links.values())}
    changes: list[tuple[float, Routes | None]] = [(0.0, None)]
    for event in events:
        if event.entry == REROUTE:
            changes.append(((event.at_ns or 0) / SECOND, underlay.routes_without(event.parameters["without"])))
    sites = sorted(underlay.nodes_of, key=numbers.__getitem__)
    for since_s, routes in changes:
        ways = [
            (numbers[src], numbers[dst], [places[link] for link in underlay.between(src, dst, routes)])
            for src in sites
            for dst in sites
            if src != dst
        ]
        yield {"since_s": since_s, "ways": ways}
