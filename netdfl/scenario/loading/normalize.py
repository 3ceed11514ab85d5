"""A walk over a scenario's values together with its schema: expands short forms, and lists the keys at a path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, PlainValidator
from pydantic_core import PydanticCustomError

from netdfl.scenario.loading.document import Document, Path, item
from netdfl.scenario.model.choices import Choices
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.signatures import record_of


def normalize(document: Document, directory: str) -> None:
    """Expand the short forms in `document`, in place: `algorithm: dpsgd` to `algorithm: {name: dpsgd}`."""
    document.data = _normal(document, Scenario, document.data, (), directory)


def _normal(document: Document, annotation: object, value: object, path: Path, directory: str) -> object:
    if value == "none" and _may_be_left_out(annotation):
        return None
    if (choices := choices_of(annotation)) and not choices.passes(value):
        written = choices.normal(value)
        if written is not value and isinstance(written, Mapping):
            for key in written:
                document.keys[(*path, key)] = document.values[(*path, key)] = document.place(path)
        value = written
    if isinstance(value, Mapping):
        return {
            key: _normal(document, child, item, (*path, key), directory)
            for key, item in value.items()
            for child in [_child(annotation, value, key, directory)]
        }
    if isinstance(value, list):
        child = _child(annotation, value, 0, directory)
        return [_normal(document, child, item, (*path, index), directory) for index, item in enumerate(value)]
    return value


def _may_be_left_out(annotation: object) -> bool:
    """Return whether a value of this type may be null but not text, so that `none` in a file can only mean null.

    The result is false for fields that interpret `none` themselves, such as choices of a component.
    """
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    if any(isinstance(mark, Choices | BeforeValidator | PlainValidator) for mark in marks):
        return False
    options = [_plain(option) for option in _options(annotation)]
    return type(None) in options and not any(map(_is_text, options))


def _is_text(option: object) -> bool:
    words = get_origin(option) is Literal and any(isinstance(word, str) for word in get_args(option))
    return option is str or words


def annotation_at(
    value: object, path: Path, directory: str, model: type[BaseModel] = Scenario
) -> tuple[object, object]:
    """Return the type annotation at `path`, a sequence of keys, and the value there; each may be None.

    `model` is the model of the whole file.
    """
    annotation: object = model
    for key in path:
        annotation = _child(annotation, value, key, directory)
        value = item(value, key)
    return annotation, value


def keys_at(value: object, path: Path, directory: str, model: type[BaseModel] = Scenario) -> list[str]:
    """Return the keys that the mapping at `path` may have; empty if it may have any key, or is no mapping.

    `model` is the model of the whole file.
    """
    found = _model(*annotation_at(value, path, directory, model), directory)
    return list(fields_of(found)) if found else []


def choices_of(annotation: object) -> Choices | None:
    """Return the `Choices` (a field that chooses a component) in a type annotation; None if it has none."""
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Choices)), None)


@cache
def fields_of(model: type[BaseModel]) -> Mapping[str, object]:
    """Return the keys of a pydantic model as a scenario writes them, each with its type annotation."""
    return {
        field.alias or name: Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        for name, field in model.model_fields.items()
    }


def _model(annotation: object, value: object, directory: str) -> type[BaseModel] | None:
    for option in _options(annotation):
        if choices := choices_of(option):
            try:
                return choices.model(choices.kind_of(value), directory)
            except PydanticCustomError:
                return None
        if record := record_of(option):
            return record
        plain = _plain(option)
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            return plain
    return None


def _child(annotation: object, value: object, key: str | int, directory: str) -> object:
    """Return the type annotation of `value[key]`; None if there is none."""
    if isinstance(value, Mapping) and (model := _model(annotation, value, directory)):
        return fields_of(model).get(str(key))
    for option in map(_plain, _options(annotation)):
        args = get_args(option)
        if isinstance(value, Mapping) and get_origin(option) is dict:
            return args[1]
        if isinstance(value, list) and get_origin(option) is list:
            return args[0]
    return None


def _options(annotation: object) -> tuple[object, ...]:
    plain = annotation if choices_of(annotation) or record_of(annotation) else _plain(annotation)
    return get_args(plain) if get_origin(plain) in (Union, UnionType) else (annotation,)


def _plain(annotation: object) -> object:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
