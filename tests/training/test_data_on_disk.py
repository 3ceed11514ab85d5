"""Data in files of one's own: pictures, tables, arrays; shared out by a column, or as given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netdfl
from netdfl.core.errors import DatasetError, InputError, ScenarioError
from netdfl.core.rng import Streams
from netdfl.host.training_problem import TrainingProblem
from netdfl.training.data.examples import ReadSamples
from netdfl.training.data.on_disk import image_folder
from netdfl.training.data.own import Datasets, adapted, shared


def problem(folder: Path, task: dict[str, Any], nodes: int = 3) -> TrainingProblem:
    scenario: dict[str, Any] = {"schema": "netdfl/1", "name": "files", "nodes": nodes, "rounds": 1, "task": task}
    file = folder / "s.yaml"
    file.write_text(json.dumps(scenario | {"algorithm": "dfedavg", "topology": "ring"}))
    loaded = netdfl.load(file)
    return TrainingProblem(loaded, Streams(1), nodes)


def test_a_folder_of_images(tmp_path: Path) -> None:
    from PIL import Image

    for label, name in enumerate(("cats", "dogs")):
        (tmp_path / "pics" / name).mkdir(parents=True)
        for k in range(8):
            Image.new("RGB", (6, 6), (label * 255, k, 0)).save(tmp_path / "pics" / name / f"{k}.png")
    task = {"dataset": {"name": "image_folder", "folder": "pics", "partition": "dirichlet"}, "model": "mlp"}
    found = problem(tmp_path, task, nodes=2)
    assert found.shape == (3, 6, 6)
    assert found.shared.num_classes == 2
    x, y = found.shared.train.take(torch.arange(len(found.shared.train)))
    assert torch.equal(x[:, 0, 0, 0].long(), y)
    assert len(found.test) == 3
    Image.new("RGB", (7, 6)).save(tmp_path / "pics" / "dogs" / "other.png")
    with pytest.raises(InputError, match=r"other.png has 7x6 pixels and the first 6x6: set size"):
        problem(tmp_path, task, nodes=2)
    with pytest.raises(ScenarioError, match="folder 'gone' not found"):
        problem(tmp_path, {"dataset": {"name": "image_folder", "folder": "gone"}, "model": "mlp"})


def test_a_folder_is_grey_only_if_all_its_pictures_are(tmp_path: Path) -> None:
    from PIL import Image

    for split in ("train", "test"):
        (tmp_path / "pics" / split / "cats").mkdir(parents=True)
    train, test = (tmp_path / "pics" / split / "cats" for split in ("train", "test"))
    Image.new("L", (4, 4), 51).save(train / "0.png")
    Image.new("L", (4, 4), 102).save(test / "2.png")
    Image.new("RGB", (4, 4), (255, 0, 51)).save(train / "1.png")
    data = shared(image_folder(tmp_path, folder=str(tmp_path / "pics")))
    assert torch.equal(data.train.take(torch.arange(2))[0][:, :, 0, 0], torch.tensor([[0.2] * 3, [1.0, 0.0, 0.2]]))
    (train / "1.png").rename(test / "1.png")
    with pytest.raises(DatasetError, match=r"1\.png has colors, and the pictures to train on have none: write"):
        image_folder(tmp_path, folder=str(tmp_path / "pics"))
    (test / "1.png").unlink()
    data = shared(image_folder(tmp_path, folder=str(tmp_path / "pics")))
    assert data.test is not None
    assert data.test.take(torch.arange(1))[0][0, :, 0, 0].tolist() == [np.float32(0.4)]


def test_pictures_of_16_bits_keep_them(tmp_path: Path) -> None:
    from PIL import Image

    for split, name, value in (("train", "dark", 2000), ("train", "light", 40000), ("test", "light", 30000)):
        folder = tmp_path / "pics" / split / name
        folder.mkdir(parents=True)
        Image.fromarray(np.full((4, 4), value, np.uint16)).save(folder / "0.png")
    data = shared(image_folder(tmp_path, folder=str(tmp_path / "pics")))
    assert data.test is not None
    assert data.train.take(torch.arange(2))[0][:, 0, 0, 0].tolist() == [np.float32(v / 65535) for v in (2000, 40000)]
    assert data.test.take(torch.arange(1))[0][0, 0, 0, 0] == np.float32(30000 / 65535)
    other = tmp_path / "pics" / "test" / "grey"
    other.mkdir()
    Image.new("L", (4, 4), 7).save(other / "1.png")
    with pytest.raises(DatasetError, match="test has pictures of the class 'grey', and the classes are dark, light:"):
        image_folder(tmp_path, folder=str(tmp_path / "pics"))
    (other / "1.png").rename(tmp_path / "pics" / "train" / "dark" / "1.png")
    with pytest.raises(DatasetError, match=r"1\.png has 8 bits and the first 16 bits for each value of a pixel: write"):
        shared(image_folder(tmp_path, folder=str(tmp_path / "pics")))


def test_a_dataset_of_pictures_of_any_depth_has_values_from_0_to_1() -> None:
    from PIL import Image

    def read(mode: str, color: float) -> list[float]:
        pictures = [(Image.new(mode, (2, 2), color), k) for k in range(3)]
        found: list[float] = shared(Datasets(train=pictures)).train.take(torch.arange(3))[0].unique().tolist()
        return found

    for mode, given, wanted in (("1", 1, 1), ("L", 51, 0.2), ("I;16", 65535, 1), ("I", 13107, 0.2), ("F", 2.5, 2.5)):
        assert read(mode, given) == [np.float32(wanted)]
    with pytest.raises(DatasetError, match=r"a picture with a palette .mode P. are no colors: give .convert"):
        read("P", 3)


TABLE = "rooms,price,city\n" + "".join(f"{k % 5},{3.5 * (k % 5)},{'abc'[k % 3]}\n" for k in range(30))


def test_a_table_is_shared_out_by_its_column(tmp_path: Path) -> None:
    (tmp_path / "houses.csv").write_text(TABLE)
    data = {
        "name": "table",
        "file": "houses.csv",
        "target": "price",
        "partition": {"kind": "by_column", "column": "city"},
    }
    found = problem(tmp_path, {"dataset": data, "model": {"name": "mlp", "hidden": [4]}, "loss": "mse"})
    assert found.shape == (1,)
    cities = found.shared.columns["city"]
    assert sorted("".join(set(cities[part])) for part in found.parts) == ["a", "b", "c"]
    with pytest.raises(InputError, match="have no column 'town'; there is rooms, price, city"):
        problem(tmp_path, {"dataset": data | {"partition": {"kind": "by_column", "column": "town"}}, "model": "mlp"})


def test_arrays_are_shared_out_as_a_file_says(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "a.npz",
        x=rng.random((12, 4)),
        y=np.arange(12) % 2,
        test_x=rng.random((4, 4)),
        test_y=np.arange(4) % 2,
    )
    (tmp_path / "parts.json").write_text("[[0, 1, 2], [3], [4, 5, 6, 7]]")
    data = {"name": "arrays", "file": "a.npz", "partition": {"kind": "given", "file": "parts.json"}}
    assert [list(part) for part in problem(tmp_path, {"dataset": data, "model": "mlp"}).parts] == [
        [0, 1, 2],
        [3],
        [4, 5, 6, 7],
    ]
    with pytest.raises(InputError, match="has 3 lists for 4 clients"):
        problem(tmp_path, {"dataset": data, "model": "mlp"}, nodes=4)


def given(folder: Path, parts: list[list[int]], nodes: int, **data: object) -> TrainingProblem:
    (folder / "parts.json").write_text(json.dumps(parts))
    dataset = {"partition": {"kind": "given", "file": "parts.json"}} | data
    return problem(folder, {"dataset": dataset, "model": {"name": "mlp", "hidden": [2]}}, nodes)


def first_inputs(found: TrainingProblem) -> list[set[int]]:
    """The numbers that examples have in their first input, of each client and of the test set."""
    train = found.shared.train
    each = [train.only(part).take(torch.arange(len(part)))[0] for part in found.parts]
    return [set(x[:, 0].int().tolist()) for x in (*each, found.test.x)]


def test_numbers_of_a_given_partition_are_those_of_the_data_as_given_also_where_a_test_set_is_held_out(
    tmp_path: Path,
) -> None:
    parts = [list(range(first, first + 25)) for first in (0, 25, 50, 75)]
    np.savez(tmp_path / "a.npz", x=np.stack([np.arange(100.0)] * 2, 1), y=np.arange(100) % 2)
    found = given(tmp_path, parts, 4, name="arrays", file="a.npz")
    *clients, test = first_inputs(found)
    assert len(test) == 20
    assert [len(mine) for mine in clients] != [25] * 4
    for mine, asked in zip(clients, parts, strict=True):
        assert mine == set(asked) - test
    assert found.notes[0] == "20 of 100 examples are held out as the test set, as the data bring none"
    gone = ", ".join(f"client {n}: {len(test & set(part))}" for n, part in enumerate(parts) if test & set(part))
    what = "partition parts.json: numbers are those of the data as given; 20 of its 100 examples"
    assert found.notes[1:] == [f"{what} are in the test set or left out ({gone})"]
    *few, test = first_inputs(given(tmp_path, [[99, 3, 50], [7, 98, 51]], 2, name="arrays", file="a.npz"))
    assert few == [{99, 3, 50} - test, {7, 98, 51} - test]
    lost = sorted(test)[0]
    with pytest.raises(InputError, match=r"all examples of client 1 \(1\) are held out as the test set"):
        given(tmp_path, [[7, 98, 51], [lost]], 2, name="arrays", file="a.npz")
    with pytest.raises(InputError, match="the list of client 0 is none of numbers from 0 to 99"):
        given(tmp_path, [[100], [3]], 2, name="arrays", file="a.npz")


def test_numbers_of_a_given_partition_count_rows_that_are_left_out(tmp_path: Path) -> None:
    rows = "".join(f"{k},{'' if k % 10 == 3 else k},{k % 2}\n" for k in range(60))
    (tmp_path / "t.csv").write_text(f"number,a,y\n{rows}")
    data = {"name": "table", "file": "t.csv", "target": "y", "missing": "drop"}
    parts = [list(range(30)), list(range(30, 60))]
    *clients, test = first_inputs(given(tmp_path, parts, 2, **data))
    empty = {k for k in range(60) if k % 10 == 3}
    assert clients == [set(part) - test - empty for part in parts]


def test_data_frames_and_datasets_that_draw_at_random() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [0, 1], "name": ["x", "y"], "y": [0.5, 1.5]})
    found = shared(Datasets(train=frame, target="y"))
    assert found.train.take(torch.arange(2))[0].tolist() == [[1.0, 0.0], [2.0, 1.0]]
    assert list(found.columns) == ["a", "b", "name", "y"]
    with pytest.raises(DatasetError, match="train names no column to predict: set target to one of a, b, name, y"):
        shared(Datasets(train=frame))

    class Noisy:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
            return torch.rand(3), k % 2

    assert isinstance(shared(Datasets(train=Noisy())).train, ReadSamples)


@pytest.mark.parametrize("given", [7, "text", {"text": 1}])
def test_what_is_no_data_is_refused(given: object) -> None:
    with pytest.raises((TypeError, DatasetError)):
        shared(adapted(given))  # type: ignore[arg-type]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = pytest.importorskip("datasets", reason="the extra hugging_face is not installed")
    monkeypatch.setattr(found.config, "HF_DATASETS_OFFLINE", True)
    found.disable_progress_bars()
    return found


def test_a_dataset_of_hugging_faces_on_disk(hub: Any, tmp_path: Path) -> None:
    columns = {
        "rooms": list(range(24)),
        "price": [3.5 * k for k in range(24)],
        "city": ["abc"[k % 3] for k in range(24)],
    }
    columns["note"] = ["x"] * 24
    whole = hub.Dataset.from_dict(columns)
    whole.save_to_disk(tmp_path / "one")
    whole.train_test_split(test_size=0.25, seed=0).save_to_disk(tmp_path / "two")
    data = {"name": "hugging_face", "folder": "one", "target": "city"}
    found = problem(tmp_path, {"dataset": data, "model": "mlp"}, nodes=2)
    assert found.shape == (2,)  # rooms and price; what is no number is left out
    assert found.shared.num_classes == 3
    split = {
        "folder": "two",
        "target": "price",
        "inputs": ["rooms"],
        "partition": {"kind": "by_column", "column": "city"},
    }
    found = problem(tmp_path, {"dataset": data | split, "model": "mlp"})
    assert (len(found.shared.train), len(found.test)) == (18, 6)
    with pytest.raises(DatasetError, match="the column 'note' holds text, 'x' in row 0, expected numbers: encode it"):
        problem(tmp_path, {"dataset": data | {"inputs": ["note"]}, "model": "mlp"})
    with pytest.raises(DatasetError, match="has no column 'town': set target to one of rooms, price, city, note"):
        problem(tmp_path, {"dataset": data | {"target": "town"}, "model": "mlp"})


def test_hugging_faces_pictures_and_tokens(hub: Any, tmp_path: Path) -> None:
    from PIL import Image

    pixels = [Image.new("RGB", (8, 8), (10 * k, 0, 0)) for k in range(12)]
    pictures = hub.Dataset.from_dict({"image": pixels, "label": [k % 2 for k in range(12)]})
    pictures.save_to_disk(tmp_path / "pictures")
    task = {"dataset": {"name": "hugging_face", "folder": "pictures", "target": "label"}, "model": "mlp"}
    assert problem(tmp_path, task, nodes=2).shape == (3, 8, 8)
    given = Datasets(train=hub.Dataset.from_dict({"ids": [[1, 2], [2, 3]], "next": [[2, 3], [3, 4]]}), target="next")
    x, y = shared(given).train.take(torch.arange(2))
    assert (x.dtype, x.tolist(), y.tolist()) == (torch.int64, [[1, 2], [2, 3]], [[2, 3], [3, 4]])
