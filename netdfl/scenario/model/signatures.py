"""The types and parameters of a plain function or dataclass in pydantic's form."""

from __future__ import annotations

import dataclasses
import inspect
import keyword
from collections.abc import Collection, Iterator
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field, GetCoreSchemaHandler, PydanticUserError, TypeAdapter
from pydantic import Strict as StrictMark
from pydantic_core import core_schema

from netdfl.core.units import Quantity
from netdfl.scenario.model.fields import (
    QUANTITIES,
    Choice,
    Definition,
    Function,
    InputFile,
    InputFolder,
    Strict,
    make_model,
)

_FILES = ("test_file", "path", "file")
_FOLDER = "folder"


def about(thing: object) -> str:
    """Return the whole docstring of a component such as an algorithm, without indentation, as its full help text."""
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "")


def summary(thing: object) -> str:
    """Return the first line of the docstring of a component such as an algorithm, its short help text."""
    return about(thing).partition("\n")[0]


def readable(annotation: object) -> object:
    """Return a parameter's type in pydantic's form, which parses quantities and checks bounds and dataclasses."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        marks = [m for mark in args[1:] for m in (QUANTITIES[mark.name] if isinstance(mark, Quantity) else (mark,))]
        return Annotated[(readable(args[0]), *marks)] if marks else readable(args[0])
    if origin in (Union, UnionType):
        return Union[tuple(readable(arg) for arg in args)]  # noqa: UP007
    if origin is tuple or (isinstance(annotation, type) and issubclass(annotation, tuple | Enum)):
        return Annotated[_generic(origin, args) if args else annotation, StrictMark(False)]
    if dataclasses.is_dataclass(annotation):
        return Annotated[annotation, Record()]
    return _generic(origin, args) if origin not in (None, Literal) else annotation


def _generic(origin: Any, args: tuple[object, ...]) -> object:
    return origin[tuple(arg if arg is ... else readable(arg) for arg in args)]


def signature_of(function: Function) -> Iterator[inspect.Parameter]:
    """Return the parameters that a scenario can write: all except positional-only ones, which netdfl passes."""
    hidden = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return (p for p in inspect.signature(function).parameters.values() if p.kind not in hidden)


def _type_of(function: Function, parameter: inspect.Parameter) -> object:
    """Return the type of a parameter of `function`. Raises TypeError if it has none, or it can't be evaluated."""
    where = f"parameter {parameter.name!r} of {function.__module__}.{function.__qualname__}"
    if parameter.annotation is parameter.empty:
        raise TypeError(f"{where} has no type; annotate it, so that the scenario can check it")
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    owner = inspect.unwrap(function)
    while isinstance(owner, partial):
        owner = owner.func
    called: Any = owner if hasattr(owner, "__globals__") else type(owner).__call__
    names = vars(inspect.getmodule(owner)) if inspect.isclass(owner) else called.__globals__
    try:
        return eval(parameter.annotation, dict(names))
    except Exception as exc:
        raise TypeError(f"{where} has a type that can't be evaluated: {exc}") from exc


def field_of(
    function: Function, parameter: inspect.Parameter, base: type[BaseModel] = Choice, taken: Collection[str] = ()
) -> tuple[str, Definition]:
    """Return the pydantic field for a parameter of `function`: its name, and (type, Field).

    A parameter named `path` or `file` is a file, and one named `folder` is a folder, relative to the scenario's folder.
    Where a name ends in an underscore to avoid a keyword of Python (`from_`), the scenario writes it without. `taken`
    has names of other fields, which the scenario writes in another way.
    """
    kind = _type_of(function, parameter)
    if parameter.name in _FILES:
        kind = InputFile if kind is str else InputFile | None if kind == str | None else kind
    if parameter.name == _FOLDER:
        kind = InputFolder if kind is str else kind
    written = parameter.name.rstrip("_") if keyword.iskeyword(parameter.name.rstrip("_")) else parameter.name
    is_free = parameter.name not in taken and not hasattr(base, parameter.name)
    name = parameter.name if is_free else parameter.name + "_"
    default = ... if parameter.default is parameter.empty else parameter.default
    return name, (readable(kind), Field(default, alias=written if written != name else None))


def plain_signature(function: Function) -> inspect.Signature:
    """Return a class's or factory's parameters that a scenario can write.

    It is for classes that were not written for scenarios. A parameter without a type has the type of its default, or
    any. A parameter whose type no scenario can write, a module for example, stays at its default.
    """
    found: list[inspect.Parameter] = []
    for parameter in signature_of(function):
        kind, default = _plain_type(function, parameter), parameter.default
        if default is parameter.empty or _writable(kind):
            parts = {"annotation": kind, "default": default, "kind": inspect.Parameter.KEYWORD_ONLY}
            found.append(parameter.replace(**parts))
    return inspect.Signature(found)


def _plain_type(function: Function, parameter: inspect.Parameter) -> object:
    if parameter.annotation is not parameter.empty:
        return _type_of(function, parameter)
    default = parameter.default
    known = default is not parameter.empty and isinstance(default, bool | int | float | str)
    return type(default) if known else Any


def _writable(kind: object) -> bool:
    try:
        annotation: Any = readable(kind)
        TypeAdapter(annotation).json_schema()
    except PydanticUserError:
        return False
    return True


class Record:
    """A type annotation for a dataclass: its fields are the keys of a mapping in the scenario."""

    def __get_pydantic_core_schema__(self, source: Function, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Build a pydantic schema that creates the dataclass from a mapping, and dumps it as one."""
        model = record_model(source)

        def make(value: BaseModel) -> object:
            return source(**{name: getattr(value, name) for name in model.model_fields})

        def dump(value: object, info: core_schema.SerializationInfo) -> object:
            written = {name: getattr(value, name) for name in model.model_fields}
            return model.model_construct(**written).model_dump(mode=info.mode, by_alias=True)

        return core_schema.no_info_after_validator_function(
            make,
            handler(model),
            serialization=core_schema.plain_serializer_function_ser_schema(dump, info_arg=True),
        )


@cache
def record_model(cls: Function) -> type[BaseModel]:
    """Create the pydantic model of a dataclass's fields."""
    fields = dict(field_of(cls, parameter) for parameter in signature_of(cls))
    return make_model(cls.__name__, Strict, summary(cls), fields)


def record_of(annotation: object) -> type[BaseModel] | None:
    """Return the model behind an annotation that is marked as a `Record`; None for others."""
    args = get_args(annotation)
    if get_origin(annotation) is Annotated and any(isinstance(mark, Record) for mark in args[1:]):
        return record_model(args[0])
    return None
