"""The summary names the shared link over which the time of a run went, and how many links share it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.record.bottleneck import Bottleneck, PathMessage, find_bottleneck
from netdfl.scenario.build import shared_rates
from netdfl.scenario.load import load

ROOT = Path(__file__).resolve().parents[2]
RATES = {(0, 1): {"a->b": 8.0, "up": 16.0}, (2, 1): {"a->b": 8.0}, (0, 3): {"up": 16.0}, (4, 5): {}}
BASE: dict[str, Any] = {"schema": "netdfl/1", "name": "u", "nodes": 4, "rounds": 5, "world": "simulated"}
BASE |= {"task": {"kind": "sized", "bytes": "1MB"}, "algorithm": "dpsgd", "topology": "full"}
TWO = {"links": {"a--b": {"rate": "8Mbit"}}, "place": {"0..1": "a", "2..3": "b"}}


def rates(edge: tuple[int, int]) -> Sequence[tuple[float, Mapping[str, float]]]:
    return [(0.0, RATES[edge])]


def test_time_counts_for_the_link_with_the_most_to_carry_meanwhile() -> None:
    messages = [(0, 1, 2, 0.0, 4.0), (2, 1, 1, 0.0, 4.0), (0, 3, 9, 4.0, 8.0)]
    # 3 s of a->b and 1 of up in the first four seconds, 4.5 of up in the others
    path = [PathMessage((0, 1), 0.0, 3.0), PathMessage((0, 3), 4.0, 2.5)]
    assert find_bottleneck(path, messages, rates) == Bottleneck("a->b", 3.0, 2)
    assert find_bottleneck(path[1:], messages, rates) == Bottleneck("up", 2.5, 2)
    # what lies across the border counts by its part: of 9 bytes a half, which is more than the third byte of 0->1
    assert find_bottleneck([PathMessage((0, 1), 3.5, 2.5)], messages, rates) == Bottleneck("up", 2.5, 2)


def test_without_messages_over_shared_links_there_is_no_bottleneck() -> None:
    assert find_bottleneck([], [(0, 1, 2, 0.0, 4.0)], rates) is None
    assert find_bottleneck([PathMessage((4, 5), 0.0, 1.0)], [(4, 5, 2, 0.0, 1.0)], rates) is None
    assert find_bottleneck([PathMessage((0, 1), 0.0, 1.0)], [(0, 1, 2, 1.0, 1.0)], rates) is None


def test_an_edge_has_the_core_links_of_its_way_and_the_access_links_that_have_a_rate() -> None:
    found = shared_rates(load(BASE | {"underlay": TWO, "links": {"default": {"uplink": "9Mbit"}}}))
    assert found is not None
    assert found((0, 2)) == [(0.0, {"a->b": 8e6, "the uplink of node 0": 9e6})]
    assert found((3, 2)) == [(0.0, {"the uplink of node 3": 9e6})]
    assert shared_rates(load(BASE)) is None


THREE: dict[str, Any] = {
    "links": {"a--b": {"rate": "2Mbit"}, "b--c": {"rate": "1Mbit"}, "a--c": {"latency": "9ms", "rate": "3Mbit"}},
    "place": {"0": "a", "1": "b", "2": "c"},
}
BY_TIME: dict[str, tuple[list[dict[str, object]], list[tuple[float, dict[str, float]]]]] = {
    "a core link slows down": (
        [{"at": "1s", "for": "1s", "core": "b--c", "rate": "x0.5"}],
        [(0.0, {"b->c": 1e6}), (1.0, {"b->c": 5e5}), (2.0, {"b->c": 1e6})],
    ),
    "a node's rate changes": (
        [{"at": "1s", "node": 1, "uplink": "9kbit"}, {"at": "2s", "for": "1s", "node": 1, "uplink": "0bit"}],
        [
            (0.0, {"b->c": 1e6}),
            (1.0, {"b->c": 1e6, "the uplink of node 1": 9e3}),
            (2.0, {}),
            (3.0, {"b->c": 1e6, "the uplink of node 1": 9e3}),
        ],
    ),
    "a cut": ([{"at": "1s", "for": "1s", "cut": "b--c"}], [(0.0, {"b->c": 1e6}), (1.0, {}), (2.0, {"b->c": 1e6})]),
    "a cut until it heals": (
        [{"at": "1s", "cut": "b->c"}, {"at": "3s", "heal": "all"}],
        [(0.0, {"b->c": 1e6}), (1.0, {}), (3.0, {"b->c": 1e6})],
    ),
    "another way": (
        [{"at": "0s", "for": "2s", "cut": "b->c"}, {"at": "1s", "core": "a->c", "rate": "7Mbit"}],
        [(0.0, {}), (0.5, {"b->a": 2e6, "a->c": 3e6}), (1.0, {"b->a": 2e6, "a->c": 7e6}), (2.5, {"b->c": 1e6})],
    ),
}


@pytest.mark.parametrize("case", BY_TIME)
def test_rates_and_routes_are_those_of_each_moment(case: str) -> None:
    events, expected = BY_TIME[case]
    underlay = THREE | ({"reroute": "500ms"} if case == "another way" else {})
    found = shared_rates(load(BASE | {"nodes": 3, "underlay": underlay, "events": events}))
    assert found is not None
    assert found((1, 2)) == expected


def test_bytes_and_time_are_spread_over_what_holds_then() -> None:
    def changing(edge: tuple[int, int]) -> Sequence[tuple[float, Mapping[str, float]]]:
        return [(0.0, {"a->b": 8.0}), (1.0, {}), (3.0, {"a->c": 4.0})]

    messages = [(0, 1, 6, 0.0, 5.0)]  # two bytes in the first second, four in the last two
    assert find_bottleneck([PathMessage((0, 1), 0.0, 5.0)], messages, changing) == Bottleneck("a->c", 2.0, 1)
    assert find_bottleneck([PathMessage((0, 1), 0.0, 3.0)], messages, changing) == Bottleneck("a->b", 1.0, 1)
    assert find_bottleneck([PathMessage((0, 1), 1.0, 2.0)], messages, changing) is None


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ({}, r"; \d+ % of the time went over (a->b|b->a), shared by 4 links"),
        ({"0": {"uplink": "1Mbit"}}, r"; \d+ % of the time went over the uplink of node 0, shared by 3 links"),
    ],
)
def test_the_summary_names_it(links: dict[str, Any], said: str, tmp_path: Path) -> None:
    run = netdfl.run(load(BASE | {"underlay": TWO, "links": links}), out=tmp_path / "run", page=False)
    time = run.result["time"]
    assert re.search(said, time["text"])
    share = 100 * time["bottleneck"]["seconds"] / time["total_s"]
    assert share >= 50
    assert f"; {share:.0f} % of the time went over {time['bottleneck']['link']}, " in time["text"]


def test_a_small_share_and_a_run_without_an_underlay_are_not_told(tmp_path: Path) -> None:
    slow = {"world": {"kind": "simulated", "compute": "10000s"}, "underlay": TWO}
    run = netdfl.run(load(BASE | slow), out=tmp_path / "slow", page=False)
    assert "went over" not in run.result["time"]["text"]
    assert run.result["time"]["bottleneck"]["links"] == 4
    run = netdfl.run(load(BASE | {"links": {"default": {"rate": "8Mbit"}}}), out=tmp_path / "plain", page=False)
    assert "bottleneck" not in run.result["time"]


def test_the_shipped_example_is_rerouted_and_names_its_bottleneck(tmp_path: Path) -> None:
    run = netdfl.run(load(ROOT / "scenarios/studies/shared_core.yaml"), out=tmp_path / "run", page=False)
    assert run.result["verdict"] in ("done", "pass")
    assert "% of the time went over zurich->paris, shared by 6 links" in run.result["time"]["text"]


def test_a_core_link_that_is_down_is_not_named_nor_one_that_is_wide_by_then(tmp_path: Path) -> None:
    cut: dict[str, Any] = {"underlay": THREE | {"reroute": "1ms"}, "events": [{"at": "0s", "cut": "b--c"}]}
    run = netdfl.run(load(BASE | {"nodes": 3} | cut), out=tmp_path / "cut", page=False)
    assert run.result["time"]["bottleneck"]["link"] in ("a->b", "b->a")
    slow: dict[str, Any] = {"underlay": THREE, "events": [{"at": "0s", "core": "a--b", "rate": "x0.1"}]}
    run = netdfl.run(load(BASE | {"nodes": 3} | slow), out=tmp_path / "slow", page=False)
    assert run.result["time"]["bottleneck"]["link"] in ("a->b", "b->a")
