"""The datasets by name, and readers of raw files. Each is a function from the data root to a `Dataset`.

A user's own dataset is such a function, too. Raw files are memory-mapped, so a node reads only the pages of its own
samples.
"""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netdfl.core.errors import DatasetError, NotFetchedError
from netdfl.core.files import PACKAGE
from netdfl.core.installing import pip_install
from netdfl.core.tables import by_name
from netdfl.core.units import PositiveFloat
from netdfl.training.data.dataset import Dataset
from netdfl.training.data.on_disk import arrays, client_files, hugging_face, image_folder, table

_DIGITS_TEST_FRACTION = 0.2
_DIGITS_SPLIT_SEED = 0
_DIGITS_MEAN, _DIGITS_STD = (0.3055,), (0.3761,)
_CIFAR_MEAN_STD = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


CARRIED = "shipped/digits.csv.gz"
"""The path in netdfl's own folder at which container images of nodes carry scikit-learn's digits."""


def digits_path() -> Path:
    """Return the path of the file of handwritten digits in scikit-learn, without importing sklearn.

    Raises:
        DatasetError: scikit-learn is not installed, or has moved the file.
    """
    if (carried := PACKAGE / CARRIED).is_file():
        return carried
    spec = importlib.util.find_spec("sklearn")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if path.exists():
            return path
    raise DatasetError(
        f"dataset digits is part of scikit-learn, which is not installed: run `{pip_install('scikit-learn')}`"
    )


def digits(root: Path, /) -> Dataset:
    """1,797 real handwritten digits of 8x8 pixels, from scikit-learn; nothing to download.

    A fifth of every class is the test set. The split is fixed: it does not depend on the scenario.
    """
    table = np.loadtxt(digits_path(), delimiter=",", dtype=np.uint8)
    x = (table[:, :-1].astype(np.float32) / np.float32(16)).reshape(-1, 1, 8, 8)
    y = table[:, -1].astype(np.int64)
    is_test = _stratified(y, _DIGITS_TEST_FRACTION, np.random.Generator(np.random.PCG64(_DIGITS_SPLIT_SEED)))
    return Dataset(x[~is_test], y[~is_test], x[is_test], y[is_test], 10, _DIGITS_MEAN, _DIGITS_STD)


