"""The number of parameters of a scenario's model, and the data of its task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdfl.core.errors import InputError
from netdfl.core.rng import Streams
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training

if TYPE_CHECKING:
    from netdfl.training.data.own import SharedData


def num_parameters(task: Training) -> int:
    """Return the number of the model's parameters on the task's data; imports torch.

    Raises ValueError where model and data do not fit.
    """
    from netdfl.training.tasks.recipe import made, one_form, recipe_of

    recipe = recipe_of(task)
    model, _ = made(recipe, one_form(recipe.data, task.split.test, Streams(0)), task.settings, 0)
    return model.dim


def num_numbers(scenario: Scenario) -> int | None:
    """Return how many numbers a vector of the scenario's task has; None if that can't be determined."""
    if not isinstance(scenario.task, Training):
        return scenario.task.params.get("dim")
    try:
        return num_parameters(scenario.task)
    except (InputError, ValueError, OSError):
        return None


def load_data(task: Training, streams: Streams) -> SharedData:
    """Return the data of the task as `SharedData`, the form of all data sets. Raises DatasetError."""
    from netdfl.training.tasks.recipe import one_form, recipe_of

    return one_form(recipe_of(task).data, task.split.test, streams)
