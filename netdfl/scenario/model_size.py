"""How many parameters a scenario's model has on its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdfl.scenario.model.task import Train

if TYPE_CHECKING:
    from netdfl.training.data.dataset import Dataset


def num_parameters(task: Train) -> int:
    """Parameters of the model on the task's data; imports torch. Raises ValueError where they do not fit."""
    from netdfl.training.models.build import build

    data = load_dataset(task)
    function = type(task.model).__dict__["function"]
    module = build(function, data.shape, data.num_classes, 0, **task.model.params)
    return sum(parameter.numel() for parameter in module.parameters())


def load_dataset(task: Train) -> Dataset:
    """The task's dataset from the data root. Raises DatasetError."""
    from netdfl.training.data.dataset import data_root

    data: Dataset = task.dataset.build(data_root())
    return data
