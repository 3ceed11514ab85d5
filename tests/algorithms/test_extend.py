"""What one's own algorithms are written with: promised names, netdfl's methods copied, the guide's worked methods."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netdfl.extend
from netdfl.algorithms import bilateral, central, compressed, directed, overlap, synthetic, undirected
from netdfl.algorithms.base import Entry, NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.core.rng import Streams
from netdfl.scenario.load import load
from netdfl.scenario.model.algorithm import ALGORITHMS as CHOICES
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.plugins import find_own
from netdfl.testing.contract import CHECKS, EXCHANGE
from netdfl.testing.rounds import first_states, play_rounds
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.toy import Quadratic
from tests.docs.test_tutorial import blocks
from tests.public_names import CHAPTERS, PAGE, PROMISED, ROOT, definitions, page, signatures, untold

GUIDE = ROOT / "docs" / "own_algorithm.md"
HOMES = (bilateral, central, compressed, directed, overlap, synthetic, undirected)


def test_the_page_has_each_name_once_and_as_it_is() -> None:
    listed = [name for names in CHAPTERS.values() for name in names]
    assert sorted(listed) == sorted(netdfl.extend.__all__)
    assert all(hasattr(netdfl.extend, name) for name in listed)
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.public_names writes the page"


def test_what_the_page_shows_as_a_method_can_be_called() -> None:
    for name, module in definitions():
        shown = module.body[0]
        for member in shown.body if isinstance(shown, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef) and not member.decorator_list:
                assert callable(getattr(getattr(netdfl.extend, name), member.name)), (name, member.name)


def test_no_promised_name_changes_without_a_line_in_the_changelog() -> None:
    promised = json.loads(PROMISED.read_text(encoding="utf-8"))
    changed = untold(promised, signatures(), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert not changed, f"say in CHANGELOG.md what is new, with the name as `extend.NAME`: {', '.join(changed)}"


def test_a_change_that_is_not_told_is_found() -> None:
    now = signatures()
    other = now | {"pack": "def pack(x): ..."}
    gone = {name: text for name, text in now.items() if name != "Update"}
    line = "## Unreleased\n\n- `extend.pack` takes a scale.\n\n## 0.2.0\n\n- `extend.Update` is new.\n"
    assert untold(now, now, "") == []
    assert untold(now, other, "## Unreleased\n\n- pack takes a scale.\n") == ["pack"]
    assert untold(now, other, line) == []
    assert untold(now, gone, line) == ["Update"], "a line of an earlier version says nothing of this one"


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of the guide."""
    folder = tmp_path_factory.mktemp("worked")
    for block in blocks(GUIDE):
        if block.file:
            (folder / Path(block.file).name).write_text(block.text, encoding="utf-8")
    return folder


def own(worked: Path, path: str) -> Entry:
    found = find_own(path, str(worked))
    assert isinstance(found, Entry)
    return found


CENTERS = np.array([[1.0, -2.0], [4.0, 0.5], [-3.0, 2.0], [0.0, 7.0]])
CURVATURES = np.array([0.5, 1.0])


def played(entry: Entry, topology: str, rounds: int) -> tuple[np.ndarray, Network]:
    """Every node's model after some rounds on |x - c_i|^2 / 2 with curvatures, from 0."""
    streams, tasks = Streams(3), {}
    network = Network(TOPOLOGIES[topology](len(CENTERS), streams))
    for i, center in enumerate(CENTERS):
        start, curved = torch.zeros(2, dtype=torch.float64), torch.from_numpy(CURVATURES)
        tasks[i] = Quadratic(torch.from_numpy(center), start, curved, node=i, streams=streams, noise=0.0)
    alg = entry.build(EXCHANGE)
    states: Any = first_states(alg, tasks, network.view)
    states = play_rounds(alg, states, tasks, network.view, rounds)
    models: dict[int, NodeState] = states
    return np.stack([models[i].x.numpy() for i in sorted(models)]), network


def slopes(x: np.ndarray) -> np.ndarray:
    return (x - CENTERS) * CURVATURES


