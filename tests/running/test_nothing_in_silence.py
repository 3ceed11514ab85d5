"""What contradicts itself, or does nothing, is refused or said: no run trains otherwise than its scenario reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import netdfl
from netdfl.core.errors import InputError, ScenarioError
from netdfl.core.rng import Streams
from netdfl.host.training_problem import TrainingProblem
from netdfl.scenario.load import load, loads
from netdfl.scenario.loading.resolved import to_yaml

BASE = """schema: netdfl/1
name: plain
nodes: 4
rounds: 2
world: simulated
topology: ring
"""
TRAINED = BASE + "algorithm: {name: dfedavg, lr: 0.1"


def test_two_lengths_of_a_local_round_are_refused() -> None:
    with pytest.raises(ScenarioError, match="local_epochs 3 and local_steps 7 both say how long") as caught:
        loads(TRAINED + ", local_epochs: 3, local_steps: 7}\n")
    assert caught.value.problems[0].line == 7


@pytest.mark.parametrize("one", ["local_epochs: 3", "local_steps: 7"])
def test_one_length_is_taken_however_it_was_written(one: str) -> None:
    scenario = loads(TRAINED + f", {one}}}\n")
    assert loads(to_yaml(scenario)).algorithm.params == scenario.algorithm.params


def test_an_override_of_one_length_drops_the_other_with_a_word() -> None:
    scenario = loads(TRAINED + ", local_epochs: 3}\n", ["algorithm.local_steps=7"])
    assert scenario.algorithm.params["local_steps"] == 7
    assert "algorithm.local_epochs is dropped: local_steps says how long a local round is" in scenario.notices
    with pytest.raises(ScenarioError, match="both say how long"):
        loads(TRAINED + "}\n", ["algorithm.local_steps=7", "algorithm.local_epochs=3"])


DATA = """
import numpy as np
import netdfl

X, Y = np.zeros((40, 4), np.float32), np.arange(40) % 2


def whole():
    return netdfl.Datasets(train=(X, Y), test=(X[:8], Y[:8]))


def by_client():
    return netdfl.Datasets(clients=[(X[:10], Y[:10])] * 4, test=(X[:8], Y[:8]))
"""


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("batch_size: 1000", "task.batch_size 1000 is more than any client's 10 examples"),
        ("dataset: {name: 'own:whole', test: 0.5}", "test: 0.5 is not used: the data bring a test set"),
        ("dataset: {name: digits, test: 0.5}, batch_size: 8", "test: 0.5 is not used: the data bring a test set"),
        ("dataset: {name: 'own:by_client', partition: {kind: shards}}", "partition shards is not used"),
    ],
)
def test_what_the_data_make_idle_is_noted(task: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(DATA)
    if "dataset" not in task:
        task += ", dataset: {name: 'own:whole'}"
    (tmp_path / "s.yaml").write_text(TRAINED + f"}}\ntask: {{{task}}}\n")
    problem = TrainingProblem(load(tmp_path / "s.yaml"), Streams(0), 4)
    assert [note for note in problem.notes if said in note]


SOLVER = """
from dataclasses import replace
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.training.base import Update
from netdfl.training.sgd import Memoryless


class Own(Memoryless):
    def train(self, state, y, received, weight, data, view):
        return {}


def mine(exchange, /):
    return replace(ALGORITHMS["dfedavg"].build(exchange), local=Own())
"""


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        ("y", "returned Tensor"),
        ("None", "returned NoneType"),
        ("(state, y)", "returned (state, Tensor)"),
        ("(state, Update(y, y[:3]))", "returned an update to a vector of (3,) from one of (64,)"),
        ("(state, Update(y, 7))", "returned an update to a vector of () from one of (64,)"),
        ("(state, Update(y, y.numpy()))", "returned an update to a ndarray from a Tensor"),
        ("(state, Update(y, y.half()))", "returned an update to a vector of torch.float16 from one of torch.float64"),
        (
            "(state, Update(y, y.clone().requires_grad_()))",
            "returned a vector that requires a gradient, which it may not",
        ),
        ("(state, Update(y, y.mul_(0.5)))", "wrote to the vector that it was given: clone it first"),
        (
            "(state, Update(y, y.view(8, 8).t().add_(1).t().reshape(-1)))",
            "wrote to the vector that it was given: clone it first",
        ),
    ],
)
def test_a_solver_that_returns_something_else_is_refused_with_its_place(
    returns: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(SOLVER.replace("{}", returns))
    (tmp_path / "s.yaml").write_text(BASE + "task: consensus\nalgorithm: 'own:mine'\n")
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path / "s.yaml")
    assert f"the local solver Own {said} ({tmp_path / 'own.py'}:9)" in str(caught.value)


def test_a_solver_that_needs_another_problem_is_not_judged_by_the_toy(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SOLVER.replace("{}", "data.nothing"))
    (tmp_path / "s.yaml").write_text(BASE + "task: consensus\nalgorithm: 'own:mine'\n")
    assert load(tmp_path / "s.yaml").algorithm.kind == "own:mine"


COMPILED = """
import torch
from torch import nn


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), torch.compile(nn.Linear(5, 2), backend="eager")

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def plain():
    net = Inner()
    net.last = net.last._orig_mod
    return net


