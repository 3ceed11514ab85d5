"""What people who are new to netdfl write: each mistake has a sentence at validation, with its line and a remedy."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.cli import main
from netdfl.core.errors import DatasetError, InputError, ScenarioError
from netdfl.running.prepare import check_ready
from netdfl.scenario.load import load, loads

TOY = """schema: netdfl/1
name: first
nodes: 4
rounds: 2
world: {kind: simulated}
task: {kind: consensus, dim: 4}
algorithm: {name: dfedavg, lr: 0.1}
topology: ring
"""
TRAIN = TOY.replace("{kind: consensus, dim: 4}", "{dataset: digits, model: mlp}")


def written(change: str, base: str = TOY) -> str:
    """`base` with each line of `change` in the place of the one with its key; `-key` takes one away."""
    lines = base.splitlines()
    for line in change.split("\n"):
        key = line.removeprefix("-").partition(":")[0]
        at = next((n for n, old in enumerate(lines) if old.startswith(f"{key}:")), len(lines))
        lines[at : at + 1] = [] if line.startswith("-") else [line]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("key", ["world.stragglers", "links_from", "checkpoint.every", "wait.announce"])
def test_none_leaves_an_option_out_as_null_does(key: str) -> None:
    assert loads(TOY, [f"{key}=none"]).model_dump() == loads(TOY, [f"{key}=null"]).model_dump()


def test_none_stays_a_mistake_where_a_value_is_needed() -> None:
    with pytest.raises(ScenarioError, match="rounds is 'none', expected a whole number"):
        loads(TOY, ["rounds=none"])


MISTAKES = [
    # keys that are missing, or called otherwise
    ("-schema", 1, "missing key 'schema', add `schema: netdfl/1`"),
    ("-name", 1, "missing key 'name', add `name: my-fleet`"),
    ("-nodes", 1, "missing key 'nodes', add `nodes: 8`"),
    ("-topology", 1, "missing key 'topology', add `topology: ring`"),
    ("-rounds\nround: 20", 8, "unknown key 'round', did you mean 'rounds'?"),
    ("-rounds\nRounds: 20", 8, "unknown key 'Rounds', did you mean 'rounds'?"),
    ("-rounds\nepochs: 20", 8, "unknown key 'epochs', did you mean 'rounds'?"),
    ("-nodes\nclients: 20", 8, "unknown key 'clients', did you mean 'nodes'?"),
    ("-nodes\nnode: 20", 8, "unknown key 'node', did you mean 'nodes'?"),
    ("-topology\ngraph: ring", 8, "unknown key 'graph', did you mean 'topology'?"),
    ("-algorithm\nmethod: dfedavg", 8, "unknown key 'method', did you mean 'algorithm'?"),
    ("link: {default: {loss: 5%}}", 9, "unknown key 'link', did you mean 'links'?"),
    ("algorithm: {name: dfedavg, learning_rate: 0.1}", 7, "did you mean 'lr'?"),
    ("algorithm: {name: dfedavg, epochs: 3}", 7, "did you mean 'local_epochs'?"),
    ("compression: {kind: top_k, ratio: 0.1}", 9, "did you mean 'fraction'?"),
    ("links: {default: {delay: 50ms}}", 9, "did you mean 'latency'?"),
    ("links: {default: {bandwidth: 10Mbit}}", 9, "did you mean 'rate'?"),
    ("expect: {accuracy: {at_least: 0.9}}", 9, "did you mean 'test_accuracy'?"),
    # names in another writing
    ("algorithm: D-PSGD", 7, "did you mean 'dpsgd'?"),
    ("algorithm: FedAvg", 7, "did you mean 'fedavg'?"),
    ("topology: Ring", 8, "did you mean 'ring'?"),
    ("topology: complete", 8, "unknown topology 'complete', did you mean 'full'?"),
    ("topology: {kind: fully_connected}", 8, "did you mean 'full'?"),
    ("topology: [ring]", 8, "['ring'] is no topology, expected a name, or a mapping with 'kind'"),
    ("task: {dataset: MNIST}", 6, "did you mean 'mnist'?"),
    ("task: {dataset: digits, model: CNN}", 6, "did you mean"),
    ("task: digits", 6, "unknown task 'digits', use one of consensus, quadratic, sized, train"),
    # types and units
    ("rounds: '10'", 4, "rounds is '10', expected a whole number, remove the quotes"),
    ("rounds: ten", 4, "rounds is 'ten', expected a whole number"),
    ("rounds:", 5, "rounds is empty, expected a whole number"),
    ("rounds: 0", 4, "rounds is 0, expected at least 1"),
    ("nodes: 4.0", 3, "nodes is 4.0, expected a whole number"),
    ("name: my run", 2, "expected at most 200 letters, digits"),
    ("seed: -1", 9, "seed is -1, expected at least 0"),
    ("algorithm: {name: dfedavg, lr: '0.1'}", 7, "expected a number, remove the quotes"),
    ("algorithm: {name: dfedavg, lr: -1}", 7, "algorithm.lr is -1, expected above 0"),
    ("algorithm: {name: dfedavg, lr: .inf}", 7, "expected a finite number"),
    ("links: {default: {loss: 5}}", 9, "5 is not a probability; write 0 to 1, or a percentage like 5%"),
    ("links: {default: {latency: 50}}", 9, "50 is not a time; write a number with a unit, like 20ms"),
    ("links: {default: {rate: 10}}", 9, "10 is not a rate; write a number with a unit, like 10Mbit"),
    ("links: {0->9: {loss: 1%}}", 9, "there is no node 9"),
    ("links: {0->0: {loss: 1%}}", 9, "is a link from a node to itself; name two nodes"),
    ("links: {a->b: {loss: 1%}}", 9, "there is no group 'a'"),
    ("links: 5%", 9, "expected a mapping of keys and values"),
    ("events: {at: 1s, crash: 0}", 9, "expected a list, like [1, 2], begin each entry with `- `"),
    ("events: [{at: 1, crash: 0}]", 9, "1 is not a time"),
    ("events: [{at: 1s, kill: 0}]", 9, "an event without an action"),
    ("events: [{crash: 0}]", 9, "it does not say when"),
    ("events: [{at_round: 99, crash: 0}]", 9, "it begins after the end of the run (2 rounds)"),
    ("wait: {deadline: 5}", 9, "5 is not a time"),
    ("wait: {for: {quorum: 9}}", 9, "the most is 2"),
    ("evaluation: {every: 5s}", 9, "expected a whole number"),
    ("transport: {max_message: 10}", 9, "10 is not a size"),
    ("world: sim", 5, "unknown world 'sim'"),
    ("task: {kind: consensus, dim: 10000000000000}", 6, "expected at most 100000000"),
    ("task: {kind: quadratic, noise: -1}", 6, "task.noise is -1, expected at least 0"),
    # what passes and fails
    ("expect: {test_accuracy: 0.9}", 9, "write {at_least: 0.9}"),
    ("expect: {test_accuracy: '>0.9'}", 9, "write {at_least: 0.9}"),
    ("expect: {error: '< 0.1'}", 9, "write {at_most: 0.1}"),
    ("expect: {test_accuracy: {at_least: 90}}", 9, '90 is no share; write 0.9, or "90%"'),
    ("expect: {mean_local: {at_least: 75}}", 9, '75 is no share; write 0.75, or "75%"'),
    ("expect: {test_accuracy: {at_least: -1}}", 9, "-1 is no share; write 0 to 1, or a percentage like 90%"),
    ("expect: {test_accuracy: {at_least: high}}", 9, "'high' is no share"),
    ("expect: {bytes_sent: {at_most: 9 pages}}", 9, "'9 pages' is not a size; write a number with a unit"),
    ("expect: {duration_s: {at_most: 9 pages}}", 9, "'9 pages' is not a time; write a number with a unit"),
    ("expect: {error: {at_least: 0.9, at_most: 0.1}}", 9, "nothing is at least 0.9 and at most 0.1, swap the two"),
    ("expect: {test_accuracy: {at_least: 0.9}}", 9, "never measured: task consensus has no test set"),
    ("world: processes\nexpect: {virtual_duration_s: {at_most: 5}}", 9, "processes runs on the real clock"),
    ("expect: {deadlock: no}", 9, "did you mean 'none'?"),
    ("expect: {died: [9]}", 9, "node 9 does not exist"),
    ("expect: pass", 9, "expected a mapping of keys and values"),
    ("report: {targets: [90]}", 9, '90 is no share; write 0.9, or "90%"'),
    ("report: {targets: 0.9}", 9, "expected a list, like [1, 2]"),
    # combinations that can't be
    ("nodes: 1", 3, "one node has no neighbors: on ring it would train alone, use 2 nodes or more"),
    ("nodes: 1\ntopology: full", 3, "on full it would train alone"),
    ("nodes: 1\ntopology: random_sym", 3, "on random_sym it would train alone"),
    ("groups: {a: [0, 1], b: [1, 2]}", 9, "node 1 is in group a and in group b, groups don't overlap: leave it in one"),
    ("groups: {a: []}", 9, "the group 'a' has no nodes"),
    ("groups: {default: [0]}", 9, "'default' can't name a group"),
    ("groups: {'0': [0]}", 9, "'0' can't name a group"),
    ("groups: {'a->b': [0]}", 9, "'a->b' can't name a group"),
    ("algorithm: fedavg", 8, "use topology: star"),
    ("topology: star", 8, "star is the graph of a server"),
    ("topology: {kind: random_sym, neighbors: 4}", 8, "each of 4 nodes has 3 others; lower it"),
    ("topology: {kind: gml, file: .}", 8, "file '.' is a folder; name a file"),
]


@pytest.mark.parametrize(("change", "line", "words"), MISTAKES, ids=[change for change, _, _ in MISTAKES])
def test_a_mistake_is_one_sentence_at_its_line(change: str, line: int, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(written(change))
    (problem,) = caught.value.problems
    assert words in str(problem)
    assert problem.line == line


@pytest.mark.parametrize(
    "change",
    [
        "expect: {test_accuracy: {at_least: 90%}}",
        'expect: {test_accuracy: {at_least: "90%", at_most: 1}}',
        "report: {targets: [90%, 0.95]}",
        "groups: {a: [0, 1], b: [2, 3]}",
        "nodes: 1\nalgorithm: fedavg\ntopology: star",
    ],
)
def test_what_is_meant_so_is_taken(change: str) -> None:
    loads(written(change, TRAIN))


# what a run would refuse before round 0


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path / "data"))


NOT_READY = [
    ("nodes: 2000", TRAIN, 6, "2000 clients can't share 1438 samples: use at most 1438 clients"),
    ("task: {dataset: mnist, model: mlp}", TRAIN, 6, "run `netdfl data get mnist`"),
    ("task: {dataset: digits, device: cuda:77}", TRAIN, 6, "task.device is 'cuda:77', and this machine has"),
]


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(("change", "base", "line", "words"), NOT_READY, ids=[each[0] for each in NOT_READY])
def test_validate_refuses_what_a_run_refuses_and_in_its_words(
    tmp_path: Path, change: str, base: str, line: int, words: str
) -> None:
    file = tmp_path / "first.yaml"
    file.write_text(written(change, base))
    scenario = load(file)
    with pytest.raises(ScenarioError) as caught:
        check_ready(scenario)
    (problem,) = caught.value.problems
    assert words in problem.what
    assert (problem.file, problem.line) == (str(file), line)
    with pytest.raises(InputError, match=re.escape(problem.what)):
        netdfl.run(scenario, root=tmp_path / "runs", page=False)


def test_the_command_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path / "data"))
    file = tmp_path / "first.yaml"
    file.write_text(written("task: {dataset: mnist, model: mlp}", TRAIN))
    monkeypatch.setattr(sys, "argv", ["netdfl", "validate", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"{file}:6:17: dataset mnist is not in" in capsys.readouterr().err


SHAPES = """
import torch
from netdfl.compression.base import EncodedVector

