"""Data in files and at hosts: what is damaged, missing or half there is named, and what is there is read as it is."""

from __future__ import annotations

import http.client
import importlib.util
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from netdfl.core.errors import DatasetError
from netdfl.core.rng import Streams
from netdfl.training.data import datasets, fetch, sources
from netdfl.training.data.columns import is_frame, is_hugging_face
from netdfl.training.data.on_disk import arrays, hugging_face, image_folder
from netdfl.training.data.own import Datasets, shared
from netdfl.training.data.partitions import PARTITIONS
from netdfl.training.data.sources import SourceUnavailable

HERE = Path()


def quiet(what: str, done: int, total: int | None) -> None: ...


def all_of(found: Any) -> tuple[Any, Any]:
    return found.take(torch.arange(len(found)))  # type: ignore[no-any-return]


# pictures


def pictures(folder: Path, where: str, mode: str = "RGB", size: tuple[int, int] = (4, 3), count: int = 2) -> Path:
    from PIL import Image

    for label, name in enumerate(("cats", "dogs")):
        (folder / where / name).mkdir(parents=True)
        for k in range(count):
            shade: Any = (100 * label + k,) * len(Image.new(mode, (1, 1)).getbands())
            Image.new(mode, size, shade if len(shade) > 1 else shade[0]).save(folder / where / name / f"{k}.png")
    return folder


def test_pictures_are_shared_out_by_their_folders_with_a_test_set_where_there_is_one(tmp_path: Path) -> None:
    (pictures(tmp_path, "train") / "train" / "notes.txt").write_text("no picture")
    (tmp_path / "train" / "cats" / "readme.md").write_text("nor this")
    alone = shared(image_folder(HERE, folder=str(tmp_path / "train")))
    assert (len(alone.train), alone.test, alone.num_classes) == (4, None, 2)
    pictures(tmp_path, "test", count=1)
    both = shared(image_folder(HERE, folder=str(tmp_path)))
    assert both.test is not None
    assert (len(both.train), len(both.test), both.num_classes) == (4, 2, 2)
    x, y = all_of(both.train)
    assert x.shape == (4, 3, 3, 4), "channels, height, width"
    assert y.tolist() == [0, 0, 1, 1]
    assert torch.allclose(x[:, 0, 0, 0] * 255, torch.tensor([0.0, 1.0, 100.0, 101.0]))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("1", 1), ("I;16", 1), ("RGB", 3), ("RGBA", 3), ("P", 3)])
def test_pictures_of_grays_have_one_channel_and_all_others_three(mode: str, channels: int, tmp_path: Path) -> None:
    folder = str(pictures(tmp_path, "all", mode) / "all")
    assert all_of(shared(image_folder(HERE, folder=folder)).train)[0].shape[1:] == (channels, 3, 4)
    assert all_of(shared(image_folder(HERE, folder=folder, size=5)).train)[0].shape[1:] == (channels, 5, 5)


def test_a_folder_without_pictures_and_a_picture_that_is_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    with pytest.raises(DatasetError, match=r"has no pictures in folders of classes: lay them out as .*/CLASS/NAME.png"):
        image_folder(HERE, folder=str(tmp_path))
    folder = pictures(tmp_path, "some") / "some"
    (folder / "dogs" / "9.png").write_text("no picture")
    with pytest.raises(DatasetError, match=r"dogs/9\.png is no picture that can be read"):
        shared(image_folder(HERE, folder=str(folder)))


# arrays