def within():
    return Inner()


def outside():
    return torch.compile(plain(), backend="eager")
"""


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile's own, of an input inside the model
def test_compiled_models_come_out_and_go_in_by_their_authors_names(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(COMPILED + DATA)
    found = {}
    for name in ("plain", "within", "outside"):
        text = TRAINED + f"}}\ntask: {{model: {{name: 'own:{name}'}}, dataset: {{name: 'own:whole'}}}}\n"
        (tmp_path / "s.yaml").write_text(text)
        done = netdfl.run(tmp_path / "s.yaml", out=tmp_path / name, page=False)
        assert done.result["reasons"] == []
        found[name] = {key: value.numpy() for key, value in done.model().state_dict().items()}
    for name in ("within", "outside"):
        assert list(found[name]) == ["first.weight", "first.bias", "last.weight", "last.bias"]
        assert all(np.array_equal(found[name][key], value) for key, value in found["plain"].items())
    from netdfl.running.models import export_model, open_run

    export_model(open_run(tmp_path / "plain"), tmp_path / "kept")
    on = load(tmp_path / "s.yaml", [f"task.model.initial={tmp_path / 'kept' / 'model.safetensors'}"])
    start = TrainingProblem(on, Streams(0), 4).start
    assert np.array_equal(start.numpy(), np.concatenate([each.ravel() for each in found["plain"].values()]))


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("consensus", "; to have more rounds from the start, run its scenario.yaml with --set rounds=N"),
        ("{dataset: digits, model: mlp}", r"; to train on .*task\.model\.initial="),
    ],
)
def test_a_finished_run_says_how_to_train_on(task: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(BASE + f"task: {task}\nalgorithm: dpsgd\n")
    netdfl.run(tmp_path / "s.yaml", out=tmp_path / "run", page=False)
    from netdfl.running.run import resume

    with pytest.raises(InputError, match=f"has ended with verdict done{told}"):
        resume(tmp_path / "run")


MIXING = """
from dataclasses import dataclass
from netdfl.extend import MixResult, RowMixing, Stateless, gossip, local_sgd, AnySgd, pack, to_all, vector


@dataclass(frozen=True, kw_only=True)
class Own(Stateless, RowMixing):
    def outgoing(self, state, update, step, view):
        return state, to_all(view, pack(update.x))

    def mix(self, state, update, inbox, step, view):
        x = view.self_weight * update.x
        for message in inbox:
            v = {}
            v *= view.in_weights[message.src]
            x = x + v
        return MixResult(state, update._replace(x=x))


def mine(exchange, /, *, sgd: AnySgd = AnySgd(local_steps=1)):
    return gossip(exchange, local_sgd(sgd), mixing=Own())
"""


def what_is_said(folder: Path) -> str:
    """Return what is said of a part's mistake as the scenario is loaded, or else of the run; empty if it is done."""
    try:
        loaded = load(folder / "s.yaml")
    except ScenarioError as error:
        return str(error)
    result = netdfl.run(loaded, out=folder / "run", page=False).result
    assert (result["verdict"] == "done") is (result["reasons"] == [])
    return " ".join(result["reasons"])


@pytest.mark.parametrize(("reads", "tells"), [("vector(message, x)", True), ("vector(message, x).clone()", False)])
def test_a_mixing_that_writes_to_what_others_receive_too_is_told_with_its_place(
    reads: str, tells: bool, tmp_path: Path
) -> None:
    """Simulated nodes, and those of one machine with large models, share the memory of a message."""
    (tmp_path / "own.py").write_text(DATA + MIXING.replace("{}", reads))
    line = (tmp_path / "own.py").read_text().splitlines().index(
        "    def mix(self, state, update, inbox, step, view):"
    ) + 1
    task = "task: {dataset: {name: 'own:whole'}, model: {name: mlp, hidden: [4]}}\n"
    (tmp_path / "s.yaml").write_text(BASE + task + "algorithm: 'own:mine'\n")
    said = what_is_said(tmp_path)
    told = "the mixing Own wrote to a vector that it received, and others may read: clone it first"
    assert (f"{told} ({tmp_path}/own.py:{line})" in said) is tells
    assert (said == "") is not tells


