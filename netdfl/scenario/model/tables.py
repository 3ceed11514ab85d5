"""The slots of a scenario and the tables behind them, each imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import cast

from netdfl.algorithms.base import Entry
from netdfl.scenario.model.choices import Choices, Table
from netdfl.scenario.model.parts import Part


def listed(module: str, name: str) -> Callable[[], Table]:
    """The table `name` of `module`."""
    return lambda: getattr(importlib.import_module(module), name)


WEIGHTS = Choices("weights", listed("netdfl.topology.catalog", "WEIGHTS"), default="auto")
SELECTIONS = Choices("selection", listed("netdfl.topology.catalog", "SELECTIONS"), default="all")
PARTITIONS = Choices("partition", listed("netdfl.training.data.partitions", "PARTITIONS"), default="iid")
AUGMENTATIONS = Choices("augmentation", listed("netdfl.training.data.augmentations", "AUGMENTATIONS"), default="none")
MODELS = Choices("model", listed("netdfl.training.models.catalog", "MODELS"), "name")


class AlgorithmPart(Part):
    """The algorithm and its parameters."""

    @property
    def traits(self) -> Entry:
        """What its row says of it; a user's plain function is gossip that needs nothing of the graph."""
        entry, function = type(self).entry, type(self).function
        assert function is not None
        return entry if isinstance(entry, Entry) else Entry(function, "gossip", frozenset(), "")


def algorithms() -> Mapping[str, Entry]:
    """The rows of the catalog of algorithms."""
    return cast(Mapping[str, Entry], ALGORITHMS.table())


ALGORITHMS = Choices("algorithm", listed("netdfl.algorithms.catalog", "ALGORITHMS"), "name", base=AlgorithmPart)