def test_arrays_of_a_file_come_with_its_test_set_where_both_parts_of_one_are_there(tmp_path: Path) -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    np.savez(tmp_path / "both.npz", x=x, y=y, test_x=x[:1], test_y=y[:1])
    np.savez(tmp_path / "half.npz", x=x, y=y, test_x=x[:1])
    np.savez(tmp_path / "none.npz", x=x, z=y)
    np.savez(tmp_path / "objects.npz", x=x, y=np.array([{}, {}, {}], object))
    (tmp_path / "text.npz").write_text("no archive")
    both, half = (shared(arrays(HERE, file=str(tmp_path / f"{name}.npz"))) for name in ("both", "half"))
    assert both.test is not None
    assert half.test is None
    assert torch.equal(all_of(both.test)[0], torch.tensor([[0.0, 1.0]]))
    assert torch.equal(all_of(half.train)[0], torch.from_numpy(x).float())
    with pytest.raises(DatasetError, match=r"none\.npz holds x, z: expected x and y, and perhaps test_x and test_y"):
        arrays(HERE, file=str(tmp_path / "none.npz"))
    for name in ("objects", "text", "gone"):  # what is pickled may do anything when it is read
        with pytest.raises(DatasetError, match=rf"{name}\.npz can't be read as arrays: .*; write it by numpy.savez"):
            arrays(HERE, file=str(tmp_path / f"{name}.npz"))


# Hugging Face's


class Hub:
    """A `datasets.Dataset` as far as netdfl asks."""

    features: dict[str, Any] = {}  # noqa: RUF012 - only read

    def __init__(self, **cells: list[Any]) -> None:
        self.cells, self.column_names = cells, list(cells)

    def __len__(self) -> int:
        return len(next(iter(self.cells.values())))

    def __getitem__(self, key: int | str) -> Any:
        return self.cells[key] if isinstance(key, str) else {name: cells[key] for name, cells in self.cells.items()}


def of_hub(target: str, inputs: list[str] | None = None, **cells: list[Any]) -> Any:
    return shared(Datasets(train=Hub(**cells), target=target, inputs=inputs))


def test_rows_with_lists_and_arrays_are_read_one_by_one() -> None:
    vectors = {"v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [1, 0, 1]}
    x, y = all_of(of_hub("y", **vectors).train)
    assert torch.equal(x, torch.tensor(vectors["v"]))
    assert y.tolist() == [1, 0, 1]
    pair = of_hub("y", **vectors, n=[7, 8, 9])
    (first, second), _ = all_of(pair.train)
    assert torch.equal(first, torch.tensor(vectors["v"]))
    assert second.tolist() == [7, 8, 9]
    words = of_hub("y", v=vectors["v"], y=["dog", "cat", "dog"])
    assert words.labels.tolist() == [1, 0, 1]
    spans = of_hub("v", n=[1, 2, 3], v=vectors["v"])
    x, y = all_of(spans.train)
    assert x.tolist() == [[1.0], [2.0], [3.0]]
    assert torch.equal(y, torch.tensor(vectors["v"]))
    assert of_hub("y", ["v"], v=vectors["v"], y=[0, 1, 0], text=["a", "b", "c"]).labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("inputs", "cells", "said"),
    [
        (
            ["t"],
            {"v": [[1.0]] * 2, "t": ["a", "b"]},
            "train: the column 't' holds text, 'a' in row 0, expected numbers: encode it",
        ),
        (["v", "t"], {"v": [[1.0]] * 2, "t": [["a"], ["b"]]}, "the column 't' holds a list of 1, expected numbers"),
        (["m", "v"], {"v": [[1.0]] * 2, "m": [{"a": 1}] * 2}, r"the column 'm' holds \{a: int\}, expected numbers"),
        (["gone"], {"v": [[1.0]] * 2}, "train has no column 'gone': set inputs to some of v, y"),
        (None, {"v": [[1.0], None]}, r"the column 'v' is empty in row 1: fill it, or drop the row"),
    ],
)
def test_columns_of_a_hub_that_hold_no_numbers_are_named(inputs: Any, cells: dict[str, Any], said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        of_hub("y", inputs, **cells, y=[0, 1])


def test_a_table_is_told_by_what_it_has() -> None:
    class Named:
        column_names, features = (), ()

    class Half:
        column_names = ()

    class Frame:
        columns, dtypes = (), ()

        def __getitem__(self, name: str) -> None: ...

    assert [is_hugging_face(each()) for each in (Named, Half, Frame)] == [True, False, False]
    assert [is_frame(each()) for each in (Named, Half, Frame)] == [False, False, True]
    assert not is_frame(np.zeros(3))


def test_what_hugging_face_saved_is_loaded_with_a_test_or_validation_split(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"v": [1.0, 2.0], "y": [0, 1]}
    train, test, validation = Hub(**rows), Hub(**rows), Hub(**rows)

    def saved(found: Any) -> Datasets:
        def load_from_disk(folder: str) -> Any:
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_from_disk=load_from_disk))
        return hugging_face(HERE, folder="f", target="y")

    assert saved(train).train is train
    assert saved(train).test is None
    assert saved({"train": train, "validation": validation}).test is validation
    assert saved({"train": train, "test": test, "validation": validation}).test is test
    assert (saved(train).target, saved(train).inputs, saved(train).missing) == ("y", None, "refuse")
    for error in (OSError("gone"), ValueError("odd")):
        with pytest.raises(DatasetError, match=f"f holds no dataset that save_to_disk wrote: {error}"):
            saved(error)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DatasetError, match=r"needs the package datasets: run `.*hugging_face"):
        hugging_face(HERE, folder="f", target="y")


