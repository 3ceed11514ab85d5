"""Faults of core links: drawn where there is an underlay, and their findings are scenarios that show themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import netdfl
from netdfl.core.types import Json, Kind
from netdfl.explore.acted import acted_of
from netdfl.explore.cause import cause_of
from netdfl.explore.execute import Executor
from netdfl.explore.explore import Budget, Exploration, by_rate
from netdfl.explore.faults import Baseline, allowed, draw_faults
from netdfl.explore.findings import write_finding
from netdfl.explore.rows import MemoryStore, MessageRow
from netdfl.explore.shrink import Shrinker
from netdfl.explore.trial import possible, variant

MS = 1_000_000
UNDERLAY: dict[str, Any] = {
    "links": {"a--b": {"rate": "1Mbit", "latency": "2ms"}, "b--c": {"latency": "1ms"}},
    "place": {"0..1": "a", "2..3": "b"},
}
"""Nobody is on c, so no message crosses its core links."""
CROSSED: dict[str, Any] = {"src": 0, "dst": 2, "kind": Kind.DATA, "epoch": 0, "round": 1, "step": 0, "attempt": 0}
CROSSED |= {"nbytes": 10, "sent_ns": 20 * MS, "arrived_ns": 40 * MS, "fate": "delivered"}


@pytest.fixture
def over(small: dict[str, Any]) -> dict[str, Any]:
    """A small fleet on two sites."""
    return small | {"underlay": UNDERLAY}


def test_core_links_are_cut_and_changed_where_there_is_an_underlay(over: dict[str, Any]) -> None:
    scenario = netdfl.load(over)
    course = Baseline.of(Executor().run(scenario))
    rates, why = allowed(scenario, course)
    assert (rates["core"], why) == (1.0, {})
    rng = Random(5)
    drawn = [event for _ in range(300) for event in draw_faults(course.narrowed(rng), {"core": 1.0}, 1, rng, least=1)]
    names = Counter(str(event.get("cut", event.get("core"))) for event in drawn)
    assert set(names) == {"a->b", "b->a", "a--b", "b--a"}
    changes = Counter(key for event in drawn for key in ("cut", "loss", "rate", "latency") if key in event)
    assert changes.total() == 300
    assert min(changes.values()) > 30
    assert {event["mode"] for event in drawn if "cut" in event} == {"down_drop", "down_hold", "down_reset"}
    assert all(possible(scenario, [event]) for event in drawn)


def test_of_core_links_without_a_rate_none_is_changed(over: dict[str, Any]) -> None:
    scenario = netdfl.load(over | {"underlay": UNDERLAY | {"links": {"a--b": {"latency": "2ms"}}}})
    course, rng = Baseline.of(Executor().run(scenario)), Random(5)
    drawn = [event for _ in range(100) for event in draw_faults(course, {"core": 1.0}, 1, rng, least=1)]
    assert not any("rate" in event for event in drawn)
    assert all(possible(scenario, [event]) for event in drawn)


def test_without_core_links_none_is_drawn_and_who_asks_for_them_is_told(small: dict[str, Any]) -> None:
    course = Baseline.of(Executor().run(netdfl.load(small)))
    rates, why = allowed(netdfl.load(small), course)
    assert ("core" in rates, why) == (False, {})
    asked = netdfl.load(small | {"explore": {"rates": {"core": 1, "loss": 1}}})
    assert allowed(asked, course) == ({"loss": 1.0}, {"core": "there is no underlay"})
    alone = netdfl.load(small | {"underlay": UNDERLAY | {"place": {"0..3": "a"}}})
    _, why = allowed(alone, Baseline.of(Executor().run(alone)))
    assert why == {"core": "no message crosses a core link"}


def test_a_search_draws_them_and_a_finding_replays(over: dict[str, Any], tmp_path: Path) -> None:
    exploration = Exploration(netdfl.load(over | {"explore": {"rates": {"core": 1}, "depth": 0}}), seed=1)
    explored = exploration.run(Budget(runs=12))
    drawn, acted = explored.acted["core"]
    assert 0 < acted <= drawn
    assert set(explored.acted) == {"core"}
    cut = next(found for found in by_rate(explored) if any("cut" in event for event in found.trial.events))
    shown = variant(exploration.scenario, cut.trial.events, cut.trial.luck)
    shrunk = Shrinker((), exploration.executor).shrink(shown, cut.cause.key)
    file = tmp_path / "finding.yaml"
    file.write_text(write_finding(shrunk))
    result = netdfl.run(file, out=tmp_path / "run", page=False).result
    assert result["verdict"] == "fail"
    assert f"# Event log: {result['event_log_hash']}" in file.read_text()


def test_a_cut_core_link_stalls_the_fleet_by_its_name(over: dict[str, Any]) -> None:
    scenario = netdfl.load(over)
    found = cause_of(Executor().run(variant(scenario, [{"at": "20ms", "for": "40ms", "cut": "a->b"}], None)))
    assert found is not None
    assert "a->b" in found.text


@pytest.mark.parametrize(
    ("event", "message", "acts"),
    [
        ({"cut": "a->b", "mode": "down_drop"}, {"fate": "dropped:down", "arrived_ns": None}, True),
        ({"cut": "b->a", "mode": "down_drop"}, {"fate": "dropped:down", "arrived_ns": None}, False),
        ({"cut": "a--b", "mode": "down_drop"}, {}, False),
        ({"cut": "a--b", "mode": "down_hold"}, {}, True),
        ({"core": "a->b", "loss": 1.0}, {}, False),
        ({"core": "a->b", "loss": 1.0}, {"fate": "dropped:loss", "arrived_ns": None}, True),
        ({"core": "a->b", "loss": 1.0}, {"fate": "dropped:loss", "arrived_ns": None, "sent_ns": 9 * MS}, False),
        ({"core": "a->b", "latency": "9ms"}, {}, True),
        ({"core": "a->b", "latency": "9ms"}, {"dst": 1}, False),
        ({"core": "a->b", "rate": "x0.1"}, {"sent_ns": 0, "arrived_ns": 10 * MS}, False),
        ({"core": "a->b", "rate": "x0.1"}, {"sent_ns": 0, "arrived_ns": 11 * MS}, True),
        ({"core": "a->b", "rate": "x0.1"}, {"sent_ns": 30 * MS}, False),
    ],
)
def test_what_a_fault_of_a_core_link_acted_on(
    event: Json, message: dict[str, Any], acts: bool, over: dict[str, Any]
) -> None:
    """From 10 to 30 ms; a message from 0 on a to 2 on b, sent at 20 ms."""
    crossed = MessageRow(**(CROSSED | message))
    rows = MemoryStore()
    rows.messages.append(crossed)
    run = replace(Executor().run(netdfl.load(over | {"rounds": 1})), rows=rows)
    assert acted_of(run, [{"at": "10ms", "for": "20ms", **event}]) == {"core": (1, int(acts))}
