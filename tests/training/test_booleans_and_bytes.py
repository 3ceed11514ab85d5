"""Booleans stay booleans, as masks pick by them; bytes are divided by 255, and that is said."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import TensorDataset

from netdfl.training.data.examples import Samples
from netdfl.training.data.own import Datasets, SharedData, shared

X, Y = torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 0, 1])
MASK = X > 3


class Items:
    """A dataset that reads one example at a time."""

    def __init__(self, *columns: torch.Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, place: int) -> Any:
        return tuple(column[place] for column in self.columns)


def all_of(data: SharedData) -> tuple[Any, Any]:
    return data.train.take(torch.arange(len(data.train)))


def test_masks_among_inputs_and_among_targets_stay_masks() -> None:
    for data in (TensorDataset(X, MASK, Y), Items(X, MASK, Y), ((X, MASK), Y)):
        (x, mask), y = all_of(shared(Datasets(train=data)))
        assert mask.dtype == torch.bool
        assert torch.equal(x[mask], X[MASK])
        assert torch.equal(y, Y)
    _, (x, mask) = all_of(shared(Datasets(train=(X, (X, MASK)))))
    assert torch.equal(x[~mask], X[~MASK])
    data = shared(Datasets(clients=[((X, MASK), Y)] * 2))
    assert isinstance(data.train, Samples)
    assert data.train.x[1].dtype == torch.bool


def test_a_boolean_target_is_a_class() -> None:
    for data in ((X, Y == 1), Items(X, Y == 1)):
        found = shared(Datasets(train=data))
        assert torch.equal(all_of(found)[1], Y)
        assert found.labels is not None
        assert found.labels.tolist() == Y.tolist()
        assert found.num_classes == 2