# partitions


def test_each_value_of_a_column_is_one_clients_and_the_sizes_are_as_even_as_dealing_makes_them() -> None:
    values = np.array(list("aaaabbbccd"))
    parts = PARTITIONS["by_column"](values, 2, Streams(1), column="site")
    assert sorted(sorted(set(values[part])) for part in parts) == [["a", "d"], ["b", "c"]]
    assert sorted(np.concatenate(parts).tolist()) == list(range(10))
    four = PARTITIONS["by_column"](values, 4, Streams(1), column="site")
    assert sorted(map(len, four)) == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="column 'site' has 4 values for 5 clients: use at most 4 clients, or another"):
        PARTITIONS["by_column"](values, 5, Streams(1), column="site")


# fetching


def test_digits_without_scikit_learn_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "PACKAGE", tmp_path)
    for spec in (None, SimpleNamespace(submodule_search_locations=[str(tmp_path)])):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, spec=spec: spec)
        with pytest.raises(DatasetError, match="digits is part of scikit-learn, which is not installed: run `"):
            datasets.digits_path()
    (tmp_path / "datasets" / "data").mkdir(parents=True)
    (tmp_path / "datasets" / "data" / "digits.csv.gz").write_bytes(b"")
    assert datasets.digits_path() == tmp_path / "datasets" / "data" / "digits.csv.gz"
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "digits.csv.gz").write_bytes(b"")
    assert datasets.digits_path() == tmp_path / "shipped" / "digits.csv.gz", "an image carries its own"


def torchvisions(monkeypatch: pytest.MonkeyPatch, asked: list[Any], error: Exception | None = None) -> None:
    def source(*, root: str, train: bool, download: bool) -> Any:
        asked.append((root, train, download))
        if error is not None:
            raise error
        data = np.full((2 + train, 32, 32, 3), 7, np.uint8)
        data[..., 1] = 9
        return SimpleNamespace(data=data, targets=list(range(2 + train)), classes=["a", "b", "c"])

    made = SimpleNamespace(CIFAR10=source, CIFAR100=source)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", made)  # type: ignore[arg-type]


