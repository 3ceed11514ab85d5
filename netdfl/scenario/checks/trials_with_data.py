"""Trials of a user's own datasets, partitions, models, losses, metrics and augmentations on the task's data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from netdfl.algorithms.exchange import Exchange
from netdfl.core.errors import DatasetError, NotFetchedError, OwnPartError
from netdfl.core.rng import Streams
from netdfl.core.whose import defined_at
from netdfl.scenario.checks.finding import CheckFinding
from netdfl.scenario.checks.graph import data_are_pictures
from netdfl.scenario.checks.trials import function_of, require, require_again, seeded_by, tried, using
from netdfl.scenario.model.parts import Part, own_parts
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train, Training
from netdfl.scenario.model_size import load_data

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.training.data.own import SharedData
    from netdfl.training.flat import FlatModel

T = TypeVar("T")
WithData: TypeAlias = "tuple[Scenario, SharedData]"
_NUMBERS = "give each client an array of numbers of its examples, from 0 on"


def with_data(scenario: Scenario) -> Iterator[CheckFinding]:
    """Yield the mistakes of a user's own datasets, partitions, models and augmentations; none if data is missing."""
    task = scenario.task
    if not isinstance(task, Training) or not any(part.own in _DATA_TRIALS for _, part in own_parts(task)):
        return
    import torch

    from netdfl.training.drawing import seeded

    with seeded(Streams(scenario.seed).integer("data"), torch.device("cpu")):
        found = list(_with_data(scenario, task))
    yield from found


def _with_data(scenario: Scenario, task: Training) -> Iterator[CheckFinding]:
    from netdfl.training.data.examples import shape_of

    what = "dataset" if isinstance(task, Train) else "task"
    place = ("task", "dataset", "name") if isinstance(task, Train) else ("task", "kind")
    try:
        data, unseeded = _made(lambda: load_data(task, Streams(scenario.seed)), _same_examples)
    except OwnPartError as exc:
        yield CheckFinding(place, exc.what, exc.remedy)
        return
    except NotFetchedError:
        return  # the run says so
    except DatasetError as exc:
        if any(part.own in ("dataset", "task") for _, part in own_parts(task)):
            yield CheckFinding(place, f"the {what} {exc}")
        return
    if unseeded:
        yield _differs(f"the {what} makes other examples", unseeded)
    try:
        yield from tried(scenario, _DATA_TRIALS, (scenario, data))
    except DatasetError as exc:  # a model is made for them, and they are none to learn from
        yield CheckFinding(place, str(exc))
    yield from data_are_pictures(scenario, shape_of(data.first()[0]))


def _made(make: Callable[[], T], same: Callable[[T, T], bool]) -> tuple[T, str]:
    """Return the result of `make`, which runs a user's code, and the place in that code that draws unseeded numbers.

    The place is empty if there is none, or if a second result of `make` is nevertheless equal, as `same` tells.
    """
    from netdfl.training.unseeded import watched

    with watched() as places, seeded_by():
        made = make()
    if not places:
        return made, ""
    with seeded_by():
        return made, "" if same(made, make()) else places[0]


def _same_examples(data: SharedData, again: SharedData) -> bool:
    """Return whether two datasets have equally many training examples, equal labels, and equal first examples."""
    from netdfl.training.data.examples import leaves

    if len(data.train) != len(again.train) or not np.array_equal(data.labels, again.labels):  # type: ignore[arg-type]
        return False
    pairs = zip(leaves(data.first()), leaves(again.first()), strict=True)
    return all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


def _differs(does: str, place: str) -> CheckFinding:
    """Return the notice that a user's code `does` something else each time, as it draws unseeded numbers at `place`."""
    what = f"{does} each time, so no run repeats another: {place} draws random numbers that no seed reaches"
    return CheckFinding((), what, "give the generator there a seed", notice=True)


def _partition(part: Part, context: WithData) -> None:
    scenario, data = context
    labels = np.zeros(len(data.train), np.int64) if data.labels is None else data.labels
    parts, again = (_drawn(part, labels, scenario) for _ in range(2))
    require_again(len(parts) == len(again) and all(map(np.array_equal, parts, again)), part)
    require(len(parts) == scenario.nodes, part, f"made {len(parts)} parts for {scenario.nodes} clients")
    for client, indices in enumerate(parts):
        whole = indices.ndim == 1 and len(indices) > 0 and np.issubdtype(indices.dtype, np.integer)
        require(whole, part, f"gave client {client} no list of sample numbers", _NUMBERS)
        inside = 0 <= indices.min() and indices.max() < len(labels)
        require(bool(inside), part, f"gave client {client} a sample that is not among the {len(labels)}", _NUMBERS)


