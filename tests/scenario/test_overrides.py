"""`--set`: what it changes, what it drops with a notice, and where its mistakes are reported."""

from __future__ import annotations

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import loads

BASE = """
schema: netdfl/1
name: test
nodes: 8
rounds: 10
algorithm: {name: dfedavgm, lr: 0.05, momentum: 0.5}
topology: {kind: random_sym, neighbors: 4, redraw_every: 3}
events:
  - {at: 1s, crash: 3}
"""


def mistake(*sets: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        loads(BASE, sets, file="test.yaml")
    (problem,) = caught.value.problems
    return str(problem)


def test_a_value_is_yaml() -> None:
    scenario = loads(BASE, ["rounds=1_0", "topology={kind: grid, rows: 2}", "expect.deadlock=any"][1:])
    assert scenario.topology.kind == "grid"
    assert scenario.topology.params == {"rows": 2, "cols": None}
    assert scenario.expect.deadlock == "any"


def test_a_list_is_reached_by_its_index() -> None:
    assert loads(BASE, ["events.0.crash=5"]).events == [{"at": "1s", "crash": 5}]
    assert "the list has no item 1, write a number from 0 to 0" in mistake("events.1.crash=5")


def test_a_number_in_a_mapping_is_its_key() -> None:
    scenario = loads(BASE, ["links.0.uplink=5Mbit", "groups.a=[2]"])
    assert list(scenario.links) == ["0"]
    assert scenario.groups == {"a": [2]}
    assert "--set links.0.uplnk=5Mbit: unknown key 'uplnk', in links.0" in mistake("links.0.uplnk=5Mbit")


def test_a_new_discriminator_drops_the_keys_that_it_lacks_and_says_so() -> None:
    scenario = loads(BASE, ["algorithm.name=osgp", "topology.kind=random_push"])
    assert scenario.algorithm.params["lr"] == 0.05
    assert "momentum" not in scenario.algorithm.params
    assert scenario.topology.params == {"out_neighbors": 4, "redraw_every": 3, "base_degree": None}
    assert scenario.notices == (
        "algorithm.momentum is dropped: osgp has no such key",
        "topology.neighbors is dropped: random_push has no such key",
    )


def test_the_order_of_overrides_does_not_matter() -> None:
    one = loads(BASE, ["topology.kind=random_push", "topology.out_neighbors=2", "algorithm.name=sgp"])
    other = loads(BASE, ["algorithm.name=sgp", "topology.out_neighbors=2", "topology.kind=random_push"])
    assert one.topology == other.topology
    assert one.topology.params["out_neighbors"] == 2


def test_keys_given_by_an_override_stay_strict() -> None:
    assert mistake("algorithm.name=dpsgd", "algorithm.rho=0.9").startswith("--set algorithm.rho=0.9: unknown key 'rho'")


def test_without_a_new_discriminator_nothing_is_dropped() -> None:
    assert mistake("algorithm.rho=0.1").startswith("--set algorithm.rho=0.1: unknown key 'rho'")


def test_short_forms_are_written_out_first() -> None:
    text = BASE.replace("{name: dfedavgm, lr: 0.05, momentum: 0.5}", "dfedavgm")
    assert loads(text, ["algorithm.momentum=0.7"]).algorithm.params["momentum"] == 0.7
    assert loads(text, ["algorithm.name=dpsgd"]).algorithm.kind == "dpsgd"


def test_a_discriminator_deep_inside() -> None:
    text = BASE + "task: {dataset: {name: digits, partition: {kind: dirichlet, alpha: 0.1}}}\n"
    scenario = loads(text, ["task.dataset.partition.kind=shards"])
    assert scenario.task.dataset.partition.params == {"shards_per_client": 2}
    assert scenario.notices == ("task.dataset.partition.alpha is dropped: shards has no such key",)


def test_on_is_short_for_the_world() -> None:
    text = BASE + "world: {kind: processes, nodes_per_process: 4}\n"
    scenario = loads(text, on="simulated")
    assert scenario.world.kind == "simulated"
    assert scenario.notices == ("world.nodes_per_process is dropped: simulated has no such key",)
    with pytest.raises(ScenarioError, match="--on simulatd: unknown world 'simulatd', did you mean 'simulated'"):
        loads(text, on="simulatd")


@pytest.mark.parametrize("text", ["rounds", "=3", "a..b=3", "rounds={"])
def test_what_is_no_override(text: str) -> None:
    assert mistake(text).startswith(f"--set {text}: ")


def test_mistakes_of_overrides_name_them() -> None:
    assert mistake("rounds=ten") == "--set rounds=ten: rounds is 'ten', expected a whole number"
    assert "--set algorithm.name=sgp: sgp needs" not in mistake("algorithm.nam=sgp")


@pytest.mark.parametrize("set_", ["world.kind=processes", "world=processes", "world={kind: processes}"])
def test_two_words_on_the_world_must_agree(set_: str) -> None:
    with pytest.raises(ScenarioError, match=r"--set world.*the run is to be on simulated, by --on, remove one"):
        loads(BASE, [set_], on="simulated")
    assert loads(BASE, [set_], on="processes").world.kind == "processes"
