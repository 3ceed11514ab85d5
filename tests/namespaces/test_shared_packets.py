"""The comparison of shared links against packets: a small sample of it, and how it keeps and shows what it measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.units import parse_rate_bps, parse_size_bytes
from netdfl.links.rules.tcp import on_the_line_bytes
from tests.links.fluid import max_min
from tests.soak import shared_packets
from tests.soak.disturbed import DisturbedError
from tests.soak.packet_traffic import Group, Traffic
from tests.soak.shared_packets import (
    BEGIN,
    BY_PROCESSES,
    END,
    FOUR_FLOWS,
    TRAFFIC,
    Kept,
    compared,
    fleet,
    measure,
    table,
    with_headers,
    write,
)


def test_two_flows_over_a_core_link_take_their_bytes_with_headers(tmp_path: Path) -> None:
    place = {"0..1": "a", "2..3": "b"}
    underlay = {"links": {"a--b": {"rate": "4Mbit", "queue": "30kB"}}, "place": place}
    both = Traffic([(0, 0, 2, 100_000), (0, 1, 3, 100_000)], {"default": {"latency": "5ms"}}, underlay)
    line_s = 2 * on_the_line_bytes(100_000) * 8 / 4e6
    model = both.by_model()
    assert line_s + 0.005 <= model.mean_s <= model.last_s <= 1.1 * line_s
    assert both.over_packets(tmp_path).last_s >= line_s, "no faster than the link"


@pytest.mark.soak  # 18 s alone; fleets of test_namespaces_world.py, and two flows over a core link, are in CI
def test_a_fleet_over_core_links_ends_as_in_the_model_and_waits_for_the_same_core_link() -> None:
    """A sample of `tests.soak.shared_packets`, which compares the times of rounds as well."""
    name = "4 nodes on 4 sites"
    try:
        real = fleet(name, {"kind": "namespaces"}, rounds=2)
    except DisturbedError as disturbed:
        pytest.skip(f"the machine was too busy for packets: {disturbed}")
    compute = f"{round(1000 * real['compute_s'])}ms"
    model = fleet(name, {"kind": "simulated", "loss_layer": "packet", "compute": compute}, rounds=2)
    assert real["accuracy"] == model["accuracy"] > 0.5
    assert real["bottleneck"] == model["bottleneck"] == "a->d"
    assert real["round_s"] > model["round_s"] / 2, "its models crossed the core links"


@pytest.mark.parametrize("name", TRAFFIC)
def test_each_flow_that_is_compared_lasts_5_s_or_longer(name: str) -> None:
    traffic, _ = TRAFFIC[name]
    lasted = traffic.lasted(traffic.arrivals_by_model())
    assert len(lasted) == len(traffic.messages)
    assert min(lasted.values()) >= 5, lasted


def mappings(of: object) -> Iterator[Mapping[str, Any]]:
    """All mappings inside a part of a scenario."""
    if isinstance(of, Mapping):
        yield of
    inner = of.values() if isinstance(of, Mapping) else of if isinstance(of, list | tuple) else ()
    for each in inner:
        yield from mappings(each)


@pytest.mark.parametrize("name", TRAFFIC)
def test_links_of_what_is_compared_have_low_rates_short_queues_and_equal_round_trips(name: str) -> None:
    """At most 10 Mbit/s, a queue of one product of rate and round trip (40 ms); one is longer, as its name says."""
    traffic, _ = TRAFFIC[name]
    rules = list(mappings([traffic.links, traffic.underlay, traffic.events]))
    shaped = [(parse_rate_bps(each["rate"]), parse_size_bytes(each["queue"])) for each in rules if "rate" in each]
    assert shaped
    assert max(rate for rate, _ in shaped) <= 10e6
    longer = [(rate, queue) for rate, queue in shaped if 8 * queue != 0.04 * rate]
    assert longer == ([(10e6, 96_000)] if name == "a queue of 64 packets before a core link" else [])
    assert {each["latency"] for each in rules if "latency" in each} == {"20ms"}
    assert "latency" in traffic.links["default"]


def test_two_flows_of_two_bottlenecks_in_a_row_cross_two_full_links() -> None:
    traffic, _ = TRAFFIC["two bottlenecks in a row"]
    rates = {
        (node, way): Fraction(parse_rate_bps(rules[way]["rate"]))
        for node, rules in traffic.links.items()
        for way in ("uplink", "downlink")
        if way in rules
    }
    ways = {
        (s, d): [link for link in ((f"{s}", "uplink"), (f"{d}", "downlink")) if link in rates]
        for _, s, d, _ in traffic.messages
    }
    found = max_min(ways, rates)
    full = {
        link for link, rate in rates.items() if sum(found[flow] for flow, over in ways.items() if link in over) == rate
    }
    assert {flow for flow, over in ways.items() if len(full & set(over)) == 2} == {(0, 2), (0, 3)}


@dataclass
class Counted:
    """Traffic that counts how often it was sent."""

    figures: Group
    times: int = 0

    def by_model(self) -> Group:
        return Group(5.0, 10.0)

    def over_packets(self, folder: Path) -> Group:
        self.times += 1
        return self.figures


def test_what_was_measured_is_kept_and_what_is_missing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {"near": (Counted(Group(5.5, 9.0)), 0.15), "far": (Counted(Group(4.0, 10.0)), 0.15)}
    monkeypatch.setattr(shared_packets, "TRAFFIC", cells)
    monkeypatch.setattr(shared_packets, "FLEETS", {})
    measure(Kept(tmp_path), 2, "near")
    rows, good = table(Kept(tmp_path))
    assert (rows[2:], good) == (["| near | 2 | 5.50 | 5.00 | -9% | 9.00 | 10.00 | +11% |  |"], True)
    measure(Kept(tmp_path), 3, "")
    assert [traffic.times for traffic, _ in cells.values()] == [3, 3]
    rows, good = table(Kept(tmp_path))
    assert (rows[3], good) == ("| far | 3 | 4.00 | 5.00 | +25% | 10.00 | 10.00 | +0% | beyond 15% |", False)


def test_times_of_processes_get_the_headers_of_packets() -> None:
    assert with_headers({0: 1_448_000_000, 1: 2_896_000_000}) == pytest.approx(Group(2.25, 3.0))
    with pytest.raises(AssertionError, match="lost"):
        with_headers({0: 1_448_000_000, 1: None})


def test_processes_are_compared_with_the_same_packets_as_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_packets, "TRAFFIC", {FOUR_FLOWS: (Counted(Group(5.0, 10.0)), 0.1)})
    monkeypatch.setattr(shared_packets, "FLEETS", {})
    monkeypatch.setattr(shared_packets, "by_processes", lambda: Group(5.25, 8.9))
    measure(Kept(tmp_path), 2, "four flows")
    rows, good = table(Kept(tmp_path))
    assert rows[2] == "| four flows | 2 | 5.00 | 5.00 | +0% | 10.00 | 10.00 | +0% |  |"
    assert rows[3] == f"| {BY_PROCESSES} | 2 | 5.00 | 5.25 | +5% | 10.00 | 8.90 | -11% | beyond 10% |"
    assert not good


@pytest.mark.parametrize(("mean_s", "within"), [(0.86, True), (0.84, False), (1.15, True), (1.16, False)])
def test_a_figure_is_within_its_bound_or_not(mean_s: float, within: bool) -> None:
    assert compared(Group(1.0, 1.0), Group(mean_s, 1.0), 0.15)[1] is within
    assert compared(Group(1.0, 1.0), Group(1.0, mean_s), 0.15)[1] is within


def test_the_table_goes_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old{END}\nafter\n")
    write(page, ["| a |"])
    write(page, ["| b |"])
    assert page.read_text() == f"before\n{BEGIN}\n\n| b |\n\n{END}\nafter\n"
