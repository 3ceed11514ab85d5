"""Datasets: what is read is what was written, damage is named, inputs are standardized."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from netdfl.core.errors import DatasetError
from netdfl.core.rng import Streams
from netdfl.training.data import datasets, fetch
from netdfl.training.data.augmentations import AUGMENTATIONS, crop_flip
from netdfl.training.data.dataset import Dataset, data_root
from netdfl.training.data.datasets import DATASETS, read_idx, read_records
from netdfl.training.tasks.recipe import one_form


def load(name: str, root: Path | None = None, **params: object) -> Dataset:
    return DATASETS[name](root or data_root(), **params)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder: Path, rng: np.random.Generator, *, packed: bool = False) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    written = {}
    for split, count in (("train", 30), ("t10k", 10)):
        written[f"{split}-images-idx3-ubyte"] = rng.integers(256, size=(count, 28, 28), dtype=np.uint8)
        written[f"{split}-labels-idx1-ubyte"] = rng.integers(10, size=count, dtype=np.uint8)
    for name, array in written.items():
        content = idx_bytes(array)
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
    return written


def tiny(**changes) -> Dataset:
    x, y = np.zeros((4, 3, 2, 2), np.uint8), np.array([0, 1, 0, 1])
    return Dataset(**({"train_x": x, "train_y": y, "test_x": x, "test_y": y, "num_classes": 2} | changes))


def test_digits_are_real_split_by_class_and_the_same_every_time() -> None:
    data, again = load("digits"), load("digits")
    assert data.shape == (1, 8, 8)
    assert len(data.train_y) + len(data.test_y) == 1797
    np.testing.assert_array_equal(data.test_x, again.test_x)
    total = np.bincount(np.concatenate([data.train_y, data.test_y]))
    np.testing.assert_array_equal(np.bincount(data.test_y), np.round(0.2 * total).astype(int))
    assert data.train_x.max() == 1
    x = data.standardized(data.train_x)
    assert x.mean() == pytest.approx(0, abs=1e-3)
    assert x.std() == pytest.approx(1, abs=1e-3)


def test_digits_are_those_of_scikit_learn() -> None:
    reference = pytest.importorskip("sklearn.datasets").load_digits()
    data = load("digits")
    ours = np.concatenate([data.train_x, data.test_x]).reshape(-1, 64) * 16
    labeled = np.column_stack([ours, np.concatenate([data.train_y, data.test_y])]).astype(np.uint8)
    theirs = np.column_stack([reference.data, reference.target]).astype(np.uint8)
    np.testing.assert_array_equal(np.sort(labeled.view("V65").ravel()), np.sort(theirs.view("V65").ravel()))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST/raw"), ("fashion_mnist", "FashionMNIST/raw")])
def test_idx_datasets_are_read_raw_or_packed(tmp_path: Path, name: str, folder: str, packed: bool) -> None:
    written = write_mnist(tmp_path / folder, np.random.default_rng(0), packed=packed)
    data = load(name, tmp_path)
    np.testing.assert_array_equal(data.train_x[:, 0], written["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(data.test_y, written["t10k-labels-idx1-ubyte"])
    assert (data.shape, data.num_classes, data.train_y.dtype) == ((1, 28, 28), 10, np.int64)


def test_standardization_constants_may_be_chosen(tmp_path: Path) -> None:
    written = write_mnist(tmp_path / "MNIST/raw", np.random.default_rng(0))
    data = load("mnist", tmp_path, mean=0.5, std=0.5)
    x = data.standardized(data.test_x)
    np.testing.assert_allclose(x[:, 0], written["t10k-images-idx3-ubyte"] / 127.5 - 1, atol=1e-6)


def test_cifar10_records_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "CIFAR10" / "raw"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, count in (("train", 50_000), ("test", 10_000)):
        records = np.zeros((count, 3073), np.uint8)
        records[:, 0] = rng.integers(10, size=count)
        records[:, 1 + 1024 + 32 + 2] = np.arange(count) % 256
        records.tofile(folder / f"{name}.bin")
    data = load("cifar10", tmp_path)
    assert data.shape == (3, 32, 32)
    np.testing.assert_array_equal(data.test_x[:, 1, 1, 2], np.arange(10_000) % 256)
    np.testing.assert_array_equal(data.test_y, records[:, 0])


@given(array=arrays(np.uint8, array_shapes(max_dims=4)), packed=st.booleans())
def test_idx_round_trip(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, packed: bool) -> None:
    path = tmp_path_factory.mktemp("idx") / "array"
    content = idx_bytes(array)
    path.with_name("array" + ".gz" * packed).write_bytes(gzip.compress(content) if packed else content)
    np.testing.assert_array_equal(read_idx(path), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not start like an IDX file"),
        (b"<html>", "does not start like an IDX file"),
        (struct.pack(">HBB", 0, 8, 3), "does not start like an IDX file"),
        (idx_bytes(np.zeros(5, np.uint8))[:-1], "12 bytes, expected 13"),
        (idx_bytes(np.zeros(5, np.uint8)) + b"x", "14 bytes, expected 13"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_idx_files_are_named(tmp_path: Path, content: bytes, message: str, packed: bool) -> None:
    path = tmp_path / "images"
    path.with_name("images" + ".gz" * packed).write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DatasetError, match=f"images.*{message}"):
        read_idx(path)


def test_truncated_gzip_and_records_are_named(tmp_path: Path) -> None:
    (tmp_path / "images.gz").write_bytes(gzip.compress(idx_bytes(np.arange(99, dtype=np.uint8)))[:-9])
    with pytest.raises(DatasetError, match=r"images\.gz is damaged"):
        read_idx(tmp_path / "images")
    (tmp_path / "train.bin").write_bytes(bytes(9))
    with pytest.raises(DatasetError, match="9 bytes, expected 10"):
        read_records(tmp_path / "train.bin", (4,), 2)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
def test_a_missing_dataset_is_one_line_with_the_remedy(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match=f"run `netdfl data get {name}`") as caught:
        load(name, tmp_path)
    assert "\n" not in str(caught.value)


def test_an_unknown_dataset_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="'minst': expected one of digits, mnist, fashion_mnist, cifar10, cifar100"):
        fetch.get("minst", tmp_path)


@pytest.mark.parametrize("error", [ImportError("gone"), RuntimeError("operator torchvision::nms does not exist\nmore")])
def test_torchvision_that_does_not_import_is_one_line(tmp_path: Path, monkeypatch, error: Exception) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(datasets.importlib, "import_module", fail)
    with pytest.raises(DatasetError, match="needs torchvision, which does not import here") as caught:
        load("cifar100", tmp_path)
    assert "\n" not in str(caught.value)


def test_torchvision_data_is_taken_over(tmp_path: Path, monkeypatch) -> None:
    class CIFAR100:
        classes = tuple("abc")

        def __init__(self, root: str, train: bool, download: bool) -> None:
            assert (root, download) == (str(tmp_path), False)
            self.data = np.full((3, 32, 32, 3), (1, 2, 3), np.uint8)
            self.targets = [0, 1, 2] if train else [2, 1, 0]

    monkeypatch.setitem(sys.modules, "torchvision.datasets", type(sys)("torchvision.datasets"))
    monkeypatch.setattr(sys.modules["torchvision.datasets"], "CIFAR100", CIFAR100, raising=False)
    data = load("cifar100", tmp_path)
    assert (data.shape, data.num_classes) == ((3, 32, 32), 3)
    np.testing.assert_array_equal(data.train_x[0, :, 5, 6], [1, 2, 3])
    assert data.test_y.tolist() == [2, 1, 0]


def test_data_root_follows_the_environment(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path))
    assert data_root() == tmp_path
    monkeypatch.delenv("NETDFL_DATA")
    assert data_root() == Path.home() / ".cache" / "netdfl" / "data"


def test_standardized_by_channel_and_picked_in_order() -> None:
    x = np.arange(4 * 3 * 2 * 2, dtype=np.uint8).reshape(4, 3, 2, 2)
    mean, std = (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)
    data = tiny(train_x=x, mean=mean, std=std)
    found = one_form(data, 0.2, Streams(0)).train.only(np.array([3, 0]))
    got, labels = found.x.numpy(), found.y
    expected = (x[[3, 0]] / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert got.dtype == np.float32
    assert got.flags.c_contiguous
    assert got.flags.writeable
    assert labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": np.zeros((4, 2))}, "float64"),
        ({"train_y": np.zeros(4, np.int32)}, "int32"),
        ({"test_y": np.array([0])}, "test_x has 4 inputs, test_y 1 labels"),
        ({"train_y": np.array([0, 1, 2, 0])}, "train_y goes from 0 to 2: expected 0 to 1"),
        ({"test_x": np.zeros((4, 5), np.uint8)}, "inputs of shape"),
        ({"mean": (0.0, 0.0)}, "one number or one per channel"),
        ({"std": (0.0,)}, "std above 0"),
    ],
)
def test_a_dataset_that_contradicts_itself_is_refused(changes, message) -> None:
    with pytest.raises(DatasetError, match=message):
        tiny(**changes)


def reference_crop_flip(x: np.ndarray, rng: np.random.Generator, padding: int, crop: float) -> np.ndarray:
    count, _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    tops, lefts = rng.integers(2 * padding + 1, size=(2, count))
    mirrored = rng.random(count) < 0.5
    stays = rng.random(count) >= crop
    tops[stays] = lefts[stays] = padding
    crops = [padded[i, :, tops[i] : tops[i] + height, lefts[i] : lefts[i] + width] for i in range(count)]
    return np.stack([each[:, :, ::-1] if mirror else each for each, mirror in zip(crops, mirrored, strict=True)])


@given(seed=st.integers(0, 2**32), padding=st.integers(1, 5), crop=st.sampled_from([0.0, 0.5, 1.0]))
def test_crop_flip_equals_the_loop_over_pictures(seed: int, padding: int, crop: float) -> None:
    x = np.random.default_rng(seed).random((6, 3, 5, 7), dtype=np.float32)
    got = crop_flip(torch.from_numpy(x.copy()), np.random.default_rng(seed), padding=padding, crop=crop)
    np.testing.assert_array_equal(got.numpy(), reference_crop_flip(x, np.random.default_rng(seed), padding, crop))


def test_crop_flip_leaves_the_pictures_that_it_neither_shifts_nor_mirrors() -> None:
    x = torch.rand(400, 1, 6, 6)
    got = crop_flip(x, np.random.default_rng(0), crop=0.5, flip=0.0)
    same = sum(torch.equal(one, other) for one, other in zip(x, got, strict=True)) / 400
    assert 0.42 < same < 0.60  # half of them, and of the others one in 81


def test_the_augmentation_none_changes_nothing() -> None:
    x = torch.ones(2, 1, 3, 3)
    assert AUGMENTATIONS["none"](x, np.random.default_rng(0)) is x


def test_every_dataset_is_listed_under_its_own_name() -> None:
    assert all(function.__name__ == name for name, function in DATASETS.items())