def test_cifar_of_torchvisions_is_read_channels_first_and_fetched_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    torchvisions(monkeypatch, asked)
    (tmp_path / "cifar-10-batches-py").mkdir()
    found = datasets.cifar10(tmp_path)
    assert asked == [(str(tmp_path), True, False), (str(tmp_path), False, False)]
    assert (found.train_x.shape, found.test_x.shape, found.num_classes) == ((3, 3, 32, 32), (2, 3, 32, 32), 3)
    assert [int(found.train_x[0, channel, 0, 0]) for channel in range(3)] == [7, 9, 7]
    assert found.train_y.tolist() == [0, 1, 2]
    told: list[str] = []
    asked.clear()
    got = fetch.get("cifar100", tmp_path / "new", progress=lambda what, done, total: told.append(what))
    assert got == tmp_path / "new" / "cifar-100-python"
    assert told == ["cifar100 through torchvision"]
    assert [each[2] for each in asked] == [True, True]
    for download, remedy in ((True, "check the connection"), (False, "run `netdfl data get cifar100`")):
        torchvisions(monkeypatch, asked, RuntimeError("closed\nmore"))
        with pytest.raises(DatasetError, match=f"dataset cifar100: closed; {remedy}"):
            datasets.from_torchvision("cifar100", tmp_path, download=download)
    torchvisions(monkeypatch, asked, OSError())
    with pytest.raises(DatasetError, match="dataset cifar100: OSError; run"):
        datasets.cifar100(tmp_path)


class Response:
    """What a host says, in pieces; an exception among these is raised."""

    def __init__(self, *pieces: Any, length: str | None = None) -> None:
        self.pieces, self.headers = list(pieces), {} if length is None else {"Content-Length": length}

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *more: object) -> None: ...

    def read(self, most: int) -> bytes:
        piece = self.pieces.pop(0) if self.pieces else b""
        if isinstance(piece, Exception):
            raise piece
        return piece  # type: ignore[no-any-return]


def test_a_download_is_whole_or_says_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(response: Any) -> list[tuple[str, int, int | None]]:
        seen: list[tuple[str, int, int | None]] = []
        monkeypatch.setattr(sources.urllib.request, "urlopen", lambda url, timeout: response)
        sources.download("http://host/a/b.gz", tmp_path / "b", lambda *told: seen.append(told))
        return seen

    assert download(Response(b"12", b"345", length="5")) == [("b.gz", 2, 5), ("b.gz", 5, 5)]
    assert (tmp_path / "b").read_bytes() == b"12345"
    assert download(Response(b"12")) == [("b.gz", 2, None)]
    with pytest.raises(SourceUnavailable, match=r"http://host/a/b\.gz: broke off after 2 of 5 bytes"):
        download(Response(b"12", length="5"))
    for error in (OSError("reset"), http.client.IncompleteRead(b"")):
        with pytest.raises(SourceUnavailable, match=r"http://host/a/b.gz: (OSError|IncompleteRead)"):
            download(Response(b"12", error))


def test_a_member_that_is_no_file_is_named_and_parts_are_joined_in_order(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("folder"))
        folder = tarfile.TarInfo("dir")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in (("one", b"1"), ("two", b"22")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    sources.untar(tmp_path / "a.tar", {"out": ("two", "one")}, tmp_path)
    assert (tmp_path / "out").read_bytes() == b"221"
    with pytest.raises(SourceUnavailable, match=r"a\.tar: dir is not a file"):
        sources.untar(tmp_path / "a.tar", {"out": ("dir",)}, tmp_path)


def clients(monkeypatch: pytest.MonkeyPatch, does: Any) -> list[list[str]]:
    """Clients of registries that do as `does` says, in the folder where they run; what they were called with."""
    called: list[list[str]] = []

    def ran(command: list[str], *, cwd: Path, **more: Any) -> Any:
        called.append(command)
        does(command, cwd)
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(sources.shutil, "which", lambda name: f"/bin/{Path(name).name}")
    monkeypatch.setattr(sources.subprocess, "run", ran)
    return called


def test_a_client_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def does(command: list[str], cwd: Path) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    clients(monkeypatch, does)
    with pytest.raises(SourceUnavailable, match="apt-get did not finish in 900 s"):
        sources.debian_package("pack", tmp_path, quiet)
