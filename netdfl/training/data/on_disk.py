"""Data in a user's files: pictures in folders, a table, arrays, a dataset of Hugging Face's on disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netdfl.core.errors import DatasetError
from netdfl.core.installing import pip_install
from netdfl.core.units import PositiveInt
from netdfl.training.data.dataset import Missing
from netdfl.training.data.table_files import read_table

if TYPE_CHECKING:
    from netdfl.training.data.client_files import ClientFiles
    from netdfl.training.data.own import Datasets
else:  # so that a scenario's schema can be made from the signatures without torch
    Datasets = ClientFiles = object

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


def image_folder(root: Path, /, *, folder: str, size: PositiveInt | None = None) -> Datasets:
    """Pictures in a folder for each class, FOLDER/CLASS/*.png, or FOLDER/train/CLASS/ and FOLDER/test/CLASS/.

    Pictures are read on demand; `size` makes all of them as many pixels wide and high.
    """
    from netdfl.training.data.own import Datasets as Given

    top = Path(folder)
    splits = {name: top / name for name in ("train", "test") if (top / name).is_dir()}
    train = splits.get("train", top)
    classes = sorted(each.name for each in train.iterdir() if each.is_dir() and each.name not in splits)
    found = _pictures(train, classes, size)
    test = _pictures(_known(splits["test"], classes), classes, size, found) if "test" in splits else None
    return Given(train=found, test=test, num_classes=len(classes))


@dataclass(frozen=True)
class _Pictures:
    """Pictures with their classes, read from files on demand as PIL images of one size and mode."""

    files: Sequence[tuple[Path, int]]
    size: int | None
    mode: str
    pixels: tuple[int, int]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        from PIL import Image

        path, label = self.files[place]
        try:
            with Image.open(path) as opened:
                if _depth(opened.mode) != _depth(self.mode):
                    depths = f"{_depth(opened.mode)} and the first {_depth(self.mode)}"
                    raise DatasetError(f"{path} has {depths} for each value of a pixel: write all in one way")
                image = opened.convert(self.mode)
        except OSError as error:
            raise DatasetError(f"{path} is no picture that can be read: {error}") from error
        if self.size is not None:
            image = image.resize((self.size, self.size))
        if image.size != self.pixels:
            there = "{}x{}".format(*image.size)
            raise DatasetError(f"{path} has {there} pixels and the first {self.pixels[0]}x{self.pixels[1]}: set size")
        return image, label


def _depth(mode: str) -> str:
    return "16 bits" if mode.startswith("I") else "a real number" if mode == "F" else "8 bits"


def _known(folder: Path, classes: Sequence[str]) -> Path:
    """Return `folder`, a test set. Raises DatasetError if it has pictures of a class that is not in `classes`."""
    for each in sorted(folder.iterdir()):
        if each.is_dir() and each.name not in classes and any(map(_is_picture, each.rglob("*"))):
            what = f"{folder} has pictures of the class {each.name!r}, and the classes are {', '.join(classes)}"
            raise DatasetError(f"{what}: leave it out, or make a folder for it among those of the training set")
    return folder


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in PICTURES


def _pictures(folder: Path, classes: Sequence[str], size: int | None, like: _Pictures | None = None) -> _Pictures:
    """Return a folder's pictures, all in the size of `like` or else of the first one, and grey if all are grey."""
    from PIL import Image

    files = [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((folder / name).rglob("*"))
        if _is_picture(file)
    ]
    if not files:
        raise DatasetError(f"{folder} has no pictures in folders of classes: lay them out as {folder}/CLASS/NAME.png")
    if like is not None:
        if like.mode == "L" and (colored := _first_in_color(files)):
            raise DatasetError(f"{colored} has colors, and the pictures to train on have none: write all in one way")
        return _Pictures(files, size, like.mode, like.pixels)
    with Image.open(files[0][0]) as first:
        mode = {"1": "L", "L": "L", "F": "F"}.get(first.mode, "I" if first.mode.startswith("I") else "RGB")
        pixels = first.size if size is None else (size, size)
    if mode == "L" and _first_in_color(files):
        mode = "RGB"
    return _Pictures(files, size, mode, pixels)


def _first_in_color(files: Sequence[tuple[Path, int]]) -> Path | None:
    """Return the first file whose header says that its picture is not grey; None if all pictures are grey."""
    from PIL import Image

    for file, _ in files:
        with suppress(OSError), Image.open(file) as opened:  # one that can't be read is refused where it is read
            if opened.mode not in ("1", "L", "LA"):
                return file
    return None


def table(
    root: Path,
    /,
    *,
    file: str,
    target: str,
    inputs: list[str] = [],  # noqa: B006 - only read
    missing: Missing = "refuse",
) -> Datasets:
    """Rows of a CSV or Parquet file: the column `target`, from all others that hold numbers, or from `inputs`.

    Empty cells are refused unless `missing` says to drop such rows, or to take the mean of the column for an input.
    """
    from netdfl.training.data.own import Datasets as Given

    return Given(train=read_table(file, target), target=target, inputs=inputs or None, missing=missing)


def client_files(
    root: Path,
    /,
    *,
    each: str,
    target: str,
    inputs: list[str],
    classes: PositiveInt | list[str] | None = None,
    mean: list[float] = [],  # noqa: B006 - only read
    std: list[float] = [],  # noqa: B006 - only read
    missing: Missing = "refuse",
    test_file: str | None = None,
) -> ClientFiles:
    """A CSV or Parquet file for each client on that client's own machine, `each` with `{node}` in it; never gathered.

    A relative `each` begins in `NETDFL_DATA`. The scenario says what all files have: the column `target`, the `inputs`,
    and the `classes`, as words or as their number; without these the target is a number. `mean` and `std` are of the
    inputs. The average model is evaluated only on `test_file`, each client's model on `client_test` of its own file.
    """
    from netdfl.training.data.client_files import ClientFiles as Given

    said = {"root": root, "each": each, "target": target, "inputs": inputs, "classes": classes}
    return Given(**said, mean=mean, std=std, missing=missing, test_file=test_file)  # type: ignore[arg-type]


def arrays(root: Path, /, *, file: str) -> Datasets:
    """An .npz file with `x` and `y`, and `test_x` and `test_y` where it has a test set."""
    from netdfl.training.data.own import Datasets as Given

    try:
        with np.load(file, allow_pickle=False) as found:
            parts = {name: found[name] for name in found.files}
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file} can't be read as arrays: {error}; write it by numpy.savez") from error
    if not {"x", "y"} <= set(parts):
        raise DatasetError(f"{file} holds {', '.join(parts)}: expected x and y, and perhaps test_x and test_y")
    test = (parts["test_x"], parts["test_y"]) if {"test_x", "test_y"} <= set(parts) else None
    return Given(train=(parts["x"], parts["y"]), test=test)


def hugging_face(
    root: Path,
    /,
    *,
    folder: str,
    target: str,
    inputs: list[str] = [],  # noqa: B006 - only read
    missing: Missing = "refuse",
) -> Datasets:
    """A dataset that Hugging Face's `datasets` wrote by `save_to_disk`, with one or several splits.

    Needs that package. Empty cells are treated as in a `table`.
    """
    from netdfl.training.data.own import Datasets as Given

    try:
        import datasets
    except ImportError as error:
        raise DatasetError(
            f"dataset hugging_face needs the package datasets: run `{pip_install('netdfl[hugging_face]')}`"
        ) from error
    try:
        found = datasets.load_from_disk(folder)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{folder} holds no dataset that save_to_disk wrote: {error}") from error
    splits = found if isinstance(found, dict) else {"train": found}
    test = splits.get("test", splits.get("validation"))
    return Given(train=splits["train"], test=test, target=target, inputs=inputs or None, missing=missing)
