"""What a scenario can name: every table, its parts, their parameters and help texts."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from netdfl.algorithms.base import Entry
from netdfl.core.errors import InputError
from netdfl.scenario.model.algorithm import ALGORITHMS
from netdfl.scenario.model.choices import Choices, nearest
from netdfl.scenario.model.delivery import DELIVERY
from netdfl.scenario.model.links import link_choices
from netdfl.scenario.model.network import COMPRESSION, SELECTIONS, TOPOLOGY, WEIGHTS
from netdfl.scenario.model.parts import Part, builder
from netdfl.scenario.model.signatures import about, summary
from netdfl.scenario.model.task import AUGMENTATIONS, DATASETS, LOSSES, METRICS, MODELS, PARTITIONS, TASK
from netdfl.scenario.model.world import DETECTOR, WORLD

CATALOGUE: Mapping[str, Choices] = {
    "algorithms": ALGORITHMS,
    "topologies": TOPOLOGY,
    "weights": WEIGHTS,
    "selections": SELECTIONS,
    "tasks": TASK,
    "datasets": DATASETS,
    "partitions": PARTITIONS,
    "augmentations": AUGMENTATIONS,
    "models": MODELS,
    "training_losses": LOSSES,
    "metrics": METRICS,
    "compressors": COMPRESSION,
    "deliveries": DELIVERY,
    "losses": link_choices("loss"),
    "latencies": link_choices("latency"),
    "rates": link_choices("rate"),
    "worlds": WORLD,
    "failure_detectors": DETECTOR,
}


def rows(what: str) -> list[dict[str, object]]:
    """Each part of the table `what`: name, help, parameters with their defaults, source where known, all `about` it.

    Raises:
        InputError: There is no such table.
    """
    if what not in CATALOGUE:
        raise InputError(f"there is no list of {what!r}, {nearest(what, list(CATALOGUE))}")
    choices = CATALOGUE[what]
    return [_row(kind, entry, choices.model(kind)) for kind, entry in choices.table().items()]


def _row(kind: str, entry: object, model: type[BaseModel]) -> dict[str, object]:
    part = entry if isinstance(entry, type) and issubclass(entry, Part) else builder(entry)
    row: dict[str, object] = {"name": kind, "help": summary(part)}
    if isinstance(entry, Entry):
        row |= {"family": entry.family, "needs": sorted(entry.needs), "source": entry.source}
    return row | {"parameters": _parameters(model), "about": about(part)}


def _parameters(model: type[BaseModel]) -> dict[str, object]:
    """Each parameter's default as the scenario would write it; `required` where there is none."""
    names = set(model.model_fields) - {"kind"}
    if issubclass(model, Part) and model.function is not None:
        names = set(model.parameters.values())
    found: dict[str, object] = {}
    for name, field in model.model_fields.items():
        if name in names:
            found[field.alias or name] = "required" if field.is_required() else written_default(model, name)
    return found


def written_default(model: type[BaseModel], name: str) -> object:
    """The default of the field `name` as a scenario writes it."""
    default = model.model_fields[name].get_default()
    dumped = model.model_construct(**{name: default}).model_dump(mode="json", include={name}, warnings=False)
    return dumped.get(name, default)