SERVED = """
from netdfl.extend import AnySgd, Averaging, Entry, Received, local_sgd, server, vector


class Own(Averaging):
    def adopt(self, inbox, like, view):
        for message in inbox:
            return vector(message, like).{}(0.5), Received()


def build(exchange, /, *, sgd: AnySgd = AnySgd(local_steps=1)):
    return server(exchange, local_sgd(sgd), Own())


mine = Entry(build=build, family="server", needs=frozenset({"server"}), source="own")
"""


@pytest.mark.parametrize(("writes", "tells"), [("mul_", True), ("mul", False)])
def test_a_client_that_writes_to_what_the_server_sent_to_all_is_told(writes: str, tells: bool, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(DATA + SERVED.replace("{}", writes))
    task = "task: {dataset: {name: 'own:whole'}, model: {name: mlp, hidden: [4]}}\n"
    star = BASE.replace("topology: ring", "topology: star")
    (tmp_path / "s.yaml").write_text(star + task + "algorithm: 'own:mine'\n")
    result = netdfl.run(tmp_path / "s.yaml", out=tmp_path / "run", page=False).result
    assert any("the mixing Own wrote to a vector that it received" in reason for reason in result["reasons"]) is tells
    assert (result["verdict"] == "done") is not tells


RETURNING = """
from netdfl.extend import AnySgd, MixResult, RowMixing, Stateless, gossip, local_sgd, pack, to_all


class Own(Stateless, RowMixing):
    def outgoing(self, state, update, step, view):
        sent = to_all(view, pack(update.x))
        return SENT

    def mix(self, state, update, inbox, step, view):
        x = update.x
        return MIXED


def mine(exchange, /, *, sgd: AnySgd = AnySgd(local_steps=1)):
    return gossip(exchange, local_sgd(sgd), mixing=Own())
"""
RIGHT = {"SENT": "state, sent", "MIXED": "MixResult(state, update)"}


@pytest.mark.parametrize(
    ("what", "instead", "said"),
    [
        ("SENT", "None", "returned None from outgoing: return (state, outbox)"),
        ("SENT", "sent", "returned dict from outgoing: return (state, outbox)"),
        ("SENT", "state, {0: update.x}", "sends a Tensor, which is no payload: pack(x) makes one"),
        ("SENT", "state, {9: pack(update.x)}", "sends to 9, and nodes are 0 to 3: send to view.out_neighbors"),
        (
            "SENT",
            "state, {view.node: pack(update.x)}",
            "sends to 0 from node 0, and the graph of round 0 has no",
        ),
        (
            "SENT",
            "state, sent | {0: pack(update.x)} if view.round and view.node == 2 else sent",
            "sends to 0 from node 2, and the graph of round 1 has no such edge: send to view.out_neighbors, here [1, ",
        ),
        ("SENT", "(state, sent, update.x.add_(1))[:2]", "wrote to update.x, which others may read: clone it first"),
        ("MIXED", "MixResult(state, update._replace(x=x.add_(1)))", "wrote to update.x, which others may read"),
        ("MIXED", "None", "returned None from mix: return MixResult(state, update)"),
        ("MIXED", "(state, update)", "returned (NoState, Update) from mix: return MixResult(state, update)"),
        ("MIXED", "MixResult(state, x)", "returned MixResult from mix: return MixResult(state, update)"),
        ("MIXED", "MixResult(state, update._replace(x=x[:3]))", "returned an update to a vector of (3,) from one of"),
        ("MIXED", "MixResult(state, update._replace(x=x.numpy()))", "returned an update to a ndarray from a Tensor"),
        ("MIXED", "MixResult(state, update._replace(x=x.double()))", "returned an update to a vector of torch.float64"),
        ("MIXED", "MixResult(state, update)", ""),
    ],
)
def test_a_mixing_that_returns_something_else_is_told_with_its_place(
    what: str, instead: str, said: str, tmp_path: Path
) -> None:
    program = RETURNING
    for name, text in (RIGHT | {what: instead}).items():
        program = program.replace(name, text)
    (tmp_path / "own.py").write_text(DATA + program)
    task = "task: {dataset: {name: 'own:whole'}, model: {name: mlp, hidden: [4]}}\n"
    (tmp_path / "s.yaml").write_text(BASE + task + "algorithm: 'own:mine'\n")
    told = what_is_said(tmp_path)
    assert (told == "") is (said == "")
    if said:
        assert f"the mixing Own {said}" in told
        assert f"({tmp_path}/own.py:" in told
