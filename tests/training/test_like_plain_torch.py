"""Each module of `plain_torch_modules` trained by one node alone, and by a plain loop of PyTorch: the same bits.

A node is alone where its only peer crashes before the first round. All that the loop takes from netdfl are the named
streams by which examples are shuffled and torch is seeded.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import netdfl
from netdfl.core.rng import Streams, kept_streams
from netdfl.running.judged import FinishedRun
from netdfl.training.models.copying import plain_name
from tests.training import plain_torch_modules
from tests.training.plain_torch_modules import ALL, BESIDE, COMPILED, NOISY, ROWS, TEST, TOGETHER, TRAIN, Drawn, Row

SEED, ROUNDS, EPOCHS, BATCH, LR = 3, 2, 2, 8, 0.1


class Trained(NamedTuple):
    """A module after its rounds: parameters and buffers by name, and each round's figures on the test set."""

    state: dict[str, Tensor]
    figures: list[dict[str, float]]


def of(tree: Any, chosen: Any) -> Any:
    """Some examples, of a tensor or of several by name."""
    return {name: part[chosen] for name, part in tree.items()} if isinstance(tree, dict) else tree[chosen]


def given(module: nn.Module, x: Any) -> Any:
    """What the module makes of `x`."""
    if isinstance(x, dict):
        return module(**x)
    dtype = next(p.dtype for p in module.parameters() if p.dtype.is_floating_point)
    return module(x.to(dtype) if x.is_floating_point() else x)


def read(row: Row, x: Tensor, y: Tensor, chosen: Tensor) -> Tensor:
    """The inputs of some examples, read one by one."""
    examples = Drawn(x, y, row.read)
    return torch.stack([examples[k][0] for k in chosen.tolist()])


def seed_all(seed: int) -> None:
    """Seed the generators of torch, numpy and Python."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def in_a_plain_loop(row: Row) -> Trained:
    """Two rounds of local SGD, as anybody would write them."""
    streams, (x, y), loss_of = Streams(SEED), row.data(TRAIN, "x"), row.loss or cross_entropy
    with torch.random.fork_rng(), kept_streams():
        module = _begun(row, streams.integer("model"), of(x, slice(2)))
        figures = []
        for round in range(ROUNDS):
            rng, step = streams.rng("batches", 0, round), 0
            optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=LR)
            module.train()
            for _ in range(EPOCHS):
                for chosen in torch.from_numpy(rng.permutation(TRAIN)).split(BATCH):
                    seed_all(streams.integer("reading", 0, round, step))
                    inputs = read(row, x, y, chosen) if row.read else of(x, chosen)
                    seed_all(streams.integer("dropout", 0, round, step))
                    optimizer.zero_grad()
                    loss_of(given(module, inputs), of(y, chosen)).backward()
                    optimizer.step()
                    step += 1
            with torch.random.fork_rng():
                another = _begun(row, streams.integer("model"), of(x, slice(2)))
            figures.append(_judged(another, module, row))
    return Trained({plain_name(name): value.detach().clone() for name, value in module.state_dict().items()}, figures)


def _begun(row: Row, seed: int, x: Any) -> nn.Module:
    """The module by its seed, whose lazy layers have seen the inputs."""
    torch.default_generator.manual_seed(seed)
    module = row.make()
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        torch.default_generator.manual_seed(seed)
        with torch.no_grad():
            given(module.eval(), x)
    return module


def _judged(module: nn.Module, trained: nn.Module, row: Row) -> dict[str, float]:
    """As somebody judges a checkpoint: a new module with the trained one's state_dict, and the test set as it is."""
    x, y = row.data(TEST, "")
    module.load_state_dict(trained.state_dict())
    module.eval()
    with torch.no_grad():
        outputs = given(module, x)
        loss = (row.loss or cross_entropy)(outputs, y)
    return {"loss": float(loss), "size": plain_torch_modules.size(outputs, y)}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in netdfl: sums of several threads are other sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("plain")
    shutil.copy(plain_torch_modules.__file__, place / "rows.py")
    return place


