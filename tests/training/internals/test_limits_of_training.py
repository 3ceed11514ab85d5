"""The limits and constants of training lie where this table says, and there are no others."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType

import netdfl.training
from netdfl.training.data import datasets

LIMITS: Mapping[str, object] = {
    "catalog.SIZED_NBYTES": 4 * 8,
    "tasks.losses.LEFT_OUT": -100,
    "data.reading.MOST_IN_MEMORY": 1024**3,
    "models.reach.MOST_PLACES": 20_000,
    "remembering.MOST": 1000,
    "remembering.LONGEST_S": 60,
    "service.WORTH_A_THREAD": 1_600_000,
    "service.WORTH_A_ROW": 3_000_000,
    "service.CACHE_BYTES": 1_000_000,
    "sgd.TINY": 1e-12,
    "stacked_model.NEAR": 0.001,
    "trial.EXAMPLES": 8,
    "trial.LARGE": 5_000_000,
    "trial.NEAR": 0.001,
    "data.datasets._DIGITS_SPLIT_SEED": 0,
    "data.datasets._DIGITS_TEST_FRACTION": 1 / 5,
    "data.datasets._UNSIGNED_BYTE": 8,  # of the IDX format
    "data.client_files.STAND_INS": 8,
    "data.table_files._HEAD": 64 * 1024,
    "data.partitions._SINKHORN_STEPS": 1000,
    "data.reading._NUMBER": 8,
    "data.reading._TRIED": 6,
    "data.kinds._MOST_NAMED": 4,
    "data.own.MOST_READ": 4096,
    "data.own.READ_AT_ONCE": 32,
    "models.common.LARGE": 1 << 20,
    "data.sharing._MOST_NAMED": 12,
    "data.tables._MOST_NAMED": 12,
    "data.sources._TIMEOUT_S": 8.0,
    "data.sources._CLIENT_TIMEOUT_S": 15 * 60.0,
    "data.sources._CHUNK": 256 * 1024,
}


def modules() -> Iterator[tuple[str, ModuleType]]:
    """Every module of the package, by its name there."""
    for found in pkgutil.walk_packages(netdfl.training.__path__, "netdfl.training."):
        yield found.name.removeprefix("netdfl.training."), importlib.import_module(found.name)


def test_limits_lie_where_the_table_says_and_there_are_no_others() -> None:
    found = {
        f"{place}.{name}": value
        for place, module in modules()
        for name, value in vars(module).items()
        if name.isupper() and type(value) in (int, float)
    }
    # imported there:
    again = {"models.common.MOST_PLACES", "classification.LEFT_OUT", "tasks.recipe.LEFT_OUT", "distill.TINY"}
    assert {name: value for name, value in found.items() if name not in again} == LIMITS
    assert {name.rpartition(".")[2] for name in again} <= {name.rpartition(".")[2] for name in LIMITS}


def test_pictures_are_standardized_by_the_published_means_and_deviations() -> None:
    assert datasets._CIFAR_MEAN_STD == {
        "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    }
