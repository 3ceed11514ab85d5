"""Pydantic models made from the signatures of components (parts), which are functions with typed keyword parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from netdfl.scenario.model.fields import Choice, Definition, Function, make_model
from netdfl.scenario.model.signatures import field_of, signature_of, summary


class Part(Choice):
    """A component that a scenario names, such as a loss model or a dataset: its kind, and its parameters.

    Attributes:
        own: the kind of part, if a user wrote it; else empty.
        entry: the part's row in its table.
        function: the function that builds it.
        parameters: the field of the model for each of the function's parameters.
    """

    own: ClassVar[str] = ""
    entry: ClassVar[object] = None
    function: ClassVar[Function | None] = None
    parameters: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: object) -> object:
        """Let the component's function fill in missing keys of `given`, if it has a function `complete`."""
        complete = getattr(cls.function, "complete", None)
        return complete(given) if complete is not None and isinstance(given, dict) else given

    @property
    def params(self) -> dict[str, Any]:
        """The scenario's keyword parameters for the component's function, in base units."""
        return {name: getattr(self, field) for name, field in self.parameters.items()}

    def build(self, *context: object) -> Any:
        """Build the component: call its function with the arguments `context` and the scenario's parameters."""
        return self.maker()(*context)

    def maker(self) -> Callable[..., Any]:
        """Return a function that builds the component, with the scenario's parameters, from the arguments given."""
        function = type(self).function
        assert function is not None, f"{self.kind} has no function"
        return partial(function, **self.params)


def own_parts(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Part]]:
    """Yield every component below `value` that a user wrote, such as a model, with the path of the key naming it."""
    if isinstance(value, Part) and type(value).own:
        yield (*path, type(value).key), value
    children: Mapping[str | int, object] = value if isinstance(value, Mapping) else {}
    if isinstance(value, list):
        children = dict(enumerate(value))
    if isinstance(value, BaseModel):
        children = {field.alias or name: getattr(value, name) for name, field in type(value).model_fields.items()}
    for key, child in children.items():
        yield from own_parts(child, (*path, key))


def builder(entry: object) -> Function:
    """Return the function that builds the component of a table entry: the entry itself, or its `build`."""
    return getattr(entry, "build", entry)  # type: ignore[arg-type]


@cache
def model_of(function: Function, kind: str, key: str = "kind", base: type[Part] = Part) -> type[Part]:
    """Create the pydantic model of `{key: kind, ...}`: the fields of `base` and the keyword parameters of `function`.

    Positional-only parameters come from the caller of `build`; a scenario does not write them. Raises TypeError for a
    parameter without a type, or with the name of another key of the mapping.
    """
    taken = {key, *base.model_fields} - ({"kind"} - {key})  # the field `kind` is written as `key`
    fields: dict[str, Definition] = {}
    parameters: dict[str, str] = {}
    for parameter in signature_of(function):
        if parameter.name in taken:
            raise TypeError(
                f"{function.__qualname__}: the parameter {parameter.name!r} has the name of a key there, rename it"
            )
        name, field = field_of(function, parameter, base, base.model_fields)
        fields[name], parameters[parameter.name] = field, name
    alias = key if key != "kind" else None
    fields["kind"] = (Literal[kind], Field(kind, alias=alias, description="Which one."))
    model = make_model(f"{base.__name__}_{kind}", base, summary(function), fields)
    model.key, model.function, model.parameters = key, staticmethod(function), parameters
    return model
