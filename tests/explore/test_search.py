"""The search: the same on any number of processes, resumable, and its findings are scenarios that show themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.core.errors import InputError
from netdfl.explore.cause import Predicate, cause_of
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.explore import Budget, Exploration, ExplorationResult, wilson
from netdfl.explore.findings import write_finding
from netdfl.explore.rows import MessageRow
from netdfl.explore.shrink import Shrinker, minimize
from netdfl.explore.trial import Event, variant
from netdfl.scenario.model.schema import Scenario


def outcome(explored: ExplorationResult) -> dict[str, list[int]]:
    return {key: sorted(found.numbers) for key, found in explored.findings.items()}


def test_the_same_on_two_processes_and_in_parts(small: dict[str, Any], tmp_path: Path) -> None:
    scenario = netdfl.load(small)
    alone = Exploration(scenario, seed=3).run(Budget(runs=35))
    assert outcome(alone)
    assert outcome(Exploration(scenario, seed=3, jobs=2).run(Budget(runs=35))) == outcome(alone)

    folder = tmp_path / "explored"
    Exploration(scenario, seed=3, folder=folder).run(Budget(runs=33))
    with (folder / "runs.jsonl").open("a") as file:
        file.write('{"number": 33, "torn')
    parts = Exploration(scenario, seed=3, folder=folder).run(Budget(runs=35))
    assert outcome(parts) == outcome(alone)
    lines = (folder / "runs.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["number"] for line in lines) == list(range(35))
    with pytest.raises(InputError, match="another exploration"):
        Exploration(scenario, seed=4, folder=folder).run(Budget(runs=35))


def test_ctrl_c_keeps_what_was_found(small: dict[str, Any], tmp_path: Path) -> None:
    def stop(explored: ExplorationResult) -> None:
        if explored.runs == 4:
            raise KeyboardInterrupt

    stopped = Exploration(netdfl.load(small), folder=tmp_path / "it").run(Budget(runs=8), stop)
    assert (stopped.runs, stopped.why_stopped) == (4, "interrupted")
    assert stopped.reached > 0
    assert len((tmp_path / "it" / "runs.jsonl").read_text().splitlines()) == 4
    assert Exploration(netdfl.load(small), folder=tmp_path / "it").run(Budget(runs=8)).runs == 8


def test_a_finding_is_shrunk_to_what_matters_and_shows_itself(small: dict[str, Any], tmp_path: Path) -> None:
    events = [
        {"at_round": 1, "delay": "0->1", "by": "3ms"},
        {"at_round": 3, "drop": "1->2"},
        {"at_round": 2, "pause": 3, "for": "7ms"},
    ]
    scenario = netdfl.load(small | {"nodes": 6})
    shown = variant(scenario, events, 5)
    found = cause_of(Executor().run(shown))
    assert found is not None
    shrunk = Shrinker((), Executor()).shrink(shown, found.key)
    assert shrunk.plain["events"] == [{"at_round": 0, "drop": shrunk.plain["events"][0]["drop"]}]
    assert (shrunk.scenario.nodes, shrunk.scenario.rounds) == (2, 1)

    file = tmp_path / "finding.yaml"
    file.write_text(write_finding(shrunk))
    assert file.read_text().startswith("# node ")
    result = netdfl.run(file, out=tmp_path / "run", page=False).result
    assert result["verdict"] == "fail"
    assert f"# Event log: {result['event_log_hash']}" in file.read_text()


def test_random_losses_are_written_out(small: dict[str, Any]) -> None:
    scenario = netdfl.load(small | {"links": {"default": {"loss": 0.1, "latency": "5ms"}}})
    for luck in range(5):
        shown = variant(scenario, (), luck)
        found = cause_of(Executor().run(shown))
        if found is not None:
            break
    assert found is not None
    shrunk = Shrinker((), Executor()).shrink(shown, found.key)
    assert "loss" not in shrunk.plain.get("links", {}).get("default", {})
    assert [list(event)[1] for event in shrunk.plain["events"]] == ["drop"]


def dropped(run: ExploredRun) -> list[MessageRow]:
    return [message for message in run.rows.messages if message.fate.endswith("scripted")]


def shrink_where(holds: Callable[[ExploredRun], bool], text: dict[str, Any], events: list[Event]) -> list[Event]:
    """The events that are left, where what counts as found is said by `holds`."""
    scenario = variant(netdfl.load(text | {"wait": {"deadline": "20ms"}}), events, None)
    shrunk = Shrinker([Predicate("it", holds)], Executor()).shrink(scenario, "predicate it: it holds")
    return list(shrunk.plain["events"])


def test_faults_of_which_none_can_go_alone_go_together(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdfl.explore.shrink.EXCHANGES", 0)  # one that does nothing may stand for both by luck
    events = [{"at_round": 1, "drop": f"{src}->{(src + 1) % 4}"} for src in range(4)]
    two_or_all = ([0, 2], [0, 1, 2, 3])
    left = shrink_where(lambda run: sorted(message.src for message in dropped(run)) in two_or_all, small, events)
    assert sorted(event["drop"] for event in left) == ["0->1", "2->3"]


def test_faults_that_differ_in_their_round_become_one_that_lasts(small: dict[str, Any]) -> None:
    events = [{"at_round": round, "drop": "1->2"} for round in (2, 3)]
    left = shrink_where(lambda run: len({message.round for message in dropped(run)}) == 2, small, events)
    assert [event["for_rounds"] for event in left] == [2]


def test_faults_that_have_to_meet_go_from_the_clock_to_a_round_together(small: dict[str, Any]) -> None:
    def at_once(run: ExploredRun) -> bool:
        crashes = [event.at_ns for event in run.rows.events if event.kind == "crash"]
        return len(crashes) == 2 and crashes[1] - crashes[0] < 1_000_000

    events = [{"at": "22ms", "crash": 0}, {"at": "22.5ms", "crash": 2}]
    left = shrink_where(at_once, small | {"rounds": 3}, events)
    assert [event.get("at_round") for event in left] == [0, 0]


def test_minimize_finds_the_pair_that_matters() -> None:
    tried = []

    def holds(items: Any) -> bool:
        tried.append(items)
        return {3, 71} <= set(items)

    assert minimize(range(100), holds) == [3, 71]
    assert len(tried) < 120
    assert minimize([1, 2], lambda items: True) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"world": {"kind": "processes"}}, "world processes can't be explored: it runs on the real clock"),
        ({"world": {"kind": "simulated", "compute": {"kind": "measured"}}}, "what this machine takes differs"),
        ({"task": {"kind": "train", "batching": "auto"}}, "task.batching: auto can't be explored"),
        ({"task": {"kind": "train", "device": "cuda"}}, "task.device: cuda can't be explored"),
    ],
)
def test_what_does_not_repeat_is_refused(changes: dict[str, Any], why: str, small: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=why):
        Exploration(netdfl.load(small | changes))


def test_parts_that_draw_from_no_seed_are_refused(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    inner, seeds = Executor.run, count()

    def run(self: Executor, scenario: Scenario) -> ExploredRun:
        return inner(self, scenario.model_copy(update={"seed": next(seeds)}))

    monkeypatch.setattr(Executor, "run", run)
    lossy = {"default": {"latency": {"dist": "uniform", "low": "1ms", "high": "9ms"}, "loss": 0.2}}
    with pytest.raises(InputError, match="does not repeat: two runs with one seed gave two event logs"):
        Exploration(netdfl.load(small | {"links": lossy}))


def test_a_wilson_interval_is_what_the_formula_gives() -> None:
    rate = wilson(12, 400)
    assert (rate.low, rate.high) == pytest.approx((0.01724, 0.05168), abs=1e-4)
    assert wilson(0, 0)[2:] == (0.0, 1.0)
    assert (wilson(0, 3).low, wilson(3, 3).high) == (0.0, 1.0)