def _stratified(labels: NDArray[np.int64], fraction: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        chosen[members[: round(fraction * len(members))]] = True
    return chosen


def mnist(root: Path, /, *, mean: float = 0.1307, std: PositiveFloat = 0.3081) -> Dataset:
    """MNIST: 60,000 and 10,000 handwritten digits of 28x28 pixels."""
    return _idx_dataset("mnist", root / "MNIST" / "raw", mean, std)


def fashion_mnist(root: Path, /, *, mean: float = 0.2860, std: PositiveFloat = 0.3530) -> Dataset:
    """Fashion-MNIST: 60,000 and 10,000 pictures of clothes, 28x28 pixels, 10 classes."""
    return _idx_dataset("fashion_mnist", root / "FashionMNIST" / "raw", mean, std)


def _idx_dataset(name: str, folder: Path, mean: float, std: float) -> Dataset:
    def split(prefix: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        images = read_idx(folder / f"{prefix}-images-idx3-ubyte")
        return images[:, None], read_idx(folder / f"{prefix}-labels-idx1-ubyte").astype(np.int64)

    try:
        return Dataset(*split("train"), *split("t10k"), 10, (mean,), (std,))
    except FileNotFoundError as exc:
        raise _missing(name, folder) from exc


def cifar10(root: Path, /) -> Dataset:
    """CIFAR-10: 50,000 and 10,000 color pictures of 32x32 pixels, 10 classes.

    Reads netdfl's own copy (`CIFAR10/raw`), else torchvision's `cifar-10-batches-py` through torchvision.
    """
    folder = root / "CIFAR10" / "raw"
    if not folder.exists() and (root / "cifar-10-batches-py").exists():
        return from_torchvision("cifar10", root)
    try:
        train = read_records(folder / "train.bin", (3, 32, 32), 50_000)
        test = read_records(folder / "test.bin", (3, 32, 32), 10_000)
    except FileNotFoundError as exc:
        raise _missing("cifar10", folder) from exc
    return Dataset(*train, *test, 10, *_CIFAR_MEAN_STD["cifar10"])


def cifar100(root: Path, /) -> Dataset:
    """CIFAR-100: 50,000 and 10,000 color pictures of 32x32 pixels, 100 classes; needs torchvision."""
    return from_torchvision("cifar100", root)


def from_torchvision(name: str, root: Path, *, download: bool = False) -> Dataset:
    """Load `cifar10` or `cifar100` through torchvision, imported only here, as it does not fit every torch.

    Raises:
        DatasetError: torchvision does not import, or the files are missing or damaged.
    """
    try:
        source = getattr(importlib.import_module("torchvision.datasets"), name.upper())
    except (ImportError, RuntimeError, OSError) as exc:
        raise DatasetError(
            f"dataset {name} needs torchvision, which does not import here ({_first_line(exc)}): "
            f"install the torchvision that belongs to this torch, by {pip_install('netdfl[vision]')}"
        ) from exc
    try:
        parts: list[Any] = [source(root=str(root), train=train, download=download) for train in (True, False)]
    except (RuntimeError, OSError) as exc:
        remedy = "check the connection" if download else f"run `netdfl data get {name}`"
        raise DatasetError(f"dataset {name}: {_first_line(exc)}; {remedy}") from exc
    arrays = [(np.moveaxis(part.data, 3, 1), np.asarray(part.targets, dtype=np.int64)) for part in parts]
    return Dataset(*arrays[0], *arrays[1], len(parts[0].classes), *_CIFAR_MEAN_STD[name])


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]


def _missing(name: str, folder: Path) -> NotFetchedError:
    said = f"dataset {name} is not in {folder}: run `netdfl data get {name}`, or point NETDFL_DATA at it"
    return NotFetchedError(said)


FETCHED = by_name(digits, mnist, fashion_mnist, cifar10, cifar100)
"""Every dataset that can be fetched, by name: a function `(root: Path, /, *, ...) -> Dataset`."""
DATASETS = {**FETCHED, **by_name(image_folder, table, arrays, hugging_face, client_files)}
"""All datasets by name: the ones to fetch, and readers of a user's files."""


_UNSIGNED_BYTE = 0x08


def _idx_shape(head: bytes, path: Path) -> tuple[int, ...]:
    if len(head) < 4 or head[:3] != bytes((0, 0, _UNSIGNED_BYTE)) or len(head) < 4 + 4 * head[3]:
        raise DatasetError(
            f"{path} is damaged: it does not start like an IDX file of bytes; delete it and get it again"
        )
    return tuple(int(n) for n in np.frombuffer(head, ">u4", count=head[3], offset=4))


def _check_size(path: Path, nbytes: int, expected: int) -> None:
    if nbytes != expected:
        raise DatasetError(f"{path} is damaged: {nbytes} bytes, expected {expected}; delete it and get it again")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of the IDX file at `path`, or at `path` with `.gz` appended.

    Raises:
        FileNotFoundError: Neither file exists.
        DatasetError: The file is damaged.
    """
    if not path.exists():
        return _read_idx_gz(path.with_name(path.name + ".gz"))
    with path.open("rb") as file:
        shape = _idx_shape(file.read(4 + 4 * 255), path)
    start = 4 + 4 * len(shape)
    _check_size(path, path.stat().st_size, start + math.prod(shape))
    return np.asarray(np.memmap(path, np.uint8, mode="r", offset=start, shape=shape))


def _read_idx_gz(path: Path) -> NDArray[np.uint8]:
    try:
        content = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as exc:
        raise DatasetError(f"{path} is damaged: {exc}; delete it and get it again") from exc
    shape = _idx_shape(content, path)
    start = 4 + 4 * len(shape)
    _check_size(path, len(content), start + math.prod(shape))
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_records(path: Path, shape: tuple[int, ...], count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read inputs (count, *shape) and labels from records of a label byte and prod(shape) bytes.

    Raises:
        FileNotFoundError: The file does not exist.
        DatasetError: The file has another size.
    """
    width = 1 + math.prod(shape)
    _check_size(path, path.stat().st_size, count * width)
    records = np.asarray(np.memmap(path, np.uint8, mode="r", shape=(count, width)))
    return records[:, 1:].reshape(count, *shape), records[:, 0].astype(np.int64)
