"""Tables of one dataset that differ: in the order of columns, in which they have, in how the target is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from netdfl.core.errors import DatasetError
from netdfl.training.data.client_files import ClientFiles
from netdfl.training.data.own import Datasets, shared

FIRST = {"a": [1.0, 2.0], "b": [3.0, 4.0], "y": [0, 1]}
TURNED = {"y": [0, 1], "b": [7.0, 8.0], "a": [5.0, 6.0]}


class Hub(dict[str, list[Any]]):
    """A `datasets.Dataset` as far as netdfl asks."""

    features: ClassVar[dict[str, object]] = {}

    @property
    def column_names(self) -> list[str]:
        return list(self)

    def __len__(self) -> int:
        return len(self["y"])

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else {name: self[name][key] for name in self}


def frame(cells: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(cells)


FORMS = [frame, lambda cells: pytest.importorskip("polars").DataFrame(cells), Hub]


@pytest.mark.parametrize("form", FORMS)
def test_inputs_are_chosen_once_and_by_name(form: Any) -> None:
    wanted = [[1, 3], [2, 4], [5, 7], [6, 8]]
    data = shared(Datasets(train=form(FIRST), test=form(TURNED), target="y"))
    assert data.test is not None
    assert [*data.train.take(torch.arange(2))[0].tolist(), *data.test.take(torch.arange(2))[0].tolist()] == wanted
    data = shared(Datasets(clients=[form(FIRST), form(TURNED)], target="y"))
    assert data.train.take(torch.arange(4))[0].tolist() == wanted


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"a": [1.0], "c": [2.0], "y": [0]},
            r"clients\[1\] has no column 'b', an input in clients\[0\]: add it, or set inputs to columns that all",
        ),
        (
            {"a": [1.0], "b": ["?"], "c": [2.0], "y": [0]},
            r"clients\[1\]: the column 'b' holds .*, expected numbers, as clients\[0\] has there: mend it, or set",
        ),
    ],
)
def test_a_table_without_an_input_is_refused(form: Any, other: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        shared(Datasets(clients=[form(FIRST), form(other)], target="y"))


def test_frames_in_pairs_go_by_name_too() -> None:
    first, turned = frame(FIRST), frame(TURNED)
    train = (first[["a", "b"]], first["y"])
    data = shared(Datasets(train=train, test=(turned[["b", "a"]], turned["y"])))
    assert data.test is not None
    assert data.test.take(torch.arange(2))[0].tolist() == [[5, 7], [6, 8]]
    with pytest.raises(DatasetError, match="test has no column 'b', which train has: give both the same columns"):
        shared(Datasets(train=train, test=(turned[["a"]], turned["y"])))


def test_a_target_of_words_in_one_table_and_numbers_in_another_is_refused() -> None:
    words = frame(TURNED | {"y": ["0", "1"]})
    said = "column 'y' of test holds text, '0' in row 0, and that of train numbers: write the target alike in all"
    with pytest.raises(DatasetError, match=said):
        shared(Datasets(train=frame(FIRST), test=words, target="y"))
    assert shared(Datasets(train=words, test=words, target="y")).num_classes == 2


def test_classes_by_name_are_numbered_by_name_in_a_clients_file_that_has_digits_alone(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("a,y\n1,1\n2,3\n")
    files = ClientFiles(root=tmp_path, each="{node}.csv", target="y", inputs=["a"], classes=["1", "2", "3"])
    assert files.of(0).y.tolist() == [0, 2]


def test_durations_are_no_numbers() -> None:
    pandas = pytest.importorskip("pandas")
    for waits in (["1h", "2h"], ["1h", None]):
        data = shared(Datasets(train=frame(FIRST).assign(wait=pandas.to_timedelta(waits)), target="y"))
        assert "a, b; left out: wait (durations, " in data.notes[0]
