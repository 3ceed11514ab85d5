"""The keys of a scenario that are no choice among parts: what each takes, what it is by default, what it is for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from netdfl.core.errors import InputError
from netdfl.links.schedule.when import KEYS as WHEN
from netdfl.scenario.explain.catalogue import CATALOGUE, written_default
from netdfl.scenario.explain.catalogue import rows as rows_of_parts
from netdfl.scenario.loading.shipped import first_sentence, shipped_scenarios
from netdfl.scenario.model.choices import nearest
from netdfl.scenario.model.events import EVENT, event_model
from netdfl.scenario.model.links import LinkEntry
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.signatures import Record, record_model

SCENARIOS, KEYS = "scenarios", "keys"


def lists() -> list[str]:
    """Everything that `netdfl list` knows: parts by kind, shipped scenarios, all keys, and each key."""
    return [*CATALOGUE, SCENARIOS, KEYS, *_fields(Scenario)]


def rows(what: str) -> list[dict[str, object]]:
    """The rows of the list `what`: name, help, and what else it has: parameters, a default. Raises InputError."""
    if what in CATALOGUE:
        return rows_of_parts(what)
    if what == SCENARIOS:
        return [{"name": name, "help": first_sentence(file)} for name, file in shipped_scenarios().items()]
    if what == KEYS:
        return _rows(Scenario)
    fields = _fields(Scenario)
    if what not in fields:
        raise InputError(f"there is no list of {what!r}, {nearest(what, lists())}")
    return _key(what, fields[what])


def _key(name: str, field: FieldInfo) -> list[dict[str, object]]:
    """What the key `name` may hold: the parts that it chooses among, its own keys, or the key itself."""
    if name == "events":
        return [_action(action) for action in EVENT.names()]
    for table, choices in CATALOGUE.items():
        if any(mark is choices for mark in field.metadata):
            return rows_of_parts(table)
    model = LinkEntry if name == "links" else _model(field)
    return [_row(name, field)] if model is None else _rows(model, inspect.getdoc(_record(field)))


def _action(action: str) -> dict[str, object]:
    """An event by the key that names its action, with its other keys but those that say when."""
    model = event_model(action)
    own = {key: field for key, field in _fields(model).items() if key not in {action, *WHEN.values()}}
    parameters = {key: _default(key, field, model) for key, field in own.items()}
    return {"name": action, "parameters": parameters, "help": model.model_fields[action].description or ""}


def _model(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a key that is a mapping with keys of its own."""
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
    """The sentences of a docstring that name `name`."""
    sentences = re.split(r"(?<=\.) ", " ".join(doc.split()))
    return " ".join(sentence for sentence in sentences if f"`{name}`" in sentence)


def _default(name: str, field: FieldInfo, model: type[BaseModel]) -> object:
    """A default as a scenario writes it; that of a mapping with keys of its own is where these are listed."""
    if field.is_required():
        return "required"
    plain = field.default
    if isinstance(plain, Mapping) and set(plain) == {"kind"}:
        return plain["kind"]
    if model is Scenario and (name == "links" or _model(field) is not None):
        return f"see `netdfl list {name}`"
    return written_default(model, next(key for key, each in model.model_fields.items() if each is field))
