"""NaN and infinity in data that lie in memory: found where the data are loaded, with their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import netdfl
from netdfl.core.errors import DatasetError
from netdfl.core.rng import Streams
from netdfl.host.training_problem import TrainingProblem
from netdfl.training.data.dataset import Dataset

NUM = 40
SCENARIO: dict[str, Any] = {"schema": "netdfl/1", "name": "nan", "nodes": 2, "rounds": 1, "world": "simulated"}
SCENARIO |= {"algorithm": "dfedavg", "topology": "ring"}


class Pairs:
    """A dataset of one's own."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        return self.x[place], self.y[place]


def clean(seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return rng.random((NUM, 3)).astype(np.float32), rng.integers(2, size=NUM)


def bad(value: float = np.nan) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x, y = clean()
    x[17, 1] = value
    x[30, 0] = value
    return x, y


def frame(x: Any, y: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    return netdfl.Datasets(train=pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}), target="y")


def by_clients(x: Any, y: Any) -> Any:
    return netdfl.Datasets(clients=[clean(1), (x, y)])


FORMS: Mapping[str, tuple[Callable[[Any, Any], Any], str]] = {
    "arrays": (lambda x, y: (x, y), "train[17]"),
    "tensors": (lambda x, y: (torch.from_numpy(x), torch.from_numpy(y)), "train[17]"),
    "TensorDataset": (lambda x, y: TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), "train[17]"),
    "a Dataset of one's own": (Pairs, "train[17]"),
    "Datasets": (lambda x, y: netdfl.Datasets(train=(x, y)), "train[17]"),
    "each client's": (by_clients, "clients[1][17]"),
    "the test set": (lambda x, y: netdfl.Datasets(train=clean(1), test=Pairs(x, y)), "test[17]"),
    "clients' tests": (
        lambda x, y: netdfl.Datasets(clients=[clean(1), clean(2)], client_tests=[clean(3), (x, y)]),
        "client_tests[1][17]",
    ),
    "netdfl's own form": (lambda x, y: Dataset(x, y, *clean(1), 2), "train[17]"),
    "netdfl's own form, test": (lambda x, y: Dataset(*clean(1), x, y, 2), "test[17]"),
}


def load(data: Any, model: Any = "mlp") -> TrainingProblem:
    made = {"model": model} if not isinstance(model, str) else {}
    task = {"batch_size": 8} if made else {"model": {"name": model, "hidden": [4]}, "batch_size": 8}
    found = netdfl.load(SCENARIO | {"task": task}, data=data, **made)
    return TrainingProblem(found, Streams(0), 2)


@pytest.mark.parametrize("form", FORMS)
def test_nan_and_infinity_in_memory_are_found_with_their_place(form: str) -> None:
    make, place = FORMS[form]
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")):
        with pytest.raises(DatasetError) as refused:
            load(make(*bad(value)))
        assert str(refused.value) == f"{place} has {word} in its input: fill it, or leave such examples out"
    load(make(*clean()))


def test_infinity_in_a_table_is_found_and_both_are_named_where_there_are_both() -> None:
    with pytest.raises(DatasetError, match=r"train\[17\] has infinity in its input"):
        load(frame(*bad(np.inf)))
    x, y = bad()
    x[5] = np.inf
    with pytest.raises(DatasetError, match=r"train\[17\] has NaN in its input, train\[5\] has infinity in its input"):
        load((x, y))


def test_a_real_target_is_looked_at_too() -> None:
    x, y = clean()
    targets = y.astype(np.float32)[:, None]
    targets[9] = np.nan
    with pytest.raises(DatasetError, match=r"train\[9\] has NaN in its target"):
        load((x, targets), nn.Linear(3, 1))


class Fills(nn.Module):
    """A model that is made for inputs with holes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.nan_to_num(x))


def test_what_a_model_takes_is_no_mistake() -> None:
    load(bad(), Fills())
    with pytest.raises(DatasetError, match=r"train\[17\]"):
        load(bad(), nn.Linear(3, 2))