def test_gradient_tracking_is_its_recursion(worked: Path) -> None:
    ended, network = played(own(worked, "tracking:TRACKED"), "ring", 7)
    x = np.zeros_like(CENTERS)
    y = slopes(x)
    for round in range(7):
        matrix = network.matrix(round)
        moved = matrix @ (x - 0.1 * y)
        x, y = moved, matrix @ y + slopes(moved) - slopes(x)
    np.testing.assert_allclose(ended, x, atol=1e-12)


def test_the_pairs_with_an_outer_momentum_are_their_recursion(worked: Path) -> None:
    ended, network = played(own(worked, "pairs:PAIRS"), "random_pairs", 5)
    x, momentum = np.zeros_like(CENTERS), np.zeros_like(CENTERS)
    for round in range(5):
        matrix, z = network.matrix(round), x
        for _ in range(10):
            z = z - 0.1 * slopes(z)
        momentum = 0.5 * momentum + 0.7 * matrix @ (z - x) - 1.0 * (x - matrix @ x)
        x = x + momentum
    np.testing.assert_allclose(ended, x, atol=1e-12)


def copied(name: str, folder: Path) -> str:
    """Write the module of a method into `folder`, with an `Entry` as the catalog has it, and return its path."""
    entry = ALGORITHMS[name]
    home = next(home for home in HOMES if hasattr(home, name))
    needs = f"frozenset({sorted(entry.needs)!r})"
    (folder / "copied.py").write_text(
        inspect.getsource(home)
        + f"\nfrom netdfl.extend import Entry\nCOPY = Entry({name}, {entry.family!r}, {needs}, 'copied')\n",
        encoding="utf-8",
    )
    return "copied:COPY"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_copied_method_takes_what_the_method_takes(name: str, tmp_path: Path) -> None:
    """Its parameters of local SGD beside its own, with the same defaults; parts of the same types come out."""
    path, steps = copied(name, tmp_path), {"lr": 0.05, "local_steps": 3}
    copy, ours = (CHOICES.model(kind, str(tmp_path)).model_validate({"name": kind, **steps}) for kind in (path, name))
    assert isinstance(copy, Part)
    assert isinstance(ours, Part)
    assert list(copy.params) == list(ours.params)
    assert repr(copy.params) == repr(ours.params)
    assert {key: copy.params[key] for key in steps} == steps
    kinds = [
        [type(part).__name__ for part in (alg.local, alg.mixing, alg.start)]
        for alg in (copy.build(EXCHANGE), ours.build(EXCHANGE))
    ]
    assert kinds[0] == kinds[1]


def test_a_copied_method_gives_the_run_of_the_method(tmp_path: Path) -> None:
    scenario = {
        "schema": "netdfl/1",
        "name": "s",
        "nodes": 4,
        "rounds": 3,
        "world": {"kind": "simulated"},
        "task": {"kind": "quadratic"},
        "topology": "ring",
    }
    path = copied("dpsgd", tmp_path)
    (tmp_path / "s.yaml").write_text(json.dumps(scenario | {"algorithm": {"name": path, "lr": 0.05}}))
    hashes = [
        netdfl.run(load(tmp_path / "s.yaml", more), out=tmp_path / f"run-{at}", page=False).result["event_log_hash"]
        for at, more in enumerate(([], ["algorithm.name=dpsgd"]))
    ]
    assert hashes[0] == hashes[1]


MISNAMED = """
from dataclasses import replace
from tracking import *

class Misnamed(GossipBoth):
    def mix(self, state, update, inbox, step, view):
        SLIP
        return super().mix(state, update, inbox, step, view)

def mine(exchange, /):
    return replace(gradient_tracking(exchange), mixing=Misnamed())

BAD = replace(TRACKED, build=mine)
"""


@pytest.mark.parametrize(
    "slip", ["update.extras['y']", "[message.payload.arrays['extra.y'] for message in inbox]", "len(7)"]
)
def test_a_slip_in_ones_own_mixing_fails_the_check_in_a_sentence_with_its_place(worked: Path, slip: str) -> None:
    name = f"slip_{len(slip)}"
    (worked / f"{name}.py").write_text(MISNAMED.replace("SLIP", slip), encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        CHECKS["mixes_as_the_matrix"](own(worked, f"{name}:BAD"))
    said = str(caught.value)
    assert said.startswith("mixes_as_the_matrix: your own code raised ")
    assert f"({worked / name}.py:7)" in said
    assert ("one name in three places" in said) == ("KeyError" in said)
