"""The list of a study's keys, read from the model of its file: path, type, default, and a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from netdfl.scenario.model.study import StudyFile

TYPES: Mapping[object, str] = {
    str: "text",
    int: "whole number",
    bool: "true or false",
    list: "list",
    dict: "mapping",
    Literal: "text",
}
"""The words for the type of a key's value, by the type in the model."""
_BETWEEN: Mapping[object, str] = {list: "N", dict: "NAME"}
"""The part of a path that stands for the number of a list's entry, or for a name of the user's own."""


def study_rows(model: type[BaseModel] = StudyFile, above: str = "") -> list[dict[str, object]]:
    """Return a row for each key of a study at any depth: path, type, default, and a sentence.

    `above` is the path to `model`.
    """
    return [row for name, field in model.model_fields.items() for row in _rows(above + (field.alias or name), field)]


def _rows(path: str, field: FieldInfo) -> Iterator[dict[str, object]]:
    kind = get_origin(field.annotation) or field.annotation
    default = "required" if field.is_required() else field.get_default()
    yield {"name": path, "type": TYPES[kind], "default": default, "help": field.description or ""}
    entry: Any = get_args(field.annotation)[-1] if kind in _BETWEEN else None
    if isinstance(entry, type) and issubclass(entry, BaseModel):
        yield from study_rows(entry, f"{path}.{_BETWEEN[kind]}.")
