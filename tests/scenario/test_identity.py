"""A scenario's identity outlives versions: new keys at their default change none, and what 0.2.0 kept is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from netdfl.core.errors import InputError
from netdfl.explore.explore import Budget, Exploration
from netdfl.scenario.load import load, loads
from netdfl.scenario.loading import identity
from netdfl.scenario.loading.identity import hashes, is_of, scenario_hash
from netdfl.scenario.loading.resolved import to_yaml
from netdfl.scenario.model.fields import make_model
from netdfl.study import cells
from netdfl.study.plan import Cell

PLAIN = """
schema: netdfl/1
name: plain
nodes: 4
rounds: 3
algorithm: dpsgd
topology: ring
"""
RICH = """
schema: netdfl/1
name: rich
nodes: 8
rounds: 60
world: {kind: simulated, compute: 20ms, stragglers: {fraction: 0.25}}
task:
  dataset: {name: digits, partition: {kind: dirichlet, alpha: 0.3}}
  metrics: [accuracy, f1]
algorithm: {name: dfedsgpsm, local_epochs: 2, schedule: {kind: cosine}}
topology: {kind: random_push, out_neighbors: 3}
compression: {kind: qsgd, bits: 8}
links:
  default: {loss: 5%, latency: {dist: lognormal, mean: 20ms, jitter: 5ms}, rate: 10Mbit}
  "3->5": {loss: {model: gilbert_elliott, p: 0.01, r: 0.3}, state: up}
events:
  - {at: 20s, for: 10s, partition: [[0..3], [4..7]]}
  - {at_round: 30, crash: 4, restart_after: 5s, state: kept}
  - {at: 2s, for: 1s, link: default, loss: {model: gilbert_elliott, p: 0.2, r: 0.5}, latency: 80ms}
expect: {deadlock: none, test_accuracy: {at_least: 0.5}}
report: {targets: [0.9, {metric: test_loss, at_most: 1}]}
"""
BY_PACKETS = PLAIN + "world: {kind: namespaces, fidelity: {slack: 20ms}}\ntransport: {keepalive_timeout: 3s}\n"
SERVED = PLAIN.replace("dpsgd", "scaffold").replace("ring", "star") + "task: {kind: quadratic, dim: 5}\n"
EVERY = {"plain": PLAIN, "rich": RICH, "by packets": BY_PACKETS, "served": SERVED}
OF_0_2 = {
    "plain": "f35bb9fd2876a54e9526bde76889ebf480820d26806499b3ab1d71fca478a94c",
    "rich": "4cbead5912db6af99daf1df4913fbc0c2804634171b0f44586f385cfc095538b",
    "by packets": "2770b38750ed9334e61fd83c447e11037e65337127ea4050e1427816bf56147b",
    "served": "d87bbd7b3bdc9fb3dee04362be398c8a2f5a1d8f7449a99ca57037b959aea907",
}
"""What version 0.2.0 called them: sha256 of the whole resolved scenario as canonical JSON."""


def grown(value: Any) -> Any:
    """The value as a version has it whose every model has a key more, with a default."""
    if isinstance(value, BaseModel):
        model = type(value)
        newer = make_model(model.__name__, model, None, {"novel": (str, Field("as before"))})
        values = {name: grown(getattr(value, name)) for name in model.model_fields}
        for name in ("key", "function", "parameters", "entry"):
            if hasattr(model, name):
                setattr(newer, name, getattr(model, name))
        again = newer.model_construct(value.model_fields_set, **values, novel="as before")
        object.__setattr__(again, "__pydantic_private__", value.__pydantic_private__)
        return again
    if isinstance(value, dict):
        return {key: grown(inner) for key, inner in value.items()}
    return [grown(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", EVERY)
def test_a_new_key_at_its_default_changes_no_identity(name: str) -> None:
    scenario = loads(EVERY[name])
    newer = grown(scenario)
    assert "novel" in to_yaml(newer)
    assert list(hashes(newer)) == list(hashes(scenario))


@pytest.mark.parametrize("name", EVERY)
def test_what_0_2_0_called_a_scenario_is_known(name: str) -> None:
    assert is_of(loads(EVERY[name]), OF_0_2[name])
    assert is_of(loads(EVERY[name]), OF_0_2[name][:16])
    assert not is_of(loads(EVERY[name], ["seed=1"]), OF_0_2[name])
    assert not is_of(loads(EVERY[name]), "")


def test_a_new_key_with_another_value_is_another_scenario() -> None:
    newer = grown(loads(PLAIN))
    other = newer.model_copy(update={"novel": "otherwise"})
    assert not set(hashes(newer)) & set(hashes(other))


def test_a_default_that_is_written_says_nothing() -> None:
    written = ["seed=0", "world=processes", "wait.for=all", "report.targets=[]", "topology.selection=all"]
    assert scenario_hash(loads(PLAIN, written)) == scenario_hash(loads(PLAIN))
    assert scenario_hash(loads(to_yaml(loads(RICH)))) == scenario_hash(loads(RICH))


def test_what_means_something_by_being_written_stays() -> None:
    """An expectation makes a run pass or fail; a link's entry takes a rule back that a wider one sets."""
    judged, plain = loads(PLAIN, ["expect.died=none"]), loads(PLAIN)
    assert scenario_hash(judged) != scenario_hash(plain)
    links = "links: {default: {loss: 5%}, 0--1: {}}\n"
    without = links.replace("1: {}", "1: {loss: none}")
    assert scenario_hash(loads(PLAIN + links)) != scenario_hash(loads(PLAIN + without))


