"""Lists of everything that a scenario can name: algorithms, datasets and the like, keys, and shipped scenarios."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from netdfl.algorithms.base import Entry
from netdfl.core.errors import InputError
from netdfl.links.schedule.when import KEYS as WHEN
from netdfl.record.metric_names import figure_rows
from netdfl.scenario.explain.study_keys import study_rows
from netdfl.scenario.loading.shipped import first_sentence, shipped_scenarios
from netdfl.scenario.model.algorithm import ALGORITHMS
from netdfl.scenario.model.choices import Choices, listed, nearest
from netdfl.scenario.model.links import EVENT, LinkEntry, event_model, link_choices
from netdfl.scenario.model.network import COMPRESSION, DELIVERY, SELECTIONS, TOPOLOGY, WEIGHTS
from netdfl.scenario.model.parts import Part, builder
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.signatures import Record, about, record_model, summary
from netdfl.scenario.model.task import AUGMENTATIONS, DATASETS, LOSSES, METRICS, MODELS, PARTITIONS, TASK
from netdfl.scenario.model.world import COMPUTE, DETECTOR, WORLD

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
    "compute": COMPUTE,
    "failure_detectors": DETECTOR,
}
_BRIEFS = listed("netdfl.algorithms.catalog", "BRIEFS")


def _rows_of_parts(what: str) -> list[dict[str, object]]:
    """Return a row for each choice in the list `what`, such as each algorithm: name, help, parameters, full text."""
    choices = CATALOGUE[what]
    return [_part_row(kind, entry, choices.model(kind)) for kind, entry in choices.table().items()]


def _part_row(kind: str, entry: object, model: type[BaseModel]) -> dict[str, object]:
    part = entry if isinstance(entry, type) and issubclass(entry, Part) else builder(entry)
    row: dict[str, object] = {"name": kind, "help": summary(part)}
    if isinstance(entry, Entry):
        row |= {"family": entry.family, "needs": sorted(entry.needs), "source": entry.source}
        row |= {"brief": _BRIEFS()[kind]}
    told = {name: field.description for name, field in _fields(model).items() if field.description and name != "kind"}
    return row | {"parameters": _parameters(model), "about": about(part), "about_parameters": told}


def _parameters(model: type[BaseModel]) -> dict[str, object]:
    """Return the default of each parameter of a component as a scenario writes it; `required` if there is none."""
    names = set(model.model_fields) - {"kind"}
    if issubclass(model, Part) and model.function is not None:
        names = set(model.parameters.values())
    found: dict[str, object] = {}
    for name, field in model.model_fields.items():
        if name in names:
            found[field.alias or name] = _default(field.alias or name, field, model)
    return found


def written_default(model: type[BaseModel], name: str) -> object:
    """Return the default of the field `name` of a pydantic model, as a scenario writes it."""
    default = model.model_fields[name].get_default()
    dumped = model.model_construct(**{name: default}).model_dump(mode="json", include={name}, warnings=False)
    return dumped.get(name, default)


SCENARIOS, FIGURES, STUDY, KEYS = "scenarios", "figures", "study", "keys"
ABOUT: Mapping[str, str] = {
    "algorithms": "The method by which the nodes learn: what each computes, sends and mixes.",
    "topologies": "The graph of each round: who may send to whom.",
    "weights": "The mixing matrix that is put on the graph.",
    "selections": "How a node or a server chooses whom to talk to in a round.",
    "tasks": "The problem: training on data, or a toy that needs none.",
    "datasets": "The data.",
    "partitions": "How the data are shared out among the clients.",
    "augmentations": "How pictures are changed while training.",
    "models": "The network that is trained.",
    "training_losses": "The loss that training makes smaller.",
    "metrics": "The figures by which models are judged.",
    "compressors": "How a vector becomes fewer bytes before it is sent.",
    "deliveries": "What becomes of a message that is lost.",
    "losses": "Rules by which a link loses messages.",
    "latencies": "Rules for how long a message is under way.",
    "rates": "Rules for how many bytes a link carries a second.",
    "worlds": "Where the fleet runs: simulated, processes, namespaces, containers, a cluster.",
    "compute": "What a local round takes in virtual time, in the simulated world.",
    "failure_detectors": "How nodes learn who is gone.",
    SCENARIOS: "The scenarios that come with netdfl, ready to run by name.",
    FIGURES: "What the figures of a study can show, and by what.",
    STUDY: "Every key of a study's file, with the type of its value.",
    KEYS: "Every key at the top of a scenario.",
}
"""One sentence about each list of `netdfl list` that does not have the name of a scenario's key."""
GRAPHS: Mapping[frozenset[str], str] = {
    frozenset({"doubly", "row"}): "undirected",
    frozenset({"doubly", "column"}): "directed",
    frozenset({"average", "doubly", "row"}): "full",
    frozenset({"both_ways"}): "undirected",
    frozenset({"server"}): "star",
}
"""The kind of graph that an algorithm needs, by its `Entry.needs`. An undirected one also serves as a directed one."""