def _drawn(part: Part, labels: NDArray[Any], scenario: Scenario) -> list[NDArray[Any]]:
    """Return each client's example numbers by a user's partition of `labels`, with generators seeded as in a run."""
    with seeded_by():
        return list(map(np.asarray, part.build(labels.copy(), scenario.nodes, Streams(scenario.seed))))


_JUDGES = ("task", "metric")
"""The kinds of user-written components that compute metrics of a model."""


def _model(part: Part, context: WithData) -> CheckFinding | None:
    """Check that a model can be built from the data, and that the user's `part` accepts the model's outputs.

    `part` is a model, a task, a loss or a metric. Returns a notice, or None.
    """
    from netdfl.training.classification import outcome
    from netdfl.training.data.examples import Samples
    from netdfl.training.tasks.recipe import made, recipe_of

    scenario, data = context
    task = scenario.task
    assert isinstance(task, Training)
    try:
        (model, metrics), unseeded = _made(
            lambda: made(recipe_of(task), data, task.settings, 0),
            lambda one, other: bool((one[0].flat() == other[0].flat()).all()),
        )
    except OwnPartError:
        raise
    except ValueError as exc:
        place = f" ({where})" if (where := defined_at(inspect.unwrap(function_of(part)))) else ""
        raise OwnPartError(f"{part.own} {part.kind!r}: {exc}{place}") from exc
    if part.own in ("model", "task") and unseeded:
        return _differs(f"{part.own} {part.kind!r} begins with other weights", unseeded)
    if part.own in ("model", "task") and (notes := _tried_steps(scenario, data, model)):
        return CheckFinding((), f"{part.own} {part.kind!r}: {notes[0]}", notice=True)
    if part.own not in _JUDGES and (part.own != "model" or not model.uses_cross_entropy):
        return None
    found = outcome(model, model.flat(), Samples(*data.first()))
    if part.own == "model":
        return _gives_probabilities(part, found.outputs)
    if metrics is not None:
        with using(part, "when a model was judged"):
            figures = metrics(found.outputs, found.targets)
            names = {name: float(value) for name, value in figures.items()}
            require(all(map(str.isidentifier, names)), part, f"named figures {', '.join(names)}", "use plain words")
    return None


def _tried_steps(scenario: Scenario, data: SharedData, model: FlatModel) -> list[str]:
    """Return notices from a trial of the algorithm's training steps; empty if the algorithm can't be built."""
    import torch

    from netdfl.training.trial import EXAMPLES, fit_ways

    assert isinstance(scenario.task, Training)
    exchange = Exchange(common_start=True, num_rounds=scenario.rounds, streams=Streams(scenario.seed))
    try:
        local = scenario.algorithm.build(exchange).local
    except (OwnPartError, ValueError, TypeError):
        return []
    x, y = data.train.take(torch.arange(min(EXAMPLES, len(data.train))))
    return fit_ways(model, local, x, y, scenario.task.batch_size, rows=scenario.task.batching == "auto")


def _gives_probabilities(part: Part, said: Tensor) -> CheckFinding | None:
    """Return a notice if the model's outputs `said` are probabilities already, because the model ends in a softmax.

    Cross-entropy applies a softmax itself, and with two the gradients nearly vanish.
    """
    import torch

    if said.shape[1] < 2 or said.min() < 0 or not torch.allclose(said.sum(1), torch.ones(len(said), dtype=said.dtype)):
        return None
    what = f"model {part.kind!r} gives probabilities, and the loss, cross-entropy, takes a softmax of them once more"
    return CheckFinding((), what, "leave out the model's last softmax, or it hardly learns", notice=True)


def _augmentation(part: Part, context: WithData) -> None:
    _, data = context
    x, _ = data.first()
    made: list[Tensor] = []
    for _ in range(2):
        with seeded_by():
            made.append(part.build(x.clone(), np.random.default_rng(0)))
    require(made[0].shape == x.shape, part, f"made {tuple(made[0].shape)} of a batch of shape {tuple(x.shape)}")
    same = (made[0] == made[1]) | (made[0].isnan() & made[1].isnan())
    require_again(bool(same.all()), part, "draw from the rng that it is given")


_DATA_TRIALS: Mapping[str, Callable[[Part, WithData], CheckFinding | None]] = {
    "dataset": lambda part, context: None,
    "partition": _partition,
    "model": _model,
    "task": _model,
    "training loss": _model,
    "metric": _model,
    "augmentation": _augmentation,
}
