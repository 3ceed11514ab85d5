"""A model and data that a program has as objects."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import netdfl
from netdfl.core.errors import InputError

SCENARIO: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "given",
    "nodes": 3,
    "rounds": 2,
    "world": "simulated",
    "task": {"batch_size": 8},
    "algorithm": {"name": "dfedavg", "lr": 0.1},
    "topology": "ring",
}
MODULE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def some(num=48, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(num, 3, generator=generator)
    return TensorDataset(x, (x.sum(1) > 1.5).long())

def both():
    return some(), some(seed=1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)
"""
own: dict[str, Any] = {}
exec(MODULE, own)  # the same text as an object here, and as a file beside a scenario
some, both, Net = own["some"], own["both"], own["Net"]


class Small(Dataset[Any]):
    """Nine examples, whose class and width go by their number."""

    def __init__(self, target: Any = None, width: Any = lambda k: 3) -> None:
        self.target, self.width = target, width

    def __len__(self) -> int:
        return 9

    def __getitem__(self, k: int) -> tuple[Any, Any]:
        return torch.zeros(self.width(k)), self.target(k)


class Wide(nn.Linear):
    def __init__(self, n: int) -> None:
        super().__init__(n, 2)


def _run(path: Path, **given: Any) -> Any:
    return netdfl.run(SCENARIO, out=path, page=False, **given)


def _figures(finished: Any) -> tuple[Any, list[Any]]:
    rows = finished.run.rows("SELECT node, round, name, value FROM metrics ORDER BY ALL")
    return finished.result["event_log_hash"], [row for row in rows if row[2].startswith("test_")]


def test_objects_train_as_the_same_parts_do_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    task = {**SCENARIO["task"], "model": "named:Net", "dataset": "named:both"}
    named = netdfl.run({**SCENARIO, "task": task}, out=tmp_path / "named", page=False)
    given = _run(tmp_path / "given", model=Net, data=both())
    assert _figures(given) == _figures(named)
    assert _figures(given)[1]


def test_a_class_of_a_module_is_found_by_its_name_in_other_worlds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    nets = importlib.import_module("nets")
    scenario = {**SCENARIO, "task": {**SCENARIO["task"], "dataset": "nets:both"}}
    figures = [
        netdfl.run(scenario, model=nets.Net, on=world, out=tmp_path / world, page=False).result["test_accuracy"]
        for world in ("simulated", "processes")
    ]
    assert figures[0] == figures[1]
    with pytest.raises(InputError, match="live in this process"):
        netdfl.load(scenario, model=nets.Net(), on="processes")


def test_nodes_start_from_the_weights_of_a_module_and_leave_it_as_it_was(tmp_path: Path) -> None:
    model = Net()
    with torch.no_grad():
        model.layer.weight.fill_(0.25)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    scenario = {**SCENARIO, "algorithm": {"name": "dfedavg", "lr": 1e-12}}
    finished = netdfl.run(scenario, model=model, data=both(), out=tmp_path / "run", page=False)
    trained = finished.model()
    assert isinstance(trained, Net)
    assert torch.allclose(trained.layer.weight, before["layer.weight"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("model", [lambda: Net(), partial(nn.Linear, 3, 2)], ids=["function", "partial"])
def test_functions_make_models_and_arrays_are_data(tmp_path: Path, model: Any) -> None:
    x = np.random.default_rng(0).random((40, 3), np.float32)
    finished = _run(tmp_path / "run", model=model, data=(x, (x[:, 0] > 0.5).astype(np.int64)))
    assert finished.exit_code == 0
    assert "done" in finished._repr_html_()
    assert str(finished).startswith("done  given: 3 nodes, 2 rounds of dfedavg")
    assert f"  run        {finished.path}" in str(finished)


def test_a_list_is_a_dataset_for_each_client(tmp_path: Path) -> None:
    assert _run(tmp_path / "run", model=Net, data=[some(seed=seed) for seed in range(3)]).exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": 3}, "model is int: expected a torch.nn.Module"),
        ({"model": dict}, "model is the class dict"),
        ({"model": nn.Linear(5, 2), "data": both()}, "given as model=.*does not take the data"),
        ({"model": lambda: "text", "data": both()}, "given as model="),
        ({"data": "digits"}, "data is str"),
        ({"data": 7}, "data is int"),
        ({"data": []}, "^data=: .*no examples"),
        ({"data": [some(), some()]}, "a list of two"),
        ({"data": TensorDataset(torch.zeros(0, 3), torch.zeros(0))}, "no examples"),
        ({"model": Net, "data": both(), "on": "processes"}, r"on='simulated'.*task\.model\.name: mine:Net"),
        ({"on": 3}, "3"),
        ({"root": 3}, "root is 3: expected a path"),
        ({"model": Net, "data": Small}, r"data is the class Small: .* Small\(...\)"),
        ({"model": Net, "data": (some(), some(), some())}, r"data is tuple of 3: .*\(train, test\)"),
        ({"model": Net, "data": DataLoader(some())}, "data is DataLoader: expected a torch Dataset"),
        ({"model": Net, "data": Small(lambda k: k - 1)}, "has a target below 0"),
        ({"model": Net, "data": Small(lambda k: 1 // (2 - k))}, r"train\[2\] can't be read.*ZeroDivisionError"),
        ({"model": Net, "data": Small(lambda k: "cat")}, r"train\[0\].*'cat' is no number.*from 0 on"),
        ({"model": Net, "data": Small(lambda k: k, lambda k: 3 + k)}, "give all of them one shape"),
        ({"model": Wide, "data": both()}, r"missing key 'n'.*model=lambda: Net"),
    ],
)
def test_what_does_not_fit_is_said_and_leaves_no_run(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        _run(tmp_path / "run", **given)
    assert "netdfl.training.tasks.given" not in str(caught.value)
    assert "given.py" not in str(caught.value), "a place in netdfl, where nobody has to mend a thing"
    assert not (tmp_path / "run").exists()


def test_a_loaded_scenario_and_a_toy_take_no_model() -> None:
    with pytest.raises(InputError, match="loaded is not changed"):
        netdfl.load(netdfl.load(SCENARIO), model=Net)
    with pytest.raises(InputError, match="model="):
        netdfl.load({**SCENARIO, "task": {"kind": "consensus", "dim": 4}}, model=Net)
    with pytest.raises(InputError, match="list of overrides"):
        netdfl.load(SCENARIO, "rounds=5")
    with pytest.raises(InputError, match="list of overrides"):
        netdfl.load(SCENARIO, 5)  # type: ignore[arg-type]