def ran(folder: Path, name: str, world: str, nodes: int = 2, **more: Any) -> FinishedRun:
    """A run of the row on a ring, whose nodes all have their own examples."""
    task: dict[str, Any] = {
        "dataset": {"name": "rows:data", "row": name, "clients": nodes},
        "model": {"name": "rows:made", "row": name},
        "metrics": ["rows:size"],
        "batch_size": BATCH,
    }
    if ALL[name].loss is not None:
        task["loss"] = {"name": "rows:loss", "row": name}
    lines = {"schema": "netdfl/1", "name": "row", "seed": SEED, "nodes": nodes, "rounds": ROUNDS, "world": world}
    lines |= {"algorithm": {"name": "dfedavg", "lr": LR, "local_epochs": EPOCHS}, "topology": "ring", "task": task}
    (folder / "s.yaml").write_text(json.dumps(lines | more))
    return netdfl.run(folder / "s.yaml", out=folder / f"run{len(list(folder.glob('run*')))}", page=False)


def alone(folder: Path, name: str, world: str) -> Trained:
    """What node 0 makes of the row, whose peer is gone before the first round."""
    gone = {"failure_detector": {"kind": "oracle"}, "events": [{"at_round": 0, "crash": 1}]}
    done = ran(folder, name, world, **gone)
    rows = done.run.rows(
        "SELECT round, name, value FROM metrics WHERE node IS NULL AND name LIKE 'test_%' ORDER BY round"
    )
    figures: list[dict[str, float]] = [{} for _ in range(ROUNDS)]
    for round, figure, value in rows:
        figures[round][figure.removeprefix("test_")] = value
    return Trained(done.model(0).state_dict(), figures)


def bound_of(key: str, row: Row) -> float:
    """How far apart a parameter may be: of all rows together that of its own row."""
    return list(BESIDE.values())[int(key.split(".")[1])].bound if row is ALL[TOGETHER] else row.bound


def assert_equal(found: Trained, expected: Trained, row: Row) -> None:
    assert found.state.keys() == expected.state.keys()
    for key, value in expected.state.items():
        assert found.state[key].dtype == value.dtype, key
        apart = float((found.state[key].double() - value.double()).abs().max())
        assert apart <= bound_of(key, row), f"{key} is {apart} apart"
    for ours, theirs in zip(found.figures, expected.figures, strict=True):
        assert ours.keys() == theirs.keys()
        assert all(abs(ours[key] - theirs[key]) <= row.bound for key in theirs), f"{ours} for {theirs}"


OFTEN = {
    "a perceptron",
    "tied weights",
    "lazy layers",
    "batch norm",
    "dropout",
    "a recurrent layer",
    "noise of numpy's in forward",
    "a low rank as a parametrization",
    "a layer used twice in a sequence",
    "a sparse embedding",
    "a perceptron in double",
    "a model in bfloat16",
    "inputs changed in place",
    "an embedding with a largest norm",
    "spectral norm",
    "a hidden state that goes on",
    "a queue and its end",
    "a closure",
    "outputs as an object",
    "noise of python in examples",
}
"""Of each kind one or two, which CI trains."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.soak]) for name in (*ROWS, *NOISY, *COMPILED)],
)
def test_a_node_alone_trains_as_a_plain_loop(name: str, folder: Path) -> None:
    row = ALL[name]
    assert_equal(alone(folder, name, "simulated"), in_a_plain_loop(row), row)


@pytest.mark.soak  # test_in_two_worlds.py has a few kinds, each by itself
def test_all_kinds_at_once_train_as_a_plain_loop_in_processes(folder: Path) -> None:
    assert_equal(alone(folder, TOGETHER, "processes"), in_a_plain_loop(ALL[TOGETHER]), ALL[TOGETHER])


@pytest.mark.soak  # test_in_two_worlds.py has a few kinds, each by itself
def test_with_four_nodes_both_worlds_agree(folder: Path) -> None:
    one, other = (ran(folder, TOGETHER, world, nodes=4) for world in ("simulated", "processes"))
    a, b = (done.model().state_dict() for done in (one, other))
    assert all(torch.equal(a[key], b[key]) for key in a)
    ours, theirs = ({file.name: file.read_bytes() for file in done.path.glob("models/*")} for done in (one, other))
    assert len(ours) == 4
    assert ours == theirs  # all that nodes' own models are made from
    last = [{key: course["last"] for key, course in done.result["metrics"].items()} for done in (one, other)]
    assert last[0] == last[1]