def test_scenarios_that_a_changed_default_concerns_are_other_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rates, without = loads(RICH), loads(PLAIN)
    before = [list(hashes(each)) for each in (with_rates, without)]
    changed = {"links share a node's rate": lambda scenario: "rate" in str(scenario.links)}
    monkeypatch.setattr(identity, "CHANGED", changed)
    assert not set(hashes(with_rates)) & set(before[0])
    assert list(hashes(without)) == before[1]


@pytest.mark.parametrize("version", ["this", "0.2.0"])
def test_a_cell_that_ran_is_found_by_a_version_with_a_key_more(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain.yaml").write_text(PLAIN)
    name = {"this": scenario_hash(loads(PLAIN)), "0.2.0": OF_0_2["plain"]}[version][:16]
    (tmp_path / name).mkdir()
    (tmp_path / name / "result.json").write_text("{}")
    (tmp_path / f"{name}.exit").write_text("0")
    monkeypatch.setattr(cells, "load", lambda file, sets: grown(load(file, sets)))
    these = [Cell("", (), 0, ()), Cell("", (), 1, ("seed=1",))]
    found, waiting = cells.look(tmp_path / "plain.yaml", these, tmp_path)
    assert [ran.path.name for ran in found] == [name]
    assert [job.path.name for job in waiting] == [scenario_hash(loads(PLAIN, ["seed=1"]))[:16]]


def test_an_exploration_of_0_2_0_goes_on(tmp_path: Path) -> None:
    text = {"schema": "netdfl/1", "name": "explored", "nodes": 3, "rounds": 2, "world": "simulated"}
    text |= {"task": "consensus", "algorithm": "dpsgd", "topology": "ring"}  # type: ignore[dict-item]
    scenario = load(text)
    Exploration(scenario, folder=tmp_path).run(Budget(runs=2))
    file, lines = tmp_path / "settings.json", (tmp_path / "runs.jsonl").read_text()
    settings = json.loads(file.read_text())
    assert settings["scenario"] == scenario_hash(scenario)
    file.write_text(json.dumps(settings | {"scenario": list(hashes(scenario))[-1]}))
    explored = Exploration(scenario, folder=tmp_path).run(Budget(runs=2))
    assert explored.runs == 2
    assert (tmp_path / "runs.jsonl").read_text() == lines
    with pytest.raises(InputError, match="scenario differs"):
        Exploration(load(text | {"seed": 1}), folder=tmp_path).run(Budget(runs=2))


SHARED = PLAIN + "links: {default: {uplink: {rate: 5Mbit, queue: 1MB}}}\n"


def test_a_scenario_whose_flows_share_is_another_one_than_before_and_one_in_turn_is_the_same() -> None:
    before = "5276e1db"
    fair, in_turn = loads(SHARED), loads(SHARED.replace("queue", "sharing: fifo, queue"))
    assert not set(hashes(fair)) & set(hashes(in_turn))
    assert is_of(in_turn, before)
    assert not is_of(fair, before)


def test_a_run_that_was_recorded_before_there_was_sharing_goes_on_in_turn(tmp_path: Path) -> None:
    text = to_yaml(loads(SHARED + "events: [{at: 1s, node: 1, downlink: 1Mbit}]\n"))
    old = text.replace(", sharing: fair", "")
    assert old.count("kind: serial") == text.count("sharing: fair") == 2
    (tmp_path / "scenario.yaml").write_text(old)
    assert "fifo" not in to_yaml(load(tmp_path / "scenario.yaml")), "a file of somebody's own"
    (tmp_path / "provenance.json").write_text("{}")
    assert to_yaml(load(tmp_path / "scenario.yaml")) == text.replace("fair", "fifo")
    (tmp_path / "scenario.yaml").write_text(text)
    assert to_yaml(load(tmp_path / "scenario.yaml")) == text
