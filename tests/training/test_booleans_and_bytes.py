"""Booleans stay booleans, as masks pick by them; bytes are divided by 255, and that is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, TensorDataset

from netdfl.core.errors import DatasetError
from netdfl.training.data.examples import Samples
from netdfl.training.data.own import Datasets, SharedData, for_own_loss, shared

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


BYTES = (10 * X).to(torch.uint8)
TOLD = "inputs that are bytes (uint8) are divided by 255, as pixels are: "


def test_bytes_are_divided_by_255_which_is_said() -> None:
    for data in ((BYTES, Y), TensorDataset(BYTES, Y), Items(BYTES, Y)):
        found = shared(Datasets(train=data, test=data))
        assert torch.equal(all_of(found)[0], BYTES.float() / 255)
        (note,) = found.notes
        assert note.startswith(f"{TOLD}train, test; give numbers that are no pixels, such as token ids for an embed")
    pictures = (BYTES.reshape(4, 1, 2, 1), Y)
    assert shared(Datasets(train=pictures)).notes == [f"{TOLD}train"]
    many = "clients[0], clients[1], clients[2], clients[3] and 1 more"
    assert shared(Datasets(clients=[pictures] * 5)).notes == [TOLD + many]
    assert not shared(Datasets(train=(X, Y), test=(X.long(), BYTES[:, 0]))).notes


def test_parts_that_are_bytes_and_other_numbers_are_refused() -> None:
    said = r"inputs of test are bytes .uint8., and those of train numbers: give all of them in one type; bytes are div"
    with pytest.raises(DatasetError, match=said):
        shared(Datasets(train=(X, Y), test=(BYTES, Y)))
    with pytest.raises(DatasetError, match=r"clients\[1\] are numbers, and those of clients\[0\] booleans: give all"):
        shared(Datasets(clients=[((X, MASK), Y), ((X, MASK.long()), Y)]))
    mixed = ConcatDataset([TensorDataset(X, Y), TensorDataset(BYTES, Y)])
    with pytest.raises(DatasetError, match=r"train\[4\] can't be read.*its input is bytes .* another example numbers"):
        shared(Datasets(train=mixed))


@pytest.mark.parametrize("y", [Y == 1, MASK])
def test_a_loss_of_ones_own_gets_booleans_alone_as_they_are(y: torch.Tensor) -> None:
    for data in ((X, y), Items(X, y)):
        found = shared(for_own_loss(Datasets(train=data, test=data)))
        assert found.test is not None
        for part in (found.train, found.test):
            assert part.take(torch.arange(4))[1].dtype == torch.bool
        assert all_of(shared(Datasets(train=data)))[1].dtype == torch.int64
        assert (found.labels is None) == (y.dim() > 1)
