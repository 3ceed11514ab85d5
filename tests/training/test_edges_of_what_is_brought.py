"""Edges of what people bring: tables of polars, heads of files, unusual arrays, and what clients have together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from netdfl.core.errors import DatasetError
from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.classification import Classification
from netdfl.training.data.columns import columns_of, is_frame, is_hugging_face
from netdfl.training.data.datasets import DATASETS
from netdfl.training.data.examples import ReadSamples, Samples
from netdfl.training.data.own import Datasets, adapted, shared, with_test
from netdfl.training.data.reading import from_arrays, is_column, kind_of
from netdfl.training.flat import FlatModel
from netdfl.training.models.build import seeded_module
from netdfl.training.sgd import LocalSgd, LocalSteps
from netdfl.training.siamese import colored, dsa, rotated
from netdfl.training.stacked import run_stacked
from netdfl.training.stacked_model import StackedModel

# tables


class Series:
    """A column of polars, as far as it is looked at: it has no `isna`."""

    def __init__(self, cells: list[Any]) -> None:
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.cells, dtype)

    def is_null(self) -> list[bool]:
        return [cell is None for cell in self.cells]

    def to_list(self) -> list[Any]:
        return self.cells


class Frame:
    """A table of polars, as far as it is looked at, which can be made an array."""

    dtypes = ()

    def __init__(self, **columns: list[Any]) -> None:
        self.held, self.columns = columns, list(columns)

    def __getitem__(self, name: str) -> Series:
        return Series(self.held[name])

    def __len__(self) -> int:
        return len(next(iter(self.held.values())))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(list(self.held.values()), dtype).T


def test_a_table_of_polars_has_its_empty_cells_and_is_no_array() -> None:
    frame = Frame(a=[1, None, 3], y=[0, 1, 1])
    found = columns_of(frame)
    assert found["a"].empty.tolist() == [False, True, False]
    assert found["a"].values.tolist() == [1, 0, 3]
    assert found["a"].values.dtype == np.int64
    assert found["y"].values.tolist() == [0, 1, 1]
    assert is_frame(frame)
    assert not is_column(frame)
    assert is_column(Series([1]))
    assert is_column(np.ones(1))
    assert is_column(torch.ones(1))
    assert not is_column([1])
    both = shared(Datasets(train=frame, target="y", missing="drop"))
    assert (both.rows.tolist(), both.labels.tolist(), both.num_given) == ([0, 2], [0, 1], 3)  # type: ignore[union-attr]
    given = adapted((frame, frame))
    assert given.train is given.test is frame  # type: ignore[union-attr]
    assert adapted(frame).train is frame  # type: ignore[union-attr]


def test_what_has_some_of_a_tables_ways_is_none() -> None:
    def with_all_but(names: set[str], gone: str) -> object:
        return type("Some", (), dict.fromkeys(names - {gone}))()

    frame, hub = {"columns", "dtypes", "__getitem__"}, {"column_names", "features"}
    assert is_frame(with_all_but(frame, ""))
    assert is_hugging_face(with_all_but(hub, ""))
    assert not any(is_frame(with_all_but(frame, name)) for name in frame)
    assert not any(is_hugging_face(with_all_but(hub, name)) for name in hub)


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("a,y\n1,0\n2,1\n", [[1.0], [2.0]]),
        ("\n\na;y\n1,5;0\n2,5;1\n", [[1.5], [2.5]]),
        ("\n  \n\na;y\n1,5;0\n2,5;1\n", [[1.5], [2.5]]),
        ("a\ty\n1\t0\n2\t1\n", [[1.0], [2.0]]),
        ("a|y\n1|0\n2|1\n", [[1.0], [2.0]]),
        ('"a,b,c";y\n1;0\n2;1\n', [[1.0], [2.0]]),
        ("\ufeffa,y\n1,0\n2,1\n", [[1.0], [2.0]]),
    ],
)
def test_the_first_line_that_says_something_parts_the_columns(text: str, x: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text(text, encoding="utf-8")
    found = shared(DATASETS["table"](tmp_path, file=str(file), target="y"))  # type: ignore[arg-type]
    assert isinstance(found.train, Samples)
    assert found.train.x.tolist() == x
    assert found.train.y.tolist() == [0, 1]


# arrays, classes, clients


def test_kinds_of_values_are_named_in_a_few_words() -> None:
    assert [kind_of(each) for each in ([1, 2], (torch.ones(2),), {"a": 1}, torch.ones(2), "a")] == [
        *("a list of 2", "(float32 (2,))", "{a: int}", "float32 (2,)", "str"),
    ]


LABELS: dict[str, tuple[Any, list[int] | None, int]] = {
    "one class each": (np.array([0, 2, 1]), [0, 2, 1], 3),
    "one class for all": (np.array([0, 0, 0]), [0, 0, 0], 1),
    "left out": (np.array([0, -1, 1]), None, 2),
    "real": (np.array([0.0, 2.0, 1.0]), None, 0),
    "several each": (np.array([[0, 3], [1, 1], [2, 0]]), None, 4),
    "named": ({"a": np.array([0, 1, 2])}, None, 0),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("is_read", [False, True])
def test_targets_are_classes_where_they_are_one_whole_number_each_from_0_on(name: str, is_read: bool) -> None:
    y, labels, num = LABELS[name]
    y = {key: torch.from_numpy(value) for key, value in y.items()} if isinstance(y, dict) else torch.from_numpy(y)
    data: Any = Samples(torch.zeros(3, 2), y)
    if is_read:
        held = data

        def read(place: int) -> tuple[Any, Any]:
            found = held.take(torch.tensor([place]))[1]
            return torch.zeros(2), found[0] if isinstance(found, Tensor) else {"a": found["a"][0]}

        data = ReadSamples(read, np.arange(3))
    found = shared(Datasets(train=data))
    assert (None if found.labels is None else found.labels.tolist()) == labels
    assert found.num_classes == num


def noisy(start: int, num: int) -> ReadSamples:
    """Examples that are read anew each time."""
    return ReadSamples(
        lambda place: (torch.tensor([place + 0.5]), torch.tensor(place % 3)), np.arange(start, start + num)
    )


def test_clients_whose_examples_are_read_lie_one_after_the_other() -> None:
    found = shared(Datasets(clients=[noisy(0, 2), noisy(10, 3), (np.full((1, 1), 99.0), np.array([1]))]))
    assert isinstance(found.train, ReadSamples)
    x, y = found.train.take(torch.tensor([0, 1, 2, 4, 5, 3]))
    assert x.flatten().tolist() == [0.5, 1.5, 10.5, 12.5, 99.0, 11.5]
    assert y.tolist() == [0, 1, 1, 0, 1, 2]
    assert [each.tolist() for each in found.parts or []] == [[0, 1], [2, 3, 4], [5]]
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("given", "num"),
    [
        ({"train": 3}, 3),
        ({"train": 3, "num_classes": 2}, 3),
        ({"train": 3, "num_classes": 7}, 7),
        ({"train": 3, "test": 5}, 5),
        ({"train": 3, "test": 5, "num_classes": 6}, 6),
        ({"train": 5, "test": 3}, 5),
    ],
)
def test_there_are_as_many_classes_as_any_part_shows_or_is_asked_for(given: dict[str, int], num: int) -> None:
    parts: dict[str, Any] = {
        name: value if name == "num_classes" else (np.zeros((value, 2)), np.arange(value))
        for name, value in given.items()
    }
    assert shared(Datasets(**parts)).num_classes == num


def test_a_held_out_test_set_takes_the_classes_columns_and_rows_along() -> None:
    given = Datasets(train=(np.arange(10.0)[:, None], np.arange(10)), columns={"who": np.arange(10) * 2})
    data = shared(given)
    found = with_test(data, 0.3, np.random.default_rng(0))
    assert found.test is not None
    assert (len(found.train), len(found.test), found.num_given) == (7, 3, 10)
    x, y = found.train.take(torch.arange(7))
    rows = x[:, 0].long().tolist()
    assert rows == sorted(rows) == y.tolist()
    assert found.rows is not None
    assert found.labels is not None
    assert found.rows.tolist() == found.labels.tolist() == rows
    assert found.columns["who"].tolist() == [2 * row for row in rows]
    assert found.notes[-1] == "3 of 10 examples are held out as the test set, as the data bring none"
    assert found.parts is None
    assert with_test(found, 0.3, np.random.default_rng(0)) is found
    held = found.test.take(torch.arange(3))[1].tolist()
    assert held == sorted(set(range(10)) - set(rows))
    for share in (0.0, 1.0):
        with pytest.raises(DatasetError, match="10 examples are too few to hold"):
            with_test(data, share, np.random.default_rng(0))


def test_arrays_on_disk_keep_all_their_inputs_there(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.uint8).reshape(3, 2))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    for columns in ((x, [0, 1, 2]), ({"a": x}, [0, 1, 2])):
        found = from_arrays(columns, "train") if isinstance(columns[0], np.ndarray) else None
        if found is not None:
            assert found.examples.take(torch.tensor([2]))[0].tolist() == [[np.float32(4 / 255), np.float32(5 / 255)]]


# pictures


class Draws:
    """A generator that gives what is set, and tells what it was asked for."""

    def __init__(self, *given: float) -> None:
        self.given, self.asked = list(given), list[Any]()

    def integers(self, most: int) -> int:
        return 0

    def random(self) -> float:
        return self.given.pop(0)

    def uniform(self, low: float, high: float) -> float:
        self.asked.append((low, high))
        return self.given.pop(0)


def test_how_strongly_a_picture_is_changed_is_drawn_in_its_range_for_each_part_of_the_change() -> None:
    x: Any = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    color: Any = Draws(0.25, 1.75, 0.625)
    torch.testing.assert_close(dsa(x, color, transformations=("color",)), colored(x, 0.25, 1.75, 0.625))
    assert color.asked == [(-0.5, 0.5), (0, 2), (0.5, 1.5)]
    turn: Any = Draws(7.0)
    torch.testing.assert_close(dsa(x, turn, transformations=("rotate",)), rotated(x, 7.0))
    assert turn.asked == [(-15, 15)]
    for draw, flipped in ((0.0, True), (0.499, True), (0.5, False), (0.9, False)):
        flip: Any = Draws(draw)
        assert torch.equal(dsa(x, flip, transformations=("flip",)), x.flip(3) if flipped else x)


# what a module does


class Touching(nn.Module):
    def __init__(self, touch: Callable[[Any, Tensor], object]) -> None:
        super().__init__()
        self.last, self.touch = nn.Linear(2, 2), touch
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.touch(self, x)
        return self.last(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("touch", "writes", "writes_examples", "keeps_buffers"),
    [
        (lambda module, x: None, False, False, False),
        (lambda module, x: module.last.weight.mul_(2), True, False, False),
        (lambda module, x: x.add_(1), False, True, False),
        (lambda module, x: module.seen.add_(1), False, False, True),
        (lambda module, x: torch.rand(1), False, False, False),
    ],
)
def test_a_pass_shows_what_a_module_writes_to(
    touch: Any, writes: bool, writes_examples: bool, keeps_buffers: bool
) -> None:
    model = FlatModel(Touching(touch))
    x, y = torch.ones(4, 2), torch.arange(4) % 2
    begun = model.flat().clone()
    model.try_on(x, y)
    assert (model.writes, model.writes_examples) == (writes, writes_examples)
    assert model.keeps_buffers is keeps_buffers
    assert model.sources is not None
    assert torch.equal(model.flat(), begun)
    assert torch.equal(x, torch.ones(4, 2))


def test_what_is_averaged_and_not_trained_has_no_slope() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    model = FlatModel(net, buffers=["1.running_mean", "1.running_var"], policy="average")
    slope = torch.full((model.dim,), float("nan"))
    model.slope(model.flat(), torch.arange(8.0).reshape(4, 2), torch.arange(4) % 2, slope)
    assert model.dim == model.num_trained + 6
    assert slope.isfinite().all()
    assert not slope[model.num_trained :].any()


@pytest.mark.parametrize("weights", [(2.0, 2.0), (1.0, 2.0), (1.0, 1.0), (0.5, 1.0)])
def test_rows_take_their_steps_at_the_model_over_its_weight(weights: tuple[float, float]) -> None:
    net = seeded_module(lambda: nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), 1)
    model, view = FlatModel(net), View(0, 0, 1, (), (), 1.0, {}, {})
    examples = Samples(torch.arange(12.0).reshape(6, 2) / 12, torch.arange(6) % 2)
    task = Classification(model, model.flat(), examples, node=0, streams=Streams(0), batch_size=4)
    sgd = LocalSgd(lr=0.3, steps=3, momentum=0.9)

    def steps() -> list[LocalSteps]:
        return [sgd.steps_from(task.initial(), weight, task.data(round), view) for round, weight in enumerate(weights)]

    for together, alone in zip(run_stacked(steps(), StackedModel(model)), steps(), strict=True):
        assert not isinstance(together, Exception)
        torch.testing.assert_close(together[0], alone()[0])


class Summed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 2)

    def forward(self, a: Tensor, b: Tensor | None = None) -> Tensor:
        return self.last(a if b is None else a - 2 * b)  # type: ignore[no-any-return]


@pytest.mark.parametrize("form", [lambda a, b: a - 2 * b, lambda a, b: (a, b), lambda a, b: {"b": b, "a": a}])
def test_inputs_of_any_form_have_the_scores_that_the_module_gives(form: Callable[[Tensor, Tensor], Any]) -> None:
    model, (a, b) = FlatModel(Summed()), torch.arange(12.0).reshape(2, 3, 2)
    expected = model.module(a, b)
    torch.testing.assert_close(model.scores(model.flat(), form(a, b)), expected)
    at = 2 * model.flat()
    torch.testing.assert_close(model.scores(at, form(a.double(), b.double())), 2 * expected)