def lists() -> list[str]:
    """Return the names of all lists: algorithms and the like, scenarios, a study's figures and keys, and each key."""
    return [*ABOUT, *_fields(Scenario)]


def about_lists() -> dict[str, dict[str, str]]:
    """Return one sentence about each list, grouped by the kind of list."""
    keys = {name: field.description or "" for name, field in _fields(Scenario).items()}
    return {
        "Parts, by name": {name: ABOUT[name] for name in CATALOGUE},
        "Whole scenarios": {SCENARIOS: ABOUT[SCENARIOS]},
        "Of studies": {name: ABOUT[name] for name in (FIGURES, STUDY)},
        "Keys of a scenario": {KEYS: ABOUT[KEYS], **keys},
    }


def row(what: str, name: str) -> dict[str, object]:
    """Return the row called `name` of the list `what`. Raises InputError that suggests similar names."""
    found = {str(each["name"]): each for each in rows(what)}
    if name not in found:
        folders = {each.rpartition("/")[0] for each in found} - {""}
        raise InputError(f"{what} has no {name!r}, {nearest(name, [*found, *folders])}")
    return found[name]


def rows_within(folder: str) -> list[dict[str, object]]:
    """Return the rows of the shipped scenarios in `folder`, such as `lecture`; none if there is no such folder."""
    return [each for each in rows(SCENARIOS) if str(each["name"]).startswith(f"{folder.rstrip('/')}/")]


def rows(what: str) -> list[dict[str, object]]:
    """Return the rows of the list `what`: name, help, and parameters or a default. Raises InputError if unknown."""
    if what in CATALOGUE:
        return _rows_of_parts(what)
    if what == SCENARIOS:
        return [{"name": name, "help": first_sentence(file)} for name, file in shipped_scenarios().items()]
    if what == FIGURES:
        return figure_rows()
    if what == STUDY:
        return study_rows()
    if what == KEYS:
        return _rows(Scenario)
    fields = _fields(Scenario)
    if what not in fields:
        raise InputError(f"there is no list of {what!r}, {nearest(what, lists())}")
    return _key(what, fields[what])


def _key(name: str, field: FieldInfo) -> list[dict[str, object]]:
    """Return the rows for one key of the scenario: the choices for it, or the keys inside it, or the key itself."""
    if name == "events":
        return [_action(action) for action in EVENT.names()]
    for table, choices in CATALOGUE.items():
        if any(mark is choices for mark in field.metadata):
            return _rows_of_parts(table)
    model = LinkEntry if name == "links" else _model(field)
    return [_row(name, field)] if model is None else _rows(model, inspect.getdoc(_record(field)))


def _action(action: str) -> dict[str, object]:
    """Return the row of an event: the name of its action, and its keys other than times."""
    model = event_model(action)
    own = {key: field for key, field in _fields(model).items() if key not in {action, *WHEN.values()}}
    parameters = {key: _default(key, field, model) for key, field in own.items()}
    return {"name": action, "parameters": parameters, "help": model.model_fields[action].description or ""}


def _model(field: FieldInfo) -> type[BaseModel] | None:
    """Return the pydantic model of a key whose value is a mapping with fixed keys; None for other keys."""
    if (record := _record(field)) is not None:
        return record_model(record)
    found: object = field.annotation
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _record(field: FieldInfo) -> Callable[..., object] | None:
    made: Any = field.annotation
    return made if any(isinstance(mark, Record) for mark in field.metadata) else None


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _rows(model: type[BaseModel], doc: str | None = None) -> list[dict[str, object]]:
    return [_row(name, field, model, doc) for name, field in _fields(model).items()]


def _row(name: str, field: FieldInfo, model: type[BaseModel] = Scenario, doc: str | None = None) -> dict[str, object]:
    help = field.description or _said_of(name, doc or "")
    return {"name": name, "default": _default(name, field, model), "help": help}


def _said_of(name: str, doc: str) -> str:
    """Return the sentences of the docstring `doc` that contain `name` in backquotes."""
    sentences = re.split(r"(?<=\.) ", " ".join(doc.split()))
    return " ".join(sentence for sentence in sentences if f"`{name}`" in sentence)


def _default(name: str, field: FieldInfo, model: type[BaseModel]) -> object:
    """Return a field's default as a scenario writes it; for a mapping with fixed keys, the command that lists them."""
    if field.is_required():
        return "required"
    plain = field.default
    if isinstance(plain, Mapping) and set(plain) == {"kind"}:
        return plain["kind"]
    if model is Scenario and (name == "links" or _model(field) is not None):
        return f"see `netdfl list {name}`"
    return written_default(model, next(key for key, each in model.model_fields.items() if each is field))
