"""A part of a user's algorithm that remembers something in itself is refused: simulated nodes would share it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import load

SCENARIO = """schema: netdfl/1
name: remembered
nodes: 4
rounds: 4
topology: {}
algorithm: "own:mine"
task: {kind: quadratic}
"""
SOLVER = """
from dataclasses import replace

import numpy as np
import torch
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.extend import Memoryless, Update


class Own(Memoryless):
    velocity, steps, mine, last = 0.0, 0, {}, None

    def train(self, state, y, received, weight, data, view):
        x = y - 0.1 * (view.node + 1) * torch.ones_like(y)
        BODY
        return state, Update(y, x)


def mine(exchange, /):
    return replace(ALGORITHMS["METHOD"].build(exchange), local=Own())
"""
MIXING = """
import torch
from netdfl.extend import AnySgd, MixResult, RowMixing, Stateless, gossip, local_sgd, pack, to_all, weighted_mean


class Own(Stateless, RowMixing):
    last = None

    def outgoing(self, state, update, step, view):
        return state, to_all(view, pack(update.x * (view.node + 1) + torch.randn(1)))

    def mix(self, state, update, inbox, step, view):
        x = weighted_mean(view, inbox, update.x)
        BODY
        return MixResult(state, update._replace(x=x))


def mine(exchange, /, *, sgd: AnySgd = AnySgd(local_steps=1)):
    return gossip(exchange, local_sgd(sgd), mixing=Own())
"""
TOLD = "the algorithm 'own:mine' gives nodes other models if they share its parts, as in the simulated world"
BY_CHANCE = "the algorithm 'own:mine' gives other models when it is played again"


def check(program: str, tmp_path: Path, *, refused: bool, topology: str = "ring", told: str = TOLD) -> None:
    (tmp_path / "own.py").write_text(program)
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("{}", topology, 1))
    if not refused:
        load(tmp_path / "s.yaml")
        return
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path / "s.yaml")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("self.velocity = 0.9 * self.velocity + (x - y); x = y + self.velocity", True),
        ("self.last = x if self.last is None else self.last; x = (x + self.last) / 2", True),
        ("x = x + float(np.random.default_rng().normal())", True),
        ("x = x + torch.randn(len(x))", False),
        ("self.steps += 1", False),
        ("self.last = x", False),
        ("self.mine = {**self.mine, view.node: x + self.mine.get(view.node, 0.0)}; x = self.mine[view.node]", False),
    ],
)
@pytest.mark.parametrize(("algorithm", "topology"), [("dfedavg", "ring"), ("sgp", "directed_ring"), ("fedavg", "star")])
def test_a_solver_that_shares_what_it_remembers_is_refused(
    body: str, refused: bool, algorithm: str, topology: str, tmp_path: Path
) -> None:
    """What makes no difference passes: a counter, what is kept by node, draws that are seeded by node and round."""
    program = SOLVER.replace("BODY", body).replace("METHOD", algorithm)
    if algorithm != "dfedavg":
        program += f'\n\nmine = replace(ALGORITHMS["{algorithm}"], build=mine)\n'
    told = BY_CHANCE if "default_rng" in body else TOLD
    check(program, tmp_path, refused=refused, topology=topology, told=told)


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("pass", False),
        ("self.last = x if self.last is None else (x + self.last) / 2; x = self.last", True),
        ("self.last = x", False),
        ("x = x + torch.randn(len(x))", False),
    ],
)
def test_a_mixing_that_shares_what_it_remembers_is_refused(body: str, refused: bool, tmp_path: Path) -> None:
    check(MIXING.replace("BODY", body), tmp_path, refused=refused)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_netdfls_own_algorithms_pass_as_a_users(name: str, tmp_path: Path) -> None:
    topology = "star" if "server" in ALGORITHMS[name].needs else "full"
    text = "from dataclasses import replace\nfrom netdfl.algorithms.catalog import ALGORITHMS\n"
    text += f"def mine(exchange, /): return ALGORITHMS[{name!r}].build(exchange)\n"
    text += f"mine = replace(ALGORITHMS[{name!r}], build=mine)\n"
    check(text, tmp_path, refused=False, topology=topology)


def test_an_algorithm_is_tried_with_what_it_is_told_in_a_run(tmp_path: Path) -> None:
    program = (
        SOLVER.replace("BODY", "pass").replace("METHOD", "dfedavg")
        + """

def told(exchange, /):
    assert exchange.num_rounds == 4 and exchange.wait.need == 2
    return mine(exchange)
"""
    )
    (tmp_path / "own.py").write_text(program)
    text = SCENARIO.replace("{}", "full", 1).replace("own:mine", "own:told")
    (tmp_path / "s.yaml").write_text(text + "wait: {for: {quorum: 2}}\n")
    load(tmp_path / "s.yaml")


def test_an_algorithm_that_goes_by_a_clock_is_told_so(tmp_path: Path) -> None:
    body = "import time; x = x + (time.perf_counter_ns() % 1000003)"
    program = SOLVER.replace("BODY", body).replace("METHOD", "dfedavg")
    check(program, tmp_path, refused=True, told=BY_CHANCE)


@pytest.mark.parametrize(
    ("body", "error"), [("x = x + momentm", "NameError"), ("from math import squareroot", "ImportError")]
)
def test_a_name_that_is_nowhere_is_told_before_the_run(body: str, error: str, tmp_path: Path) -> None:
    program = SOLVER.replace("BODY", body).replace("METHOD", "dfedavg")
    check(program, tmp_path, refused=True, told=f"'own:mine' raised {error} in two rounds of a trial: ")


def test_what_the_toy_problem_lacks_is_no_mistake(tmp_path: Path) -> None:
    program = SOLVER.replace("BODY", "data.task.labels").replace("METHOD", "dfedavg")
    check(program, tmp_path, refused=False)