class Tensors:
    unbiased = False
    def contraction(self, dim): return 1.0
    def variance(self, dim): return 0.0
    def compress(self, x, rng): return EncodedVector(len(x), {"values": x.clone()}, {})
    def decompress(self, encoded): return torch.as_tensor(encoded.arrays["values"])

def tensors(): return Tensors()
"""


def test_a_compressor_whose_parts_no_message_holds_is_found_at_validation(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(SHAPES)
    file = tmp_path / "first.yaml"
    file.write_text(written("compression: shapes:tensors"))
    with pytest.raises(ScenarioError, match=r"'shapes:tensors' encoded 'values' as a Tensor .*to_array") as caught:
        load(file)
    (problem,) = caught.value.problems
    assert problem.line == 9


# from Python


def values(**changed: Any) -> dict[str, Any]:
    toy = {"kind": "consensus", "dim": 4}
    given = {"schema": "netdfl/1", "name": "first", "nodes": 4, "rounds": 2, "world": "simulated", "task": toy}
    return given | {"algorithm": "dfedavg", "topology": "ring"} | changed


def test_a_scenario_is_a_path_a_mapping_or_loaded(tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    file.write_text(TOY)
    for given in (str(file), file, values(), load(values()), load(file)):
        assert netdfl.run(given, root=tmp_path / "runs", page=False).result["verdict"] in ("pass", "done")
    assert load(values(), ["rounds=7"]).rounds == 7
    assert load(values(groups={"a": (0, 1)}, links={"default": {"loss": 0.1}})).groups == {"a": [0, 1]}


@pytest.mark.parametrize(
    "given", [None, 7, b"x", [], TOY.splitlines(), Path, {"nodes": {}}, {}, {1: 2}, "nowhere.yaml"]
)
@pytest.mark.parametrize("use", [netdfl.run, netdfl.load])
def test_what_is_no_scenario_has_a_sentence(given: Any, use: Any) -> None:
    with pytest.raises(ScenarioError) as caught:
        use(given)
    assert str(caught.value)


def test_a_loaded_scenario_takes_no_overrides() -> None:
    with pytest.raises(ScenarioError, match="give its file or mapping with the overrides"):
        load(load(values()), ["rounds=3"])


def test_data_that_are_not_there_are_named_by_a_run_as_well(tmp_path: Path, no_data: None) -> None:
    task = {"dataset": "mnist", "model": "mlp"}
    with pytest.raises(DatasetError, match="netdfl data get mnist"):
        netdfl.run(values(task=task), root=tmp_path / "runs", page=False)
