"""Nodes that crash for good: named with the push-sum weight that they held, which counts as missing and not as made."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.explore.execute import Executor
from netdfl.explore.observed import observe
from netdfl.report.words import remarks
from netdfl.running.run import run
from netdfl.scenario.load import loads

BASE = """
schema: netdfl/1
name: for-good
nodes: 16
rounds: 12
world: simulated
task: {kind: consensus, dim: 4, dtype: float64}
algorithm: sgp
topology: {kind: random_push, out_neighbors: 3}
links: {default: {latency: 10ms}}
failure_detector: oracle
evaluation: {every: 1}
"""


def last_weights(found: list[tuple[int, int, float]]) -> dict[int, float]:
    """The weight of each node after its last round, of rows of node, round and weight."""
    return {node: weight for node, _, weight in sorted(found)}


@pytest.mark.parametrize("delivery", ["plain", "acknowledged"])
@pytest.mark.parametrize(
    ("at_round", "crashed"),
    [(3, [3, 7, 11]), (8, [3]), *(pytest.param(*each, marks=pytest.mark.soak) for each in ((3, [3]), (8, [3, 7, 11])))],
)
def test_what_the_living_hold_is_over_all_nodes_and_the_crashed_are_named(
    at_round: int, crashed: list[int], delivery: str, tmp_path: Path
) -> None:
    text = f"{BASE}delivery: {delivery}\nevents: [{{at_round: {at_round}, crash: {crashed}}}]\n"
    finished = run(loads(text, []), out=tmp_path / "run", page=False)
    result, rows = finished.result, finished.run.rows
    assert {each["node"] for each in result["crashed"]} == set(crashed)
    weights = last_weights(rows("SELECT node, round, value FROM metrics WHERE name = 'weight' AND node IS NOT NULL"))
    living = sum(weight for node, weight in weights.items() if node not in crashed)
    assert result["weight_sum"] == pytest.approx(living / 16, abs=1e-12)
    assert not [each for each in result["warnings"] if each["kind"] == "weight_made"]
    (said,) = [text for text in remarks(result) if "crashed as scripted" in text]
    held = sum(each["weight"] for each in result["crashed"])
    assert f"held w = {held:.4g}" in said
    assert all(f"{node} (round {at_round})" in said for node in crashed)
    assert living < 16
    assert living + held <= 16 + 1e-9, "what was sent to the crashed is missing, too, and nothing is made"


def test_who_returned_or_had_ended_is_no_crash_for_good(tmp_path: Path) -> None:
    back = "{at_round: 3, crash: 3, restart_after: 20ms}, {at_round: 8, crash: 3}, {at: 100s, crash: 4}"
    scenario = loads(f"{BASE}events: [{back}]\n", [])
    finished = run(scenario, out=tmp_path / "run", page=False)
    assert [(each["node"], each["round"]) for each in finished.result["crashed"]] == [(3, 8)]
    alone = loads(f"{BASE}events: [{{at_round: 3, crash: 3, restart_after: 20ms}}]\n", [])
    result = run(alone, out=tmp_path / "alone", page=False).result
    assert result["crashed"] == []
    assert not [text for text in remarks(result) if "crashed as" in text]


def test_an_explored_run_knows_the_same_crashes(tmp_path: Path) -> None:
    scenario = loads(f"{BASE}events: [{{at_round: 3, crash: [2, 3]}}]\n", [])
    found = [each._asdict() for each in observe(Executor().run(scenario).rows).crashes]
    assert found == run(scenario, out=tmp_path / "run", page=False).result["crashed"]
    assert [each["node"] for each in found] == [2, 3]
