"""Whatever draws, from whichever generator: the same each time, another for each node, alike in both worlds."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netdfl
from netdfl.algorithms.base import LocalRound
from netdfl.algorithms.families import first_state
from netdfl.core.rng import seed_streams
from netdfl.host.blueprint import Blueprint
from netdfl.running.determinism import check_determinism
from netdfl.running.judged import FinishedRun
from netdfl.scenario.model.plugins import find_own
from netdfl.training.drawing import seeded
from tests.training import noise
from tests.training.noise import DRAW, PLACES

EVERYWHERE = " ".join(PLACES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("noise")
    shutil.copy(noise.__file__, place / "noise.py")
    return place


@pytest.fixture(autouse=True)
def own_streams() -> Iterator[None]:
    state, states = torch.get_rng_state(), (np.random.get_state(), random.getstate())
    yield
    torch.set_rng_state(state)
    np.random.set_state(states[0])
    random.setstate(states[1])


def scenario(folder: Path, where: str, source: str, world: str = "simulated") -> Path:
    def part(name: str) -> dict[str, Any]:
        return {"name": f"noise:{name}", "where": where, "source": source}

    augment = {"kind": "noise:augmentation", "where": where, "source": source}
    task: dict[str, Any] = {"dataset": part("data") | {"augment": augment}, "model": part("net"), "batch_size": 4}
    task |= {"loss": part("loss"), "metrics": [part("metric")]}
    text = {"schema": "netdfl/1", "name": "noise", "nodes": 3, "rounds": 2, "world": world, "topology": "ring"}
    file = folder / "s.yaml"
    text |= {"compression": {"kind": "noise:compression", "where": where, "source": source}}
    file.write_text(json.dumps(text | {"task": task, "algorithm": part("solver")}))
    return file


def ran(folder: Path, where: str, source: str, world: str = "simulated", sets: tuple[str, ...] = ()) -> FinishedRun:
    file = netdfl.load(scenario(folder, where, source, world), sets)
    return netdfl.run(file, out=folder / f"run{len(list(folder.glob('run*')))}", page=False)


def seed_the_process(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def figures(done: FinishedRun) -> list[tuple[Any, ...]]:
    names = "name = 'train_loss' OR name LIKE '%test_%'"
    return done.run.rows(f"SELECT node, round, name, value FROM metrics WHERE {names} ORDER BY ALL")


def test_what_is_drawn_anywhere_is_the_same_in_every_run(folder: Path) -> None:
    hashes = []
    for seed, sets in ((1, ()), (2, ("checkpoint.every=1",))):
        seed_the_process(seed)
        hashes.append(ran(folder, EVERYWHERE, "every", sets=sets).result["event_log_hash"])
        after = [draw() for draw in DRAW.values()]
        seed_the_process(seed)
        assert after == [draw() for draw in DRAW.values()], "the program's own streams are as they were"
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("source", DRAW)
def test_every_node_draws_other_noise_in_every_round(source: str, folder: Path) -> None:
    blueprint = Blueprint.of(netdfl.load(scenario(folder, EVERYWHERE, source)))
    drawn: Any = find_own("noise:noise", str(folder)).drawn
    found: dict[tuple[int, int], dict[str, list[float]]] = {}
    for again in (False, True):
        for node, round in product(range(3), range(2)):
            view, task = blueprint.view(node, round, frozenset()), blueprint.problem.task(node, "cpu")
            state = first_state(task.initial(), blueprint.algorithm, view)
            drawn.clear()
            seed_the_process(node + again)
            LocalRound(state, blueprint.algorithm, task.data(round), view)()
            assert drawn == found.setdefault((node, round), deepcopy(drawn)), "the second time it draws the same"
    for place in ("examples", "forward", "late", "judged", "loss", "augmentation", "solver"):
        every = [number for places in found.values() for number in places.get(place, ())]
        assert len(set(every)) == len(every) >= len(found), place


EXCHANGES = ("after", "mixing", "compression", "wait")


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([*EXCHANGES], id="all"),
        *(pytest.param([each], marks=pytest.mark.soak, id=each) for each in EXCHANGES),
    ],
)
def test_what_exchanges_draw_is_of_node_and_round_whoever_comes_first(places: list[str], folder: Path) -> None:
    drawn: Any = find_own("noise:noise", str(folder)).drawn
    found: dict[str, list[list[float]]] = {place: [] for place in places}
    for slow in (1, 2):
        drawn.clear()
        slow_down = f"events=[{{at: 0s, slow_down: {slow}, factor: 9}}]"
        ran(folder, " ".join(places), "every", sets=("world.compute=10ms", slow_down))
        for place in places:  # three nodes, two rounds, three generators; before them compressors are tried
            found[place].append(drawn[place][-18:])
    for place, (one, other) in found.items():
        assert one != other, f"another order: {place}"
        assert sorted(one) == sorted(other), place
        assert len(set(one)) == 18, place


def test_both_worlds_draw_alike(folder: Path) -> None:
    one, other = (ran(folder, EVERYWHERE, "every", world) for world in ("simulated", "processes"))
    assert figures(one) == figures(other)


def test_seeding_a_process_waits_for_a_thread_that_draws_as_its_own_seed_says() -> None:
    """A node that began seeded what all share while another one's model was being made: it came out as another one."""
    with seeded(7, torch.device("cpu")):
        expected = [draw() for draw in DRAW.values()]
    with seeded(7, torch.device("cpu")):
        beginning = threading.Thread(target=seed_streams, args=(1,))
        beginning.start()
        beginning.join(0.1)
        assert beginning.is_alive()
        assert [draw() for draw in DRAW.values()] == expected
    beginning.join()


UNSEEDED = """
import random
import numpy as np
from torch import nn

RNG = np.random.default_rng()
SEEDED = np.random.default_rng(1), np.random.RandomState(1), random.Random(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 10)

    def forward(self, x):
        chance = random.Random() if self.training else SEEDED[2]
        return self.first(x.flatten(1)) * (1 + 0.1 * chance.random()) + 0.1 * np.random.RandomState().normal()
"""


def test_what_no_seed_reaches_is_named_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(UNSEEDED)
    (tmp_path / "s.yaml").write_text(
        "schema: netdfl/1\nname: unseeded\nnodes: 2\nrounds: 1\nworld: simulated\ntopology: ring\n"
        "task: {model: {name: 'own:Net'}}\nalgorithm: {name: dfedavg, lr: 0.1, local_steps: 1}\n"
    )
    found = check_determinism(netdfl.load(tmp_path / "s.yaml"), tmp_path / "out")
    assert found.difference is not None
    assert sorted(found.unseeded) == [f"{tmp_path / 'own.py'}:{line}" for line in (16, 17, 6)]
