"""Data in a user's files: pictures in folders, a table, arrays, a dataset of Hugging Face's on disk."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from netdfl.core.errors import DatasetError
from netdfl.core.given_files import UTF16_MARKS, ending_of, given_text
from netdfl.core.installing import pip_install
from netdfl.core.units import PositiveInt
from netdfl.training.data.dataset import Missing

if TYPE_CHECKING:
    from netdfl.training.data.own import Datasets
else:  # so that a scenario's schema can be made from the signatures without torch
    Datasets = object

_MARKS, _HEAD = ",;\t|", 1 << 16
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
    test = _pictures(splits["test"], classes, size) if "test" in splits else None
    return Given(train=found, test=test, num_classes=len(classes))


@dataclass(frozen=True)
class _Pictures:
    """Pictures with their classes, as arrays (channels, height, width) with values from 0 to 1."""

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
                image = opened.convert(self.mode)
        except OSError as error:
            raise DatasetError(f"{path} is no picture that can be read: {error}") from error
        if self.size is not None:
            image = image.resize((self.size, self.size))
        if image.size != self.pixels:
            there = "{}x{}".format(*image.size)
            raise DatasetError(f"{path} has {there} pixels and the first {self.pixels[0]}x{self.pixels[1]}: set size")
        return image, label


def _pictures(folder: Path, classes: Sequence[str], size: int | None) -> _Pictures:
    from PIL import Image

    files = [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((folder / name).rglob("*"))
        if file.suffix.lower() in PICTURES
    ]
    if not files:
        raise DatasetError(f"{folder} has no pictures in folders of classes: lay them out as {folder}/CLASS/NAME.png")
    with Image.open(files[0][0]) as first:
        mode = "L" if first.mode in ("1", "L", "I", "I;16") else "RGB"
        pixels = first.size if size is None else (size, size)
    return _Pictures(files, size, mode, pixels)


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
    import duckdb

    from netdfl.training.data.columns import Columns
    from netdfl.training.data.own import Datasets as Given

    is_text = ending_of(file) != ".parquet"
    try:
        with _in_utf8(file) as plain:
            relation = _read_csv(plain, target) if is_text else duckdb.read_parquet(file)
            columns = Columns(relation.fetchnumpy(), Path(file).name, as_text=is_text)
    except duckdb.Error as error:
        raise DatasetError(f"{file} can't be read as a table: {' '.join(str(error).split())[:400]}") from error
    return Given(train=columns, target=target, inputs=inputs or None, missing=missing)


def _read_csv(file: str, target: str) -> Any:
    """Read a CSV file by DuckDB, with the delimiter of its first line: `1,5;2,5` has decimal commas."""
    import duckdb

    with (gzip.open if file.lower().endswith(".gz") else open)(file, "rb") as stream:
        head = stream.read(_HEAD).decode("utf-8-sig", errors="replace")
    lines = head.splitlines()
    blank = next((place for place, line in enumerate(lines) if line.strip()), 0)
    first = lines[blank] if lines else ""
    mark = max(_MARKS, key=re.sub(r'"[^"]*"', "", first).count)
    known = {"delimiter": mark} if mark in first else {}
    header = {"header": True} if target in next(csv.reader([first], delimiter=mark), ()) else {}
    # short rows have empty cells; beside line breaks in quotes DuckDB pads them only where it does not read in parallel
    return duckdb.read_csv(file, sample_size=-1, skiprows=blank, null_padding=True, parallel=False, **known, **header)


@contextmanager
def _in_utf8(file: str) -> Iterator[str]:
    """Yield the file itself, or a UTF-8 copy if it is in UTF-16, which DuckDB can't read."""
    with open(file, "rb") as stream:
        if stream.read(2) not in UTF16_MARKS:
            yield file
            return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / Path(file).name
        copy.write_text(given_text(file), encoding="utf-8")
        yield str(copy)


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
