"""What is kept and shown of an underlay: `underlay.json` of a run directory, and the table of `netdfl explain`."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from netdfl.running.underlay_file import underlay_form
from netdfl.scenario.build import build_network, compile_schedule
from netdfl.scenario.explain.core_links import core_links
from netdfl.scenario.explain.explain import explain
from netdfl.scenario.explain.terminal_tables import show
from netdfl.scenario.load import load

BASE: dict[str, Any] = {"schema": "netdfl/1", "name": "u", "nodes": 4, "rounds": 5, "world": "simulated"}
BASE |= {"task": {"kind": "sized", "bytes": "1MB"}, "algorithm": "dpsgd", "topology": "full"}
LINKS = {
    "a--b": {"rate": "8Mbit", "latency": "1ms"},
    "b->c": {"rate": "4Mbit", "latency": "2ms", "loss": "1%"},
    "c->b": {"latency": "2ms"},
    "a--c": {"rate": "80Mbit", "latency": "9ms"},
}
CORE = {"links": LINKS, "place": {"0..1": "a", "2": "b", "3": "c"}, "reroute": "500ms"}
CUT = {"events": [{"at": "2s", "for": "3s", "cut": "b--c"}, {"at": "9s", "cut": "a->b"}]}
NAMES = ["a->b", "b->a", "b->c", "c->b", "a->c", "c->a"]


def ways(routes: Any, sites: list[str]) -> dict[str, list[str]]:
    return {f"{sites[src]}{sites[dst]}": [NAMES[link] for link in way] for src, dst, way in routes["ways"]}


def test_the_kept_underlay_has_sites_links_and_the_routes_from_each_change_on() -> None:
    kept = underlay_form(load(BASE | {"underlay": CORE} | CUT))
    assert kept is not None
    assert (kept["sites"], kept["site_of"]) == (["a", "b", "c"], [0, 0, 1, 2])
    assert [f"{kept['sites'][link['src']]}->{kept['sites'][link['dst']]}" for link in kept["links"]] == NAMES
    assert kept["links"][2] == {
        "src": 1, "dst": 2, "rate_bps": 4e6, "latency_s": 0.002, "loss": 0.01, "down_s": [[2.0, 5.0]]
    }  # fmt: skip
    assert kept["links"][3]["rate_bps"] is None
    assert [link.get("down_s") for link in kept["links"]] == [[[9.0, None]], None, *2 * [[[2.0, 5.0]]], None, None]
    assert [routes["since_s"] for routes in kept["routes"]] == [0.0, 2.5, 5.5, 9.5]
    first, without, again, for_good = (ways(routes, kept["sites"]) for routes in kept["routes"])
    assert first == again
    assert first["ac"] == ["a->b", "b->c"]
    assert (without["ac"], without["bc"]) == (["a->c"], ["b->a", "a->c"])
    assert for_good["ab"] == ["a->c", "c->b"]


def test_without_an_underlay_nothing_is_kept_of_one() -> None:
    assert underlay_form(load(BASE)) is None
    assert core_links(load(BASE), build_network(load(BASE)), 10**6) == []


def test_a_cut_that_goes_by_rounds_has_no_time_to_keep() -> None:
    still = CORE | {"reroute": "none"}
    kept = underlay_form(load(BASE | {"underlay": still, "events": [{"at_round": 1, "for_rounds": 2, "cut": "b--c"}]}))
    assert kept is not None
    assert all("down_s" not in link for link in kept["links"])


def test_explain_counts_who_crosses_a_core_link_and_how_long_a_round_takes_on_it() -> None:
    scenario = load(BASE | {"underlay": CORE})
    found = {row.name: row for row in core_links(scenario, build_network(scenario), 10**6)}
    assert list(found)[:3] == ["b->c", "a->b", "b->a"], "the longest first"
    assert found["a->b"].crossed_by == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert (found["a->b"].links, found["a->b"].seconds_a_round) == (4, pytest.approx(4.0))
    assert (found["b->c"].links, found["b->c"].seconds_a_round) == (3, pytest.approx(6.0))
    assert (found["c->b"].links, found["c->b"].seconds_a_round) == (3, None)
    assert (found["a->c"].links, found["a->c"].seconds_a_round) == (0, 0.0)


def test_explain_prints_the_core_links() -> None:
    found = explain(load(BASE | {"underlay": CORE}))
    console = Console(width=200, record=True, file=StringIO())
    show(found, console)
    told = console.export_text()
    assert "core links, the longest first" in told
    assert "│ b->c      │ 4 Mbit/s  │ 2ms     │ 0.01 │ 3: 0->3, 1->3, 2->3" in told
    assert "│ c->b      │ unlimited │ 2ms     │ 0    │ 3: 3->0, 3->1, 3->2" in told
    assert found.to_json()["core_links"][0]["name"] == "b->c"  # type: ignore[index]


def test_the_schedule_with_routes_is_the_one_that_the_run_has() -> None:
    scenario = load(BASE | {"underlay": CORE} | CUT)
    kept = underlay_form(scenario)
    assert kept is not None
    times = [event.at_ns for event in compile_schedule(scenario) if event.entry == "reroute"]
    assert [round(1e9 * routes["since_s"]) for routes in kept["routes"][1:]] == times
